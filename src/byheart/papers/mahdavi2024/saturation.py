"""Saturated heads: do they specialise? The paper's statistic beside what it leaves out."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from byheart.papers.declare import declare
from byheart.papers.mahdavi2024.experiment import PAPER
from byheart.specs import MultiHeadSpec
from byheart.studies import figure, laws
from byheart.studies.cell import Cell, Measurements, Params, Procedure
from byheart.studies.fits import combined
from byheart.studies.study import Axes, Claim, Finding, Record, Row
from byheart.theory.mahdavi2024 import theorem1_capacity

if TYPE_CHECKING:
    from byheart.models.vector_memory import VectorMemory

FRESH = 1000
MANY = 0.25  # of the examples
CONTRAST = 0.05  # of saturation and of correlation: smaller is no contrast
KINDS = ("untrained", "trained", "literal", "one-hot")
COLUMNS = ("accuracy", "saturated", "fresh_saturated", "own_saturated", "other_saturated",
           "correlation", "co_saturation", "breaks", "two_heads_or_more",
           "concentration")  # fmt: skip


def statistics(p: Params, seed: int) -> Measurements:
    """`head_statistics` of one layer, in means over heads.

    `co_saturation`: half the L1 distance of the histogram (examples by number of saturated heads)
    from independent heads with the same shares, as a share of the examples.
    """
    from byheart.measure import head_statistics

    memory, told = _memory(p, seed)
    facts = memory.facts
    assert facts is not None
    fresh = np.random.default_rng(seed + 1).random((FRESH, facts.d)).astype(np.float32)
    stats = head_statistics(memory, fresh=fresh.astype(np.float64))
    apart = 0.5 * float(np.abs(stats.histogram - stats.expected).sum()) / facts.T
    own, other = (
        float(np.mean(kept)) if len(kept := shares[~np.isnan(shares)]) else None
        for shares in (stats.own_saturated, stats.other_saturated)
    )
    return {
        **told, "T": facts.T, "saturated": float(stats.saturated.mean()),
        "fresh_saturated": float(stats.fresh_saturated.mean()), "own_saturated": own,
        "other_saturated": other, "correlation": stats.correlation, "co_saturation": apart,
        "histogram": [int(v) for v in stats.histogram],
        "independent": [float(v) for v in stats.expected],
        "breaks": float(stats.broken.mean()), "concentration": stats.concentration,
        "two_heads_or_more": float(stats.heads_needed[2:].sum() / facts.T),
    }  # fmt: skip


def _memory(p: Params, seed: int) -> tuple[VectorMemory, Measurements]:
    import torch

    from byheart._progress import quiet
    from byheart.construct.methods import MultiHead
    from byheart.construct.multi_head.build import multi_head_memory
    from byheart.facts import random_vectors
    from byheart.models.architectures import initial
    from byheart.models.construction import ImportedConstruction
    from byheart.models.vector_memory import VectorMemory
    from byheart.training import Data, mahdavi2024, train_stack

    H, n, d = p["H"], p["n"], p["d"]
    if p["kind"] in ("literal", "one-hot"):
        T = theorem1_capacity(H, n, n)
        facts = random_vectors(T, n, d, classes=p["classes"], seed=seed)
        dtype = "float64" if p["kind"] == "literal" else "float32"
        method = MultiHead(proof=p["kind"], H=H, d_h=n, dtype=dtype)
        memory = multi_head_memory(facts, method, seed, quiet)
        return memory, {"accuracy": memory.construction.recalled / T, "steps": 0}
    facts = random_vectors(p["T"], n, d, classes=p["classes"], seed=seed)
    spec = MultiHeadSpec(d, n, d, H, 1, p["classes"], True, embed=True, scale=True, decoder=True)
    if p["kind"] == "untrained":
        stack = initial(spec, [torch.Generator().manual_seed(seed)])
        weights, told = {k: w[0] for k, w in stack.items()}, {"accuracy": None, "steps": 0}
    else:
        query, label, E = (torch.tensor(x) for x in (facts.query, facts.label, facts.context))
        # Drawn with replacement: a batch of 256 may be more than there are examples.
        few = {"sampling": "with-replacement", "epoch_steps": 100, "keep_best": False}
        how = {} if p.get("batches") == "without-replacement" else few
        recipe = mahdavi2024(facts.T, steps=p["steps"], stop_at=p["stop_at"], **how)
        data = Data(query.float(), label, "class", E.float())
        trained = train_stack(spec, data, recipe, [seed])
        outcome = trained.outcomes[0]
        weights, told = trained.model(0), {"accuracy": outcome.accuracy, "steps": outcome.steps}
    memory = VectorMemory(
        spec=spec, weights=weights, construction=ImportedConstruction(), facts=facts,
        classes=p["classes"], context=facts.context,
    )  # fmt: skip
    return memory, told


STATISTICS = Procedure(
    statistics,
    seconds=lambda p: 1.0 + (1.3e-3 * p["steps"] * p["H"] / 4 if p["kind"] == "trained" else 0.0),
)


def grid(variant: str, profile: str) -> list[Cell]:
    make = partial(STATISTICS.grid, "saturation", n=32, d=64, classes=PAPER["classes"])
    if profile == "quick":
        return make(kind=KINDS, H=4, T=250, steps=8000, stop_at=1.0)
    cells: list[Cell] = []
    for H, T in ((4, 550), (8, 1300)):
        how = {"H": H, "T": T, "steps": 300_000, "stop_at": None}
        cells += make(kind=tuple(kind for kind in KINDS if kind != "trained"), **how)
        cells += make(kind="trained", batches="without-replacement", **how)  # as the authors
    return cells


def analyse(rows: list[Row]) -> Finding:
    groups = laws.group(rows, lambda row: (row["H"], KINDS.index(row["kind"])))
    table: list[Record] = [
        {"model": KINDS[kind], "H": H, "T": same[0]["T"]}
        | {name: laws.mean(same, name) for name in COLUMNS}
        for (H, kind), same in sorted(groups.items())
    ]
    trained = [(H, same) for (H, kind), same in groups.items() if KINDS[kind] == "trained"]
    built = [line for line in table if line["model"] == "literal"]
    if not trained or not built:
        return laws.too_few("a trained and a built layer are needed")
    claims, told = [], []
    for H, same in sorted(trained):
        stored, fresh = ([row[name] for row in same] for name in ("saturated", "fresh_saturated"))
        contrast = [f - s for f, s in zip(fresh, stored, strict=True)]
        related = [row["correlation"] or 0.0 for row in same]
        level, more, together = (combined([v], [1.0]) for v in (stored, contrast, related))
        claims += [
            Claim(f"H = {H}: many examples are saturated: share of the stored", level, MANY),
            Claim(f"H = {H}: more on fresh queries than on stored, as in the proof: difference",
                  more, CONTRAST, own=True),
            Claim(f"H = {H}: different heads on different examples: correlation of two heads",
                  together, most=-CONTRAST, own=True),
        ]  # fmt: skip
        level, more, together = (number["estimate"] for number in (level, more, together))
        told.append(f"{level:.2f}, {more:+.2f} and {together:+.2f} (H = {H})")
    control = built[0]
    sentence = (
        "Share of the stored queries on which trained heads are saturated, difference on fresh "
        f"ones, and correlation of two heads: {'; '.join(told)}; in the proof's layer "
        f"{control['saturated']:.2f}, {control['fresh_saturated'] - control['saturated']:+.2f} and "
        f"{control['correlation'] or 0.0:+.2f}."
    )
    return Finding(sentence, tuple(claims), tables={"heads": table})


def draw(rows: list[Row], finding: Finding) -> figure.Figure:
    """Examples by number of saturated heads, and what independent heads would give."""
    groups = laws.by(rows, "kind")
    kinds = [kind for kind in KINDS if kind in groups] or ["trained"]
    labels = "saturated heads of an example", "share of the examples"
    drawn, panels = figure.panels("Saturated heads", *labels, len(kinds), 3.4)
    for panel, kind in zip(panels, kinds, strict=True):
        panel.set_title(kind, fontsize=9)
        if not rows:
            continue
        first = [row for row in groups[kind] if row["H"] == groups[kind][0]["H"]]
        share = np.mean([np.array(r["histogram"]) / r["T"] for r in first], 0)
        null = np.mean([np.array(r["independent"]) / r["T"] for r in first], 0)
        panel.bar(range(len(share)), share, color=figure.colour(0), label="measured")
        panel.plot(range(len(null)), null, "o--", color=figure.colour(1), label="independent heads")
        figure.legend(panel)
    return drawn


AXES = Axes("H", "saturated", "kind", "heads H", "share of the examples", label="{value}")
SATURATION = declare(
    "mahdavi2024/saturation", grid, analyse, AXES, draw, CONTRAST=CONTRAST, MANY=MANY
)
