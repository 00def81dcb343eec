"""Five layers, as text and captions of Figures 8 to 10 say, beside three, as the code has: which of
the two the published data are of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from byheart.papers.dana2025 import experiment
from byheart.papers.dana2025.experiment import TRAIN, published
from byheart.papers.declare import declare
from byheart.studies import Axes, Cell, Claim, Finding, Params, Published, Row, figure, laws
from byheart.studies.cell import canonical, group
from byheart.studies.fits import combined, of_means
from byheart.studies.published import agreement, matched
from byheart.studies.study import Record

MEASURE = "train_accuracy"  # what the authors publish
DEPTHS = {3: "three", 5: "five"}
# The figures, each with what varies along its panel.
FIGURES = {
    "Figure 8": ("H", "heads H a layer"),
    "Figure 9": ("d_h", "head width d_h"),
    "Figure 10": ("width", "hidden units of the MLPs"),
}
PUBLISHED = {name: published(name.removeprefix("Figure ")) for name in FIGURES}


def grid(variant: str, profile: str) -> list[Cell]:
    """Ends and middle of the three figures as coded, in both depths; the quick profile trains
    them as little as it does there."""
    quick = profile == "quick"
    widths, heads = ((7,), (1, 9)) if quick else ((7, 10, 13), (1, 9, 21))
    inner, units = ((3, 6), (9,)) if quick else ((2, 5, 8), (9, 21))
    how = experiment.training("three layers", profile)
    cells = []
    for layers in DEPTHS:
        deep = {**how, "layers": layers}
        cells += TRAIN.grid("Figure 8", d=widths, H=heads, **deep)
        cells += TRAIN.grid("Figure 9", family="shared", d=10, d_h=inner, H=21, **deep)
        cells += [TRAIN.cell("Figure 10", family="mlp", d=d, H=1, width=2 * d * (k - 1), **deep)
                  for d in widths for k in units]  # fmt: skip
    return cells


def at_depth(name: str, layers: int) -> Published:
    """The published points of a figure, as if they were of models so deep."""
    known = PUBLISHED[name]
    points = tuple(({**params, "layers": layers}, value) for params, value in known.points)
    return replace(known, source=f"{name}, {DEPTHS[layers]} layers", points=points)


def but_depth(params: Params) -> str:
    return canonical({name: value for name, value in params.items() if name != "layers"})


def farther(name: str, rows: Sequence[Row]) -> Claim | None:
    """Mean |ours - published| in five layers minus that in three, over the settings of both."""
    found = [
        {but_depth(params): (value, [row[MEASURE] for row in same])
         for params, value, same in matched(at_depth(name, layers), rows)}
        for layers in DEPTHS
    ]  # fmt: skip
    both = [key for key in found[0] if key in found[1]]
    if not both:
        return None
    values = np.array([found[0][key][0] for key in both])
    groups = [depth[key][1] for depth in found for key in both]

    def difference(means: np.ndarray) -> float:
        three, five = np.abs(means.reshape(2, -1) - values).mean(axis=1)
        return float(five - three)

    what = f"distance from the published data in five layers minus in three, {name}"
    return Claim(f"{what}, mean of {len(both)} settings", of_means(groups, difference), 0.0)


def deeper(rows: Sequence[Row]) -> Record | None:
    """Accuracy in five layers minus in three, mean over the settings that have both."""
    pairs = [
        laws.by(same, "layers") for same in group(rows, lambda r: but_depth(r.params)).values()
    ]
    both = [pair for pair in pairs if pair.keys() == DEPTHS.keys()]
    if not both:
        return None
    groups = [[row[MEASURE] for row in pair[layers]] for pair in both for layers in DEPTHS]
    return combined(groups, np.tile([-1.0, 1.0], len(both)) / len(both))


def analyse(rows: list[Row]) -> Finding:
    """For each figure: three layers agree with the published data, and five are farther off."""
    claims, numbers, tables, words = [], {}, {}, []
    for name, mine in group(rows, lambda row: row.experiment).items():
        gain, claim = deeper(mine), farther(name, mine)
        if gain is None:
            continue
        numbers[f"accuracy in five layers minus in three, {name}"] = gain
        said = f"{gain['estimate']:+.3f} ({name}"
        if claim is not None:
            (three, _, near), (five, _, far) = (agreement(at_depth(name, n), mine) for n in DEPTHS)
            assert three is not None and five is not None  # the claim compares them
            claims += [three, claim]
            numbers[five.statement] = five.found
            tables |= {three.statement: near, five.statement: far}
            off = [f"{c.found['estimate']:+.3f}" for c in (three, five)]
            said += f"; ours minus published {off[0]} in three layers, {off[1]} in five"
        words.append(f"{said})")
    if not words:
        return laws.too_few("the same models in three and in five layers are needed")
    sentence = f"Accuracy in five layers minus in three: {', '.join(words)}."
    return Finding(sentence, tuple(claims), numbers, tables)


def draw(rows: list[Row], _: Finding) -> figure.Figure:
    """Accuracy in both depths, a panel for each figure."""
    title = "Three layers, five, and what was published"
    drawn, panels = figure.panels(title, "", "accuracy (training sample)", len(FIGURES))
    for panel, (name, (x, label)) in zip(panels, FIGURES.items(), strict=True):
        mine = [row for row in rows if row.experiment == name]
        for i, (d, same) in enumerate(laws.by(mine, "d").items()):
            experiment.draw_published(panel, PUBLISHED[name], x, figure.colour(2 * i), d=d)
            for layers, models in laws.by(same, "layers").items():
                at, y = figure.series(models, x, MEASURE)
                figure.points(panel, at, y, f"{layers} layers, d = {d}", 2 * i + (layers == 5))
        panel.set(xlabel=label, title=name, ylim=(0, 1.03))
        figure.legend(panel)
    return drawn


AXES = tuple(Axes(x, MEASURE, "layers", label, "accuracy", where=name)
             for name, (x, label) in FIGURES.items())  # fmt: skip
STUDIES = (declare("dana2025/five-layers", grid, analyse, AXES, draw),)
