"""What all figures of studies share; colours and lines are those of `_style`."""

from __future__ import annotations

import base64
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from byheart import _style
from byheart._style import COLOURS, new_figure
from byheart.studies.cell import group
from byheart.studies.study import Axes, Finding, Record, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Panel
    from matplotlib.figure import Figure

    Panels = tuple[Figure, list[Panel]]
    Add = Callable[[Panel, list[Row]], None]
    Draw = Callable[[list[Row], Finding], Figure]

Array = np.ndarray
WIDEST = 15.0  # inches of a picture whose words can still be read in a page
SHARPNESS = (110, 80, 60)  # dots an inch of a picture, as many as there is room for
# What a reader looks for first, on the x axis and on the y axis, where a study does not say.
FIRST_X = ("H", "d", "d_h", "T", "facts", "n", "N", "layers", "width", "rank")
FIRST_Y = ("train_accuracy", "accuracy", "kl", "facts", "parameters")


def axes(title: str, x: str, y: str) -> tuple[Figure, Panel]:
    """A figure with one panel, drawn in the house style."""
    figure, (panel,) = panels(title, x, y, 1)
    return figure, panel


def panels(title: str, x: str, y: str, number: int, width: float = 6.4) -> Panels:
    """A figure with panels beside each other, two in a row where all would be too wide for a page,
    drawn in the house style."""
    across = number if number * width <= WIDEST else 2
    figure, drawn = new_figure(width * across, 4.6 * -(-number // across), number, across)
    for panel in drawn:
        panel.set_xlabel(x)
        panel.set_ylabel(y)
    figure.suptitle(title, x=0.02, ha="left", fontsize=11)
    return figure, drawn


def colour(i: int) -> str:
    return COLOURS[i % len(COLOURS)]


def shades(number: int) -> list[str]:
    """Colours for lines that have an order (widths, depths): from dark to light.

    >>> len(set(shades(11)))
    11
    """
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(c) for c in colormaps["viridis"](np.linspace(0, 0.88, number))]


def series(rows: Iterable[Row], x: str | Callable[[Row], float], y: str) -> tuple[Array, Array]:
    """The points (x, y) of rows that have both, ordered by x."""
    pairs = [(x(row) if callable(x) else row.get(x), row.get(y)) for row in rows]
    kept = sorted((float(a), float(b)) for a, b in pairs if a is not None and b is not None)
    return np.array([a for a, _ in kept]), np.array([b for _, b in kept])


def means(x: Array, y: Array) -> tuple[Array, Array, Array]:
    """Different x, mean and standard deviation of y at each.

    >>> means(np.array([1.0, 1, 2]), np.array([1.0, 3, 5]))
    (array([1., 2.]), array([2., 5.]), array([1.41421356, 0.        ]))
    """
    values = np.unique(x)
    groups = [y[x == v] for v in values]
    deviations = [g.std(ddof=1) if len(g) > 1 else 0.0 for g in groups]
    return values, np.array([g.mean() for g in groups]), np.array(deviations)


def points(
    panel: Panel, x: Array, y: Array, label: str, i: int | str, *, line: bool = True
) -> None:
    """Mean over seeds with one standard deviation, the seeds themselves as faint dots; `i` is a
    number in the order of colours, or a colour. Nothing is drawn of no points."""
    if not len(x):
        return
    at, mean, deviation = means(x, y)
    ink = i if isinstance(i, str) else colour(i)
    panel.plot(x, y, ".", color=ink, alpha=0.25, ms=4)
    how = {"fmt": "o-" if line else "o", "ms": 4, "lw": 1.4, "capsize": 2}
    panel.errorbar(at, mean, deviation, color=ink, label=label, **how)


def curve(panel: Panel, x: Array, y: Array, label: str | None, i: int | str, style: str) -> None:
    panel.plot(x, y, style, color=i if isinstance(i, str) else colour(i), lw=1.2, label=label)


def crosses(panel: Panel, x: Array, y: Array, ink: str = "black") -> None:
    """Numbers that others published, behind ours; named once in a panel."""
    named = "published" in panel.get_legend_handles_labels()[1]
    panel.plot(x, y, "x", color=ink, ms=6, zorder=1, label=None if named else "published")


def logarithmic(panel: Panel, axes: str = "xy") -> None:
    """Logarithmic axes, with numbers at powers of ten (and at 2 and 5 times them on short ones)."""
    from matplotlib.ticker import LogFormatter

    for name in axes:
        getattr(panel, f"set_{name}scale")("log")
        axis = getattr(panel, f"{name}axis")
        axis.set_minor_formatter(LogFormatter(minor_thresholds=(1.5, 0.5)))


def legend(panel: Panel, most: int = 4) -> None:
    """Inside where it is short, else beside the axes: never on the points."""
    names = panel.get_legend_handles_labels()[1]
    if not names:
        return
    beside = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0}
    panel.legend(frameon=False, fontsize=8, **(beside if len(names) > most else {}))


