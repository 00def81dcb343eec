"""Kruskal rank: the largest k such that every k rows are independent. What can be said of it.

It is NP-hard to compute, and sampling subsets (what the paper does) estimates a fraction, never the
rank. One report brings together what can be known (docs/multi-head.md): bounds from both sides, the
sampled statistic with its power, and the group certificate that the saturation proof really needs.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import asdict, dataclass
from time import perf_counter

import numpy as np
from scipy.stats import beta

from byheart.construct.multi_head.saturated import GroupCertificate, find_groups
from byheart.errors import FactsError
from byheart.measure.rank import (
    DependentSet,
    ExactRank,
    NumericalRank,
    exact_rank,
    numerical_rank,
    smallest_dependent_set,
    whitened,
    whole_rows,
)

ENUMERATED = 2_000_000  # subsets that `kruskal_rank` looks at before it refuses
SMALL = 5_000  # subsets that the report enumerates: then the Kruskal rank is known, not bounded
POWERS = (2, 3, 4, 5, 8)
EXACT_ENTRIES = 200_000  # up to here whole numbers get an exact rank without being asked
PHASES = ("parallel rows", "rank", "dependent set", "coherence", "sampling", "groups")


@dataclass(frozen=True)
class Sampled:
    """The paper's statistic: `dependent` of `draws` random subsets of `size` rows. `fraction_below`
    bounds the fraction of dependent subsets at 95 % (Clopper-Pearson); `power[s]` is the chance
    that the draws meet one planted dependent set of s rows."""

    size: int
    draws: int
    dependent: int
    fraction_below: float
    power: dict[int, float]


@dataclass(frozen=True)
class KruskalReport:
    """Everything known about the Kruskal rank of T rows in R^d: lower <= krank <= upper; equal,
    and exact, where every subset was looked at (`enumerated`)."""

    T: int
    d: int
    zero_rows: tuple[int, ...]
    parallel: tuple[tuple[int, ...], ...]
    rank: NumericalRank
    rank_centred: NumericalRank
    rank_exact: ExactRank | None
    dependent: DependentSet | None
    lower: int
    upper: int
    sampled: Sampled
    groups: GroupCertificate | None
    needed: int
    enumerated: bool
    seconds: dict[str, float]

    def to_json(self) -> dict[str, object]:
        record, found = asdict(self), self.groups
        record["power"] = record["sampled"].pop("power")
        if found is not None:
            sizes = [len(group) for group in found.groups]
            record["groups"] = {"holds": found.holds, "heads": len(sizes), "largest": max(sizes)}
            for name in ("pivot", "pivot_at", "residual", "residual_at"):
                record["groups"][name] = getattr(found, name)
        return record


def kruskal_report(
    X: np.ndarray,
    n: int,
    *,
    draws: int = 1000,
    search: int | None = None,
    exact: bool | None = None,
    seed: int = 0,
) -> KruskalReport:
    """The report for rows X (T, d) and the n that Assumption 1 asks about.

    `search`: the largest dependent set looked for (default: n). `exact`: ranks over the rationals
    (default: for whole numbers of moderate size).

    >>> X = np.random.default_rng(0).random((40, 8))
    >>> X[7] = X[3] + X[5]
    >>> report = kruskal_report(X, n=6, draws=100)
    >>> report.dependent.rows, report.upper
    ((3, 5, 7), 2)
    """
    M = rows_of(X)
    T, d = M.shape
    if not 1 <= n <= d or draws < 1:
        raise FactsError(
            f"expected 1 <= n <= d = {d} and at least 1 draw, found n = {n}, draws = {draws}."
        )
    whole = M.dtype.kind in "iu" or bool((M == np.floor(M)).all())
    exact = whole and M.size <= EXACT_ENTRIES if exact is None else exact
    laps = [perf_counter()]
    zero, parallel = parallel_rows(M)
    laps.append(perf_counter())
    F = M.astype(np.float64)
    raw, centred = numerical_rank(F), numerical_rank(F, centred=True)
    truth = exact_rank(M) if exact else None
    laps.append(perf_counter())
    rank = truth.rank if truth is not None else raw.rank
    found = smallest_dependent_set(M, limit=min(search or n, rank), exact=exact)
    laps.append(perf_counter())
    bounds = [rank, T, *([0] if zero else []), *([1] if parallel else [])]
    upper = min(bounds if found is None else [*bounds, len(found.rows) - 1])
    lower = min(coherence_bound(F), upper)
    enumerated = _subsets(T, upper) <= SMALL
    if enumerated:
        lower = upper = kruskal_rank(M, exact=exact, largest=upper)
    laps.append(perf_counter())
    sampled = sample_subsets(F, min(n, T), draws, seed)
    laps.append(perf_counter())
    groups = None
    if n >= 2 and T >= 2:
        groups = find_groups(F, math.ceil((T - 1) / (n - 1)), n - 1, seed)
    laps.append(perf_counter())
    seconds: dict[str, float] = dict(zip(PHASES, np.diff(laps).tolist(), strict=True))
    known = (raw, centred, truth, found, lower, upper, sampled, groups)
    return KruskalReport(T, d, zero, parallel, *known, n, enumerated, seconds)


def parallel_rows(X: np.ndarray) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Rows that are zero, and sets of rows that are exact multiples of each other (duplicates
    among them): exact for whole numbers and floats alike.

    >>> parallel_rows(np.array([[1, 2], [0, 0], [-2, -4], [1, 3]]))
    ((1,), ((0, 2),))
    """
    sets: dict[tuple[int, ...], list[int]] = defaultdict(list)
    M = np.asarray(X)
    candidates = _perhaps_parallel(M)
    for i, row in zip(candidates.tolist(), whole_rows(M[candidates]), strict=True):
        divisor = math.gcd(*row) or 1
        divisor = -divisor if next((v for v in row if v), 0) < 0 else divisor
        sets[tuple(v // divisor for v in row)].append(i)
    zero = sets.pop((0,) * M.shape[1], [])
    return tuple(zero), tuple(tuple(s) for s in sets.values() if len(s) > 1)


def _perhaps_parallel(M: np.ndarray) -> np.ndarray:
    """Rows that may be zero or parallel to another, by one random projection of the unit rows; for
    the rest, exact arithmetic can only say no. Parallel rows agree there to 1e-15 or so."""
    if M.dtype.kind != "f" or len(M) < 2:
        return np.arange(len(M))
    F = M.astype(np.float64)
    scale = np.abs(F).max(1, keepdims=True)
    with np.errstate(invalid="ignore"):  # 0 / 0: a zero row
        unit = F / scale
        unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
    shadow = np.abs(unit @ np.random.default_rng(0).standard_normal(F.shape[1]))
    shadow = np.where(np.isfinite(shadow), shadow, -1.0)
    order = np.argsort(shadow)
    close = np.diff(shadow[order]) < 1e-9 * math.sqrt(F.shape[1])
    near = np.append(close, False) | np.insert(close, 0, False) | (shadow[order] < 0)
    return np.sort(order[near])


def coherence_bound(X: np.ndarray) -> int:
    """krank >= ceil(1/μ), μ the largest |cosine| of two rows after whitening (Donoho and Elad).

    Kruskal rank is unchanged by an invertible map of the columns; whitening lowers μ.
    """
    W = whitened(X)
    if len(W) < 2 or W.shape[1] == 0:
        return int(len(W) == 1 and W.shape[1] > 0)
    if float(np.abs(np.linalg.norm(W, axis=1) - 1).max()) > 1e-6:
        return 0  # a zero row
    C = np.abs(W @ W.T)
    np.fill_diagonal(C, 0.0)
    mu = float(C.max()) + 1e-9  # rounding of unit rows, rounded up
    return min(math.ceil(1 / mu - 1e-9), W.shape[1], len(W))


def sample_subsets(X: np.ndarray, n: int, draws: int, seed: int = 0) -> Sampled:
    """`draws` random subsets of n rows, the dependent ones counted (numerical rank < n)."""
    T, d = X.shape
    ratios = subset_ratios(np.asarray(X, dtype=np.float64), n, draws, seed)
    dependent = int((ratios <= max(n, d) * np.finfo(np.float64).eps).sum())
    good = draws - dependent
    above = float(beta.ppf(0.95, dependent + 1, good)) if good else 1.0
    return Sampled(n, draws, dependent, above, {s: power(T, n, s, draws) for s in POWERS if s <= n})


def subset_ratios(X: np.ndarray, n: int, draws: int, seed: int = 0) -> np.ndarray:
    """σ_n / σ_1 of `draws` random subsets of n rows, in the number format of X: (draws,). A subset
    is dependent at the relative tolerance τ where its ratio is at most τ.

    >>> bool(subset_ratios(np.eye(4), 2, draws=3).min() == 1.0)
    True
    """
    rng = np.random.default_rng(seed)
    T, d = X.shape
    ratios, batch = np.zeros(draws), max(1, 2**24 // (n * d))
    for start in range(0, draws if n <= d else 0, batch):  # more rows than coordinates: 0
        part = ratios[start : start + batch]
        chosen = np.stack([rng.choice(T, n, replace=False) for _ in part])
        values = np.linalg.svd(X[chosen], compute_uv=False).astype(np.float64)
        np.divide(values[:, -1], values[:, 0], out=part, where=values[:, 0] > 0)
    return ratios


def power(T: int, n: int, s: int, draws: int) -> float:
    """1 - (1 - p)^draws, p = Π_{i<s} (n - i)/(T - i): the chance to meet a planted s-set.

    >>> round(power(1973, 197, 4, 5000), 2)       # the paper's ViT check
    0.38
    """
    if s > n or s > T:
        return 0.0
    p = math.prod((n - i) / (T - i) for i in range(s))
    return -math.expm1(draws * math.log1p(-p)) if p < 1 else 1.0


def kruskal_rank(X: np.ndarray, *, exact: bool | None = None, largest: int | None = None) -> int:
    """The Kruskal rank by looking at every subset: the oracle, for small sizes only. `largest`: a
    bound from elsewhere, beyond which nothing is looked at.

    >>> kruskal_rank(np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]]))
    2
    """
    M = rows_of(X)
    exact = M.dtype.kind in "iu" if exact is None else exact
    rank_of = exact_rank if exact else numerical_rank
    T, top = len(M), rank_of(M).rank
    top = top if largest is None else min(top, largest)
    if _subsets(T, top) > ENUMERATED:
        many = f"{T} rows of rank {top} have too many subsets to enumerate"
        raise FactsError(f"{many} (limit {ENUMERATED:,}): use kruskal_report.")
    for s in range(1, top + 1):
        for subset in itertools.combinations(range(T), s):
            if rank_of(M[list(subset)]).rank < s:
                return s - 1
    return top


def _subsets(T: int, largest: int) -> int:
    return sum(math.comb(T, s) for s in range(1, largest + 1))


def rows_of(X: np.ndarray, where: str = "rows") -> np.ndarray:
    """X as T >= 1 rows of d >= 1 finite numbers; `where` is what messages name."""
    M = np.asarray(X)
    if M.ndim != 2 or 0 in M.shape:
        raise FactsError(f"{where}: expected rows (T, d), found shape {M.shape}.")
    if M.dtype.kind not in "iufO":
        raise FactsError(f"{where}: expected numbers, found type {M.dtype}.")
    if M.dtype.kind == "f" and not np.isfinite(M).all():
        i, j = map(int, np.argwhere(~np.isfinite(M))[0])
        found = f"row {i}, column {j} is {M[i, j]}"
        raise FactsError(f"{where}: {found}: expected finite numbers.")
    return M
