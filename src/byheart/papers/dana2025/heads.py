"""Accuracy against the number of heads: experiments 1, 4 and 6, larger and deeper versions.

Figures 1a, 2b, 4, 5 and 8, and the demonstration.
"""

from __future__ import annotations

import numpy as np

from byheart.papers.dana2025 import experiment
from byheart.papers.dana2025.experiment import AS_PUBLISHED, CODED, HEADS, PRINTED, TRAIN, grid_of
from byheart.papers.declare import declare
from byheart.studies import Axes, Cell, Finding, Record, Row, choose, figure, fit, laws

WIDTHS = tuple(range(3, 14))


def grid_1a(variant: str, profile: str) -> list[Cell]:
    """As published (.1 -> .05, batches of 1,024): d = 10 and every second H."""
    if variant == AS_PUBLISHED:
        return TRAIN.grid("exp1", d=10, H=HEADS[::2], **PRINTED)
    if profile == "quick":
        return TRAIN.grid("exp1", d=10, H=HEADS[:5] if variant == CODED else HEADS[::2])
    return TRAIN.grid("exp1", d=WIDTHS, H=HEADS)


def grid_6(variant: str, profile: str) -> list[Cell]:
    """d_h = 2 as coded, d_h = 5 as published."""
    if variant == AS_PUBLISHED:
        return TRAIN.grid("exp6", N=10, d=2, d_h=5, H=(1, 10, 20), **PRINTED)
    return TRAIN.grid("exp6", N=10, d=2, H=range(1, 22, 4))


def line_in_heads(variant: str, d: int, rows: list[Row]) -> Record | None:
    """The slope in H and the exponent of one line, with their intervals."""
    x, y = figure.series(rows, "H", experiment.measure_of(variant))
    kept, under = laws.below_ceiling(x, y), laws.below_ceiling(x, y, including=False)
    if len(np.unique(kept[0])) < 4:
        return None
    line = laws.fitted("linear", *kept)
    slope = line.interval("b")
    # Linear "until it saturates": a point above the ceiling would bend every law.
    inside = under if len(np.unique(under[0])) >= 4 else kept
    p = laws.fitted("power", *inside).interval("p")
    bent = fit("power", *kept, validate=False)
    first = rows[0]
    promised = (1 - 1 / first["N"]) * first["d_h"] / first["N"] ** first["S"]
    return {
        "variant": variant, "d": d, **laws.columns("slope", slope),
        "times_bound": slope["estimate"] / promised, "R2": line.r2, **laws.columns("p", p),
        "p_as_coded": bent.values["p"], "verdict": laws.exponent_verdict(p, 1.0),
    }  # fmt: skip


