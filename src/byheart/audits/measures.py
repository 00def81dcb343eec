"""What is measured of one layer: ranks of contexts, independence of queries, separation.

Every verdict depends on number format, tolerance and centring, so each is measured in all four
settings: the model run in float32 or in float64, rows as they are or minus their mean; and ranks
are given over a ladder of relative tolerances.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from byheart._search import bisect
from byheart.construct.multi_head.groups import GroupCertificate, find_groups
from byheart.measure.kruskal import KruskalReport, kruskal_report, subset_ratios
from byheart.measure.rank import rank_of_values

Record = dict[str, Any]
"""A JSON object of an audit (docs/formats.md)."""

SETTINGS = (("float32", False), ("float32", True), ("float64", False), ("float64", True))
LADDER = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-10, 1e-12, 1e-14)
GENERAL_DRAWS = 5  # subsets of d rows: a fraction is enough to see that it is 0 or not
PAIRS = 1000  # closest pairs whose distance is computed again, directly


def context_check(contexts: np.ndarray, dtype: str, centred: bool) -> Record:
    """Assumption 2 for contexts (K, n, d): how many have rank n, and by what margin.

    `centred`: the mean token of the layer is subtracted (not the context's own, whose subtraction
    always costs one rank). `ratio`: σ_n / σ_1, smallest and median; `ladder`: the share of
    contexts of rank n at each relative tolerance.
    """
    E = contexts.astype(dtype)
    K, n, d = E.shape
    if centred:
        E = _centred(E.reshape(-1, d)).reshape(E.shape).astype(dtype)
    values = np.linalg.svd(E, compute_uv=False).astype(np.float64)
    measured = [rank_of_values(v, (n, d), dtype, centred=centred) for v in values]
    ranks = np.array([one.rank for one in measured])
    ratio = _ratio(values, n)
    return {
        "dtype": dtype,
        "centred": centred,
        "contexts": K,
        "full": int((ranks == n).sum()),
        "rank_min": int(ranks.min()),
        "rank_median": float(np.median(ranks)),
        "ratio_min": float(ratio.min()),
        "ratio_median": float(np.median(ratio)),
        "gap_min": _finite(min(one.gap for one in measured)),
        "ladder": _ladder(ratio),
    }


def query_check(
    X: np.ndarray, dtype: str, centred: bool, *, n: int, draws: int, seed: int
) -> Record:
    """Assumption 1 and General Position for queries (T, d), as the paper looks: random subsets.

    `independent`: share of `draws` subsets of n rows with rank n; `Q`: the largest m <= n for which
    no drawn subset of m rows was dependent (bisection); `general`: the same share for subsets of d
    rows (None where T < d); `rank` of all rows, with its gap, and over the ladder.
    """
    rows = X.astype(dtype)
    T, d = rows.shape
    eps = float(np.finfo(dtype).eps)
    noise = 0.0
    if centred:  # what the subtraction leaves of equal rows is rounding, not a direction
        noise = eps * float(np.linalg.norm(rows.astype(np.float64), 2))
        rows = _centred(rows).astype(dtype)
    values = np.linalg.svd(rows, compute_uv=False).astype(np.float64)
    rank = rank_of_values(values, rows.shape, dtype, centred=centred)
    if rank.tolerance < noise:
        rank = rank_of_values(values, rows.shape, dtype, noise, centred)
    size = min(n, T)

    at_n = subset_ratios(rows, size, draws, seed)
    limit = max(size, d) * eps
    general = None
    if T >= d:
        # Fewer directions than d in all rows: no subset of d rows can have them.
        deficient = rank.rank < d
        of_d = np.zeros(1) if deficient else subset_ratios(rows, d, GENERAL_DRAWS, seed)
        general = float((of_d > d * eps).mean())
    return {
        "dtype": dtype,
        "centred": centred,
        "rank": rank.rank,
        "gap": _finite(rank.gap),
        "independent": float((at_n > limit).mean()),
        "draws": draws,
        "size": size,
        "Q": largest_independent(rows, size, draws, seed, at_n),
        "ratio_min": float(at_n.min()),
        "ratio_median": float(np.median(at_n)),
        "general": general,
        "ladder": _ladder(at_n),
        "rank_ladder": {
            f"{t:.0e}": int((values > t * values[0]).sum()) if values[0] > 0 else 0 for t in LADDER
        },
    }


def largest_independent(
    rows: np.ndarray, n: int, draws: int, seed: int, at_n: np.ndarray | None = None
) -> int:
    """The largest m <= n such that none of `draws` random subsets of m rows was dependent (rank
    below m in the number format of `rows`), found by bisection: larger sets fail more.

    >>> X = np.vstack([np.eye(3), np.eye(3)[:1]])
    >>> largest_independent(X, 3, 200, 0)   # rows 0 and 3 are equal
    1
    """
    d = rows.shape[1]
    eps = float(np.finfo(rows.dtype).eps)

    def holds(m: int) -> bool:
        ratios = at_n if m == n and at_n is not None else subset_ratios(rows, m, draws, seed)
        return bool((ratios > max(m, d) * eps).all())

    if holds(n):
        return n
    return bisect(lambda m: not holds(m), 0, n) - 1


def kruskal_check(
    X: np.ndarray, n: int, *, draws: int, search: int, seed: int
) -> tuple[KruskalReport, str, str]:
    """The Kruskal report of the float64 queries, and the verdicts on Assumption 1 and on General
    Position: "proved", "fails" (a dependent set is known) or "not refuted"."""
    report = kruskal_report(X, n, draws=draws, search=search, exact=False, seed=seed)
    T, d = X.shape
    refuted = report.upper < n or report.sampled.dependent > 0
    first = "proved" if report.lower >= n else "fails" if refuted else "not refuted"
    general = "fails" if report.upper < d or refuted else "not refuted"
    if T < d:
        general = "fails" if refuted else "too few contexts"
    return report, first, general


def head_groups(X: np.ndarray, H: int, r: int, seed: int) -> tuple[int, GroupCertificate | None]:
    """Theorem 1's own need for a layer of H heads: T0 = H(r-1)+1 of the queries (all, if fewer) in
    H groups of at most r-1, each independent, the others outside its span."""
    if r < 2 or len(X) < 2:
        return 1, None
    T0 = min(len(X), H * (r - 1) + 1)
    return T0, find_groups(X[:T0].astype(np.float64), H, r - 1, seed)


def separation_check(X: np.ndarray) -> Record:
    """(r, δ) of token vectors: r the largest norm, δ the smallest distance of two different ones
    (Kajitsuka and Sato 2025); vectors that are equal to the last bit are counted, not compared.

    >>> separation_check(np.array([[3.0, 4.0], [0.0, 0.0], [3.0, 4.0]]))["spread"]
    1.0
    """
    rows = np.unique(X.astype(np.float64), axis=0)
    r = float(np.linalg.norm(rows, axis=1).max())
    delta = math.inf
    if len(rows) > 1:
        square = (rows**2).sum(1)
        distance = square[:, None] + square - 2 * rows @ rows.T
        i, j = np.triu_indices(len(rows), 1)
        upper = distance[i, j]
        near = np.argpartition(upper, min(PAIRS, len(upper)) - 1)[:PAIRS]
        # The product loses half the digits of small distances: those are computed directly.
        delta = float(np.linalg.norm(rows[i[near]] - rows[j[near]], axis=1).min())
    return {
        "rows": len(X),
        "equal": len(X) - len(rows),
        "r": r,
        "delta": _finite(delta),
        "spread": _finite(r / delta) if delta > 0 else None,
    }


def _centred(rows: np.ndarray) -> np.ndarray:
    """Rows minus their mean, in float64; the mean is corrected once, so that it is right to the
    last bit and equal rows leave no more than that."""
    M = rows.astype(np.float64)
    mean = M.mean(0)
    return M - (mean + (M - mean).mean(0))


def _ratio(values: np.ndarray, n: int) -> np.ndarray:
    """σ_n / σ_1 of each row of singular values; 0 where there are fewer than n."""
    if values.shape[1] < n:
        return np.zeros(len(values))
    top = values[:, 0]
    return np.divide(values[:, n - 1], top, out=np.zeros(len(values)), where=top > 0)


def _ladder(ratio: np.ndarray) -> dict[str, float]:
    return {f"{t:.0e}": float((ratio > t).mean()) for t in LADDER}


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
