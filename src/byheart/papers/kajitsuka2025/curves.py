"""Figures 1 and 2: accuracy and loss against the number of blocks."""

from __future__ import annotations

import numpy as np

from byheart.papers.kajitsuka2025 import text
from byheart.papers.kajitsuka2025.experiment import ERROR, TRAIN
from byheart.studies import Axes, Cell, Finding, Row, Study, figure, fit, laws
from byheart.studies.study import Record

OFFLINE, PUBLISHED = "offline-text", "as-published"


def analyse(rows: list[Row]) -> Finding:
    table, verdicts = [], []
    numbers: Record = {}
    for variant in laws.variants_of(rows):
        same = [row for row in rows if row.variant == variant]
        x, y = figure.series(same, "blocks", "accuracy")
        at, mean, _ = figure.means(x, y)
        if len(at) < 3:
            continue
        rise = fit("linear", np.log2(x), y, resamples=laws.RESAMPLES).interval("b")
        top = float(mean.max())
        verdicts.append(laws.judged(rise["low"] > 0 and top >= 1 - ERROR, rise["high"] <= 0))
        loss = figure.means(*figure.series(same, "blocks", "loss"))[1]
        for i, b in enumerate(at):
            table.append(
                {"variant": variant, "blocks": int(b), "accuracy": mean[i], "loss": loss[i]}
            )
        numbers[f"accuracy for a doubling of the blocks, {variant}"] = rise
        numbers[f"best accuracy, {variant}"] = top
    if not verdicts:
        return laws.too_few("three numbers of blocks are needed")
    best = max(row["accuracy"] for row in table)
    sentence = f"More blocks memorize more; the best of the trials reaches {best:.3f}."
    return Finding(verdicts[0], sentence, numbers, {"blocks": table})


TEXT_NOTES = (
    "The paper does not say which word vectors, learning rates or starts it used; here every word "
    "has a Gaussian vector in R^16 and the trials are 4 starts at each of a few learning rates "
    "(the authors: Optuna, 2 or 10 trials), with the outputs of each block divided by the square "
    "root of their number at the start.",
    "Labels of the offline text are random: nothing but memory can give them. The model has no "
    "positions, so sentences with the same words and the same first word are taken once.",
    "The authors published no code and no values of the curves.",
)
SETTINGS = (
    "m = 2, q = 8, #blocks residual ReLU blocks before and after one uniform attention, first token"
    " read, AdamW on the full batch, 1,000 epochs; sentences cut to their first 8 words, from the "
    "licence texts of the operating system and the documentation of Python's library. "
)


def curve_study(
    figure: str, like: str, source: str, classes: int, N: dict[str, int], blocks: tuple[int, ...]
) -> Study:
    def grid(variant: str, profile: str) -> list[Cell]:
        corpus = text.SYSTEM if variant == OFFLINE else text.local(source)
        if corpus is None:
            return []  # as published: only where the user has the data
        how = {"classes": classes, "corpus": corpus}
        if profile == "quick":
            return TRAIN.grid(figure, blocks=(1, 2, 4, 6, 8, 12), N=N["quick"], **how)
        how |= {"rates": [0.06, 0.03, 0.01], "starts": 4}
        return TRAIN.grid(figure, blocks=blocks, N=N["full"], **how)

    x = "blocks on either side"
    return Study(
        name=f"kajitsuka2025/{figure}",
        title=f"Accuracy and loss against blocks, {classes} classes (as {like})",
        source=f"Figure {figure[3:]}",
        claim="With more blocks the loss falls to about 0 and the accuracy rises to about 1.",
        measurement="accuracy and cross-entropy over all N sentences, best of the trials",
        rule="Confirmed if accuracy rises with log2(blocks) (slope above 0, 95 % bootstrap over "
        "seeds) and reaches 0.99; not confirmed if it does not rise.",
        grid=grid,
        analyse=analyse,
        axes=(
            Axes(
                "blocks", "accuracy", "variant", x, "best accuracy of the trials", label="{value}"
            ),
            Axes("blocks", "loss", "variant", x, label="{value}"),
        ),
        variants=(OFFLINE, PUBLISHED),
        seeds={"quick": 2, "full": 3, "paper": 3},
        settings=SETTINGS + f"Quick: N = {N['quick']}, blocks 1..12; full, as in the paper: N = "
        f"{N['full']:,}, blocks {', '.join(map(str, blocks))}. As published: {like} at the path in "
        f"{text.LOCAL[source]} (no cells without it).",
        disagreements=TEXT_NOTES,
    )


FIG1 = curve_study(
    "fig1", "MultiNLI", "multinli", 3, {"quick": 200, "full": 2000}, (1, 10, 20, 30, 40, 50)
)
FIG2 = curve_study("fig2", "IMDb", "imdb", 2, {"quick": 300, "full": 3000}, (1, 10, 20, 30, 40))
