"""What is memorized against heads, context size and head width: Figure 2, its appendix with own
contexts, and regression. New: the same heads in one layer or spread over several."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np

from byheart.papers.declare import by_profile, declare, words_of
from byheart.papers.mahdavi2024.experiment import (
    PAPER,
    SCALED,
    TRAIN,
    TRAIN_DEEP,
    TRAIN_OWN,
    spec_of,
)
from byheart.studies import Cell, Params, Study, figure, fit, laws
from byheart.studies.fits import combined, span
from byheart.studies.laws import CEILING, below_ceiling, by, fitted
from byheart.studies.study import Axes, Claim, Finding, Interval, Record, Row
from byheart.theory.mahdavi2024 import theorem1_capacity

Judgement = tuple[Record, list[Claim]]
"""Of the rows of one T: the line of the table, and the claims."""
GAIN = 0.03  # a share smaller than this counts as no fall
LITTLE = 0.25  # of the slope up to n: a smaller one beyond n is none
SAME = 0.03  # accuracy for a doubling of the depth: closer to 0 counts as no difference


@dataclass(frozen=True)
class Points:
    """One profile of a sweep: values of x, numbers of examples T, everything else fixed."""

    values: tuple[int, ...]
    T: tuple[int, ...]
    fixed: Params


@dataclass(frozen=True)
class Sweep:
    """A grid in one size x and in T: the scaled model, or in other profiles the paper's."""

    x: str
    task: str
    context: str
    quick: Points
    paper: Points

    @property
    def measured(self) -> str:
        return "accuracy" if self.task == "classes" else "share of the variance explained"

    def grid(self, variant: str, profile: str) -> list[Cell]:
        points, base = (self.quick, SCALED) if profile == "quick" else (self.paper, PAPER)
        settings = {"T": points.T, self.x: points.values, **base, **points.fixed}
        settings |= {"task": self.task, "context": self.context}
        return (TRAIN_OWN if self.context == "own" else TRAIN).grid(self.x, **settings)


def linear_in_heads(x: np.ndarray, y: np.ndarray, n: int) -> Judgement | None:
    """share = a + b H: the exponent of a + b H^p below the ceiling is 1.

    Beside it stands the exponent with the first share above the ceiling, by which these studies
    were judged at first: it says that shares end at 1, not how they grow.
    """
    ways = below_ceiling(x, y, including=False), below_ceiling(x, y)
    if len(np.unique(ways[0][0])) < 3:
        return None
    line = fitted("linear", *ways[0])
    p, p_with_ceiling = (fitted("power", *points).interval("p") for points in ways)
    told = {"R2_of_the_line": line.r2, **laws.columns("slope", line.interval("b"))}
    told |= laws.columns("p", p) | laws.columns("p_with_ceiling", p_with_ceiling)
    return told, [laws.exponent_claim("linear in H", p, 1.0)]


def smallest_step(groups: list[np.ndarray]) -> Interval:
    """The smallest difference of neighbouring means: no lower than the lowest of all, and no
    higher, allowing for one of many coming out low by chance."""
    pairs = list(pairwise(groups))
    one, wide = ([combined(p, [-1, 1], chosen_of=k) for p in pairs] for k in (1, len(pairs)))
    ends = ("estimate", one), ("low", one), ("high", wide)
    return span(*(float(np.min([step[name] for step in steps])) for name, steps in ends))


def grows(x: np.ndarray, y: np.ndarray, n: int) -> Judgement | None:
    """The slope against n is positive, and no step of the means falls by more than GAIN."""
    at, groups = laws.at_each(x, y)
    if len(at) < 3:
        return None
    slope = laws.slope(x, y)
    least = smallest_step(groups)
    told = {"first": float(groups[0].mean()), "last": float(groups[-1].mean())}
    told |= laws.columns("slope", slope) | laws.columns("smallest_step", least)
    claims = [
        Claim("grows with n: share for each token", slope, 0.0),
        Claim("never falls: smallest step from one n to the next", least, -GAIN),
    ]
    return told, claims


