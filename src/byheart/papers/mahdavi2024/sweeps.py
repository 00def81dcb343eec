"""What is memorized against heads, context size and head width: Figure 2, its appendix with own
contexts, and regression. New: the same heads in one layer or spread over several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from byheart.papers.declare import by_profile, declare, words_of
from byheart.papers.mahdavi2024.experiment import PAPER, SCALED, TRAIN, TRAIN_DEEP, TRAIN_OWN
from byheart.studies import Cell, Params, Study, figure, fit, laws
from byheart.studies.laws import below_ceiling, by, fitted
from byheart.studies.study import Axes, Finding, Record, Row, Verdict

Judgement = tuple[Verdict, Record, Record]
"""The verdict on the rows of one T, the line of the table, and the numbers of the finding."""
GAIN = 0.03  # a share smaller than this counts as no fall
LITTLE = 0.25  # of the growth up to n: a smaller gain beyond n is none
SAME = 0.03  # accuracy for a doubling of the depth: closer to 0 counts as no difference


@dataclass(frozen=True)
class Points:
    """One profile of a sweep: values of x, numbers of examples T, everything else fixed.

    `rates`: learning rates that are tried, the best of which counts at each x (none: the base's).
    """

    values: tuple[int, ...]
    T: tuple[int, ...]
    fixed: Params
    rates: tuple[float, ...] = ()


@dataclass(frozen=True)
class Sweep:
    """A grid in one size x and in T: the scaled model, or in other profiles the paper's."""

    x: str
    task: str
    context: str
    quick: Points
    full: Points

    @property
    def measured(self) -> str:
        return "accuracy" if self.task == "classes" else "share of the variance explained"

    def grid(self, variant: str, profile: str) -> list[Cell]:
        points, base = (self.quick, SCALED) if profile == "quick" else (self.full, PAPER)
        settings = {"T": points.T, self.x: points.values, **base, **points.fixed}
        settings |= {"task": self.task, "context": self.context}
        settings |= {"lr": points.rates} if points.rates else {}
        return (TRAIN_OWN if self.context == "own" else TRAIN).grid(self.x, **settings)


def best_rate(rows: Sequence[Row], x: str) -> list[Row]:
    """The rows of the learning rate with the best mean share, at each x."""
    kept: list[Row] = []
    for same in by(rows, x).values():
        tried = by(same, "lr").values()
        kept += max(tried, key=lambda some: float(np.mean([row["share"] for row in some])))
    return kept


def linear_in_heads(x: np.ndarray, y: np.ndarray, T: int, n: int) -> Judgement | None:
    """share = a + b H: the exponent of a + b H^p below the ceiling is 1."""
    x, y = below_ceiling(x, y)
    if len(np.unique(x)) < 4:
        return None
    line, p = fitted("linear", x, y), fitted("power", x, y).interval("p")
    slope, low, high = line.values["b"], *line.intervals["b"]
    told = {"slope": slope, "low": low, "high": high, "R2": line.r2, **laws.columns("p", p)}
    numbers = {"exponent of H": p, "examples a head": laws.span(T * slope, T * low, T * high)}
    return laws.exponent_verdict(p, 1.0), told, numbers


def grows(x: np.ndarray, y: np.ndarray, T: int, n: int) -> Judgement | None:
    """The slope against x is positive, and no step of the means falls by more than GAIN and twice
    its standard error."""
    at, mean, deviation = figure.means(x, y)
    if len(at) < 3:
        return None
    line = fitted("linear", x, y)
    low, high = line.intervals["b"]
    error = deviation / np.sqrt([max(1, int((x == v).sum())) for v in at])
    noise = 2 * np.hypot(error[1:], error[:-1])
    fall = float(max(0.0, (-np.diff(mean) - noise).max()))
    told = {"slope": line.values["b"], "low": low, "high": high, "R2": line.r2,
            "largest_fall": fall, "first": float(mean[0]), "last": float(mean[-1])}  # fmt: skip
    verdict = laws.judged(low > 0 and fall <= GAIN, high <= 0)
    return verdict, told, {"share for each token": line.interval("b")}


def flat_beyond(x: np.ndarray, y: np.ndarray, T: int, n: int) -> Judgement | None:
    """Growth up to d_h = n, none beyond: the line through d_h >= n gains nothing, or little."""
    below, beyond = x <= n, x >= n
    if len(np.unique(x[below])) < 2 or len(np.unique(x[beyond])) < 2:
        return None
    width = float(x.max() - x[beyond].min())
    early, late = fitted("linear", x[below], y[below]), fitted("linear", x[beyond], y[beyond])
    gain, gain_low, gain_high = (width * v for v in (late.values["b"], *late.intervals["b"]))
    _, mean, _ = figure.means(x, y)
    low, high = early.intervals["b"]
    told = {"slope_up_to_n": early.values["b"], "low": low, "high": high, "gain_beyond_n": gain,
            "gain_low": gain_low, "gain_high": gain_high, "first": float(mean[0]),
            "at_n": float(late([n])[0]), "last": float(mean[-1])}  # fmt: skip
    little = LITTLE * float(x[below].max() - x.min()) * early.values["b"]
    refuted = high <= 0 or gain_low > max(little, 0.0)
    flat = low > 0 and gain_low <= 0 and gain <= little
    numbers = {"gain beyond n": laws.span(gain, gain_low, gain_high)}
    return laws.judged(flat and not refuted, refuted), told, numbers


Judge = Callable[[np.ndarray, np.ndarray, int, int], Judgement | None]
# The label of a size, what is claimed of the share memorized against it, and how it is judged.
SHAPES: dict[str, tuple[str, str, Judge]] = {
    "H": ("heads H", "grows linearly in H", linear_in_heads),
    "n": ("context size n", "grows with n", grows),
    "d_h": ("head width d_h", "grows with d_h up to n and gains nothing beyond", flat_beyond),
}


def _analyse(sweep: Sweep, rows: list[Row]) -> Finding:
    _, claim, judge = SHAPES[sweep.x]
    table: list[Record] = []
    numbers: Record = {}
    for T, tried in by(rows, "T").items():
        same = best_rate(tried, sweep.x)
        judgement = judge(*figure.series(same, sweep.x, "share"), T, same[0]["n"])
        if judgement is not None:
            verdict, told, named = judgement
            table.append({"T": T, **told, "verdict": verdict})
            numbers |= {f"{name}, T = {T}": value for name, value in named.items()}
    if not table:
        return laws.too_few(f"at least four values of {sweep.x} for one T are needed")
    verdicts = [row["verdict"] for row in table]
    agree = sum(v == "confirmed" for v in verdicts)
    sentence = f"What is memorized {claim} for {agree} of {len(verdicts)} sizes T."
    return Finding(laws.worst(verdicts), sentence, numbers, {f"against {sweep.x}": table})


def _draw(sweep: Sweep, name: str, rows: list[Row], finding: Finding) -> figure.Figure:
    title = words_of("mahdavi2024")[name]["title"]
    drawn, panel = figure.axes(title, SHAPES[sweep.x][0], sweep.measured)
    for i, (T, tried) in enumerate(by(rows, "T").items()):
        same = best_rate(tried, sweep.x)
        x, y = figure.series(same, sweep.x, "share")
        figure.points(panel, x, y, f"T = {T:,}", i)
        if sweep.x == "H" and len(np.unique(x)) >= 4:
            kept = below_ceiling(x, y)
            if len(at := np.unique(kept[0])) >= 2:
                figure.curve(panel, at, fit("linear", *kept, validate=False)(at), None, i, "--")
        if sweep.x == "d_h" and i == 0 and same:
            panel.axvline(same[0]["n"], color="#888888", lw=1, ls=":", label="d_h = n")
    figure.legend(panel)
    panel.set_ylim(-0.02, 1.03)
    return drawn


def sweep_study(name: str, sweep: Sweep) -> Study:
    """The study of a sweep."""
    settings = (
        f"Quick, scaled: {_settings(sweep, sweep.quick, SCALED)}. Full, the paper's: "
        f"{_settings(sweep, sweep.full, PAPER)}. Warm-up 5 %, cosine to 0, batches of 256."
    )
    return declare(
        f"mahdavi2024/{name}", sweep.grid, partial(_analyse, sweep),
        Axes(sweep.x, "share", "T", SHAPES[sweep.x][0], sweep.measured),
        partial(_draw, sweep, name), settings=settings, GAIN=GAIN, LITTLE=LITTLE,
    )  # fmt: skip


def _settings(sweep: Sweep, points: Points, base: Params) -> str:
    """One profile in words."""
    labels = "scalar labels" if sweep.task == "values" else f"{base['classes']} classes"
    fixed = [f"{k} = {v}" for k, v in points.fixed.items() if k in ("H", "n", "d_h")]
    sizes = {sweep.x: points.values, "T": points.T}.items()
    grid = [f"{name} = {' '.join(f'{v:,}' for v in values)}" for name, values in sizes]
    steps = f"{points.fixed.get('least_steps', base['least_steps']):,}"
    if base["epochs"]:
        steps = f"max({base['epochs']} T / {base['batch']}, {steps})"
    rates = " or ".join(f"{rate:g}" for rate in points.rates or (base["lr"],))
    words = [f"d = {base['d']}", labels, *fixed, *grid, f"{steps} steps of Adam at {rates}"]
    return ", ".join(words)


HEADS = (1, 5, 10, 20, 30, 40, 50, 60)  # and context sizes
WIDTHS = (10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 64)
FEW = (1, 2, 4, 6, 8, 10, 12)  # heads of the quick profiles
SIZES = (2, 3, 4, 6, 8, 12, 16)  # contexts of the quick profiles
KEYS = (1, 2, 3, 4, 8, 12, 16)  # head widths of the quick profiles
SWEEPS = {
    "fig2a": Sweep("H", "classes", "shared", Points(FEW, (1000, 1500), {"n": 8}),
        Points(HEADS, (10_000, 20_000, 30_000, 40_000), {"n": 32})),
    "fig2b": Sweep("n", "classes", "shared", Points(SIZES, (1000, 1500), {"H": 6}),
        Points(HEADS, (6_000, 10_000, 14_000, 18_000), {"H": 20})),
    "fig2c": Sweep("d_h", "classes", "shared",
        Points(KEYS, (1000,), {"H": 10, "n": 4}, (0.02, 0.04)),
        Points(WIDTHS, (10_000, 15_000, 20_000), {"H": 30, "n": 32, "least_steps": 300_000})),
    "heads-own-contexts": Sweep("H", "classes", "own", Points(FEW, (1000, 1500), {"n": 8}),
        Points(HEADS, tuple(range(30_000, 130_001, 20_000)), {"n": 32})),
    "context-own-contexts": Sweep("n", "classes", "own", Points(SIZES, (500, 1000), {"H": 4}),
        Points(HEADS, (20_000, 30_000, 40_000, 50_000, 60_000), {"H": 20})),
    "regression-heads": Sweep("H", "values", "shared", Points(FEW, (250, 500), {"n": 8}),
        Points(HEADS, (10_000, 15_000, 20_000, 25_000, 30_000), {"n": 32})),
    "regression-context": Sweep("n", "values", "shared", Points(SIZES, (250, 500), {"H": 6}),
        Points(HEADS, (10_000, 15_000, 20_000, 25_000), {"H": 20})),
    "regression-heads-own": Sweep("H", "values", "own", Points(FEW, (500, 1000), {"n": 8}),
        Points(HEADS, (10_000, 30_000, 50_000, 70_000, 90_000), {"n": 32})),
    "regression-context-own": Sweep("n", "values", "own", Points(SIZES, (500,), {"H": 4}),
        Points(HEADS, (10_000, 30_000, 50_000, 70_000, 90_000), {"H": 20})),
}  # fmt: skip
FIGURES: tuple[Study, ...] = tuple(sweep_study(name, sweep) for name, sweep in SWEEPS.items())


def analyse_depth(rows: list[Row]) -> Finding:
    table, verdicts = [], []
    numbers: Record = {}
    for T, _, x, y in laws.enough(by(rows, "T"), "layers", "accuracy", 3):
        slope = laws.slope(np.log2(x), y)
        inside = slope["low"] >= -SAME and slope["high"] <= SAME
        outside = slope["low"] > SAME or slope["high"] < -SAME
        verdicts.append(laws.judged(inside, outside))
        numbers[f"accuracy for twice the depth, T = {T}"] = slope
        table += [
            {"T": T, "layers": int(L), "accuracy": mean, "deviation": deviation}
            for L, mean, deviation in zip(*figure.means(x, y), strict=True)
        ]
    if not table:
        return laws.too_few("three depths are needed")
    best = max(table, key=lambda row: row["accuracy"])
    told = ", ".join(f"{slope['estimate']:+.3f}" for slope in numbers.values())
    sentence = (
        f"With the same heads in all, twice the depth changes the accuracy by {told}; best at "
        f"{best['layers']} layers."
    )
    return Finding(laws.worst(verdicts), sentence, numbers, {"depths": table})


DEPTHS = by_profile(
    TRAIN_DEEP, "depth",
    {"T": (1000, 1500), "layers": (1, 2, 3, 4, 6), **SCALED, "d_h": 16, "n": 8, "heads": 12},
    {"T": (10_000, 20_000), "layers": (1, 2, 3, 4, 6, 8), **PAPER, "d_h": 64, "n": 32, "heads": 24},
)  # fmt: skip
DEPTH_AXES = Axes("layers", "accuracy", "T", bottom=0, top=1.03)
DEPTH = declare("mahdavi2024/depth", DEPTHS, analyse_depth, DEPTH_AXES, SAME=SAME)
