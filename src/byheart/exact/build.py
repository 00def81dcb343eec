"""Sequences and labels -> a network that gives every one of them, in exact integers.

Kajitsuka and Sato 2025, Theorem 4.1 (next token), Corollary 4.1 (sequence to sequence), D.1 (deep
sets), E.1 (embedding layer), F.1 (limited bits); with cheaper parts (docs/square-root.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from byheart._progress import Report, quiet
from byheart.errors import check_choice
from byheart.exact.blocks import POOLINGS, Network
from byheart.exact.data import Limits, separate, sequences
from byheart.exact.draw import Drawing
from byheart.exact.grouping import TableOptions, low_bits, make_table
from byheart.exact.ids import MODES
from byheart.exact.keys import identity, next_prime, projection, random_below
from byheart.exact.parts import Parts, Structured, emit, pooled
from byheart.exact.table import GROUPINGS, Table, encode

FOLDS = 3  # enough for random data; more are tried when sums collide
# Moduli that are compared: the luckiest needs a bit less for each record. Sorting 10^6 keys takes
# a tenth of a second, so that large tables get one draw.
TRIES = ((20_000, 12), (200_000, 4), (2**62, 1))
LONGEST = 56  # bits of a modulus: residues stay machine integers (structured.times)
PATIENCE = 12  # primes of one length that may fail before longer ones are drawn


@dataclass(frozen=True)
class Built:
    """A network, its parts, and what was done to get it."""

    parts: Parts
    mode: str
    asked: str
    notes: tuple[str, ...]

    @cached_property
    def network(self) -> Network:
        return emit(self.parts)

    @cached_property
    def structured(self) -> Structured:
        return Structured(self.parts)


def memorize(
    tokens: ArrayLike,
    labels: ArrayLike,
    *,
    ff1: str = "hash",
    grouping: str = "sorted",
    max_bits: int | None = None,
    pooling: str = "attention",
    reads: bool | None = None,
    others: ArrayLike | None = None,
    rate: float | None = None,
    lengths: ArrayLike | None = None,
    limits: Limits | None = None,
    folds: int = FOLDS,
    seed: int = 0,
    progress: Report = quiet,
) -> Built:
    """A network that outputs labels[i] for the multiset of tokens[i], exactly.

    `tokens`: (N, n, d) integers, or (N, n). `labels` >= 0: (N,), one for each multiset (with
    `reads`, for each multiset and last token), or (N, n), one for every token (sequence to
    sequence). Label 0 costs nothing: it is also what everything else gets, unless it meets a
    record by chance (`rate` bounds that), and what `others` (M, n, d) are made to get.

    `ff1`: "hash" (checked; "product" or "paper" if it cannot be made to work), "product" (works for
    every data set), "paper" (Lemmas B.1-B.3) or "embedding" (token ids, Theorem E.1). `grouping`:
    "sorted" or "interp". `max_bits`: limit for the longest weight (Theorem F.1's trade-off).
    `pooling`: "attention" or "sum" (a deep set, Theorem D.1). `lengths`: only the first tokens of
    each row are there; add a token that says the length, or proportional multisets collide.
    `limits`: (lowest, highest) coordinates that may be asked for; default: those that occur.

    >>> built = memorize([[3, 5], [3, 7], [5, 7]], [1, 2, 3])
    >>> built.network.dims, built.network.counts().width
    (('l', 'z', 'y'), 3)
    """
    check_choice("ff1", ff1, MODES)
    check_choice("grouping", grouping, GROUPINGS)
    check_choice("pooling", pooling, POOLINGS)
    data = sequences(tokens, labels, others, lengths, reads=reads)
    limits = data.limits(limits)
    options = TableOptions(grouping, max_bits, rate)
    rng = np.random.default_rng(seed)
    shares, lcm = data.shares if pooling == "attention" else (np.ones(1, dtype=np.int64), 1)
    bits = 8 if rate is None else math.ceil(math.log2(data.N / rate)) + 3

    def made(mode: str) -> Parts | None:
        """Parts in one mode; None if a hash cannot be found."""
        if mode == "embedding":
            project = identity(limits)
        else:
            project = projection(data.vectors, limits, rng, mix=mode == "hash")
        keys = project.keys(data.vectors)
        progress(f"ids for {len(keys):,} tokens ({mode})")
        drawing = Drawing(data, keys, project.largest, shares, rng, bits, folds)
        if mode == "paper":
            drawn = drawing.paper(replace(options, rate=None))
        else:
            drawn = drawing.first_apart(mode)
        if drawn is None:
            return None
        ids, sums = drawn
        most = int(max(sums.max(), ids.bound * data.n * int(max(shares))))
        factor, reach = pooled(project.largest, most, data.reads)
        contexts, marks = data.contexts(sums, keys, factor)
        progress(f"a table of {len(contexts):,} keys")
        modulus, table = _table(contexts, marks, reach, options, rng)
        return Parts(project, ids, pooling, lcm, most, data.reads, modulus, table)

    parts = made(ff1)
    if parts is not None:
        return Built(parts, ff1, ff1, ())
    # No hash found: the smaller of the two modes that always work.
    certain = [parts for mode in ("product", "paper") if (parts := made(mode)) is not None]
    best = min(certain, key=lambda parts: emit(parts).counts().parameters)
    note = f"no hash tells the sequences apart: {best.ff1.mode} in its place"
    return Built(best, best.ff1.mode, ff1, (note,))


def _table(
    contexts: np.ndarray,
    labels: np.ndarray,
    reach: int,
    options: TableOptions,
    rng: np.random.Generator,
) -> tuple[int | None, Table]:
    """A modulus under which the contexts stay apart, and the table of those with a label.

    A random prime p of w bits: a difference below 2^h has at most h / (w - 1) such factors out of
    about 2^w / (1.4 w), so that from w = 2 log2 K + log2 h + 2 on most primes do; smaller ones are
    tried first. The sum of steps down to the t low bits is the same whatever p.
    """
    member = labels > 0
    K, rest = int(member.sum()), int((~member).sum())
    c = max(1, int(labels.max()).bit_length())
    if K == 0:  # nothing but zeros
        return None, Table("sorted", 1, c, 1, max(1, reach), (0,), (encode([], [], 1, c, 1),))
    w = max(4, (K * (K // 2 + rest)).bit_length() + 1)
    if options.rate is not None:  # a random residue is that of a member with probability K / p
        w = max(w, math.ceil(math.log2(2 * K / options.rate)))
    w = min(w, LONGEST)
    if reach.bit_length() <= w:
        keys = contexts.astype(np.int64)
        return None, make_table(keys[member], labels[member], keys[~member], c, reach, options)
    tries = next(n for most, n in TRIES if most >= len(labels))
    best: tuple[int, int, np.ndarray] | None = None
    failed = 0
    while best is None or tries > 0:
        p = next_prime((1 << (w - 1)) + random_below(rng, 1 << (w - 1)))
        keys = (contexts % p).astype(np.int64)
        if not separate(keys[member], keys[~member]):
            failed += 1
            w, failed = (min(w + 1, LONGEST), 0) if failed == PATIENCE else (w, failed)
            continue
        tries -= 1
        t = low_bits(keys[member], keys[~member], c, p - 1)
        if best is None or t < best[0]:
            best = (t, p, keys)
    _, p, keys = best
    return p, make_table(keys[member], labels[member], keys[~member], c, p - 1, options)
