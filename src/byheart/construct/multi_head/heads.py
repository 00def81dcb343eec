"""Heads with prescribed attention: the fine part, and the saturating part (proof of Theorem 1).

Head h has W_h = W_K W_Q^T with up to d_h columns each:

    fine part        Σ_j p_j dual_j^T   with E(t_j) p_j = the wished logits of own example j and
                     dual_j·e(t_i) = δ_ij on the own examples: any attention, rank r-1
    saturating part  λ k c^T            with c·e(t) = 0 on the own examples: rank 1; all others
                     are driven to the token where sign(c·e) E(t)k is largest
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from byheart.facts import VectorFacts

GAP = 40.0  # logits between the attended token and the next: e^-40 = 4e-18, below float64 rounding
CANDIDATES = 256  # directions c (and k) drawn; the one whose smallest |c·e| is largest is taken


@dataclass(frozen=True)
class Saturation:
    """c (d,) and k (d,), and what they leave: s(t) = c·e(t), token(t) where E(t)k sends t, and
    gap(t) = |s(t)| times the distance to the next token; own examples are not looked at."""

    c: np.ndarray
    k: np.ndarray
    token: np.ndarray
    gap: np.ndarray


def pseudo_inverse_times(E: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """p_j of least norm with E_j p_j = logits_j: E (s, n, d), logits (s, n) -> (s, d)."""
    Q, R = np.linalg.qr(np.swapaxes(E, -1, -2))  # E^T = Q R, so E p = R^T (Q^T p)
    inner = np.linalg.solve(np.swapaxes(R, -1, -2), logits[..., None])
    return (Q @ inner)[..., 0]


def dual_basis(own: np.ndarray) -> np.ndarray:
    """dual (s, d) in the span of the own queries (s, d): dual_j·e_i = δ_ij."""
    if not len(own):
        return own
    Q, R = np.linalg.qr(own.T)
    return np.linalg.solve(R, Q.T)  # own = R^T Q^T, so own dual^T = R^T Q^T Q R^-T = I


def complement(own: np.ndarray, d: int) -> np.ndarray:
    """An orthonormal basis (d, d - s) of the directions that no own query has."""
    if not len(own):
        return np.eye(d)
    Q, _ = np.linalg.qr(own.T, mode="complete")
    return Q[:, len(own) :]


def directions(
    query: np.ndarray, own: np.ndarray, others: np.ndarray, rng: np.random.Generator, lean: float
) -> np.ndarray:
    """`CANDIDATES` unit vectors c orthogonal to the own queries: (candidates, d).

    Random ones, plus `lean` times the mean of the other queries, so that most of them fall on one
    side: the fewer exceptions, the closer the sign system is to the identity.
    """
    basis = complement(query[own], query.shape[1])
    draws = rng.standard_normal((CANDIDATES, basis.shape[1]))
    draws /= np.linalg.norm(draws, axis=1, keepdims=True)
    mean = query[others].mean(0) @ basis if len(others) else np.zeros(basis.shape[1])
    size = np.linalg.norm(mean)
    if size > 0:
        draws = draws + lean * rng.random((CANDIDATES, 1)) * mean / size
    c = draws @ basis.T
    return c / np.linalg.norm(c, axis=1, keepdims=True)


def key_direction(context: np.ndarray) -> np.ndarray:
    """k with E k = e_0 - e_1 (a shared context of rank n): tokens 0 and 1 attract, one a sign."""
    wished = np.zeros((1, len(context)))
    wished[0, :2] = 1.0, -1.0
    return pseudo_inverse_times(context[None], wished)[0]


def saturation(facts: VectorFacts, c: np.ndarray, k: np.ndarray) -> Saturation:
    """Where λ k c^T sends every example as λ grows, and how clearly."""
    s = facts.query @ c
    keys = np.sign(s)[:, None] * (facts.context @ k)  # (T, n), shared or own
    top = np.sort(keys, axis=1)[:, -2:]
    return Saturation(c, k, keys.argmax(1), np.abs(s) * (top[:, 1] - top[:, 0]))


def fine_logits(facts: VectorFacts, dual: np.ndarray, p: np.ndarray) -> np.ndarray:
    """E(t) Σ_j p_j (dual_j·e(t)), what the fine part makes of every example: (T, n)."""
    y = (facts.query @ dual.T) @ p
    return y @ facts.context.T if facts.shared else (facts.context @ y[:, :, None])[..., 0]


def strength(facts: VectorFacts, part: Saturation, fine: np.ndarray, others: np.ndarray) -> float:
    """The smallest λ that leaves every other example `GAP` ahead, against its fine logits (T, n).

    Bounded by (GAP + spread of the fine logits) / gap.
    """
    if not len(others):
        return 1.0
    target = np.take_along_axis(fine, part.token[:, None], 1)[:, 0]
    spread = np.maximum(fine.max(1) - target, 0.0)
    return float(((GAP + spread[others]) / part.gap[others]).max())


def assemble(
    parts: list[tuple[np.ndarray, np.ndarray]], d: int, d_h: int
) -> tuple[np.ndarray, np.ndarray]:
    """W_Q, W_K (H, d, d_h) from the columns (query side, key side) of each head, zeros after them.

    Each pair of columns is balanced to equal norms, so that neither loses digits.
    """
    W_Q, W_K = np.zeros((2, len(parts), d, d_h))
    for h, (q, k) in enumerate(parts):
        a, b = np.linalg.norm(q, axis=1), np.linalg.norm(k, axis=1)
        balance = np.sqrt(np.where((a > 0) & (b > 0), b, 1.0) / np.where((a > 0) & (b > 0), a, 1.0))
        W_Q[h, :, : len(q)] = (q * balance[:, None]).T
        W_K[h, :, : len(k)] = (k / balance[:, None]).T
    return W_Q, W_K
