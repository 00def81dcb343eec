"""Training curves: loss and accuracy over steps, kept in bounded memory, and their figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from byheart._style import COLOURS, legend, new_figure, title
from byheart.models.construction import Curve, Outcome

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 128  # points of a curve: twice as many are thinned to every second step
NAMED = 8  # lines with a name in the legend


class Trace:
    """The points of a running stack: every `every`-th step, which doubles when there are `MOST`, so
    that what is kept does not depend on where a run was cut.

    >>> trace = Trace(1)
    >>> for step in range(1000):
    ...     if trace.wants(step):
    ...         trace.add(step, torch.zeros(1, 2))
    >>> trace.every, len(trace.steps), trace.steps[:3]
    (8, 125, [0, 8, 16])
    """

    def __init__(self, models: int) -> None:
        self.every, self.steps = 1, list[int]()
        self.points = torch.zeros(0, models, 2)  # loss and accuracy
        self.new: list[Tensor] = []

    def wants(self, step: int) -> bool:
        return step % self.every == 0

    def add(self, step: int, point: Tensor) -> None:
        """`point` (models, 2), perhaps on another device: it is fetched when it is looked at."""
        self.steps.append(step)
        self.new.append(point)
        if len(self.steps) >= MOST:
            self.every *= 2
            self.points, self.steps = self.kept()[::2], self.steps[::2]

    def kept(self) -> Tensor:
        """All points, (steps, models, 2), on the CPU."""
        if self.new:
            self.points = torch.cat([self.points, torch.stack(self.new).float().cpu()])
            self.new = []
        return self.points

    def select(self, slots: Sequence[int]) -> None:
        self.points = self.kept()[:, list(slots)]

    def restore(self, steps: list[int], points: Tensor) -> None:
        """Go on from what an earlier run kept."""
        while len(steps) > 1 and self.every < steps[1] - steps[0]:
            self.every *= 2
        self.steps, self.points = steps, points

    def curve(self, slot: int, stop: int) -> Curve:
        """The curve of one model up to step `stop`."""
        rows = self.kept()[:, slot].T.tolist()
        loss, accuracy = (tuple(_digits(x) for x in row) for row in rows)
        count = sum(step < stop for step in self.steps)
        return Curve(tuple(self.steps[:count]), loss[:count], accuracy[:count])


def _digits(x: float) -> float | None:
    return float(f"{x:.4g}") if math.isfinite(x) else None


def training_figure(outcomes: Sequence[Outcome], heading: str = "") -> Figure:
    """Loss (logarithmic) and accuracy over steps, a line a start; the dot at its end is what the
    returned weights get right of all facts."""
    curves = [(f"seed {o.seed}", o.curve) for o in outcomes]
    said = "lines: the batch before its update; dots: the kept weights on all facts"
    figure = curves_figure(curves, f"{heading}\n{said}" if heading else said)
    left, right = figure.axes
    for i, o in enumerate(outcomes):
        mark, ink = "o" if o.diverged is None else "x", COLOURS[i % len(COLOURS)]
        left.plot([o.steps], [o.loss or math.nan], mark, color=ink, ms=5)
        right.plot([o.steps], [o.accuracy], mark, color=ink, ms=5)
    return figure


def curves_figure(curves: Sequence[tuple[str, Curve | None]], heading: str) -> Figure:
    """Loss (logarithmic) and accuracy over steps, a line for each curve, with its name."""
    figure, (left, right) = new_figure(10.0, 3.8, panels=2)
    for i, (name, curve) in enumerate(curves):
        if curve is not None:
            how = {"color": COLOURS[i % len(COLOURS)], "lw": 1.2, "alpha": 0.9}
            for axes, line in ((left, curve.loss), (right, curve.accuracy)):
                axes.plot(curve.steps, [math.nan if y is None else y for y in line], **how)
            right.lines[-1].set_label(name if i < NAMED else f"_{name}")
    left.set_yscale("log", nonpositive="mask")
    right.set_ylim(-0.03, 1.03)
    for axes, words in ((left, "loss"), (right, "share of facts that are right")):
        title(axes, words)
        axes.set_xlabel("step")
    legend(right)
    more = f" ({NAMED} of {len(curves)} are named)" if len(curves) > NAMED else ""
    figure.suptitle(f"{heading}{more}", x=0.01, ha="left", fontsize=9)
    return figure