def groups(panel: Panel, rows: Mapping[str, Sequence[Row]], x: str, y: str) -> None:
    """The points of every group of rows, by its name."""
    for i, (name, same) in enumerate(rows.items()):
        points(panel, *series(same, x, y), name, i)


def one_panel(title: str, x: str, y: str, top: float | None = None) -> Callable[[Add], Draw]:
    """Of a function that adds to a panel, the figure of a study: the axes (from 0 to `top`), what
    the function adds, and the legend."""

    def figure_of(add: Add) -> Draw:
        def draw(rows: list[Row], _: Finding) -> Figure:
            figure, panel = axes(title, x, y)
            add(panel, rows)
            if top is not None:
                panel.set_ylim(0, top)
            legend(panel)
            return figure

        return draw

    return figure_of


def draw_axes(title: str, shown: Sequence[Axes], rows: Sequence[Row]) -> Figure:
    """A panel for each of the axes: points and their means, a line for each value of `by`."""
    first = shown[0]
    labels = first.x_label or first.x, first.y_label or first.y
    figure, drawn = panels(title, *labels, len(shown), 6.4 if len(shown) == 1 else 4.8)
    for panel, axes in zip(drawn, shown, strict=True):
        panel.set_ylabel(axes.y_label or axes.y)
        mine = [row for row in rows if axes.where in (None, row.experiment)]
        for i, (label, same) in enumerate(lines(axes, mine)):
            points(panel, *series(same, axes.x, axes.y), label, i)
            if axes.bound is not None:
                at, promised, _ = means(*series(same, axes.x, axes.bound))
                curve(panel, at, promised, f"promised, {label}", i, "--")
        if panel.has_data():
            if axes.log:
                logarithmic(panel, axes.log)
            if axes.by is not None:
                legend(panel)
        panel.set_ylim(axes.bottom, axes.top)
    return figure


def lines(axes: Axes, rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """The rows of each line, with its label, in the order of the values."""
    if axes.by is None:
        return [("measured", list(rows))]
    by = axes.by  # a name may be a parameter and a measurement: the parameter is meant
    same_by = group(rows, lambda row: row.params[by] if by in row.params else row.get(by))
    numbers = all(isinstance(value, (int, float)) for value in same_by)
    ordered = sorted(same_by.items(), key=lambda item: item[0] if numbers else str(item[0]))
    return [
        (axes.label.format(name=axes.by, value=f"{v:,}" if isinstance(v, int) else v), same)
        for v, same in ordered
    ]


def suitable(rows: Sequence[Row]) -> Axes:
    """Axes for rows of a study that says none: the first parameter that varies, the measurement
    that readers look for first, and a line for each value of one other parameter that varies."""
    numeric = [n for n in {n: 0 for row in rows for n in row.measurements} if _numbers(rows, n)]
    measured = sorted(numeric, key=lambda n: FIRST_Y.index(n) if n in FIRST_Y else len(FIRST_Y))
    params = dict.fromkeys(name for row in rows for name in row.params)
    varying = [n for n in params if len({str(row.params.get(n)) for row in rows}) > 1]
    along = [name for name in (*FIRST_X, *varying) if name in varying and _numbers(rows, name)]
    x = along[0] if along else "seed"
    others = [name for name in varying if name != x]
    by = others[0] if others else "variant" if len({row.variant for row in rows}) > 1 else None
    return Axes(x, measured[0] if measured else "seconds", by)


def _numbers(rows: Sequence[Row], name: str) -> bool:
    """Whether this is a number in every row that has it, and in one at least."""
    values = [v for row in rows if (v := row.get(name)) is not None]
    return bool(values) and all(
        isinstance(v, (int, float)) and not isinstance(v, bool) for v in values
    )


def dashed_lines(figure: Figure) -> list[Record]:
    """Dashed and dotted lines of a figure, bounds and fits, once each: name and points."""
    drawn: dict[str, Record] = {}
    for panel in figure.axes:
        for line in panel.get_lines():
            x, y = (np.asarray(values, float) for values in line.get_data())
            if line.get_linestyle() in ("--", ":", "-.") and 1 < len(x) <= 400:
                label = str(line.get_label())
                pairs = [
                    [float(f"{a:.5g}"), float(f"{b:.5g}")]
                    for a, b in zip(x.tolist(), y.tolist(), strict=True)
                    if math.isfinite(a) and math.isfinite(b)
                ]
                name = panel.get_title() if label.startswith("_") else label
                drawn.setdefault(str(pairs), {"name": name, "points": pairs})
    return list(drawn.values())[:40]


def picture(figure: Figure, room: int) -> str | None:
    """A figure as a data address; None where it would be larger than `room`."""
    for dpi in SHARPNESS:
        text = base64.b64encode(_style.rendered(figure, "png", dpi)).decode()
        if len(text) <= room:
            return f"data:image/png;base64,{text}"
    return None


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure whole; the format by the suffix. The same rows give the same bytes."""
    _style.save(figure, path, dpi=130)
