"""Figure 3 and the length experiment: the smallest model that suffices, trained and built."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from byheart.papers.declare import declare
from byheart.papers.kajitsuka2025 import text
from byheart.papers.kajitsuka2025.curves import OFFLINE
from byheart.papers.kajitsuka2025.experiment import BUILT, MINIMAL
from byheart.studies import Axes, Cell, Finding, Row, figure, fit, laws
from byheart.studies.laws import RESAMPLES, Interval
from byheart.studies.study import Record
from byheart.theory.kajitsuka2025 import theorem42_parameters

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LADDER = [1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 32, 40, 50]
QUICK_N = (100, 120, 140, 160, 180, 200)
FULL_N = tuple(range(600, 1701, 100))
BUILT_N = (100, 300, 1000, 3000, 10_000)


def grid(variant: str, profile: str) -> list[Cell]:
    """Trained on text (experiment "trained"); the construction on random words ("built")."""
    quick = profile == "quick"
    corpus = text.SYSTEM if variant == OFFLINE else text.local("multinli")
    cells = []
    if corpus is not None:
        # Five starts at two learning rates: best of 10 trials, as in the paper.
        how = {"sizes": LADDER[:10] if quick else LADDER, "corpus": corpus, "starts": 5}
        cells += MINIMAL.grid("trained", N=QUICK_N if quick else FULL_N, **how)
    if variant == OFFLINE:
        cells += BUILT.grid("built", N=BUILT_N if quick else (*BUILT_N, 30_000, 100_000))
    return cells


STRAIGHT = 0.9  # R² of a log-log line from which its slope is called an exponent


def loglog(rows: list[Row], y: str) -> Interval | None:
    """The exponent of y ~ N^p by least squares of logarithms, 95 % bootstrap over seeds, R²."""
    x, values = figure.series(rows, "N", y)
    if len(np.unique(x)) < 3:
        return None
    line = fit("linear", np.log(x), np.log(values), resamples=RESAMPLES)
    return line.interval("b") | {"R2": line.r2}


def sizes_of(way: str, rows: list[Row]) -> list[Record]:
    """The mean sizes at each N, of the rows that found one."""
    found = laws.by([row for row in rows if row["parameters"] is not None], "N")
    return [
        {"way": way, "N": N, "parameters": float(np.mean([r["parameters"] for r in same])),
         "blocks": float(np.mean([r.get("blocks") or r["depth"] for r in same])),
         "lower_bound": theorem42_parameters(N)}
        for N, same in found.items()
    ]  # fmt: skip


def analyse(rows: list[Row]) -> Finding:
    ways = {way: [r for r in rows if r.experiment == way] for way in ("trained", "built")}
    learned, built = (loglog(mine, "parameters") for mine in ways.values())
    if learned is None or built is None:
        return laws.too_few("three N of trained and of built networks are needed")
    numbers = {"exponent of N, trained": learned, "exponent of N, built": built}
    table = [line for way, mine in ways.items() for line in sizes_of(way, mine)]
    failed = sum(row["parameters"] is None for row in ways["trained"])
    straight = learned["R2"] >= STRAIGHT
    verdict = laws.exponent_verdict(learned, 0.5) if straight else "undecided"
    sentence = (
        f"Parameters grow as N^{learned['estimate']:.2f} when trained"
        + ("" if straight else f" (no straight line: R² = {learned['R2']:.2f})")
        + f" and as N^{built['estimate']:.2f} in the construction (nonzero weights); "
        f"{failed} trained searches found no size."
    )
    return Finding(verdict, sentence, numbers, {"sizes": table})


def draw(rows: list[Row], finding: Finding) -> Figure:
    drawn, panel = figure.axes("Parameters needed for N sequences", "sequences N", "parameters")
    for i, name in enumerate(("trained", "built")):
        for variant, mine in laws.by_variant([r for r in rows if r.experiment == name]).items():
            x, y = figure.series(mine, "N", "parameters")
            figure.points(panel, x, y, name if variant == OFFLINE else f"{name}, {variant}", i)
            at = np.unique(x)
            if len(at) >= 2:
                scale = float(np.exp(np.mean(np.log(y)) - 0.5 * np.mean(np.log(x))))
                figure.curve(panel, at, scale * np.sqrt(at), None, i, ":")
    if rows:
        sizes = [r["N"] for r in rows]
        at = np.geomspace(min(sizes), max(sizes), 40)
        lower = np.array([theorem42_parameters(int(N)) for N in at])
        figure.curve(panel, at, lower, "lower bound (Theorem 4.2)", 2, "--")
        figure.logarithmic(panel)
        panel.set_title("dotted: sqrt N through each", fontsize=9)
        figure.legend(panel)
    return drawn


AXES = Axes("N", "parameters", "experiment", "sequences N", log="xy", label="{value}")
FIG3 = declare("kajitsuka2025/fig3", grid, analyse, AXES, draw, STRAIGHT=STRAIGHT)


def length_grid(variant: str, profile: str) -> list[Cell]:
    how = {"data": "random", "d": 6}
    if profile == "quick":
        how |= {"N": 60, "sizes": LADDER[:8], "starts": 3, "epochs": 600}
        return MINIMAL.grid("length", n=(5, 10, 30, 100), **how)
    return MINIMAL.grid("length", n=(10, 100, 1000, 10_000), N=500, sizes=LADDER, **how)


def analyse_length(rows: list[Row]) -> Finding:
    x, y = figure.series(rows, "n", "blocks")
    failed = sum(row["blocks"] is None for row in rows)
    if len(np.unique(x)) < 3:
        return laws.too_few(
            f"three lengths with a size that suffices are needed; {failed} had none"
        )
    slope = laws.slope(np.log10(x), y)
    at, mean, _ = figure.means(x, y)
    meets = slope["low"] <= 0.5 and slope["high"] >= -0.5
    verdict = laws.judged(meets and slope["high"] - slope["low"] <= 2, not meets)
    table = [{"n": int(n), "blocks": float(b)} for n, b in zip(at, mean, strict=True)]
    sentence = (
        f"Ten times the length needs {slope['estimate']:.2f} blocks more (mean "
        f"{mean.mean():.1f}); {failed} searches found no size."
    )
    return Finding(verdict, sentence, {"blocks for a tenfold length": slope}, {"lengths": table})


BLOCKS = Axes("n", "blocks", None, "tokens n", "blocks needed", log="x", bottom=0)
LENGTH = declare("kajitsuka2025/length", length_grid, analyse_length, BLOCKS)
