"""The network of the paper itself, for small N: a cross-check of the cheaper one.

Kajitsuka and Sato 2025, Lemma C.1 (after Vardi et al. 2022), stage by stage:

    II   sqrt(N log N) groups of sqrt(N / log N) keys; the indicator of a group's interval (Lemma
         G.2, two layers) adds its keys and labels, written one behind the other, as u and w
    III  bit by bit, u and w go through the triangle map psi in two copies, shifted by 2^-(n+1) and
         2^-(n+2); bit i is 1 where the second is ahead (Lemma G.6). A key that is extracted is
         compared with the input (window test, Lemma G.5), and the label is added if it matches.

All numbers are scaled by powers of two, so that they stay integers: the output is the label times
`Memorizer.scale`, which the paper's E_out divides by. Blocks have their skip connection, which the
proof leaves out "for simplicity": nothing need be carried along, and 9 coordinates do for the
paper's width 12.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from byheart.errors import ByheartError
from byheart.exact.blocks import Block, Network
from byheart.exact.build import Drawing
from byheart.exact.data import sequences
from byheart.exact.keys import projection
from byheart.exact.primitives import add, clear, entries, mod, shift, unit

X, S, UP, UQ, WP, WQ, KEY, LABEL, OUT = range(9)
DIMS = ("x", "s", "u", "u'", "w", "w'", "key", "label", "out")
MOST = 2000  # sequences: beyond, only the formulas are of use (byheart.theory.kajitsuka2025)


@dataclass(frozen=True)
class Memorizer:
    """The blocks of Lemma C.1 for given keys, and the power of two that multiplies the labels."""

    blocks: tuple[Block, ...]
    scale: int
    groups: int
    size: int


def memorizer(keys: list[int], labels: list[int], rho: int, c: int) -> Memorizer:
    """x -> scale * label for the given keys below 2^rho, 0 for all other integers.

    >>> from byheart.exact.literal import run
    >>> made = memorizer([3, 5, 9, 12], [1, 2, 3, 1], rho=4, c=2)
    >>> state = [np.arange(16), *(np.zeros(16, dtype=np.int64) for _ in range(8))]
    >>> (run(made.blocks, state)[OUT] // made.scale).tolist()
    [0, 0, 0, 1, 0, 2, 0, 0, 0, 3, 0, 0, 1, 0, 0, 0]
    """
    N = len(keys)
    if not 1 <= N <= MOST or len(set(keys)) < N or not 0 <= min(keys) <= max(keys) < 1 << rho:
        raise ByheartError(f"expected 1 to {MOST:,} different keys of {rho} bits.")
    pairs = sorted(zip(keys, labels, strict=True))
    size = max(1, round(math.sqrt(N / max(1.0, math.log2(N)))))
    runs = [pairs[i : i + size] for i in range(0, N, size)]
    blocks = [shift({UP: 2, UQ: 1, WP: 2, WQ: 1})]  # the two shifts, in quarters of a unit
    for run in runs:
        a, b = run[0][0], run[-1][0]
        u = w = 0
        # Padded with the last pair but no label: adding a label twice would not do.
        padded = run + [(run[-1][0], 0)] * (size - len(run))
        for key, label in padded:
            u, w = (u << rho) | key, (w << c) | label
        # s = distance of x from [a, b]: the interval's indicator is relu(1 - s).
        blocks.append(Block((unit({X: -1}, a, {S: 1}), unit({X: 1}, -b, {S: 1}))))
        inside = unit({S: -1}, 1, {UP: 4 * u, UQ: 4 * u, WP: 4 * w, WQ: 4 * w})
        blocks.append(Block((inside, unit({S: 1}, 0, {S: -1}))))
    n_u, n_w = size * rho, size * c
    taken_u = taken_w = 0
    for _ in range(size):
        taken_u = _extract(blocks, (UP, UQ), KEY, n_u, taken_u, rho)
        taken_w = _extract(blocks, (WP, WQ), LABEL, n_w, taken_w, c)
        # KEY = 2^n_u key and LABEL = 2^n_w label; s = 0 where the key is x, else at least 2^n_u.
        up = unit({X: 1 << n_u, KEY: -1}, 0, {S: 1})
        down = unit({X: -(1 << n_u), KEY: 1}, 0, {S: 1})
        blocks.append(Block((up, down)))
        blocks.append(Block((unit({LABEL: 1, S: -(1 << (n_w + c))}, 0, {OUT: 1}),)))
        blocks.append(clear(S, KEY, LABEL))
    return Memorizer(tuple(blocks), 1 << n_w, len(runs), size)


def _extract(
    blocks: list[Block], copies: tuple[int, int], target: int, n: int, taken: int, bits: int
) -> int:
    """The next `bits` bits of an n-bit number, into 2^n times their value."""
    p, q = copies
    half = 1 << (n + 1)  # of 4 * 2^n: the copies are in quarters
    for b in range(bits):
        taken += 1
        # psi(v) = 2v up to the half, then 2 (1 - v): v += relu(v) - 4 relu(v - 1/2).
        blocks.append(
            Block(
                tuple(
                    part
                    for v in copies
                    for part in (unit({v: 1}, 0, {v: 1}), unit({v: 1}, -half, {v: -4}))
                )
            )
        )
        # After i steps the copies are 2^i apart, the second ahead where psi^i falls: bit i is 1.
        weight = 1 << (n - taken + bits - 1 - b)
        blocks.append(Block((unit({q: 1, p: -1}, 0, {target: weight}),)))
    return taken


@dataclass(frozen=True)
class PaperNetwork:
    """Theorem 4.1 for given sequences: the network and what its output is multiplied by."""

    network: Network
    scale: int


def paper_network(tokens: np.ndarray, labels: np.ndarray, seed: int = 0) -> PaperNetwork:
    """E_out o FF2 o UA o FF1 o E_in of Theorem B.1, for multisets of integer tokens.

    FF1 gives ids to the distinguishing tokens (Lemmas B.1, B.2), uniform attention adds them up,
    FF2 gives the sum its label; both are Lemma C.1's memorizer.
    """
    data = sequences(tokens, labels)
    if data.reads:
        raise ByheartError("expected one label for each sequence.")
    rng = np.random.default_rng(seed)
    project = projection(data.vectors, data.limits(None), rng, mix=False)
    keys = project.keys(data.vectors)
    shares, lcm = data.shares
    chosen, ids, sums = Drawing(data, keys, project.largest, shares, rng).paper_ids()
    first = memorizer(
        keys[chosen].tolist(),
        ids[chosen].tolist(),
        max(1, project.largest.bit_length()),
        int(ids.max()).bit_length(),
    )
    rows = data.firsts
    values = [int(x) for x in sums[rows]]
    second = memorizer(
        values,
        data.labels[rows].tolist(),
        max(values).bit_length(),
        max(1, int(data.labels.max()).bit_length()),
    )
    ff1 = [shift({X: project.offset})] if project.offset else []
    if project.modulus is not None:
        ff1 += mod(X, project.modulus, project.reach)
    ff1 += [*first.blocks, clear(X)]
    # The attention adds scale x sum of ids to x; a step takes the scale out again, bit by bit.
    most = first.scale * (data.n * int(ids.max()))
    ff2 = [*mod(X, first.scale, most, quotient=S), clear(X), add(S, {X: 1}), clear(S)]
    ff2 += [clear(UP, UQ, WP, WQ, OUT), *second.blocks]
    network = Network(
        dims=DIMS,
        d=len(project.v),
        E_in=(entries(dict(enumerate(project.v))),),
        ff1=tuple(ff1),
        source=OUT,
        target=X,
        scale=lcm,
        ff2=tuple(ff2),
        out=OUT,
    )
    return PaperNetwork(network, second.scale)
