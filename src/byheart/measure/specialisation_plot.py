"""One picture of the head statistics: saturation, co-saturation, and which head breaks what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from byheart._style import FRESH, LOST, MEASURED, legend, new_figure
from byheart.measure.specialisation import HeadStatistics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STORED, BROKEN = MEASURED, LOST
ROWS = 400  # examples drawn in the break matrix


def heads_figure(stats: HeadStatistics, title: str = "") -> Figure:
    """Left: saturated share on stored and fresh queries. Middle: saturated heads per example beside
    independent heads. Right: examples (rows, by owner) that break when a head is taken away."""
    H = len(stats.saturated)
    figure, (left, middle, right) = new_figure(10.5, 3.4, panels=3)
    heads = np.arange(H)
    left.bar(heads - 0.2, stats.saturated, 0.4, color=STORED, label="stored")
    left.bar(heads + 0.2, stats.fresh_saturated, 0.4, color=FRESH, label="fresh")
    left.set_ylim(0, 1.25)  # room for the legend
    left.set_title(f"saturated (max attention > {stats.threshold:g})", loc="left", fontsize=9)
    left.set_xlabel("head")
    counts = np.arange(H + 1)
    middle.bar(counts, stats.histogram, 0.8, color=STORED, label="found")
    middle.plot(counts, stats.expected, "o-", color="black", ms=4, lw=1, label="independent heads")
    middle.set_title("saturated heads per example", loc="left", fontsize=9)
    middle.set_xlabel("heads")
    middle.set_ylim(0, 1.35 * max(stats.histogram.max(), np.max(stats.expected)))
    order = np.lexsort((-stats.effect.max(1), stats.owner))
    if len(order) > ROWS:
        order = order[np.linspace(0, len(order) - 1, ROWS).astype(int)]
    from matplotlib.colors import ListedColormap

    colours = ListedColormap(["#f2f2f2", BROKEN])
    right.imshow(
        stats.breaks[order], aspect="auto", interpolation="nearest", cmap=colours, vmin=0, vmax=1
    )
    right.set_title("broken without the head", loc="left", fontsize=9)
    right.set_xlabel("head")
    right.set_ylabel(f"{len(order)} examples, by owner ({stats.owner_from})")
    right.grid(False)
    for axes in (left, middle):
        legend(axes)
    for axes in (left, right):
        axes.set_xticks(heads if H <= 12 else np.linspace(0, H - 1, 6).astype(int))
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    return figure
