"""The smallest dependent set of rows that a greedy search finds, verified: an upper bound.

Whitened orthogonal matching pursuit: every row is written, one row at a time, through the row most
correlated with what is left of it. Where nothing is left a dependent set is found; rows that its
null vector does not use are dropped, and what remains is verified on its own. O(T² d) a step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from byheart.measure.rank import exact_rank

# Residuals of whitened unit rows: a dependent set leaves about s · 2^-53 · condition.
LEFT = 1e-8
SUPPORT = 1e-7  # entries of a null vector that count, of the largest
# Smallest singular value over the largest, of unit rows: what rounding alone leaves is below.
VERIFIED = 1e-12
BLOCK = 512


@dataclass(frozen=True)
class DependentSet:
    """Rows that depend on each other, every one of them needed. `residual`: smallest singular value
    over the largest, of the rows scaled to length 1; 0 where the dependence is exact."""

    rows: tuple[int, ...]
    residual: float
    exact: bool


def whitened(X: np.ndarray) -> np.ndarray:
    """Rows in coordinates of unit second moments, scaled to length 1 (0 stays 0): (T, rank)."""
    M = np.asarray(X, dtype=np.float64)
    U, S, _ = np.linalg.svd(M, full_matrices=False)
    return _unit(U[:, max(M.shape) * np.finfo(np.float64).eps * S[0] < S], 1e-14)


def smallest_dependent_set(
    X: np.ndarray, *, limit: int, exact: bool = False
) -> DependentSet | None:
    """The smallest set of at most `limit` dependent rows that the pursuit finds, or None.

    `exact`: the set must be dependent over the rationals; else numerically (see `VERIFIED`).
    A set that is returned is dependent; none found proves nothing.
    """
    M = np.asarray(X)
    best, W = None, whitened(M)
    zero = np.flatnonzero(~np.abs(W).any(1))
    if len(zero):
        return _verified(M, [int(zero[0])], exact)
    for start in range(0, len(W), BLOCK):
        targets = np.arange(start, min(start + BLOCK, len(W)))
        size = limit if best is None else len(best.rows) - 1
        for candidate in _pursue(W, targets, size):
            found = _pruned(M, candidate, exact)
            if found is not None and (best is None or len(found.rows) < len(best.rows)):
                best = found
    return best


def _pursue(W: np.ndarray, targets: np.ndarray, limit: int) -> list[list[int]]:
    """Candidate sets {target, atoms}, smallest first, with at most `limit` rows each."""
    steps = max(0, limit - 1)
    left = W[targets].copy()
    basis = np.zeros((len(targets), steps, W.shape[1]))
    atoms = np.zeros((len(targets), steps), dtype=int)
    used = np.zeros((len(targets), len(W)), dtype=bool)
    rows = np.arange(len(targets))
    used[rows, targets] = True
    for step in range(steps):
        match = np.abs(left @ W.T)
        match[used] = -1.0
        pick = match.argmax(1)
        atoms[:, step] = pick
        used[rows, pick] = True
        new = W[pick]
        for _ in range(2):  # twice is enough (Kahan): orthogonal to the earlier ones
            known = np.einsum("tsd,td->ts", basis[:, :step], new)
            new = new - np.einsum("ts,tsd->td", known, basis[:, :step])
        length = np.linalg.norm(new, axis=1, keepdims=True)
        basis[:, step] = np.divide(new, length, out=np.zeros_like(new), where=length > 1e-10)
        left -= (left * basis[:, step]).sum(1, keepdims=True) * basis[:, step]
        done = np.flatnonzero(np.linalg.norm(left, axis=1) < LEFT)
        if len(done):  # what later steps find is larger
            return [[int(targets[i]), *atoms[i, : step + 1].tolist()] for i in done]
    return []


def _pruned(M: np.ndarray, candidate: list[int], exact: bool) -> DependentSet | None:
    """The rows that the null vector of a candidate uses, verified by themselves."""
    chosen = np.array(sorted(set(candidate)))
    U = np.linalg.svd(_unit(M[chosen])).U
    null = np.abs(U[:, -1])
    support = chosen[null > SUPPORT * null.max()]
    return _verified(M, support.tolist(), exact) or _verified(M, chosen.tolist(), exact)


def _verified(M: np.ndarray, rows: list[int], exact: bool) -> DependentSet | None:
    residual = 0.0
    if exact:
        dependent = exact_rank(M[rows]).rank < len(rows)
    else:
        if len(rows) <= M.shape[1]:
            values = np.linalg.svd(_unit(M[rows]), compute_uv=False)
            residual = float(values[-1] / values[0]) if values[0] > 0 else 0.0
        dependent = residual < VERIFIED
    return DependentSet(tuple(rows), residual, exact) if dependent else None


def _unit(rows: np.ndarray, least: float = 0) -> np.ndarray:
    """Rows scaled to length 1; those not longer than `least` become 0."""
    M = np.asarray(rows, dtype=np.float64)
    length = np.linalg.norm(M, axis=1, keepdims=True)
    return np.divide(M, length, out=np.zeros_like(M), where=length > least)
