"""Accuracy against the number of heads: experiments 1, 4 and 6, larger and deeper versions.

Figures 1a, 2b, 4, 5 and 8, and the demonstration.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from byheart.papers.dana2025 import experiment
from byheart.papers.dana2025.experiment import (
    AS_PUBLISHED,
    CODED,
    CORRECTED,
    HEADS,
    SHOWN,
    TRAIN,
    measure_of,
)
from byheart.papers.declare import declare
from byheart.studies import Axes, Cell, Claim, Finding, Published, Record, Row, figure, laws
from byheart.studies.fits import choose, combined, fit

WIDTHS = tuple(range(3, 14))


def grid_1a(variant: str, profile: str) -> list[Cell]:
    """As published (.1 -> .05, batches of 1,024): d = 10 and every second H."""
    if variant == AS_PUBLISHED:
        return TRAIN.grid("exp1", d=10, H=HEADS[::2], **experiment.PRINTED)
    if profile == "quick":
        return TRAIN.grid("exp1", d=10, H=HEADS[:5] if variant == CODED else HEADS[::2])
    return TRAIN.grid("exp1", d=WIDTHS, H=HEADS)


def grid_6(variant: str, profile: str) -> list[Cell]:
    """d_h = 2 as coded, d_h = 5 as published."""
    if variant == AS_PUBLISHED:
        return TRAIN.grid("exp6", N=10, d=2, d_h=5, H=(1, 10, 20), **experiment.PRINTED)
    return TRAIN.grid("exp6", N=10, d=2, H=range(1, 22, 4))


def line_in_heads(variant: str, d: int, rows: list[Row]) -> Record | None:
    """The slope in H and the exponent of one line, with their intervals."""
    x, y = figure.series(rows, "H", measure_of(variant))
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
    times = laws.span(*(slope[end] / promised for end in ("estimate", "low", "high")))
    return {
        "variant": variant, "d": d, **laws.columns("slope", slope),
        **laws.columns("times_bound", times), "R2": line.r2,
        **laws.columns("p", p), "p_as_coded": bent.values["p"],
    }  # fmt: skip


def above_bound(rows: list[Row]) -> Claim | None:
    """That every setting is above the bound, over all facts as Corollary 2 says."""
    trained = [r for r in rows if r.variant != AS_PUBLISHED and "accuracy" in r.measurements]
    cells = laws.by_cell(trained).values()
    if not cells:
        return None
    bounds = [experiment.lower_bound(same[0]) for same in cells]
    margin = laws.least([[row["accuracy"] for row in same] for same in cells], bounds)
    statement = f"least of accuracy (all facts) minus Corollary 2 over {len(cells)} settings"
    return Claim(statement, margin, 0.0)


def analyse(rows: list[Row], *, bounded: bool = False, steep: float | None = None) -> Finding:
    """Linear in H below the ceiling, a claim for each width and accuracy; `bounded`: all settings
    above Corollary 2; `steep`: the slope in units of the bound's, as the paper says it."""
    lines = [line_in_heads(*line) for line in laws.lines(rows, "d")]
    table = [line for line in lines if line is not None]
    judged = [r for r in table if r["variant"] != AS_PUBLISHED]
    if not judged:
        return laws.too_few("at least four numbers of heads below the ceiling are needed")
    name = "accuracy ({}) as a + b H^p at d = {}".format
    of = [(SHOWN[measure_of(r["variant"])], r) for r in judged]
    claims = [laws.exponent_claim(name(by, r["d"]), laws.column(r, "p"), 1.0) for by, r in of]
    p = laws.extent([r["p"] for r in judged])
    sentence = f"Accuracy grows as H^p with p = {p}; that it grows linearly (p = 1) is "
    sentence += laws.tally(claims, "lines, one for each width and way to count accuracy")
    if rows[0]["layers"] == 1:
        # Corollary 2 speaks of all facts, not of those in the sample.
        of_all = [r for r in judged if r["variant"] == CORRECTED] or judged
        times = laws.extent([r["times_bound"] for r in of_all])
        where = SHOWN[measure_of(of_all[0]["variant"])]
        sentence += f". A head adds {times} times the accuracy that Corollary 2 promises for it "
        sentence += f"({where})"
    if steep is not None:
        for by, r in of:
            statement = f"slope in H over that of Corollary 2 ({by}): {steep:g}"
            found = laws.column(r, "times_bound")
            claims.append(Claim(statement, found, steep - laws.NEAR, steep + laws.NEAR))
    bound = above_bound(rows) if bounded else None
    if bound is not None:
        claims.append(bound)
        sentence += ". Where accuracy is closest to Corollary 2, the difference is "
        sentence += f"{bound.found['estimate']:+.3f}"
    numbers = {
        f"{what} at d = {r['d']}, {r['variant']}": laws.column(r, what)
        for what in ("slope", "p")
        for r in table
        if (what == "slope" and r["d"] in (2, 10)) or r["variant"] == AS_PUBLISHED
    }
    printed = [r for r in rows if r.variant == AS_PUBLISHED]
    for H, same in [*laws.by(printed, "H").items()][-1:]:
        for measure, by in SHOWN.items():
            values = [row[measure] for row in same if measure in row.measurements]
            if values:
                numbers[f"accuracy as printed at H = {H} ({by})"] = combined([values], [1.0])
    return Finding(f"{sentence}.", tuple(claims), numbers, {"linear in H": table})


