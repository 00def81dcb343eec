"""One layer of one model: all checks, their verdicts, and what each theorem then promises."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from byheart._progress import Report
from byheart.audits.measures import (
    SETTINGS,
    Record,
    context_check,
    head_groups,
    kruskal_check,
    query_check,
    separation_check,
)
from byheart.audits.models import FoundModel
from byheart.audits.settings import AuditSettings
from byheart.audits.states import HeadStates, LayerStates
from byheart.theory.bound import Case
from byheart.theory.registry import find

PROMISES = (
    "mahdavi2024.theorem1",
    "mahdavi2024.assumption3",
    "mahdavi2024.generic_rank",
    "mahdavi2024.effective_parameters",
    "kajitsuka2025.theorem41",
)


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
        """All checks of one layer as one JSON object; `states` by number format ("float64"
        needed)."""
        measured = [(dtype, centred) for dtype, centred in SETTINGS if dtype in states]
        exact, main = states["float64"], self.kinds[0]
        queries: dict[str, Record] = {}
        for kind in (*self.kinds, "e+mean"):
            self.progress(f"{weights}, layer {layer}: queries {kind!r}")
            X = {dtype: s.queries[kind] for dtype, s in states.items()}
            queries[kind] = self._query(X, measured)
        contexts = [context_check(states[dtype].contexts, dtype, c) for dtype, c in measured]
        separated = "every" if "every" in self.kinds else main
        separation = separation_check(exact.queries[separated])
        full = _exact_setting(contexts)
        verdict = "holds" if full["full"] == full["contexts"] else "fails"
        share = full["full"] / full["contexts"]
        checks: Record = {
            "assumption2": {"verdict": verdict, "share": share, "seen": full["contexts"]},
            "assumption3": _short(queries["e+mean"]),
            **{f"assumption1.{kind}": _short(queries[kind]) for kind in self.kinds},
            **{
                f"groups.{kind}": {"verdict": q["groups"]["verdict"]} for kind, q in queries.items()
            },
            **{
                f"general_position.{kind}": {"verdict": queries[kind]["general_position"]}
                for kind in self.kinds
            },
            "separation": {"verdict": "measured", "spread": separation["spread"]},
        }
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
        n, draws, seed = min(self.n, spec.d), used.draws, used.seed
        settings = [
            query_check(X[dtype], dtype, centred, n=n, draws=draws, seed=seed)
            for dtype, centred in measured
        ]
        rows = X["float64"]
        kruskal, first, general = kruskal_check(
            rows, min(n, len(rows)), draws=draws, search=used.search, seed=seed
        )
        Q = max(1, min(_exact_setting(settings)["Q"], max(kruskal.upper, 1)))
        H, r = spec.H, min(n, spec.d_h)
        T0, groups = head_groups(rows, H, r, seed)
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
            answer = find(bound_id).answer(case)
            bare = find(bound_id).answer(replace(case, positions="input"))
            rows.append(
                {
                    "id": bound_id,
                    "applies": answer.applies,
                    "reason": answer.reason,
                    "capacity": answer.capacity,
                    "kind": answer.kind,
                    "Q": Q,
                    "note": answer.note,
                    "bare": None if answer.applies or not bare.applies else bare.capacity,
                }
            )
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
