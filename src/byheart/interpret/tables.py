"""The benchmark's rows as tables, as one sentence and as one figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from byheart import _style
from byheart.studies.cell import group
from byheart.studies.fits import combined
from byheart.studies.study import Finding, Interval, Record, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Found = Mapping[tuple[str, str], Sequence[Row]]
"""The rows of each (method, disguise)."""
CONTROL = "random"
MEASURES = {  # what rows have -> in words
    "average_precision": "average precision",
    "precision": "precision at k",
    "misplaced": "misplaced score",
    "passes": "passes a fact",
}


def by_method(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    return group(rows, lambda row: (row["method"], row["disguise"]))


def reached(found: Found, method: str, disguise: str, measure: str) -> Interval | None:
    """The mean over seeds of a measurement, with its interval; None where there are no rows."""
    rows = found.get((method, disguise))
    return combined([[row[measure] for row in rows]], [1.0]) if rows else None


def names(found: Found) -> tuple[list[str], list[str]]:
    """The methods and the disguises, in the order of the grid."""
    methods, disguises = zip(*found, strict=True)
    return list(dict.fromkeys(methods)), list(dict.fromkeys(disguises))


def across(found: Found, measure: str) -> list[Record]:
    """A line for each method, a column for each disguise."""
    methods, disguises = names(found)
    return [
        {"method": method, **{d: reached(found, method, d, measure) for d in disguises}}
        for method in methods
    ]


def sentence(found: Found, good: float) -> str:
    """How many methods find the owners, disguise by disguise, and which do best and worst."""
    methods, disguises = names(found)
    tools = [method for method in methods if method != CONTROL] or methods
    parts = []
    for disguise in disguises:
        means = {
            method: interval["estimate"]
            for method in tools
            if (interval := reached(found, method, disguise, "average_precision")) is not None
        }
        well = sum(value > good for value in means.values())
        worst = min(means, key=lambda method: means[method], default="")
        parts.append(
            f"{disguise} {well} of {len(means)}"
            + (f" (worst: {worst}, {means[worst]:.2f})" if well < len(means) else "")
        )
    return f"Methods with an average precision above {good:g}: {', '.join(parts)}."


def cell_text(interval: Interval | None) -> str:
    """A number with half of its interval.

    >>> cell_text({"estimate": 0.5, "low": 0.45, "high": 0.55})
    '.50 ±.05'
    """
    if interval is None:
        return "-"
    numbers = interval["estimate"], interval["high"] - interval["estimate"]
    shown = [f"{value:.2f}".removeprefix("0") for value in numbers if np.isfinite(value)]
    return " ±".join(shown)


def cost_text(found: Found, method: str) -> str:
    """Forward passes a fact, mean over the disguises, and backward ones where there are any."""
    rows = [row for (name, _), same in found.items() if name == method for row in same]
    forward, backward = (np.mean([row[x] for row in rows]) for x in ("forwards", "backwards"))
    return f"{forward:.0f}" + (f" + {backward:.0f}" if backward else "")


def lines(found: Found, measure: str = "average_precision") -> list[tuple[str, ...]]:
    """The table that the command prints, its header first."""
    methods, disguises = names(found)
    rows = [("method", *disguises, "passes")]
    for method in methods:
        reach = [reached(found, method, d, measure) for d in disguises]
        rows.append((method, *map(cell_text, reach), cost_text(found, method)))
    return rows


def draw(rows: list[Row], _: Finding) -> Figure:
    """Left: average precision, methods down, disguises across. Right: what each method costs."""
    from matplotlib.figure import Figure

    found = by_method(rows)
    figure = Figure(figsize=(11.6, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 1))
    figure.suptitle("Which tool finds the heads that hold a fact?", x=0.01, ha="left", fontsize=11)
    if found:
        draw_map(left, found)
        draw_costs(right, found)
    return figure


def draw_map(axes: Axes, found: Found) -> None:
    """Average precision as colour and number."""
    methods, disguises = names(found)
    reach = [[reached(found, m, d, "average_precision") for d in disguises] for m in methods]
    values = np.array([[np.nan if r is None else r["estimate"] for r in row] for row in reach])
    axes.imshow(values, cmap="Blues", vmin=0, vmax=1.25, aspect="auto")
    for i, row in enumerate(reach):
        for j, interval in enumerate(row):
            ink = "white" if values[i, j] > 0.75 else _style.INK
            text = cell_text(interval)
            axes.text(j, i, text, ha="center", va="center", fontsize=7.5, color=ink)
    axes.set_xticks(range(len(disguises)), disguises, fontsize=8)
    axes.set_yticks(range(len(methods)), methods, fontsize=8)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    _style.title(axes, "average precision, 95 % interval over seeds")


def draw_costs(axes: Axes, found: Found) -> None:
    """Passes a fact, mean over the disguises, beside the methods of the map."""
    methods, _ = names(found)
    for i, method in enumerate(methods):
        rows = [row for (name, _), same in found.items() if name == method for row in same]
        passes = float(np.mean([row["passes"] for row in rows]))
        axes.barh(i, passes, height=0.6, color=_style.MEASURED)
        _style.name(axes, max(passes, 0.5), i, cost_text(found, method))
    axes.set_xscale("log")
    axes.set_xlim(0.5, None)
    axes.set_ylim(len(methods) - 0.5, -0.5)
    axes.set_yticks([])
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right", "left"]].set_visible(False)
    _style.title(axes, "passes a fact: forward (+ backward)")
