"""Attention only against one head and an MLP, at equal parameter counts.

Figures 3, 7 and 10, and the same trained longer, until neither gains.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial

import numpy as np

from byheart.papers.dana2025 import experiment
from byheart.papers.dana2025.experiment import (
    AS_PUBLISHED,
    CODED,
    HEADS,
    SHOWN,
    TRAIN,
    beside,
    published,
)
from byheart.papers.declare import Grid, declare
from byheart.studies import Axes, Cell, Claim, Finding, Published, Record, Row, figure, laws
from byheart.studies.fits import combined
from byheart.studies.study import Interval

Sizes = tuple[Sequence[int], Sequence[int]]
"""Widths d = d_h, and numbers of heads H."""
NAMES = {"attention": "attention only", "mlp": "one head and an MLP"}
SAME = 0.01  # accuracies nearer than this are called equal
EPOCHS = (64, 256, 512, 1024)  # the authors' length, and longer; the last two tell what is gained


def equal_width(d: int, H: int) -> int:
    """Hidden units w that cost what H - 1 more heads cost: (2d + 1) w = 4 d² (H - 1), rounded.

    >>> equal_width(10, 16), equal_width(10, 1)
    (286, 0)
    """
    return round(4 * d * d * (H - 1) / (2 * d + 1))


def grid_of(name: str, models: str, quick: Sizes, paper: Sizes) -> Grid:
    """Attention-only Transformers of all widths and numbers of heads, and as many with an MLP of
    2 d (H - 1) units, which the authors' code takes for as large. As published: the printed
    training for both, at the N of the data."""

    def grid(variant: str, profile: str) -> list[Cell]:
        how = {family: experiment.training(models, profile, family) for family in NAMES}
        if variant == AS_PUBLISHED:
            printed = {**experiment.printed(profile), "N": how["attention"]["N"]}
            how = dict.fromkeys(NAMES, printed)
        cells = []
        for d, H in itertools.product(*(quick if profile == "quick" else paper)):
            mlp = {"family": "mlp", "H": 1, "width": 2 * d * (H - 1), **how["mlp"]}
            cells.append(TRAIN.cell(name, d=d, H=H, **how["attention"]))
            cells.append(TRAIN.cell(name, d=d, **mlp))
        return cells

    return grid


def grid_longer(variant: str, profile: str) -> list[Cell]:
    """Models of equal true counts, trained as long as experiment 1 and longer."""
    heads, lengths = ((6, 16), (16, 32)) if profile == "quick" else ((6, 11, 16, 21), EPOCHS)
    cells = []
    for epochs, H in itertools.product(lengths, heads):
        name, how = f"{epochs:,} epochs", {"d": 10, "epochs": epochs}
        cells.append(TRAIN.cell(name, H=H, **how))
        cells.append(TRAIN.cell(name, family="mlp", H=1, width=equal_width(10, H), **how))
    return cells


def difference(rows: Sequence[Row], measure: str) -> tuple[list[Record], Interval]:
    """Attention minus MLP at the true parameter counts of the attention-only models of more than
    one head (one head is the same model), where both are measured, and the mean over them.

    The MLP's accuracy there is interpolated linearly in its true count, so that every difference,
    and their mean, is a linear combination of means over seeds.
    """
    table, groups, weights = [], [], []
    for d, same in laws.by([row for row in rows if measure in row.measurements], "d").items():
        families = laws.by(same, "family")
        if families.keys() != NAMES.keys():
            continue
        others = laws.by(families["mlp"], "parameters")
        at = np.array(list(others), float)
        mlps = [[row[measure] for row in mine] for mine in others.values()]
        share = np.zeros(len(mlps))
        for parameters, mine in laws.by(families["attention"], "parameters").items():
            if mine[0]["H"] == 1 or not at[0] <= parameters <= at[-1] * 1.01:
                continue
            own = [row[measure] for row in mine]
            near = np.array([np.interp(parameters, at, unit) for unit in np.eye(len(at))])
            found = combined([own, *mlps], [1.0, *-near])
            mlp = float(np.mean(own)) - found["estimate"]
            line = {"d": d, "H": mine[0]["H"], "parameters": parameters}
            line |= {"attention": float(np.mean(own)), "mlp": mlp}
            drawn = [r[measure] for r in families["mlp"] if r["width"] == 2 * d * (line["H"] - 1)]
            line["difference at equal k"] = float(np.mean(own) - np.mean(drawn)) if drawn else None
            table.append(line | laws.columns("difference", found))
            groups.append(own)
            weights.append(1.0)
            share += near
        groups += mlps
        weights += (-share).tolist()
    if not table:
        return [], laws.span(np.nan, np.nan, np.nan)
    return table, combined(groups, np.array(weights) / len(table))


def counts(table: list[Record], by: str) -> Record:
    """Settings in which one or the other is better by more than 0.01, by the means: at equal true
    parameters, and at equal k, as the authors draw them."""
    tally = {}
    for column, at in (("difference", "true parameters"), ("difference at equal k", "k")):
        found = [line[column] for line in table if line[column] is not None]
        for where, sign in (("ahead", 1), ("behind", -1)):
            name = f"settings of {len(found)} with attention {where} by more than {SAME}"
            tally[f"{name} at equal {at} ({by})"] = sum(sign * value > SAME for value in found)
    return tally


def analyse(rows: list[Row]) -> Finding:
    """Attention minus MLP, mean over all sizes, a claim for each variant and accuracy."""
    claims, numbers, tables, words = [], {}, {}, []
    for (variant, mine), measure in itertools.product(laws.by_variant(rows).items(), SHOWN):
        by = f"{SHOWN[measure]}, as printed" if variant == AS_PUBLISHED else SHOWN[measure]
        table, mean = difference(mine, measure)
        if not table:
            continue
        what = f"attention minus MLP at equal true parameters, mean of {len(table)} settings ({by})"
        claims.append(Claim(what, mean, 0.0))
        found = counts(table, by)
        ahead, behind, *_ = found.values()
        words.append(f"{mean['estimate']:+.3f} ({by}: of {len(table)} settings attention is ahead "
                     f"by more than {SAME} in {ahead}, behind in {behind})")  # fmt: skip
        numbers |= found
        tables[f"attention minus MLP, {by}"] = table
    if not claims:
        return laws.too_few("both architectures, with more than one head, are needed")
    sentence = (
        "At equal true parameter counts, accuracy of attention only minus that of the MLP is, on "
        f"average, {'; '.join(words)}."
    )
    return Finding(sentence, tuple(claims), numbers, tables)


def gains(rows: list[Row]) -> dict[str, tuple[list[Record], Interval]]:
    """What the last doubling of the epochs adds, for every model and on average, by family."""
    longest = max(row["epochs"] for row in rows)
    found = {}
    for family, same in laws.by(rows, "family").items():
        table, pairs = [], []
        for (H, width), mine in laws.group(same, lambda r: (r["H"], r["width"])).items():
            lengths = laws.by(mine, "epochs")
            if lengths.keys() >= {longest, longest // 2}:
                both = [[r["accuracy"] for r in lengths[n]] for n in (longest, longest // 2)]
                gain = laws.columns("gain", combined(both, [1.0, -1.0]))
                table.append({"family": family, "H": H, "width": width, **gain})
                pairs += both
        if table:
            found[family] = table, combined(pairs, [1 / len(table), -1 / len(table)] * len(table))
    return found


def analyse_longer(rows: list[Row]) -> Finding:
    """Whether the MLP is ahead after the longest training, and whether both are trained out."""
    groups = laws.by(rows, "epochs")
    tables = {f"attention minus MLP, {n:,} epochs": difference(same, "accuracy")[0]
              for n, same in groups.items()}  # fmt: skip
    gained = gains(rows) if rows else {}
    if gained.keys() != NAMES.keys() or not all(tables.values()):
        return laws.too_few("both architectures and two lengths of training are needed")
    longest = max(groups)
    _, mean = difference(groups[longest], "accuracy")
    turned = laws.span(-mean["estimate"], -mean["high"], -mean["low"])
    name = f"MLP minus attention at equal true parameters after {longest:,} epochs (all facts)"
    claims = [Claim(name, turned, 0.0)]
    words = []
    for family, (table, gain) in gained.items():
        what = f"gain from {longest // 2:,} to {longest:,} epochs, {NAMES[family]}"
        claims.append(Claim(what, gain, most=SAME))
        words.append(f"{gain['estimate']:+.3f} ({NAMES[family]})")
        tables[f"last doubling, {family}"] = table
    sentence = (
        f"After {longest:,} epochs MLP minus attention is {turned['estimate']:+.3f} at equal true "
        f"counts. The last doubling of the epochs adds {', '.join(words)}; that a model is trained "
        f"out, gaining {SAME} or less, is {laws.tally(claims[1:], 'architectures')}."
    )
    return Finding(sentence, tuple(claims), {}, tables)


def shown_panels(rows: list[Row]) -> list[tuple[str, str, list[Row]]]:
    """Title, accuracy and rows of each panel: every accuracy of every variant, or every length."""
    lengths = laws.by(rows, "epochs")
    if len(lengths) > 1:
        words = f"{SHOWN['accuracy']}, {{:,}} epochs".format
        return [(words(n), "accuracy", mine) for n, mine in lengths.items()]
    variants = laws.by_variant(rows) or {CODED: []}
    return [
        (by if variant != AS_PUBLISHED else f"{by}, as printed", measure, mine)
        for variant, mine in variants.items()
        for measure, by in SHOWN.items()
    ]


def draw(known: Published | None, rows: list[Row], _: Finding) -> figure.Figure:
    """Accuracy against the true count; the published points behind ours as coded."""
    shown, title = shown_panels(rows), "Attention only against one head and an MLP"
    drawn, columns = figure.panels(title, "parameters", "accuracy", len(shown))
    for panel, (name, measure, mine) in zip(columns, shown, strict=True):
        kinds = laws.group(mine, lambda row: (row["d"], row["family"]))
        for i, ((d, family), models) in enumerate(sorted(kinds.items())):
            if measure == "train_accuracy" and models[0].variant == CODED:
                ink, only = figure.colour(i), {"d": d, "family": family}
                experiment.draw_published(panel, known, "parameters", ink, **only)
            x, y = figure.series(models, "parameters", measure)
            figure.points(panel, x, y, f"{NAMES[family]}, d = {d}", i)
        panel.set_title(name, fontsize=9)
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
# Figures 7 and 10 take their attention-only models from Figures 5 and 8.
PUBLISHED = {"fig3": published("3"), "fig7": published("5", "7"), "fig10": published("8", "10")}
STUDIES = (
    *(
        declare(
            f"dana2025/{name}", grid, beside(PUBLISHED[name], analyse), AXES,
            partial(draw, PUBLISHED[name]), published=PUBLISHED[name], SAME=SAME,
        )
        for name, grid in GRIDS.items()
    ),
    declare("dana2025/aot-vs-mlp-longer", grid_longer, analyse_longer, AXES, partial(draw, None),
            SAME=SAME),
)  # fmt: skip
