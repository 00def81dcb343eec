"""The rank of a matrix: numerical, with everything that the number depends on; and exact. And the
smallest dependent set of rows that a greedy search finds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from flint import fmpz_mat, nmod_mat

from byheart.errors import FactsError, check_choice

Rows = np.ndarray | Sequence[Sequence[float | Fraction]]

PRIME = 2**61 - 1  # a Mersenne prime: the rank modulo it is at most the rank over the rationals
MAX_ENTRIES = 4_000_000  # of an exact elimination: minutes beyond
# Residuals of whitened unit rows: a dependent set leaves about s · 2^-53 · condition.
LEFT = 1e-8
SUPPORT = 1e-7  # entries of a null vector that count, of the largest
# Smallest singular value over the largest, of unit rows: what rounding alone leaves is below.
VERIFIED = 1e-12
BLOCK = 512


@dataclass(frozen=True)
class NumericalRank:
    """Singular values above `tolerance`, in `dtype`. `gap` = the smallest kept divided by the
    largest dropped (inf if none is dropped): a rank is only as meaningful as its gap."""

    rank: int
    dtype: str
    tolerance: float
    centred: bool
    largest: float
    smallest_kept: float | None
    largest_dropped: float | None
    gap: float


def numerical_rank(
    X: np.ndarray, *, dtype: str = "float64", tolerance: float | None = None, centred: bool = False
) -> NumericalRank:
    """Rank of X by its singular values; default tolerance max(T, d) ε σ_1, as in torch and numpy.

    `centred`: the mean row is subtracted first (in float64). A large common component inflates
    σ_1 and with it the tolerance, which can hide directions that are there.

    >>> numerical_rank(np.diag([1.0, 1e-3, 0.0])).rank
    2
    """
    check_choice("dtype", dtype, ("float32", "float64"))
    M = np.asarray(X, dtype=np.float64)
    M = M - M.mean(0) if centred else M
    values = np.linalg.svd(M.astype(dtype), compute_uv=False).astype(np.float64)
    return rank_of_values(values, M.shape, dtype, tolerance, centred)


def rank_of_values(
    values: np.ndarray,
    shape: tuple[int, ...],
    dtype: str = "float64",
    tolerance: float | None = None,
    centred: bool = False,
) -> NumericalRank:
    """The rank that singular values (descending) of a matrix of this shape say; see above.

    >>> rank_of_values(np.array([2.0, 1.0, 1e-20]), (3, 3)).rank
    2
    """
    largest = float(values.max(initial=0.0))
    limit = max(shape) * float(np.finfo(dtype).eps) * largest
    limit = limit if tolerance is None else float(tolerance)
    kept, dropped = values[values > limit], values[values <= limit]
    low = float(kept[-1]) if len(kept) else None
    high = float(dropped[0]) if len(dropped) else None
    gap = np.inf if low is None or not high else low / high
    return NumericalRank(len(kept), dtype, limit, centred, largest, low, high, gap)


@dataclass(frozen=True)
class ExactRank:
    """The rank over the rationals. `way`: "modular" (it is full modulo 2^61 - 1, which proves it)
    or "rational" (elimination in whole numbers)."""

    rank: int
    way: str


def exact_rank(X: Rows) -> ExactRank:
    """The rank over the rationals of whole numbers, fractions or floats (which are fractions): rows
    are scaled to whole numbers of any length.

    >>> exact_rank([[2**62, 2**62], [2**62, 2**62 + 1]]).rank   # float64 sees 1
    2
    >>> exact_rank([[0.1, 0.3], [1, 3]])   # as floats, 0.3 is not 3 times 0.1
    ExactRank(rank=2, way='modular')
    """
    if len(X) * len(X[0]) > MAX_ENTRIES:
        large = f"an exact rank of {len(X):,} x {len(X[0]):,} numbers would take too long"
        raise FactsError(f"{large} (limit {MAX_ENTRIES:,} entries): use the numerical rank.")
    rows = whole_rows(X)
    full = min(len(rows), len(rows[0]))
    modular = nmod_mat([[v % PRIME for v in row] for row in rows], PRIME).rank()
    if modular == full:
        return ExactRank(full, "modular")
    return ExactRank(fmpz_mat(rows).rank(), "rational")


def whole_rows(X: Rows) -> list[list[int]]:
    """Each row times a whole number, so that all entries are whole: the rank stays.

    >>> whole_rows([[0.5, 0.25], [1, 3]])
    [[2, 1], [1, 3]]
    """
    table = X.tolist() if isinstance(X, np.ndarray) else [list(row) for row in X]
    scaled = []
    for i, row in enumerate(table):
        try:
            parts = [Fraction(v) for v in row]
        except (TypeError, ValueError, OverflowError) as error:
            raise FactsError(f"row {i}: expected finite numbers, found {error}.") from None
        common = math.lcm(*(part.denominator for part in parts))
        scaled.append([part.numerator * (common // part.denominator) for part in parts])
    return scaled


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
    """The smallest set of at most `limit` dependent rows that the pursuit finds, or None; `exact`:
    dependent over the rationals, else numerically (`VERIFIED`). None found proves nothing.

    Whitened orthogonal matching pursuit: every row is written, one row at a time, through the row
    most correlated with what is left of it. Where nothing is left a dependent set is found; rows
    that its null vector does not use are dropped, and the rest is verified. O(T² d) a step.
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