def analyse(rows: list[Row]) -> Finding:
    """Linear in H below the ceiling, for each width and variant; the bound of Corollary 2."""
    lines = [line_in_heads(*line) for line in laws.lines(rows, "d")]
    table = [line for line in lines if line is not None]
    judged = [r for r in table if r["variant"] != AS_PUBLISHED]
    if not judged:
        return laws.too_few("at least four numbers of heads below the ceiling are needed")
    chosen = next((r for r in table if r["d"] == 10), table[len(table) // 2])
    numbers: Record = {
        f"{name} at d={chosen['d']}, {chosen['variant']}": laws.column(chosen, name)
        for name in ("slope", "p")
    }
    numbers["least R2 of a line"] = min(r["R2"] for r in judged)
    verdicts = [r["verdict"] for r in judged]
    p, ratios = ([line[name] for line in judged] for name in ("p", "times_bound"))
    slope = " to ".join(dict.fromkeys(f"{v:.1f}" for v in (min(ratios), max(ratios))))
    sentence = (
        f"Accuracy is linear in H for {verdicts.count('confirmed')} of {len(judged)} lines (width "
        f"and accuracy; exponents {min(p):.2f} to {max(p):.2f}); the slope is {slope} times the "
        "bound's d_h a head"
    )
    trained = [row for row in rows if row.variant != AS_PUBLISHED and row["layers"] == 1]
    if trained:
        cells = laws.by_cell(trained).values()
        means = [(float(np.mean([r["accuracy"] for r in same])), same[0]) for same in cells]
        below = sum(mean < experiment.lower_bound(row) for mean, row in means)
        numbers["settings below the bound of Corollary 2"] = below
        sentence += f"; {below} of {len(cells)} settings lie below Corollary 2"
    numbers |= experiment.mean_distance(rows, "exp1", "H", " at d=10")
    return Finding(laws.most(verdicts), f"{sentence}.", numbers, {"linear in H": table})


def draw(rows: list[Row], finding: Finding) -> figure.Figure:
    """Accuracy against H, one line a width; the bound φ(H d_h + d) dashed."""
    variants = laws.by_variant(rows) or {CODED: []}
    labels = "Accuracy against the number of heads", "heads H", "accuracy"
    drawn, panels = figure.panels(*labels, len(variants))
    ink = dict(zip(widths := list(laws.by(rows, "d")), figure.shades(len(widths)), strict=True))
    for panel, (variant, mine) in zip(panels, variants.items(), strict=True):
        measure = experiment.measure_of(variant)
        for d, same in laws.by(mine, "d").items():
            x, y = figure.series(same, "H", measure)
            figure.points(panel, x, y, f"d = {d}", ink[d])
            if same[0]["layers"] == 1:
                H = np.linspace(1, x.max(), 50)
                bound = np.array([experiment.lower_bound(same[0], H=h) for h in H])
                figure.curve(panel, H, bound, None, ink[d], "--")
        if variant == CODED and any(r.experiment == "exp1" and r["d"] == 10 for r in mine):
            published(panel, "exp1", "d = 10")
        shown = "training sample" if measure == "train_accuracy" else "all facts"
        panel.set_title(f"{variant}, {shown} (dashed: Corollary 2)", fontsize=9)
        panel.set_ylim(0, 1.03)
        figure.legend(panel)
    return drawn


def published(panel: figure.Panel, name: str, sizes: str) -> None:
    """The authors' numbers as crosses."""
    known = experiment.PUBLISHED[name]
    panel.plot(list(known), list(known.values()), "kx", ms=6, label=f"published, {sizes}")


def slopes(rows: list[Row], variant: str) -> tuple[np.ndarray, np.ndarray]:
    """(d, slope of accuracy in H below the ceiling), one slope for each d and seed.

    As coded the first point above the ceiling counts; it bends the lines of large d, so that
    `corrected` leaves it out.
    """
    measure, pairs = experiment.measure_of(variant), []
    for d, same in laws.by(rows, "d").items():
        x, y = figure.series(same, "H", measure)
        kept, _ = laws.below_ceiling(x, y, including=variant == CODED)
        for mine in laws.by([r for r in same if r["H"] in kept], "seed").values():
            a, b = figure.series(mine, "H", measure)
            if len(a) >= 3:
                pairs.append((float(d), float(np.polyfit(a, b, 1)[0])))
    return np.array([d for d, _ in pairs]), np.array([s for _, s in pairs])


def analyse_2b(rows: list[Row]) -> Finding:
    table, tables, numbers = [], {}, {}
    for variant, mine in laws.by_variant(rows).items():
        x, y = slopes(mine, variant)
        if len(np.unique(x)) < 4:
            continue
        compared = choose(x, y, ("quadratic", "cubic"), resamples=0)
        p = laws.fitted("power", x, y).interval("p")
        numbers[f"p of slope = a + b d^p, {variant}"] = p
        table.append({"variant": variant, "law": compared.best or "cannot tell", **p})
        tables[f"laws, {variant}"] = compared.table()
    if not table:
        return laws.too_few("slopes at four d are needed")
    judged = table[-1]  # corrected, if it is there
    outside = judged["high"] < 2 - laws.NEAR or judged["low"] > 3 + laws.NEAR
    narrow = judged["high"] - judged["low"] <= laws.WIDE
    favoured = ", ".join(f"{r['variant']}: {r['law']}" for r in table)
    words = "; ".join(
        f"{r['estimate']:.2f} (95 %: {r['low']:.2f} to {r['high']:.2f}, {r['variant']})"
        for r in table
    )
    sentence = f"The slope in H grows as d^p with p = {words}; of quadratic and cubic: {favoured}."
    verdict = laws.judged(narrow and not outside, outside)
    return Finding(verdict, sentence, numbers, {"exponent": table, **tables})


@figure.one_panel("Slope of accuracy in H against d = d_h", "embedding dimension d",
                  "accuracy per head")  # fmt: skip
def draw_2b(panel: figure.Panel, rows: list[Row]) -> None:
    for i, (variant, mine) in enumerate(laws.by_variant(rows).items()):
        x, y = slopes(mine, variant)
        if len(np.unique(x)) < 2:
            continue
        figure.points(panel, x, y, variant, i, line=False)
        at = np.linspace(x.min(), x.max(), 60)
        for law, style in (("quadratic", "-"), ("cubic", ":")):
            line = fit(law, x, y, validate=False)
            figure.curve(panel, at, line(at), f"{law}, {variant}", i, style)
        if i == 0:
            N, S = rows[0]["N"], rows[0]["S"]
            bound = (1 - 1 / N) * at / N**S
            figure.curve(panel, at, bound, "Corollary 2: d_h a head", 7, "--")


AXES = Axes("H", "train_accuracy", "d", "heads H", "accuracy")
GRIDS = {
    "fig1a": grid_1a,
    "fig4": grid_6,
    "fig5": grid_of("exp1 dim", {"d": 50, "H": (1, 3, 5, 7)},
                    {"d": (40, 50, 60), "H": range(1, 12, 2)}, "N = 200"),
    "fig8": grid_of("exp1 depth", {"d": 7, "H": (1, 5, 9, 13)},
                    {"d": (7, 10, 13), "H": range(1, 22, 4)}, "three layers"),
    "demo": TRAIN.grid("exp1", d=10, H=HEADS),
}  # fmt: skip
# The cells of experiment 1: every second d in the quick profile.
GRID_2B = grid_of("exp4", {"d": (3, 5, 7, 9), "H": (1, 11, 21, 31)}, {"d": WIDTHS, "H": HEADS})
STUDIES = (
    *(declare(f"dana2025/{name}", grid, analyse, AXES, draw) for name, grid in GRIDS.items()),
    declare("dana2025/fig2b", GRID_2B, analyse_2b, AXES, draw_2b),
)
