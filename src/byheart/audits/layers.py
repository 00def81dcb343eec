"""One layer of one model: all checks, their verdicts, and what each theorem then promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from byheart.audits.measures import (
    SETTINGS,
    context_check,
    head_groups,
    kruskal_check,
    query_check,
    separation_check,
)
from byheart.audits.models import FoundModel
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


def layer_record(
    found: FoundModel,
    layer: int,
    weights: str,
    states: dict[str, LayerStates],
    heads: HeadStates | None,
    *,
    n: int,
    kinds: tuple[str, ...],
    draws: int,
    search: int,
    seed: int,
    report: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """All checks of one layer as one JSON object; `states` by number format ("float64" needed)."""
    measured = [(dtype, centred) for dtype, centred in SETTINGS if dtype in states]
    asked = min(n, found.spec.d)
    exact = states["float64"]
    main = kinds[0]
    queries: dict[str, Any] = {}
    for kind in (*kinds, "e+mean"):
        report(f"{weights}, layer {layer}: queries {kind!r}")
        queries[kind] = query_record(
            {dtype: s.queries[kind] for dtype, s in states.items()},
            measured, found, asked, draws=draws, search=search, seed=seed,
        )  # fmt: skip
    contexts = [context_check(states[dtype].contexts, dtype, c) for dtype, c in measured]
    separation = separation_check(exact.queries["every"] if "every" in kinds else
                                  exact.queries[main])  # fmt: skip
    full = next(c for c in contexts if c["dtype"] == "float64" and not c["centred"])
    checks = {
        "assumption2": {
            "verdict": "holds" if full["full"] == full["contexts"] else "fails",
            "share": full["full"] / full["contexts"],
            "seen": full["contexts"],
        },
        "assumption3": _short(queries["e+mean"]),
        **{f"assumption1.{kind}": _short(queries[kind]) for kind in kinds},
        **{
            f"groups.{kind}": {"verdict": queries[kind]["groups"]["verdict"]}
            for kind in (*kinds, "e+mean")
        },
        **{
            f"general_position.{kind}": {"verdict": queries[kind]["general_position"]}
            for kind in kinds
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
        "heads": None if heads is None else head_record(heads),
        "promises": promises(found, n, queries, main, separation, len(exact.queries[main])),
    }


def query_record(
    X: dict[str, np.ndarray],
    measured: list[tuple[str, bool]],
    found: FoundModel,
    n: int,
    *,
    draws: int,
    search: int,
    seed: int,
) -> dict[str, Any]:
    """Settings, Kruskal report, verdicts and group certificates of one kind of query."""
    settings = [
        query_check(X[dtype], dtype, centred, n=n, draws=draws, seed=seed)
        for dtype, centred in measured
    ]
    rows = X["float64"]
    size = min(n, len(rows))
    kruskal, first, general = kruskal_check(rows, size, draws=draws, search=search, seed=seed)
    drawn = next(s for s in settings if s["dtype"] == "float64" and not s["centred"])
    Q = max(1, min(drawn["Q"], max(kruskal.upper, 1)))
    H, r = found.spec.H, min(n, found.spec.d_h)
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
            "residual": None if groups is None or groups.residual == np.inf else groups.residual,
        },
    }


def _trimmed(record: dict[str, Any]) -> dict[str, Any]:
    """The Kruskal report without long lists of rows (identical queries make thousands)."""
    record["parallel_sets"] = len(record["parallel"])
    record["parallel_rows"] = sum(map(len, record["parallel"]))
    record["parallel"] = [list(s[:8]) for s in record["parallel"][:4]]
    record["zero_rows"] = list(record["zero_rows"][:8])
    return record


def _short(query: dict[str, Any]) -> dict[str, Any]:
    """What a table shows of a kind of query."""
    shares = {
        f"{s['dtype']}{' centred' if s['centred'] else ''}": s["independent"]
        for s in query["settings"]
    }
    return {"verdict": query["assumption1"], "Q": query["Q"], "independent": shares}


def head_record(heads: HeadStates) -> list[dict[str, float | int]]:
    """Saturation and entropy a head: of the main query, and of all tokens."""
    return [
        {
            "head": h,
            "saturated": float(heads.saturated[h]),
            "entropy": float(heads.entropy[h]),
            "saturated_every": float(heads.saturated_every[h]),
            "entropy_every": float(heads.entropy_every[h]),
        }
        for h in range(len(heads.saturated))
    ]


def promises(
    found: FoundModel,
    n: int,
    queries: dict[str, Any],
    main: str,
    separation: dict[str, Any],
    T: int,
) -> list[dict[str, Any]]:
    """What each theorem says about one attention layer that reads these vectors, with the measured
    Kruskal rank Q in place of n and the measured r/δ. `bare`: the number for the same layer with
    one W_h for all positions, where the model's rotary positions are outside a theorem."""
    spec = found.spec
    rows = []
    for bound_id in PROMISES:
        behind = bound_id.endswith("assumption3")
        Q = queries["e+mean" if behind else main]["Q"]
        case = Case(
            family="multi-head", d=spec.d, d_h=spec.d_h, H=spec.H, kv_heads=spec.kv_heads, n=n,
            layers=spec.layers, d_ff=spec.d_ff, activation=spec.activation, shared=False,
            positions="rotary" if spec.positions == "rotary" else "input", T=T, kruskal=Q,
            d_in=spec.d, spread=separation["spread"], width=max(spec.d, spec.d_ff),
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
