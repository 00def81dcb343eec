"""Figures of sweeps: capacity against a size, parameters against the number of facts."""

from __future__ import annotations

import io
import math
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from byheart.errors import ByheartError
from byheart.theory.families import Crossing, Sized
from byheart.theory.sweeps import Point, Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
# Okabe and Ito's colours, told apart by colour-blind readers, then greys.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#777777",
           "#8C6D31")  # fmt: skip
DASHES = ("-", "--", "-.", ":")


def size_figure(rows: Sequence[Sized], crossings: Sequence[Crossing]) -> Figure:
    """Parameters against facts, both logarithmic, one labelled line a family, crossings dotted."""
    figure, axes = _axes(width=9.5)
    lines: dict[str, list[Sized]] = defaultdict(list)
    for row in rows:
        lines[row.family].append(row)
    ends = []
    for i, (_, line) in enumerate(lines.items()):
        colour = COLOURS[i % len(COLOURS)]
        axes.plot([r.T for r in line], [r.parameters for r in line], color=colour, lw=1.8)
        ends.append((float(line[-1].parameters), line[-1].title, colour))
    for crossing in crossings:
        axes.plot(crossing.T, crossing.parameters, "o", color="white", mec="black", ms=5, zorder=5)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("facts")
    axes.set_ylabel("parameters")
    axes.set_title("Smallest model for so many facts (circles: crossings)", loc="left")
    _label_ends(axes, max(r.T for r in rows), ends)
    return figure


def sweep_figure(sweep: Sweep, points: Sequence[Point]) -> Figure:
    """Facts that each bound promises or allows against the varied size."""
    figure, axes = _axes(width=10.5)
    lines: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        if point.answer.applies and point.answer.unit == "facts":
            lines[point.answer.id].append(point)
    if not lines:
        raise ByheartError(
            "nothing to plot: no bound on the number of facts applies anywhere in this sweep "
            "(`byheart bound` without --sweep says why)."
        )
    ends = []
    for i, (name, line) in enumerate(lines.items()):
        colour, kind = COLOURS[i % len(COLOURS)], line[0].answer.kind
        heights = [float(p.answer.capacity or 0) for p in line]
        style = DASHES[0] if kind == "lower bound" else DASHES[1]
        marker = "." if len(line) == 1 else ""
        axes.plot([p.value for p in line], heights, style, marker=marker, color=colour, lw=1.8)
        ends.append((heights[-1], f"{name} ({kind})", colour))
    axes.set_yscale("log")
    axes.set_xlabel(sweep.name)
    axes.set_ylabel("facts")
    axes.set_title("What the theorems promise (solid) and allow or measure (dashed)", loc="left")
    _label_ends(axes, max(p.value for p in points), ends)
    return figure


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write the figure whole, by the suffix: .png, .svg or .pdf."""
    target = Path(path)
    check_path(target)
    data = io.BytesIO()
    figure.savefig(data, format=target.suffix[1:].lower(), dpi=150)
    temporary = target.with_name(f".{target.name}.part")
    try:
        temporary.write_bytes(data.getvalue())
        os.replace(temporary, target)
    except OSError as error:
        raise ByheartError(f"{path} cannot be written: {error.strerror}.") from None


def check_path(path: str | os.PathLike[str]) -> None:
    """Refuse a plot file that could not be written, before any work."""
    target = Path(path)
    if target.suffix.lower() not in FORMATS:
        raise ByheartError(f"--plot must end in {', '.join(FORMATS)}, found {path}")
    if not target.parent.is_dir():
        raise ByheartError(f"{path} cannot be written: there is no folder {target.parent}.")


def _axes(width: float) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 5.6), layout="constrained")
    axes = figure.subplots()
    axes.grid(True, which="major", color="#dddddd", lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _label_ends(axes: Any, x: float, ends: list[tuple[float, str, str]]) -> None:
    """Names at the right end of the lines, pushed apart where they would overlap."""
    low, high = (math.log10(v) for v in axes.get_ylim())
    gap, places = 0.042, []
    for y, name, colour in sorted(ends):
        height = (math.log10(max(y, 10**low)) - low) / (high - low)
        places.append([max(height, places[-1][0] + gap) if places else height, name, colour])
    over = places[-1][0] - 1.0
    if over > 0:  # too high: push the pile down from the top
        top = 1.0
        for place in reversed(places):
            place[0] = min(place[0], top)
            top = place[0] - gap
    for height, name, colour in places:
        axes.annotate(
            name,
            xy=(1.0, height),
            xycoords="axes fraction",
            xytext=(6, 0),
            textcoords="offset points",
            color=colour,
            va="center",
            fontsize=9,
            annotation_clip=False,
        )
