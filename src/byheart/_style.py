"""One visual language for every picture: figures (matplotlib) and pages (HTML) read it here.

Okabe and Ito's colours, which colour-blind readers tell apart and which keep their order in grey;
what is measured is solid, what a theorem says is dashed, what a paper claims has its name beside.
"""

from __future__ import annotations

import io
import os
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from byheart._folders import save_file
from byheart._words import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#777777",
           "#8C6D31", "#000000")  # fmt: skip
MEASURED, LOST, BUILT, FRESH = COLOURS[0], COLOURS[1], COLOURS[2], COLOURS[4]
INK, QUIET, GRID = "#1a1a1a", "#666666", "#dddddd"
# From "works against" over nothing to "carries": orange and blue, equal in lightness.
DIVERGING = ("#B34700", "#E69F6B", "#F4F4F2", "#6FA8D6", "#00508A")
# A lower bound promises, an upper bound forbids: both are dashed, a measurement is not.
DASHES = {"lower bound": (0, (5, 2)), "upper bound": (0, (2, 2)), "measured": "-"}


DOLLAR = re.compile(r"(?<!\\)\$")


def new_figure(
    width: float = 7.0, height: float = 4.2, panels: int = 1, across: int | None = None
) -> tuple[Figure, list[Axes]]:
    """A figure of inches with `panels` axes, `across` of them (all) beside each other, drawn the
    same everywhere.

    >>> figure, (left, right) = new_figure(panels=2)
    >>> left.spines["top"].get_visible()
    False
    >>> figure, panels = new_figure(panels=3, across=2)
    >>> len(panels), len(figure.axes), figure.axes[2].get_subplotspec().rowspan.start
    (3, 3, 1)
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    across = across or panels
    drawn = figure.subplots(-(-panels // across), across, squeeze=False).flatten().tolist()
    axes, empty = drawn[:panels], drawn[panels:]
    for one in empty:
        one.remove()
    for one in axes:  # a light grid, no box
        one.grid(True, which="major", color=GRID, lw=0.6)
        one.set_axisbelow(True)
        one.spines[["top", "right"]].set_visible(False)
        one.tick_params(which="both", labelsize=8, colors=INK)
    return figure, axes


def title(axes: Axes, text: str) -> None:
    axes.set_title(text, loc="left", fontsize=10, color=INK)


def level(axes: Axes, y: float, kind: str, label: str, colour: str = INK) -> None:
    """A theorem's number: a dashed line across, named at its right end."""
    axes.axhline(y, linestyle=DASHES[kind], color=colour, lw=1.4, zorder=1.5)
    axes.annotate(
        label, xy=(1, y), xycoords=("axes fraction", "data"), xytext=(-3, 3),
        textcoords="offset points", ha="right", fontsize=8, color=colour,
    )  # fmt: skip


def name(axes: Axes, x: float, y: float, text: str, colour: str = INK) -> None:
    """A word beside a point, where a legend would make the eye travel."""
    axes.annotate(
        text, xy=(x, y), xytext=(5, 0), textcoords="offset points", va="center", fontsize=8,
        color=colour, annotation_clip=False,
    )  # fmt: skip


def whole_ticks(axes: Axes) -> None:
    """Heads and shards are counted: no 2.5 of them."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))


def diverging() -> Colormap:
    """The colour map of signed contributions."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("carries", DIVERGING)


def legend(axes: Axes) -> None:
    axes.legend(frameon=False, fontsize=8)


def plain(text: str) -> str:
    """Text that matplotlib draws as it stands: a dollar sign begins no formula, and what no font
    and no XML has is an escape. Text that is plain already stays so.

    >>> print(plain("$\\\\frac$ \\x1b"))
    \\$\\frac\\$ \\x1b
    """
    return DOLLAR.sub(r"\\$", "\n".join(map(visible, text.split("\n"))))


def rendered(figure: Figure, kind: str, dpi: int) -> bytes:
    """A figure as a file of this format; the same figure gives the same bytes. Its texts are plain:
    byheart itself writes no formulas (the numbers of axes are not set yet)."""
    from matplotlib import rc_context
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_text(plain(text.get_text()))  # type: ignore[attr-defined]
    data = io.BytesIO()
    undated = {"svg": {"Date": None}, "png": {"Software": None}}.get(kind, {})
    with warnings.catch_warnings(), rc_context({"svg.hashsalt": "byheart"}):  # else ids are random
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a box stands for it
        figure.savefig(data, format=kind, dpi=dpi, metadata=undated)
    return data.getvalue()


def save(figure: Figure, path: str | os.PathLike[str], dpi: int = 150) -> None:
    """Write a figure whole, the format by the suffix."""
    target = Path(path)
    save_file(target, rendered(figure, target.suffix[1:].lower(), dpi))