def draw(known: Published, rows: list[Row], _: Finding) -> figure.Figure:
    """Accuracy against H, one line a width; the bound φ(H d_h + d) dashed."""
    variants = laws.by_variant(rows) or {CODED: []}
    labels = "Accuracy against the number of heads", "heads H", "accuracy"
    drawn, panels = figure.panels(*labels, len(variants))
    ink = dict(zip(widths := list(laws.by(rows, "d")), figure.shades(len(widths)), strict=True))
    for panel, (variant, mine) in zip(panels, variants.items(), strict=True):
        measure = measure_of(variant)
        for d, same in laws.by(mine, "d").items():
            if variant == CODED:
                experiment.draw_published(panel, known, "H", ink[d], d=d)
            x, y = figure.series(same, "H", measure)
            figure.points(panel, x, y, f"d = {d}", ink[d])
            if same[0]["layers"] == 1:
                H = np.linspace(1, x.max(), 50)
                bound = np.array([experiment.lower_bound(same[0], H=h) for h in H])
                figure.curve(panel, H, bound, None, ink[d], "--")
        panel.set_title(f"{variant}, {SHOWN[measure]} (dashed: Corollary 2)", fontsize=9)
        panel.set_ylim(0, 1.03)
        figure.legend(panel)
    return drawn


def slopes(rows: list[Row], variant: str) -> tuple[np.ndarray, np.ndarray]:
    """(d, slope of accuracy in H below the ceiling), one slope for each d and seed.

    As coded the first point above the ceiling counts; it bends the lines of large d, so that
    `corrected` leaves it out.
    """
    measure, pairs = measure_of(variant), []
    for d, same in laws.by(rows, "d").items():
        x, y = figure.series(same, "H", measure)
        kept, _ = laws.below_ceiling(x, y, including=variant == CODED)
        for mine in laws.by([r for r in same if r["H"] in kept], "seed").values():
            a, b = figure.series(mine, "H", measure)
            if len(a) >= 3:
                pairs.append((float(d), float(np.polyfit(a, b, 1)[0])))
    return np.array([d for d, _ in pairs]), np.array([s for _, s in pairs])


def analyse_2b(rows: list[Row]) -> Finding:
    """p of slope = a + b d^p, a claim for each accuracy."""
    claims, tables, words = [], {}, []
    for variant, mine in laws.by_variant(rows).items():
        x, y = slopes(mine, variant)
        if len(np.unique(x)) < 4:
            continue
        compared = choose(x, y, ("quadratic", "cubic"))
        p = laws.fitted("power", x, y).interval("p")
        by = SHOWN[measure_of(variant)]
        statement = f"slope of accuracy ({by}) in H as a + b d^p"
        words.append(f"{p['estimate']:.2f} ({by})")
        claims.append(Claim(statement, p, 2 - laws.NEAR, 3 + laws.NEAR))
        tables[f"laws, {variant}: {compared.best or 'cannot tell'}"] = compared.table()
    if not claims:
        return laws.too_few("slopes at four d are needed")
    sentence = (
        f"What one more head adds grows as d^p with p = {' and '.join(words)}; that p lies between "
        f"2 and 3 is {laws.tally(claims, 'ways to count accuracy')}."
    )
    return Finding(sentence, tuple(claims), {}, tables)


@figure.one_panel("Slope of accuracy in H against d = d_h", "embedding dimension d",
                  "accuracy per head")  # fmt: skip
def draw_2b(panel: figure.Panel, rows: list[Row]) -> None:
    theirs = experiment.published_rows(FIGURE_1A)
    figure.crosses(panel, *slopes(theirs, CODED))
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


FIGURE_1A = experiment.published("1a")
AXES = Axes("H", "train_accuracy", "d", "heads H", "accuracy")
GRIDS = {
    "fig1a": grid_1a,
    "fig4": grid_6,
    "fig5": experiment.grid_of("exp1 dim", {"d": 50, "H": (1, 3, 5, 7)},
                    {"d": (40, 50, 60), "H": range(1, 12, 2)}, "N = 200"),
    "fig8": experiment.grid_of("exp1 depth", {"d": 7, "H": (1, 5, 9, 13)},
                    {"d": (7, 10, 13), "H": range(1, 22, 4)}, "three layers"),
    "demo": TRAIN.grid("exp1", d=10, H=HEADS),
}  # fmt: skip
# The cells of experiment 1: every second d in the quick profile.
QUICK_2B = {"d": (3, 5, 7, 9), "H": (1, 11, 21, 31)}
GRID_2B = experiment.grid_of("exp4", QUICK_2B, {"d": WIDTHS, "H": HEADS})
PUBLISHED = {
    "fig1a": FIGURE_1A, "demo": experiment.published("1a", d=10),
    **{f"fig{number}": experiment.published(number) for number in ("4", "5", "8")},
}  # fmt: skip
STEEP = 1.3  # slope of experiment 6 in units of the bound's, as the paper prints it
ANALYSES = {
    "fig1a": partial(analyse, bounded=True), "demo": partial(analyse, bounded=True),
    "fig4": partial(analyse, bounded=True, steep=STEEP), "fig5": analyse, "fig8": analyse,
}  # fmt: skip
STUDIES = (
    *(
        declare(
            f"dana2025/{name}", grid, experiment.beside(PUBLISHED[name], ANALYSES[name]), AXES,
            partial(draw, PUBLISHED[name]), published=PUBLISHED[name], STEEP=STEEP,
        )
        for name, grid in GRIDS.items()
    ),
    declare(
        "dana2025/fig2b", GRID_2B, experiment.beside(FIGURE_1A, analyse_2b), AXES, draw_2b,
        published=FIGURE_1A,
    ),
)  # fmt: skip
