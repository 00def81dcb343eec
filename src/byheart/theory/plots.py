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
    """Parameters against facts, both logarithmic, one labelled line a candidate, crossings dotted.

    >>> from byheart.theory.candidates import facts_case, sweep
    >>> rows = sweep(facts_case(None, 1000, 50, 2), [10, 100, 1000])
    >>> len(size_figure(rows, []).axes[0].lines)
    10
    """
    figure, (axes,) = new_figure(9.5, 5.6)
    lines: dict[str, list[Sized]] = defaultdict(list)
    for row in rows:
        lines[row.family].append(row)
    ends = []
    for i, line in enumerate(lines.values()):
        colour = COLOURS[i % len(COLOURS)]
        style = "--" if find(line[0].bound).claim.kind == "upper bound" else "-"
        axes.plot([r.T for r in line], [r.parameters for r in line], style, color=colour, lw=1.8)
        ends.append((line[-1].T, float(line[-1].parameters), line[-1].title, colour))
    for crossing in crossings:
        axes.plot(crossing.T, crossing.parameters, "o", color="white", mec="black", ms=5, zorder=5)
    axes.set(xscale="log", yscale="log", xlabel="facts", ylabel="parameters")
    title = "Smallest model for so many facts (dashed: a limit; circles: crossings)"
    axes.set_title(title, loc="left")
    label_ends(axes, ends)
    return figure


def sweep_figure(sweep: Sweep, points: Sequence[Point]) -> Figure:
    """Facts that each bound promises or allows against the varied size; equal lines share a name.

    What shattering needs is left out: those bounds are so loose that they are no target.
    """
    lines: dict[str, list[tuple[int, float]]] = defaultdict(list)
    kinds: dict[str, str] = {}
    for value, answer in points:
        if answer.applies and answer.unit == "facts" and answer.kind != "necessary size":
            lines[answer.id].append((value, float(answer.capacity or 0)))
            kinds[answer.id] = answer.kind
    if not lines:
        none = "no bound on the number of facts applies anywhere in this sweep"
        raise ByheartError(f"nothing to plot: {none} (`bounds` of one of its specs says why).")
    names: dict[tuple[tuple[int, float], ...], list[str]] = defaultdict(list)
    for name, line in lines.items():
        names[tuple(line)].append(name)
    figure, (axes,) = new_figure(10.5, 5.6)
    ends = []
    for i, (line, same) in enumerate(names.items()):
        colour, kind = COLOURS[i % len(COLOURS)], kinds[same[0]]
        style = "-" if kind == "lower bound" else "--"
        marker = "." if len(line) == 1 else ""
        axes.plot(*zip(*line, strict=True), style, marker=marker, color=colour, lw=1.8)
        label = same[0] + "".join(f", .{name.split('.')[1]}" for name in same[1:])
        ends.append((*line[-1], f"{label} ({kind})", colour))
    axes.set(yscale="log", xlabel=sweep.name, ylabel="facts")
    axes.set_title("What the theorems promise (solid) and allow or measure (dashed)", loc="left")
    label_ends(axes, ends)
    return figure


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write the figure whole, by the suffix: .png, .svg or .pdf."""
    check_path(path)
    _style.save(figure, path)


def check_path(path: str | os.PathLike[str], parameter: str = "plot") -> None:
    """Refuse a plot file that could not be written, before any work; `parameter` names it.

    >>> check_path("size.gif")
    Traceback (most recent call last):
    ...
    byheart.errors.ByheartError: `plot` must end in .png, .svg, .pdf, found size.gif
    """
    target = Path(path)
    if target.suffix.lower() not in FORMATS:
        raise ByheartError(f"`{parameter}` must end in {', '.join(FORMATS)}, found {path}")
    if not target.parent.is_dir():
        raise ByheartError(f"{path} cannot be written: there is no folder {target.parent}.")


def label_ends(axes: Axes, ends: list[tuple[float, float, str, str]]) -> None:
    """Names to the right of the line ends (x, y, name, colour), spread where they would overlap."""
    low, high = (math.log10(v) for v in axes.get_ylim())
    ends = sorted(ends, key=lambda end: end[1])
    heights = [(math.log10(max(y, 10**low)) - low) / (high - low) for _, y, _, _ in ends]
    for _ in range(200):  # neighbours push each other apart until all have room
        for i in range(len(heights) - 1):
            short = LABEL_GAP - (heights[i + 1] - heights[i])
            if short > 0:
                heights[i] -= short / 2
                heights[i + 1] += short / 2
    for (x, y, name, colour), height in zip(ends, heights, strict=True):
        line = {"arrowstyle": "-", "color": colour, "lw": 0.6, "shrinkA": 1, "shrinkB": 2}
        axes.annotate(
            name, xy=(x, y), xytext=(1.03, height), textcoords="axes fraction", color=colour,
            va="center", fontsize=9, annotation_clip=False,
            arrowprops=line | {"relpos": (0, 0.5)},
        )  # fmt: skip
