"""What is measured of one layer: ranks of contexts, independence of queries, separation; the
verdicts, and what each theorem then promises.

Every verdict depends on number format, tolerance and centring, so each is measured in all four
settings: the model run in float32 or in float64, rows as they are or minus their mean; and ranks
are given over a ladder of relative tolerances.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from byheart._progress import Report
from byheart._search import bisect
from byheart.audits.models import FoundModel
from byheart.audits.settings import AuditSettings
from byheart.audits.states import HeadStates, LayerStates
from byheart.construct.multi_head.saturated import GroupCertificate, find_groups
from byheart.measure.kruskal import KruskalReport, kruskal_report, subset_ratios
from byheart.measure.rank import rank_of_values
from byheart.theory.bound import Case
from byheart.theory.registry import find

Record = dict[str, Any]
"""A JSON object of an audit (docs/formats.md)."""

SETTINGS = (("float32", False), ("float32", True), ("float64", False), ("float64", True))
LADDER = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-10, 1e-12, 1e-14)
GENERAL_DRAWS = 5  # subsets of d rows: a fraction is enough to see that it is 0 or not
PROMISES = ("mahdavi2024.theorem1", "mahdavi2024.assumption3", "mahdavi2024.generic_rank",
            "mahdavi2024.effective_parameters", "kajitsuka2025.theorem41")  # fmt: skip
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
    general = None if T < d else 0.0
    if T >= d and rank.rank == d:  # with fewer directions in all rows no d of them can have d
        general = float((subset_ratios(rows, d, GENERAL_DRAWS, seed) > d * eps).mean())
    return {
        "dtype": dtype,
        "centred": centred,
        "rank": rank.rank,
        "gap": _finite(rank.gap),
        "independent": float((at_n > max(size, d) * eps).mean()),
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
    general = "too few contexts" if T < d else "not refuted"
    if refuted or (T >= d and report.upper < d):
        general = "fails"
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


@dataclass(frozen=True)
class LayerChecks:
    """The checks of a model that reads contexts of n tokens; `kinds` of queries, main one first."""

    found: FoundModel
    n: int
    kinds: tuple[str, ...]
    settings: AuditSettings
    progress: Report

    def record(
        self, layer: int, weights: str, states: dict[str, LayerStates], heads: HeadStates | None
    ) -> Record:
        """All checks of one layer as one JSON object; `states` by number format."""
        measured = [(dtype, centred) for dtype, centred in SETTINGS if dtype in states]
        exact, main = states["float64"], self.kinds[0]
        queries: dict[str, Record] = {}
        for kind in (*self.kinds, "e+mean"):
            self.progress(f"{weights}, layer {layer}: queries {kind!r}")
            X = {dtype: s.queries[kind] for dtype, s in states.items()}
            queries[kind] = self._query(X, measured)
        contexts = [context_check(states[dtype].contexts, dtype, c) for dtype, c in measured]
        separation = separation_check(exact.queries["every" if "every" in self.kinds else main])
        full = _exact_setting(contexts)
        checks: Record = {
            "assumption2": {
                "verdict": "holds" if full["full"] == full["contexts"] else "fails",
                "share": full["full"] / full["contexts"],
                "seen": full["contexts"],
            },
            "assumption3": _short(queries["e+mean"]),
        }
        checks |= {f"assumption1.{kind}": _short(queries[kind]) for kind in self.kinds}
        for kind, query in queries.items():
            checks[f"groups.{kind}"] = {"verdict": query["groups"]["verdict"]}
        for kind in self.kinds:
            checks[f"general_position.{kind}"] = {"verdict": queries[kind]["general_position"]}
        checks["separation"] = {"verdict": "measured", "spread": separation["spread"]}
        return {
            "weights": weights,
            "layer": layer,
            "name": "embeddings" if layer == 0 else f"after block {layer}",
            "checks": checks,
            "contexts": contexts,
            "queries": queries,
            "separation": separation,
            "heads": None if heads is None else heads.to_json(),
            "promises": self._promises(queries, separation["spread"], len(exact.queries[main])),
        }

    def _query(self, X: dict[str, np.ndarray], measured: list[tuple[str, bool]]) -> Record:
        """Settings, Kruskal report, verdicts and group certificates of one kind of query."""
        spec, used = self.found.spec, self.settings
        n, rows = min(self.n, spec.d), X["float64"]
        drawn = {"draws": used.draws, "seed": used.seed}
        settings = [query_check(X[dtype], dtype, c, n=n, **drawn) for dtype, c in measured]
        most = min(n, len(rows))
        kruskal, first, general = kruskal_check(rows, most, search=used.search, **drawn)
        Q = max(1, min(_exact_setting(settings)["Q"], max(kruskal.upper, 1)))
        H, r = spec.H, min(n, spec.d_h)
        T0, groups = head_groups(rows, H, r, used.seed)
        return {
            "assumption1": first,
            "general_position": general,
            "Q": Q,
            "settings": settings,
            "kruskal": _trimmed(kruskal.to_json()),
            "groups": {
                "verdict": "fails" if groups is None or not groups.holds else "holds",
                "examples": T0,
                "heads": H,
                "r": r,
                "pivot": None if groups is None else groups.pivot,
                "residual": None if groups is None else groups.residual,
            },
        }

    def _promises(self, queries: dict[str, Record], spread: float | None, T: int) -> list[Record]:
        """What each theorem says about one attention layer that reads these vectors, with the
        measured Kruskal rank Q in place of n and the measured r/δ. `bare`: the number for the same
        layer with one W_h for all positions, where the model's rotary positions are outside a
        theorem."""
        spec = self.found.spec
        rows = []
        for bound_id in PROMISES:
            behind = bound_id.endswith("assumption3")
            Q = queries["e+mean" if behind else self.kinds[0]]["Q"]
            case = Case(
                family="multi-head", d=spec.d, d_h=spec.d_h, H=spec.H, kv_heads=spec.kv_heads,
                n=self.n, layers=spec.layers, d_ff=spec.d_ff, activation=spec.activation,
                shared=False, positions="rotary" if spec.positions == "rotary" else "input", T=T,
                kruskal=Q, d_in=spec.d, spread=spread, width=max(spec.d, spec.d_ff),
            )  # fmt: skip
            bound = find(bound_id)
            answer, bare = bound.answer(case), bound.answer(replace(case, positions="input"))
            names = ("applies", "reason", "capacity", "kind")
            said = {name: getattr(answer, name) for name in names}
            outside = None if answer.applies or not bare.applies else bare.capacity
            rows.append({"id": bound_id, **said, "Q": Q, "note": answer.note, "bare": outside})
        return rows


def _exact_setting(settings: list[Record]) -> Record:
    """What was measured in float64, not centred."""
    return next(s for s in settings if s["dtype"] == "float64" and not s["centred"])


def _trimmed(record: Record) -> Record:
    """The Kruskal report without long lists of rows (identical queries make thousands)."""
    record["parallel_sets"] = len(record["parallel"])
    record["parallel_rows"] = sum(map(len, record["parallel"]))
    record["parallel"] = [list(s[:8]) for s in record["parallel"][:4]]
    record["zero_rows"] = list(record["zero_rows"][:8])
    return record


def _short(query: Record) -> Record:
    """What a table shows of a kind of query."""
    shares = {
        f"{s['dtype']}{' centred' if s['centred'] else ''}": s["independent"]
        for s in query["settings"]
    }
    return {"verdict": query["assumption1"], "Q": query["Q"], "independent": shares}


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
