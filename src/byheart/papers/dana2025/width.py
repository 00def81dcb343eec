"""Accuracy against the embedding dimension: experiments 3 and 4 (Figures 2a and 2b)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from byheart.papers.dana2025 import heads, settings
from byheart.papers.dana2025.experiment import TRAIN
from byheart.papers.dana2025.published import HEADS
from byheart.papers.dana2025.settings import CODED, CORRECTED
from byheart.papers.declare import declare
from byheart.studies import Axes, Cell, Finding, Row, choose, figure, fit, laws
from byheart.studies.study import Record, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BREAK = 10  # d_h of experiment 3, where the two pieces meet
SLOWER = 0.5  # a second slope below this share of the first is a break
NAMES = {CODED: "one bottleneck for all heads", CORRECTED: "projections of each head"}


def grid_2a(variant: str, profile: str) -> list[Cell]:
    """N = 50, d_h = 10, H = 20, d = 5..15."""
    family = "shared" if variant == CODED else "attention"
    widths = range(5, 16) if profile != "quick" else (5, 8, 10, 11, 12, 15)
    return TRAIN.grid("exp3", family=family, d=widths, d_h=BREAK, H=20)


def pieces(rows: list[Row], measure: str) -> Record | None:
    """Slopes below and above d = d_h; above, up to the first accuracy over 0.95."""
    x, y = figure.series(rows, "d", measure)
    left, right = x <= BREAK, (x >= BREAK) & laws.below_ceiling(x, y)
    if len(np.unique(x[left])) < 3 or len(np.unique(x[right])) < 2:
        return None
    first = fit("linear", x[left], y[left], resamples=laws.RESAMPLES, validate=False)
    second = fit("linear", x[right], y[right], resamples=laws.RESAMPLES, validate=False)
    low, high = second.intervals["b"]
    a = first.values["b"]
    return {
        "accuracy": measure,
        "slope below d_h": a,
        "slope above d_h": second.values["b"],
        "ratio": second.values["b"] / a,
        "ratio_low": low / a,
        "ratio_high": high / a,
        "break": high / a < SLOWER,
    }


def analyse_2a(rows: list[Row]) -> Finding:
    table = []
    for variant, mine in laws.by_variant(rows).items():
        for measure in ("train_accuracy", "accuracy"):
            both = pieces(mine, measure)
            if both is not None:
                table.append({"variant": variant, **both})
    coded = [r for r in table if r["variant"] == CODED]
    own = [r for r in table if r["variant"] == CORRECTED]
    if not coded:
        return laws.too_few("three d below and two above d_h are needed")
    verdict: Verdict = "confirmed" if all(r["break"] for r in coded) else "not confirmed"
    if verdict == "confirmed" and own and not any(r["break"] for r in own):
        verdict = "artefact"
    numbers = {
        f"slope above / below d = d_h, {NAMES[line['variant']]}, {line['accuracy']}": laws.column(
            line, "ratio"
        )
        for line in table
    }
    words = f"Beyond d = d_h accuracy grows {coded[0]['ratio']:.2f} times as fast as below it with \
one bottleneck for all heads"
    if own:
        words += f", {own[0]['ratio']:.2f} times with projections of each head"
    return Finding(verdict, words + ".", numbers, {"two pieces": table})


def draw_2a(rows: list[Row], finding: Finding) -> Figure:
    drawn, panel = figure.axes(
        "Accuracy against the embedding dimension", "embedding dimension d", "accuracy"
    )
    for i, (variant, mine) in enumerate(laws.by_variant(rows).items()):
        x, y = figure.series(mine, "d", "train_accuracy")
        figure.points(panel, x, y, NAMES[variant], i)
        at = np.unique(x)
        one = {row["d"]: settings.lower_bound(row) for row in mine}
        label = "Corollary 2" if i == 0 else None
        figure.curve(panel, at, np.array([one[int(v)] for v in at]), label, 7, "--")
    panel.axvline(BREAK, color="#999999", lw=0.8)
    panel.set_ylim(0, 1.03)
    figure.legend(panel)
    return drawn


def grid_2b(variant: str, profile: str) -> list[Cell]:
    """The cells of experiment 1: every second d in the quick profile."""
    if profile == "quick":
        return TRAIN.grid("exp4", d=(3, 5, 7, 9), H=(1, 11, 21, 31))
    return TRAIN.grid("exp4", d=heads.WIDTHS, H=HEADS)


def slopes(rows: list[Row], variant: str) -> tuple[np.ndarray, np.ndarray]:
    """(d, slope of accuracy in H below the ceiling), one slope for each d and seed.

    As coded the first point above the ceiling counts; it bends the lines of large d, so that
    `corrected` leaves it out.
    """
    measure, including = settings.measure_of(variant), variant == CODED
    pairs = []
    for d, same in laws.by(rows, "d").items():
        x, y = figure.series(same, "H", measure)
        kept = x[laws.below_ceiling(x, y, including=including)]
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
        power = fit("power", x, y, resamples=laws.RESAMPLES, validate=False)
        compared = choose(x, y, ("quadratic", "cubic"), resamples=0)
        p = power.interval("p")
        numbers[f"p of slope = a + b d^p, {variant}"] = p
        table.append({"variant": variant, "law": compared.best or "cannot tell", **p})
        tables[f"laws, {variant}"] = compared.table()
    if not table:
        return laws.too_few("slopes at four d are needed")
    judged = table[-1]  # corrected, if it is there
    outside = judged["high"] < 2 - laws.NEAR or judged["low"] > 3 + laws.NEAR
    narrow = judged["high"] - judged["low"] <= laws.WIDE
    verdict = laws.judged(narrow and not outside, outside)
    favoured = ", ".join(f"{r['variant']}: {r['law']}" for r in table)
    words = "; ".join(
        f"{r['estimate']:.2f} (95 %: {r['low']:.2f} to {r['high']:.2f}, {r['variant']})"
        for r in table
    )
    sentence = f"The slope in H grows as d^p with p = {words}; of quadratic and cubic: {favoured}."
    return Finding(verdict, sentence, numbers, {"exponent": table, **tables})


def draw_2b(rows: list[Row], finding: Finding) -> Figure:
    drawn, panel = figure.axes(
        "Slope of accuracy in H against d = d_h", "embedding dimension d", "accuracy per head"
    )
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
    figure.legend(panel)
    return drawn


STUDIES = (
    declare(
        "dana2025/fig2a",
        grid_2a,
        analyse_2a,
        Axes("d", "train_accuracy", "variant", "embedding dimension d", "accuracy"),
        draw_2a,
        SLOWER=SLOWER,
    ),
    declare(
        "dana2025/fig2b",
        grid_2b,
        analyse_2b,
        Axes("H", "train_accuracy", "d", "heads H", "accuracy"),
        draw_2b,
    ),
)
