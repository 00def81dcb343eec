"""Accuracy against the number of heads: experiment 1, its larger and deeper versions, experiment 6.

Figures 1a, 4, 5 and 8, and the demonstration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from byheart.papers.dana2025 import published, settings
from byheart.papers.dana2025.experiment import TRAIN
from byheart.papers.dana2025.published import HEADS
from byheart.papers.dana2025.settings import CODED, PUBLISHED
from byheart.papers.declare import declare
from byheart.studies import Axes, Cell, Finding, Row, figure, laws
from byheart.studies.fits import fit
from byheart.studies.study import Record
from byheart.theory.dana2025 import phi

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTHS = tuple(range(3, 14))


def grid_1a(variant: str, profile: str) -> list[Cell]:
    """d = d_h = 3..13, H = 1, 6, ..., 31; as published (.1 -> .05, batches of 1,024): d = 10
    and every second H."""
    if variant == PUBLISHED:
        return TRAIN.grid("exp1", d=10, H=HEADS[::2], **settings.PRINTED)
    if profile == "quick":
        return TRAIN.grid("exp1", d=10, H=HEADS[:5] if variant == CODED else HEADS[::2])
    return TRAIN.grid("exp1", d=WIDTHS, H=HEADS)


def grid_large(variant: str, profile: str) -> list[Cell]:
    """N = 200, d = d_h = 40, 50, 60, H = 1, 3, ..., 11."""
    widths, heads = ((40, 50, 60), range(1, 12, 2)) if profile != "quick" else ((50,), (1, 3, 5, 7))
    return TRAIN.grid("exp1 dim", d=widths, H=heads, **settings.large(profile))


def grid_deep(variant: str, profile: str) -> list[Cell]:
    """Three layers, N = 70, d = d_h = 7, 10, 13, H = 1, 5, ..., 21 heads a layer."""
    widths, heads = ((7, 10, 13), range(1, 22, 4)) if profile != "quick" else ((7,), (1, 5, 9, 13))
    return TRAIN.grid("exp1 depth", d=widths, H=heads, **settings.deep(profile))


def grid_6(variant: str, profile: str) -> list[Cell]:
    """N = 10, d = 2, H = 1, 5, ..., 21; d_h = 2 as coded, d_h = 5 and H = 1..20 as published."""
    if variant == PUBLISHED:
        return TRAIN.grid("exp6", N=10, d=2, d_h=5, H=(1, 10, 20), **settings.PRINTED)
    return TRAIN.grid("exp6", N=10, d=2, H=range(1, 22, 4))


def line_in_heads(variant: str, d: int, rows: list[Row]) -> Record | None:
    """The slope in H and the exponent of one line, with their intervals."""
    x, y = figure.series(rows, "H", settings.measure_of(variant))
    keep = laws.below_ceiling(x, y)
    under = laws.below_ceiling(x, y, including=False)
    if len(np.unique(x[keep])) < 4:
        return None
    line = fit("linear", x[keep], y[keep], resamples=laws.RESAMPLES, validate=False)
    slope = line.interval("b")
    # Linear "until it saturates": a point above the ceiling would bend every law.
    inside = under if len(np.unique(x[under])) >= 4 else keep
    power = fit("power", x[inside], y[inside], resamples=laws.RESAMPLES, validate=False)
    bent = fit("power", x[keep], y[keep], validate=False)
    p = power.interval("p")
    first = rows[0]
    promised = (1 - 1 / first["N"]) * first["d_h"] / first["N"] ** first["S"]
    return {
        "variant": variant, "d": d, **laws.columns("slope", slope),
        "times_bound": slope["estimate"] / promised, "R2": line.r2, **laws.columns("p", p),
        "p_as_coded": bent.values["p"], "verdict": laws.exponent_verdict(p, 1.0),
    }  # fmt: skip


def analyse(rows: list[Row]) -> Finding:
    """Linear in H below the ceiling, for each width and variant; the bound of Corollary 2."""
    lines = [
        line_in_heads(variant, d, same)
        for variant, mine in laws.by_variant(rows).items()
        for d, same in laws.by(mine, "d").items()
    ]
    table = [line for line in lines if line is not None]
    judged = [r for r in table if r["variant"] != PUBLISHED]
    if not judged:
        return laws.too_few("at least four numbers of heads below the ceiling are needed")
    chosen = next((r for r in table if r["d"] == 10), table[len(table) // 2])
    numbers: Record = {
        f"{name} at d={chosen['d']}, {chosen['variant']}": laws.column(chosen, name)
        for name in ("slope", "p")
    }
    numbers["least R2 of a line"] = min(r["R2"] for r in judged)
    verdicts = [r["verdict"] for r in judged]
    sentence = in_words(judged, verdicts.count("confirmed"))
    trained = [row for row in rows if row.variant != PUBLISHED and row["layers"] == 1]
    if trained:
        below = settings.below_bound(trained)
        numbers["settings below the bound of Corollary 2"] = below
        sentence += f"; {below} of {len(laws.by_cell(trained))} settings lie below Corollary 2"
    numbers |= published.mean_distance(rows, "exp1", "H", " at d=10")
    return Finding(laws.most(verdicts), f"{sentence}.", numbers, {"linear in H": table})


def in_words(lines: list[Record], agree: int) -> str:
    exponents, ratios = ([line[name] for line in lines] for name in ("p", "times_bound"))
    slope = " to ".join(dict.fromkeys(f"{v:.1f}" for v in (min(ratios), max(ratios))))
    return (
        f"Accuracy is linear in H for {agree} of {len(lines)} lines (width and accuracy; "
        f"exponents {min(exponents):.2f} to {max(exponents):.2f}); the slope is {slope} times the "
        "bound's d_h a head"
    )


def draw(rows: list[Row], finding: Finding) -> Figure:
    """Accuracy against H, one line a width; the bound φ(H d_h + d) dashed."""
    variants = laws.by_variant(rows) or {CODED: []}
    labels = "Accuracy against the number of heads", "heads H", "accuracy"
    drawn, panels = figure.panels(*labels, len(variants))
    ink = dict(zip(widths := list(laws.by(rows, "d")), figure.shades(len(widths)), strict=True))
    for panel, (variant, mine) in zip(panels, variants.items(), strict=True):
        measure = settings.measure_of(variant)
        for d, same in laws.by(mine, "d").items():
            x, y = figure.series(same, "H", measure)
            figure.points(panel, x, y, f"d = {d}", ink[d])
            N, S, d_h = same[0]["N"], same[0]["S"], same[0]["d_h"]
            if same[0]["layers"] == 1:
                H = np.linspace(1, x.max(), 50)
                bound = np.array([phi(h * d_h + d, N, N**S) for h in H])
                figure.curve(panel, H, bound, None, ink[d], "--")
        known = published.PUBLISHED["exp1"]
        if variant == CODED and any(r.experiment == "exp1" and r["d"] == 10 for r in mine):
            panel.plot(list(known), list(known.values()), "kx", ms=6, label="published, d = 10")
        shown = "training sample" if measure == "train_accuracy" else "all facts"
        panel.set_title(f"{variant}, {shown} (dashed: Corollary 2)", fontsize=9)
        panel.set_ylim(0, 1.03)
        figure.legend(panel)
    return drawn


AXES = Axes("H", "train_accuracy", "d", "heads H", "accuracy")
GRIDS = {
    "fig1a": grid_1a,
    "fig4": grid_6,
    "fig5": grid_large,
    "fig8": grid_deep,
    "demo": TRAIN.grid("exp1", d=10, H=HEADS),
}
STUDIES = tuple(
    declare(f"dana2025/{name}", grid, analyse, AXES, draw) for name, grid in GRIDS.items()
)