def flat_beyond(x: np.ndarray, y: np.ndarray, n: int) -> Judgement | None:
    """Growth up to d_h = n; beyond, the slope is at most LITTLE of that, if the share at n leaves
    room for more."""
    at, groups = laws.at_each(x, y)
    early, late = at <= n, at >= n
    if early.sum() < 2 or late.sum() < 2:
        return None
    up, beyond = (np.zeros(len(at)) for _ in range(2))
    up[early], beyond[late] = laws.slope_weights(at[early]), laws.slope_weights(at[late])
    growth, gain = combined(groups, up), combined(groups, beyond)
    rise = growth["estimate"] or math.nan
    ratio = gain["estimate"] / rise
    share = combined(groups, (beyond - ratio * up) / rise, ratio)  # to first order in the means
    room = 1 - max(float(g.mean()) for g, kept in zip(groups, early, strict=True) if kept)
    full = room <= LITTLE * rise * float(np.ptp(at[late]))
    told = laws.columns("slope_up_to_n", growth) | laws.columns("slope_beyond_n", gain)
    told |= laws.columns("beyond_by_up_to", share) | {"full_at_n": full}
    claims = [Claim("grows up to d_h = n: share for each dimension", growth, 0.0)]
    if not full:
        statement = "gains nothing beyond d_h = n: slope as a share of that up to n"
        known = growth["low"] > 0
        claims.append(Claim(statement, share if known else laws.unknown(share), most=LITTLE))
    return told, claims


Judge = Callable[[np.ndarray, np.ndarray, int], Judgement | None]
# The label of a size, how it is judged, and what of it the sentence says.
SHAPES: dict[str, tuple[str, Judge, str, str]] = {
    "H": ("heads H", linear_in_heads, "What is memorized goes as a + b H^p, p", "p"),
    "n": ("context size n", grows, "Each token of context adds to the share memorized", "slope"),
    "d_h": ("head width d_h", flat_beyond, "The slope beyond d_h = n as a share of that up to n",
            "beyond_by_up_to"),
}  # fmt: skip


def _analyse(sweep: Sweep, rows: list[Row]) -> Finding:
    _, judge, words, name = SHAPES[sweep.x]
    table: list[Record] = []
    shares: list[Record] = []
    claims: list[Claim] = []
    said: list[str] = []
    for T, same in by(rows, "T").items():
        x, y = figure.series(same, sweep.x, "share")
        shares += [
            {"T": T, sweep.x: int(at), "share": mean, "deviation": deviation}
            for at, mean, deviation in zip(*figure.means(x, y), strict=True)
        ]
        judgement = judge(x, y, same[0]["n"])
        if judgement is not None:
            told, mine = judgement
            table.append({"T": T, **told})
            full = min((int(at) for at in np.unique(x) if y[x == at].mean() > CEILING), default=0)
            at_ceiling = f", full from {sweep.x} = {full} on" if full else ""
            said.append(f"{told[name]:.3g} (T = {T:,}{at_ceiling})")
            claims += [replace(c, statement=f"T = {T:,}: {c.statement}") for c in mine]
    if not table:
        return laws.too_few(f"several values of {sweep.x} below the ceiling for one T are needed")
    tables = {f"against {sweep.x}": table, f"{sweep.measured}, mean over seeds": shares}
    return Finding(f"{words}: {', '.join(said)}.", tuple(claims), tables=tables)


def _draw(sweep: Sweep, name: str, rows: list[Row], finding: Finding) -> figure.Figure:
    title = words_of("mahdavi2024")[name]["title"]
    drawn, panel = figure.axes(title, SHAPES[sweep.x][0], sweep.measured)
    for i, (T, same) in enumerate(by(rows, "T").items()):
        x, y = figure.series(same, sweep.x, "share")
        figure.points(panel, x, y, f"T = {T:,}", i)
        if sweep.x == "H":
            kept = below_ceiling(x, y, including=False)
            if len(at := np.unique(kept[0])) >= 3:
                figure.curve(panel, at, fit("linear", *kept, validate=False)(at), None, i, "--")
        if sweep.x == "d_h" and i == 0 and same:
            panel.axvline(same[0]["n"], color="#888888", lw=1, ls=":", label="d_h = n")
    if rows:
        panel.set_xticks(sorted({row[sweep.x] for row in rows}))
    if panel.get_lines() and sweep.x == "H":
        panel.set_title("dashed: the best line below the ceiling", fontsize=9)
    figure.legend(panel)
    panel.set_ylim(-0.02, 1.03)
    return drawn


