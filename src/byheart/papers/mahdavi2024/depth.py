"""New: the same heads in one layer or spread over several."""

from __future__ import annotations

import numpy as np

from byheart.papers.declare import declare
from byheart.papers.mahdavi2024.experiment import (
    PAPER,
    SCALED,
    data_of,
    outcome_of,
    recipe_of,
    train_seconds,
)
from byheart.specs import DeepMultiHeadSpec
from byheart.studies import figure, laws
from byheart.studies.cell import Cell, Jobs, Measurements, Params, Procedure
from byheart.studies.study import Axes, Finding, Record, Row

SAME = 0.03  # accuracy for a doubling of the depth: closer to 0 counts as no difference


def spec_of(p: Params) -> DeepMultiHeadSpec:
    """`heads` heads in all, spread evenly over the layers: the same parameters whatever the depth.

    >>> p = {**SCALED, "n": 8, "d_h": 16, "heads": 12}
    >>> [spec_of({**p, "layers": L}).parameters for L in (1, 2, 3, 6)]
    [6698, 6698, 6698, 6698]
    """
    H = p["heads"] // p["layers"]
    shared = p["context"] == "shared"
    return DeepMultiHeadSpec(p["d"], p["n"], p["d_h"], H, p["layers"], 1, p["classes"], shared)


def train(jobs: Jobs) -> list[Measurements]:
    """Models of one shape, each on its own data."""
    from byheart.training import train_stack

    p = jobs[0][0]
    seeds = [seed for _, seed in jobs]
    spec = spec_of(p)
    outcomes = train_stack(spec, data_of(p, seeds), recipe_of(p), seeds).outcomes
    return [
        {**outcome_of(o), "memorized": o.accuracy * p["T"], "H": spec.H,
         "parameters": spec.parameters}
        for o in outcomes
    ]  # fmt: skip


TRAIN = Procedure(
    stack=train,
    largest=3,
    seconds=lambda p: train_seconds({**p, "H": p["heads"]}) * (1 + 0.3 * p["layers"]),
)


def grid(variant: str, profile: str) -> list[Cell]:
    if profile == "quick":
        sizes = {"T": (1000, 1500), "layers": (1, 2, 3, 4, 6), "n": 8, "heads": 12}
        return TRAIN.grid("depth", **SCALED, d_h=SCALED["d"], **sizes)
    sizes = {"T": (10_000, 20_000), "layers": (1, 2, 3, 4, 6, 8), "n": 32, "heads": 24}
    return TRAIN.grid("depth", **PAPER, d_h=PAPER["d"], **sizes)


def analyse(rows: list[Row]) -> Finding:
    table, verdicts = [], []
    numbers: Record = {}
    for T, same in laws.by(rows, "T").items():
        x, y = figure.series(same, "layers", "accuracy")
        if len(np.unique(x)) < 3:
            continue
        slope = laws.slope(np.log2(x), y)
        inside = slope["low"] >= -SAME and slope["high"] <= SAME
        outside = slope["low"] > SAME or slope["high"] < -SAME
        verdicts.append(laws.judged(inside, outside))
        numbers[f"accuracy for twice the depth, T = {T}"] = slope
        table += [
            {"T": T, "layers": int(L), "accuracy": mean, "deviation": deviation}
            for L, mean, deviation in zip(*figure.means(x, y), strict=True)
        ]
    if not table:
        return laws.too_few("three depths are needed")
    best = max(table, key=lambda row: row["accuracy"])
    told = ", ".join(f"{slope['estimate']:+.3f}" for slope in numbers.values())
    sentence = (
        f"With the same heads in all, twice the depth changes the accuracy by {told}; best at "
        f"{best['layers']} layers."
    )
    return Finding(laws.worst(verdicts), sentence, numbers, {"depths": table})


AXES = Axes("layers", "accuracy", "T", bottom=0, top=1.03)
DEPTH = declare("mahdavi2024/depth", grid, analyse, AXES, SAME=SAME)
