"""Attention-only against MLP at equal parameters: experiment 5 and its versions.

Figures 3, 7 and 10, and the same with both trained out.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from byheart.papers.dana2025.experiment import CODED, HEADS, TRAIN, measure_of, training
from byheart.papers.declare import Grid, declare
from byheart.studies import Axes, Cell, Finding, Params, Record, Row, Verdict, figure, laws
from byheart.studies.fits import interval_of_mean

Sizes = tuple[Sequence[int], Sequence[int]]
"""Widths d = d_h, and numbers of heads H."""
NAMES = {"attention": "attention only", "mlp": "one head and an MLP"}
SAME = 0.01  # accuracies nearer than this are called equal
CEILING = 0.98  # where both are perfect there is nothing to compare


def equal_width(d: int, H: int) -> int:
    """Hidden units w that cost what H - 1 more heads cost: (2d + 1) w = 4 d² (H - 1), rounded.

    >>> equal_width(10, 16), equal_width(10, 1)
    (286, 0)
    """
    return round(4 * d * d * (H - 1) / (2 * d + 1))


def both(experiment: str, sizes: Sizes, how: Params, coded: bool = False) -> list[Cell]:
    """Attention-only Transformers of all widths and numbers of heads, each beside one with an MLP
    of (about) its size; `coded`: of 2 d (H - 1) units, which the authors' code takes for it."""
    cells = []
    for d, H in itertools.product(*sizes):
        width = 2 * d * (H - 1) if coded else equal_width(d, H)
        cells.append(TRAIN.cell(experiment, d=d, H=H, **how))
        cells.append(TRAIN.cell(experiment, family="mlp", d=d, H=1, width=width, **how))
    return cells


def grid_of(experiment: str, models: str, quick: Sizes, full: Sizes) -> Grid:
    def grid(variant: str, profile: str) -> list[Cell]:
        sizes = quick if profile == "quick" else full
        return both(experiment, sizes, training(models, profile), variant == CODED)

    return grid


def grid_out(variant: str, profile: str) -> list[Cell]:
    """The usual 64 epochs, and four times as many."""
    sizes = ((10,), (6, 11, 16, 21) if profile != "quick" else (6, 16))
    short = both("as long as experiment 1", sizes, {})
    return short + both("four times as long", sizes, {"epochs": 256})


def difference(rows: Sequence[Row], measure: str) -> list[Record]:
    """Attention minus MLP at the parameter counts of the attention-only models, where both are
    measured; the MLP's mean is interpolated linearly in its true count."""
    table = []
    for d, same in laws.by(rows, "d").items():
        families = laws.by(same, "family")
        if families.keys() != NAMES.keys():
            continue
        x, y = figure.series(families["mlp"], "parameters", measure)
        at, mean, deviation = figure.means(x, y)
        number = len(y) / len(at)
        for parameters, mine in laws.by(families["attention"], "parameters").items():
            if not at[0] <= parameters <= at[-1] * 1.01:
                continue
            other = float(np.interp(parameters, at, mean))
            spread = float(np.interp(parameters, at, deviation)) / max(1.0, number) ** 0.5
            own = np.array([r[measure] for r in mine])
            if min(own.mean(), other) > CEILING:
                continue
            low, high = interval_of_mean(own)
            table.append({
                "d": d, "H": mine[0]["H"], "parameters": parameters,
                "attention": float(own.mean()), "mlp": other,
                "difference": float(own.mean()) - other,
                "low": low - other - 2 * spread, "high": high - other + 2 * spread,
            })  # fmt: skip
    return table


def compare(table: list[Record]) -> tuple[Verdict, str]:
    """Who is ahead, where the interval of the difference leaves ± 0.01 out; one head: the same."""
    told = [r for r in table if r["H"] > 1]
    ahead = sum(r["low"] > SAME for r in told)
    behind = sum(r["high"] < -SAME for r in told)
    words = f"attention only is ahead in {ahead} of {len(told)} settings, behind in {behind}"
    if not told:
        return "undecided", "no sizes to compare"
    return laws.judged(2 * ahead > len(told), 2 * behind > len(told)), words


