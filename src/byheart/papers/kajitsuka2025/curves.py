"""Figures 1 and 2: accuracy and loss against the number of blocks."""

from __future__ import annotations

import numpy as np

from byheart.papers.declare import declare
from byheart.papers.kajitsuka2025 import text
from byheart.papers.kajitsuka2025.experiment import ERROR, TRAIN
from byheart.studies import Axes, Cell, Finding, Row, Study, figure, laws
from byheart.studies.study import Record

OFFLINE = "offline-text"  # the variant on texts that every machine has


def analyse(rows: list[Row]) -> Finding:
    table, verdicts = [], []
    numbers: Record = {}
    for variant, same in laws.by_variant(rows).items():
        x, y = figure.series(same, "blocks", "accuracy")
        at, mean, _ = figure.means(x, y)
        if len(at) < 3:
            continue
        rise = laws.slope(np.log2(x), y)
        top = float(mean.max())
        verdicts.append(laws.judged(rise["low"] > 0 and top >= 1 - ERROR, rise["high"] <= 0))
        loss = figure.means(*figure.series(same, "blocks", "loss"))[1]
        table += [
            {"variant": variant, "blocks": int(b), "accuracy": a, "loss": c}
            for b, a, c in zip(at, mean, loss, strict=True)
        ]
        numbers[f"accuracy for a doubling of the blocks, {variant}"] = rise
        numbers[f"best accuracy, {variant}"] = top
    if not verdicts:
        return laws.too_few("three numbers of blocks are needed")
    best = max(row["accuracy"] for row in table)
    sentence = f"More blocks memorize more; the best of the trials reaches {best:.3f}."
    return Finding(verdicts[0], sentence, numbers, {"blocks": table})


def curve_study(
    name: str, source: str, classes: int, N: dict[str, int], blocks: tuple[int, ...]
) -> Study:
    def grid(variant: str, profile: str) -> list[Cell]:
        corpus = text.SYSTEM if variant == OFFLINE else text.local(source)
        if corpus is None:
            return []  # as published: only where the user has the data
        how = {"classes": classes, "corpus": corpus}
        if profile == "quick":
            return TRAIN.grid(name, blocks=(1, 2, 4, 6, 8, 12), N=N["quick"], **how)
        how |= {"rates": [0.06, 0.03, 0.01], "starts": 4}
        return TRAIN.grid(name, blocks=blocks, N=N["full"], **how)

    x = "blocks on either side"
    axes = (
        Axes("blocks", "accuracy", "variant", x, "best accuracy of the trials", label="{value}"),
        Axes("blocks", "loss", "variant", x, label="{value}"),
    )
    return declare(f"kajitsuka2025/{name}", grid, analyse, axes)


FIG1 = curve_study("fig1", "multinli", 3, {"quick": 200, "full": 2000}, (1, 10, 20, 30, 40, 50))
FIG2 = curve_study("fig2", "imdb", 2, {"quick": 300, "full": 3000}, (1, 10, 20, 30, 40))
