"""Figures of sweeps: capacity against a size, parameters against the number of facts."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from byheart import _style
from byheart._style import COLOURS, new_figure
from byheart.errors import ByheartError
from byheart.theory.candidates import Crossing, Sized
from byheart.theory.registry import find
from byheart.theory.sweeps import Point, Sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
LABEL_GAP = 0.045  # of the height of the axes: one line of text


def size_figure(rows: Sequence[Sized], crossings: Sequence[Crossing]) -> Figure:
    """Parameters against facts, both logarithmic: a line a candidate (solid where practical,
    dotted where theoretical, dashed for a limit), crossings of practical ones as circles."""
    figure, (axes,) = new_figure(9.5, 5.6)
    axes.set(xscale="log", yscale="log", xlabel="facts", ylabel="parameters")
    axes.set_title("Smallest model for so many facts", loc="left")
    styles = (
        "solid: practical   dotted: theoretical   dashed: a limit\ncircles: practical ones cross"
    )
    axes.text(0.98, 0.03, styles, transform=axes.transAxes, ha="right", va="bottom", fontsize=9)
    points: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for row in rows:
        points[row.family].append((row.T, float(row.parameters)))
    named = {row.family: row for row in rows}

    def style(row: Sized) -> str:
        if find(row.bound).claim.kind == "upper bound":
            return "--"
        return "-" if row.practical else ":"

    draw(axes, [(line, style(named[x]), named[x].title) for x, line in points.items()])
    for crossing in crossings:
        if named[crossing.winner].practical and named[crossing.loser].practical:
            dot = {"color": "white", "mec": "black", "ms": 5, "zorder": 5}
            axes.plot(crossing.T, crossing.parameters, "o", **dot)
    return figure


def sweep_figure(sweep: Sweep, points: Sequence[Point]) -> Figure:
    """Facts that each bound promises or allows against the varied size; equal lines share a name.

    What shattering needs is left out: those bounds are so loose that they are no target.
    """
    lines: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
    for value, answer in points:
        if answer.applies and answer.unit == "facts" and answer.kind != "necessary size":
            lines[answer.id, answer.kind].append((value, float(answer.capacity or 0)))
    if not lines:
        none = "no bound on the number of facts applies anywhere in this sweep"
        raise ByheartError(f"nothing to plot: {none} (`bounds` of one of its specs says why).")
    same: dict[tuple[tuple[int, float], ...], list[tuple[str, str]]] = defaultdict(list)
    for name, line in lines.items():
        same[tuple(line)].append(name)
    figure, (axes,) = new_figure(10.5, 5.6)
    axes.set(yscale="log", xlabel=sweep.name, ylabel="facts")
    axes.set_title("What the theorems promise (solid) and allow or measure (dashed)", loc="left")
    drawn = []
    for line, ((first, kind), *others) in same.items():
        label = first + "".join(f", .{name.split('.')[1]}" for name, _ in others)
        drawn.append((line, "-" if kind == "lower bound" else "--", f"{label} ({kind})"))
    draw(axes, drawn)
    return figure


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write the figure whole, by the suffix: .png, .svg or .pdf."""
    check_path(path)
    _style.save(figure, path)


def check_path(path: str | os.PathLike[str], parameter: str = "plot") -> None:
    """Refuse a plot file that could not be written, before any work; `parameter` names it."""
    target = Path(path)
    if target.suffix.lower() not in FORMATS:
        raise ByheartError(f"`{parameter}` must end in {', '.join(FORMATS)}, found {path}")
    if not os.path.isdir(target.parent):
        raise ByheartError(f"{path} cannot be written: there is no folder {target.parent}.")


def draw(axes: Axes, lines: Sequence[tuple[Sequence[tuple[int, float]], str, str]]) -> None:
    """Lines (points, style, name), named to the right, spread where names would overlap."""
    ends = []
    for i, (points, style, name) in enumerate(lines):
        colour, marker = COLOURS[i % len(COLOURS)], "." if len(points) == 1 else ""
        axes.plot(*zip(*points, strict=True), style, marker=marker, color=colour, lw=1.8)
        ends.append((*points[-1], name, colour))
    low, high = (math.log10(v) for v in axes.get_ylim())
    ends = sorted(ends, key=lambda end: end[1])
    heights = [(math.log10(max(y, 10**low)) - low) / (high - low) for _, y, _, _ in ends]
    for _ in range(200):  # neighbours push each other apart until all have room
        for i in range(len(heights) - 1):
            short = LABEL_GAP - (heights[i + 1] - heights[i])
            if short > 0:
                heights[i] -= short / 2
                heights[i + 1] += short / 2
    above = max(0.0, heights[-1] - 1)  # names stay below the title
    heights = [height - above for height in heights]
    for (x, y, name, colour), height in zip(ends, heights, strict=True):
        line = {"arrowstyle": "-", "color": colour, "lw": 0.6, "shrinkA": 1, "shrinkB": 2}
        axes.annotate(
            name, xy=(x, y), xytext=(1.03, height), textcoords="axes fraction", color=colour,
            va="center", fontsize=9, annotation_clip=False,
            arrowprops=line | {"relpos": (0, 0.5)},
        )  # fmt: skip