def analyse(rows: list[Row]) -> Finding:
    tables, numbers, words, verdicts = {}, {}, [], []
    for variant, mine in laws.by_variant(rows).items():
        table = difference(mine, measure_of(variant))
        if not table:
            continue
        verdict, said = compare(table)
        verdicts.append(verdict)
        words.append(f"{said} ({variant})")
        tables[f"attention minus MLP, {variant}"] = table
        inner = [r["difference"] for r in table if r["H"] > 1]
        if inner:
            numbers[f"mean difference, {variant}"] = float(np.mean(inner))
    if not tables:
        return laws.too_few("both architectures are needed")
    verdict = verdicts[0] if len(set(verdicts)) == 1 else "undecided"
    sentence = f"At equal true parameter counts {'; '.join(words)}."
    return Finding(verdict, sentence, numbers, tables)


def analyse_out(rows: list[Row]) -> Finding:
    """Trained out: four times the steps add less than a point to the mean."""
    groups = laws.by(rows, "experiment").items()
    differences = {name: difference(same, "accuracy") for name, same in groups}
    tables = {name: table for name, table in differences.items() if table}
    gains = []
    models = laws.group(rows, lambda r: (r["family"], r["H"], r["width"]))
    for (family, H, w), same in models.items():
        lengths = laws.by(same, "epochs").values()
        if len(lengths) == 2:
            short, long = (float(np.mean([r["accuracy"] for r in mine])) for mine in lengths)
            gain = {"family": family, "H": H, "width": w, "short": short, "long": long}
            gains.append({**gain, "gain": long - short})
    gains.sort(key=lambda gain: gain["family"])
    if "four times as long" not in tables or not gains:
        return laws.too_few("both lengths of training are needed")
    ahead, said = compare(tables["four times as long"])
    turned: dict[Verdict, Verdict] = {"confirmed": "not confirmed", "not confirmed": "confirmed"}
    verdict = turned.get(ahead, ahead)  # the claim is about the MLP here
    last = max(g["gain"] for g in gains)
    out = "both are trained out" if last < SAME else f"four times the steps still add {last:.3f}"
    mean = {f: float(np.mean([g["gain"] for g in gains if g["family"] == f])) for f in NAMES}
    numbers = {f"mean gain of four times the steps, {NAMES[f]}": gain for f, gain in mean.items()}
    sentence = f"Trained four times as long, at equal true counts, {said}; {out}."
    return Finding(verdict, sentence, numbers, {**tables, "gain": gains})


def draw(rows: list[Row], finding: Finding) -> figure.Figure:
    groups = laws.by(rows, "experiment")
    panels = [(v, e) for v in laws.by_variant(rows) for e in groups] or [(CODED, "")]
    title = "Attention only against one head and an MLP"
    drawn, columns = figure.panels(title, "parameters", "accuracy", len(panels))
    for panel, (variant, experiment) in zip(columns, panels, strict=True):
        mine = [r for r in groups.get(experiment, []) if r.variant == variant]
        lines = {
            f"{NAMES[family]}, d = {d}": models
            for d, same in laws.by(mine, "d").items()
            for family, models in laws.by(same, "family").items()
        }
        figure.groups(panel, lines, "parameters", measure_of(variant))
        panel.set_title(f"{variant}, {experiment}", fontsize=9)
        panel.set_ylim(0, 1.03)
        figure.legend(panel)
    return drawn


AXES = Axes("parameters", "train_accuracy", "family")
GRIDS = {
    "fig3": grid_of("exp5", "N = 70", ((7,), HEADS[::2]), ((7, 10, 13), HEADS)),
    "fig7": grid_of("exp5 dim", "N = 200", ((50,), (1, 3, 5)), ((40, 50, 60), range(1, 12, 2))),
    "fig10": grid_of(
        "exp5 depth", "three layers", ((7,), (1, 5, 9)), ((7, 10, 13), range(1, 22, 4))
    ),
}
STUDIES = (
    *(
        declare(f"dana2025/{name}", grid, analyse, AXES, draw, CEILING=CEILING, SAME=SAME)
        for name, grid in GRIDS.items()
    ),
    declare("dana2025/aot-vs-mlp-trained-out", grid_out, analyse_out, AXES, draw, SAME=SAME),
)
