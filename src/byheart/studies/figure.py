"""What all figures of studies share; colours and lines are those of `_style`."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from byheart._folders import write_bytes
from byheart._style import COLOURS, new_figure
from byheart.errors import ByheartError
from byheart.studies.study import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def axes(title: str, x: str, y: str, *, columns: int = 1, width: float = 6.4) -> tuple[Figure, Any]:
    """A figure and its axes (an array of them for several columns), drawn in the house style."""
    made, found = new_figure(width * columns, 4.6, columns)
    for one in found:
        one.set_xlabel(x)
        one.set_ylabel(y)
    made.suptitle(title, x=0.02, ha="left", fontsize=11)
    return made, np.array(found) if columns > 1 else found[0]


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


def series(
    rows: Sequence[Row], x: str | Callable[[Row], float], y: str | Callable[[Row], float]
) -> tuple[np.ndarray, np.ndarray]:
    """The points (x, y) of rows that have both, ordered by x."""

    def value(row: Row, name: str | Callable[[Row], float]) -> Any:
        return name(row) if callable(name) else row.get(name)

    pairs = [(value(row, x), value(row, y)) for row in rows]
    kept = sorted((float(a), float(b)) for a, b in pairs if a is not None and b is not None)
    return np.array([a for a, _ in kept]), np.array([b for _, b in kept])


def means(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Different x, mean and standard deviation of y at each.

    >>> means(np.array([1.0, 1, 2]), np.array([1.0, 3, 5]))
    (array([1., 2.]), array([2., 5.]), array([1.41421356, 0.        ]))
    """
    values = np.unique(x)
    groups = [y[x == v] for v in values]
    deviations = [g.std(ddof=1) if len(g) > 1 else 0.0 for g in groups]
    return values, np.array([g.mean() for g in groups]), np.array(deviations)


def points(
    one: Any, x: np.ndarray, y: np.ndarray, label: str, i: int | str, *, line: bool = True
) -> None:
    """Mean over seeds with one standard deviation, the seeds themselves as faint dots; `i` is a
    number in the order of colours, or a colour."""
    at, mean, deviation = means(x, y)
    ink = i if isinstance(i, str) else colour(i)
    one.plot(x, y, ".", color=ink, alpha=0.25, ms=4)
    style = "-" if line else ""
    one.errorbar(
        at, mean, deviation, fmt=f"o{style}", ms=4, lw=1.4, capsize=2, color=ink, label=label
    )


def curve(
    one: Any, x: np.ndarray, y: np.ndarray, label: str | None, i: int | str, style: str
) -> None:
    one.plot(x, y, style, color=i if isinstance(i, str) else colour(i), lw=1.2, label=label)


def logarithmic(one: Any, axes: str = "xy") -> None:
    """Logarithmic axes, with numbers at powers of ten (and at 2 and 5 times them on short ones)."""
    from matplotlib.ticker import LogFormatter

    for name in axes:
        getattr(one, f"set_{name}scale")("log")
        axis = getattr(one, f"{name}axis")
        axis.set_minor_formatter(LogFormatter(minor_thresholds=(1.5, 0.5)))


def legend(one: Any, most: int = 4) -> None:
    """Inside where it is short, else beside the axes: never on the points."""
    names = one.get_legend_handles_labels()[1]
    if not names:
        return
    beside = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0}
    one.legend(frameon=False, fontsize=8, **(beside if len(names) > most else {}))


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure whole; the format by the suffix. The same rows give the same bytes."""
    target = Path(path)
    data = io.BytesIO()
    kind = target.suffix[1:].lower()
    metadata: dict[str, Any] = {"svg": {"Date": None}, "png": {"Software": None}}.get(kind, {})
    figure.savefig(data, format=kind, dpi=130, metadata=metadata)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(target, data.getvalue())
    except OSError as error:
        raise ByheartError(f"{path} cannot be written: {error.strerror}. Give -o DIR.") from None
