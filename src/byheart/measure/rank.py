"""The rank of a matrix: numerical, with everything that the number depends on; and exact."""

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
    """The rank over the rationals of whole numbers, fractions or floats (which are fractions).

    Nothing overflows: rows are scaled to whole numbers of any length. Full rank modulo the prime
    2^61 - 1 proves full rank; a smaller one is settled by elimination over the integers.

    >>> exact_rank([[2**62, 2**62], [2**62, 2**62 + 1]]).rank   # float64 sees 1
    2
    >>> exact_rank([[0.1, 0.3], [1, 3]])   # as floats, 0.3 is not 3 times 0.1
    ExactRank(rank=2, way='modular')
    """
    if len(X) * len(X[0]) > MAX_ENTRIES:
        raise FactsError(
            f"an exact rank of {len(X):,} x {len(X[0]):,} numbers would take too long "
            f"(limit {MAX_ENTRIES:,} entries): use fewer rows, or the numerical rank."
        )
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
