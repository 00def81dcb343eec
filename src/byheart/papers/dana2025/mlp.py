"""Attention-only against MLP at equal parameters: experiment 5 and its versions.

Figures 3, 7 and 10, and the same with both trained out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from byheart.papers.dana2025.experiment import CODED, HEADS, TRAIN, measure_of, training
from byheart.papers.declare import declare
from byheart.studies import Axes, Cell, Finding, Params, Record, Row, Verdict, figure, laws
from byheart.studies.fits import interval_of_mean

NAMES = {"attention": "attention only", "mlp": "one head and an MLP"}
SAME = 0.01  # accuracies nearer than this are called equal
CEILING = 0.98  # where both are perfect there is nothing to compare


def equal_width(d: int, H: int) -> int:
    """Hidden units w that cost what H - 1 more heads cost: (2d + 1) w = 4 d² (H - 1), rounded.

    >>> equal_width(10, 16), equal_width(10, 1)
    (286, 0)
    """
    return round(4 * d * d * (H - 1) / (2 * d + 1))


def coded_width(d: int, H: int) -> int:
    """Hidden units that the authors' code takes to cost the same: 2 d (H - 1)."""
    return 2 * d * (H - 1)


def both(
    experiment: str, widths: Sequence[int], heads: Sequence[int], how: Params,
    hidden: Callable[[int, int], int] = coded_width,
) -> list[Cell]:  # fmt: skip
    """Attention-only Transformers with H heads, each beside one with an MLP of (about) its size."""
    return [
        cell
        for d in widths
        for H in heads
        for cell in (
            TRAIN.cell(experiment, d=d, H=H, **how),
            TRAIN.cell(experiment, family="mlp", d=d, H=1, width=hidden(d, H), **how),
        )
    ]


def grid_3(variant: str, profile: str) -> list[Cell]:
    widths, heads = ((7, 10, 13), HEADS) if profile != "quick" else ((7,), HEADS[::2])
    hidden = coded_width if variant == CODED else equal_width
    return both("exp5", widths, heads, training("N = 70", profile), hidden)


def grid_large(variant: str, profile: str) -> list[Cell]:
    widths, heads = ((40, 50, 60), range(1, 12, 2)) if profile != "quick" else ((50,), (1, 3, 5))
    return both("exp5 dim", widths, heads, training("N = 200", profile))


def grid_deep(variant: str, profile: str) -> list[Cell]:
    widths, heads = ((7, 10, 13), range(1, 22, 4)) if profile != "quick" else ((7,), (1, 5, 9))
    return both("exp5 depth", widths, heads, training("three layers", profile))


def grid_out(variant: str, profile: str) -> list[Cell]:
    """N = 50, d = 10, equal counts; the usual 64 epochs, and four times as many."""
    heads = (6, 11, 16, 21) if profile != "quick" else (6, 16)
    short = both("as long as experiment 1", (10,), heads, {}, equal_width)
    return short + both("four times as long", (10,), heads, {"epochs": 256}, equal_width)


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
    for (family, H, w), same in laws.group(
        rows, lambda r: (r["family"], r["H"], r["width"])
    ).items():
        means = [
            float(np.mean([r["accuracy"] for r in s])) for s in laws.by(same, "epochs").values()
        ]
        if len(means) == 2:
            short, long = means
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
GRIDS = {"fig3": grid_3, "fig7": grid_large, "fig10": grid_deep}
STUDIES = (
    *(
        declare(f"dana2025/{name}", grid, analyse, AXES, draw, CEILING=CEILING, SAME=SAME)
        for name, grid in GRIDS.items()
    ),
    declare("dana2025/aot-vs-mlp-trained-out", grid_out, analyse_out, AXES, draw, SAME=SAME),
)
