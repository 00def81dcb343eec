"""Unembeddings: A unit vectors in R^d, as far apart as we can put them.

A construction makes the residual stream equal to the row w_g of the right answer g, so the margin
is 1 - max_{j != g} w_j·w_g: low coherence is what the read-out lives on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from byheart.construct.widths import OPTIMISED_UP_TO, hamming_width
from byheart.errors import ByheartError
from byheart.models.threads import one_thread

ROUNDS, STEPS = 20, 15  # neighbour searches, and steps between two of them
STEP = 0.08  # length of the longest move in a step of the first round, falling to 0
NEIGHBOURS = 24


def frame(A: int, d: int, seed: int = 0) -> Tensor:
    """A unit rows in R^d with small max_{i != j} w_i·w_j: (A, d), float64.

    A <= d + 1: the regular simplex, w_i·w_j = -1/(A-1), the optimum. d = 2: the circle of
    Proposition 3, w_j = (cos 2πj/A, sin 2πj/A), margin 1 - cos(2π/A). Up to 2,048 rows otherwise:
    random ones that repel their nearest neighbours. Above: words of an extended Hamming code,
    margin 8/d, at once, if d is at least `hamming_width(A)`; else random rows.

    >>> [round(coherence(frame(A, d)), 3) for A, d in ((2, 2), (4, 3), (10, 2))]
    [-1.0, -0.333, 0.809]
    """
    if d == 1 and A > 2:
        raise ByheartError(
            f"`d=1` tells at most 2 answers apart, found {A} (Dana et al. 2025, Proposition 3: "
            "d = 2 is enough). Use `d=2` or more."
        )
    if A <= d + 1:
        return _simplex(A, d)
    if d == 2:
        angle = 2 * math.pi * torch.arange(A, dtype=torch.float64) / A
        return torch.stack([angle.cos(), angle.sin()], dim=1)
    if A > OPTIMISED_UP_TO and d >= hamming_width(A):
        return hamming(A, d)
    W = normalize(torch.randn(A, d, generator=torch.Generator().manual_seed(seed)))
    if A <= OPTIMISED_UP_TO:
        with one_thread():
            W = _repel(W)
    return normalize(W.to(torch.float64))


def unembedding(answers: np.ndarray, d: int, N: int, seed: int) -> tuple[Tensor, Tensor]:
    """The rows (A, d) of a frame, and W_U (d, N) with them as the columns of the `answers` (A,).
    Tokens that are never answers get zero columns."""
    rows = frame(len(answers), d, seed)
    W_U = torch.zeros(d, N, dtype=torch.float64)
    W_U[:, torch.from_numpy(answers.copy())] = rows.T
    return rows, W_U


def hamming(A: int, d: int) -> Tensor:
    """The first A words of the shortened extended Hamming code of length d, as signs / sqrt(d).

    Parity checks are the columns (1, binary digits of i), i = 0..d-1: distinct, with a leading 1,
    so no three of them add up to 0 and words differ in at least 4 places: w_i·w_j <= 1 - 8/d.
    Positions 0 and 2^j hold the parities, the others the binary digits of the word's number.
    """
    digits = math.ceil(math.log2(d))
    information = [i for i in range(1, d) if i & (i - 1)]  # neither 0 nor a power of two
    number = torch.arange(A)
    bits = torch.zeros(A, d, dtype=torch.long)
    for place, i in enumerate(information):
        bits[:, i] = number >> place & 1
    for j in range(digits):
        bits[:, 1 << j] = bits[:, [i for i in information if i >> j & 1]].sum(1) % 2
    bits[:, 0] = bits.sum(1) % 2
    return (1 - 2 * bits).to(torch.float64) / math.sqrt(d)


def word_numbers(rows: Tensor) -> Tensor:
    """Rows of signs, read as binary numbers (d <= 62)."""
    return ((rows < 0).long() << torch.arange(rows.shape[1])).sum(1)


def ideal_margin(rows: Tensor, N: int) -> float:
    """1 - max w_i·w_j: the margin of a residual stream that equals the right row exactly. Tokens
    that are never answers (fewer rows than N) have logit 0 and cap it at 1."""
    A, d = rows.shape
    if N == 1:
        return math.inf
    if A > OPTIMISED_UP_TO and d >= hamming_width(A):
        return 8 / d
    margin = 1 - coherence(rows) if A > 1 else math.inf
    return min(margin, 1.0) if A < N else margin


def hamming_margin(rows: Tensor) -> float | None:
    """8 c² (rounded down) if the rows are distinct words of an extended Hamming code with entries
    ±c, else None. Such words differ in at least 4 places, so w_i·w_i - w_i·w_j >= 8 c²: a proof of
    the margin in A d steps instead of the A² d of comparing all pairs."""
    A, d = rows.shape
    c = float(rows[0, 0].abs()) if A else 0.0
    if c == 0.0 or d > 62 or not bool((rows.abs() == c).all()):
        return None
    bits = rows < 0
    digits = range(math.ceil(math.log2(d)))
    for members in [range(d), *([i for i in range(d) if i >> j & 1] for j in digits)]:
        if bool((bits[:, list(members)].sum(1) % 2 != 0).any()):
            return None
    return 8 * c * c * (1 - 2.0**-50) if len(word_numbers(rows).unique()) == A else None


def coherence(W: Tensor) -> float:
    """max_{i != j} w_i·w_j (signed: what a margin needs); -1 for a single row."""
    return max([-1.0, *(float(G.max()) for G in _cosines(W))])


def _cosines(W: Tensor) -> Iterator[Tensor]:
    """W W^T, some rows at a time, with -2 on the diagonal."""
    for i in range(0, len(W), 2048):
        G = W[i : i + 2048] @ W.T
        G[torch.arange(len(G)), torch.arange(i, i + len(G))] = -2.0
        yield G


def _simplex(A: int, d: int) -> Tensor:
    """A vertices of a regular simplex around 0, in the first coordinates of R^d."""
    if A == 1:
        return torch.eye(1, d, dtype=torch.float64)
    centred = torch.eye(A, dtype=torch.float64) - 1 / A
    # The rows of `centred` span A - 1 dimensions; an orthonormal basis of that span keeps angles.
    U, s, _ = torch.linalg.svd(centred)
    W = torch.zeros(A, d, dtype=torch.float64)
    W[:, : A - 1] = (U * s)[:, : A - 1]
    return normalize(W)


def _repel(W: Tensor) -> Tensor:
    """Move every row away from its nearest neighbours, searched for once a round; keep the best of
    all rounds. Minimises a soft maximum of the inner products that sharpens from round to round."""
    A, d = W.shape
    k = min(NEIGHBOURS, 2 * d, A - 1)
    best, best_coherence = W, coherence(W)
    for round_ in range(ROUNDS):
        near = torch.cat([G.topk(k, dim=1).indices for G in _cosines(W)])
        sharpness = 20.0 * (1 + round_)
        step = STEP * (1 - round_ / ROUNDS)
        for _ in range(STEPS):
            others = W[near]
            c = torch.bmm(others, W[:, :, None])[:, :, 0]
            closest = c.amax(1, keepdim=True)
            # Within a row the nearest dominate; between rows, those that are closest move most.
            p = torch.exp(sharpness * (c - closest) + 5 * (closest - closest.max()))
            push = torch.bmm(p[:, None], others)[:, 0]
            push = push - (push * W).sum(1, keepdim=True) * W
            W = W - step * push / push.norm(dim=1).max().clamp_min(1e-9)
            W = normalize(W)
        now = coherence(W)
        if now < best_coherence:
            best, best_coherence = W, now
    return best