def sweep_study(name: str, sweep: Sweep) -> Study:
    """The study of a sweep; its words may say {QUICK} and {GRID}, the grids of its profiles, how
    large the paper's model is, and how many times Theorem 1's number is asked of it at least."""
    cells = [cell.params for cell in sweep.grid("as-coded", "paper")]
    model = {**cells[0], "H": sweep.paper.fixed.get("H", 20), "d_h": PAPER["d"]}
    promised = [theorem1_capacity(p["H"], p["n"], p["d_h"]) for p in cells]
    ratio = min(p["T"] / number for p, number in zip(cells, promised, strict=True))
    return declare(
        f"mahdavi2024/{name}", sweep.grid, partial(_analyse, sweep),
        Axes(sweep.x, "share", "T", SHAPES[sweep.x][0], sweep.measured),
        partial(_draw, sweep, name), GAIN=GAIN, LITTLE=LITTLE, CEILING=CEILING,
        QUICK=_settings(sweep, sweep.quick, SCALED), GRID=_settings(sweep, sweep.paper, PAPER),
        PARAMETERS=f"{spec_of(model).parameters:,}", AT_H=model["H"],
        CONTEXTS=CONTEXTS[sweep.context], RATIO=f"{ratio:.2g}",
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
    words = [f"d = {base['d']}", labels, *fixed, *grid, f"{steps} steps of Adam at {base['lr']:g}"]
    return ", ".join(words)


# What the examples read, in the paper and here.
CONTEXTS = {
    "shared": ("one for all examples", "one for all examples and seeds"),
    "own": ("one for each example", "the same"),
}
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
        Points(KEYS, (1000,), {"H": 10, "n": 4}),
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
    table, claims = [], []
    for T, _, x, y in laws.enough(by(rows, "T"), "layers", "accuracy", 3):
        statement = f"T = {T:,}: accuracy for twice the depth, the same heads in all"
        claims.append(Claim(statement, laws.slope(np.log2(x), y), -SAME, SAME))
        table += [
            {"T": T, "layers": int(L), "accuracy": mean, "deviation": deviation}
            for L, mean, deviation in zip(*figure.means(x, y), strict=True)
        ]
    if not table:
        return laws.too_few("three depths are needed")
    best = {T: max(same, key=lambda line: line["accuracy"])["layers"]
            for T, same in laws.group(table, lambda line: line["T"]).items()}  # fmt: skip
    told = "; ".join(
        f"{claim.found['estimate']:+.3f} (T = {T:,}, best at {best[T]} layers)"
        for T, claim in zip(best, claims, strict=True)
    )
    sentence = f"With the same heads in all, twice the depth changes the accuracy by {told}."
    return Finding(sentence, tuple(claims), tables={"depths": table})


DEPTHS = by_profile(
    TRAIN_DEEP, "depth",
    {"T": (1000, 1500), "layers": (1, 2, 3, 4, 6), **SCALED, "d_h": 16, "n": 8, "heads": 12},
    {"T": (1500, 2500), "layers": (1, 2, 3, 6), **SCALED, "d": 32, "d_h": 32, "n": 16, "heads": 12,
     "classes": 100, "lr": 5e-3, "least_steps": 6000},
)  # fmt: skip
DEPTH_AXES = Axes("layers", "accuracy", "T", bottom=0, top=1.03)
DEPTH = declare("mahdavi2024/depth", DEPTHS, analyse_depth, DEPTH_AXES, SAME=SAME)
