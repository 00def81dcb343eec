"""Figure 2 and its relatives: what is memorized against heads, context size and head width."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from byheart.papers.declare import declare, words_of
from byheart.papers.mahdavi2024.experiment import PAPER, SCALED, train_cell
from byheart.studies import Axes, Cell, Finding, Params, Row, Study, figure, fit, laws
from byheart.studies.laws import RESAMPLES, below_ceiling, by
from byheart.studies.study import Record, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Judgement = tuple[Verdict, Record, Record]
"""The verdict on the rows of one T, the line of the table, and the numbers of the finding."""
GAIN = 0.03  # a share smaller than this counts as no fall
LITTLE = 0.25  # of the growth up to n: a smaller gain beyond n is none


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
    """A grid in one size x and in T; `base` of a profile is the scaled model or the paper's."""

    x: str
    quick: Points
    full: Points
    task: str
    context: str

    @property
    def measured(self) -> str:
        return "accuracy" if self.task == "classes" else "share of the variance explained"

    def grid(self, variant: str, profile: str) -> list[Cell]:
        points, base = (self.quick, SCALED) if profile == "quick" else (self.full, PAPER)
        fixed = {"task": self.task, "context": self.context, **points.fixed}
        return [
            train_cell(self.x, base, **{**fixed, self.x: value, "T": T, "lr": rate})
            for T in points.T
            for value in points.values
            for rate in points.rates or (base["lr"],)
        ]


def best_rate(rows: Sequence[Row], x: str) -> list[Row]:
    """The rows of the learning rate with the best mean share, at each x."""
    kept: list[Row] = []
    for same in by(rows, x).values():
        tried = by(same, "lr").values()
        kept += max(tried, key=lambda some: float(np.mean([row["share"] for row in some])))
    return kept


def linear_in_heads(x: np.ndarray, y: np.ndarray, T: int, n: int) -> Judgement | None:
    """share = a + b H: the exponent of a + b H^p below the ceiling is 1."""
    keep = below_ceiling(x, y)
    x, y = x[keep], y[keep]
    if len(np.unique(x)) < 4:
        return None
    line = fit("linear", x, y, resamples=RESAMPLES)
    p = fit("power", x, y, resamples=RESAMPLES).interval("p")
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
    line = fit("linear", x, y, resamples=RESAMPLES)
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
    early = fit("linear", x[below], y[below], resamples=RESAMPLES)
    late = fit("linear", x[beyond], y[beyond], resamples=RESAMPLES)
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


@dataclass(frozen=True)
class Shape:
    """What is claimed of the share memorized against one size, and how it is judged."""

    label: str
    sentence: str
    judge: Callable[[np.ndarray, np.ndarray, int, int], Judgement | None]


SHAPES = {
    "H": Shape("heads H", "grows linearly in H", linear_in_heads),
    "n": Shape("context size n", "grows with n", grows),
    "d_h": Shape("head width d_h", "grows with d_h up to n and gains nothing beyond", flat_beyond),
}


def _analyse(sweep: Sweep, rows: list[Row]) -> Finding:
    shape = SHAPES[sweep.x]
    table: list[Record] = []
    numbers: Record = {}
    for T, tried in by(rows, "T").items():
        same = best_rate(tried, sweep.x)
        judgement = shape.judge(*figure.series(same, sweep.x, "share"), T, same[0]["n"])
        if judgement is not None:
            verdict, told, named = judgement
            table.append({"T": T, **told, "verdict": verdict})
            numbers |= {f"{name}, T = {T}": value for name, value in named.items()}
    if not table:
        return laws.too_few(f"at least four values of {sweep.x} for one T are needed")
    verdicts = [row["verdict"] for row in table]
    agree = sum(v == "confirmed" for v in verdicts)
    sentence = f"What is memorized {shape.sentence} for {agree} of {len(verdicts)} sizes T."
    return Finding(laws.worst(verdicts), sentence, numbers, {f"against {sweep.x}": table})


def _draw(sweep: Sweep, name: str, rows: list[Row], finding: Finding) -> Figure:
    title = words_of("mahdavi2024")[name]["title"]
    drawn, panel = figure.axes(title, SHAPES[sweep.x].label, sweep.measured)
    for i, (T, tried) in enumerate(by(rows, "T").items()):
        same = best_rate(tried, sweep.x)
        x, y = figure.series(same, sweep.x, "share")
        figure.points(panel, x, y, f"T = {T:,}", i)
        if sweep.x == "H" and len(np.unique(x)) >= 4:
            keep = below_ceiling(x, y)
            if len(np.unique(x[keep])) >= 2:
                line = fit("linear", x[keep], y[keep])
                figure.curve(panel, np.unique(x[keep]), line(np.unique(x[keep])), None, i, "--")
        if sweep.x == "d_h" and i == 0 and same:
            panel.axvline(same[0]["n"], color="#888888", lw=1, ls=":", label="d_h = n")
    figure.legend(panel)
    panel.set_ylim(-0.02, 1.03)
    return drawn


def sweep_study(name: str, sweep: Sweep) -> Study:
    """The study of a sweep."""
    label = SHAPES[sweep.x].label
    return declare(
        f"mahdavi2024/{name}",
        sweep.grid,
        partial(_analyse, sweep),
        Axes(sweep.x, "share", "T", label, sweep.measured),
        partial(_draw, sweep, name),
        settings=f"Quick, scaled: {_settings(sweep, sweep.quick, SCALED)}. Full, the paper's: "
        f"{_settings(sweep, sweep.full, PAPER)}. Warm-up 5 %, cosine to 0, batches of 256.",
        GAIN=GAIN,
        LITTLE=LITTLE,
    )


def _settings(sweep: Sweep, points: Points, base: Params) -> str:
    """One profile in words."""
    labels = "scalar labels" if sweep.task == "values" else f"{base['classes']} classes"
    fixed = [f"{k} = {v}" for k, v in points.fixed.items() if k in ("H", "n", "d_h")]
    grid = [f"{sweep.x} = {_list(points.values)}", f"T = {_list(points.T)}"]
    steps = f"{points.fixed.get('least_steps', base['least_steps']):,}"
    if base["epochs"]:
        steps = f"max({base['epochs']} T / {base['batch']}, {steps})"
    rates = " or ".join(f"{rate:g}" for rate in points.rates or (base["lr"],))
    words = [f"d = {base['d']}", labels, *fixed, *grid, f"{steps} steps of Adam at {rates}"]
    return ", ".join(words)


def _list(values: Sequence[int]) -> str:
    return " ".join(f"{v:,}" for v in values)
