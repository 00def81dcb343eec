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
    figure, (left, right) = new_figure(10.0, 3.8, panels=2)
    for i, o in enumerate(outcomes):
        ink = COLOURS[i % len(COLOURS)]
        how = {"color": ink, "lw": 1.2, "alpha": 0.9}
        ends = (o.loss if o.loss is not None and o.loss > 0 else math.nan, o.accuracy)
        for axes, end in zip((left, right), ends, strict=True):
            if o.curve is not None:
                line = o.curve.loss if axes is left else o.curve.accuracy
                axes.plot(o.curve.steps, [math.nan if y is None else y for y in line], **how)
            mark = "x" if o.diverged is not None else "o"
            named = f"seed {o.seed}" if i < NAMED and axes is right else None
            axes.plot(o.steps, end, mark, color=ink, ms=5, label=named)
    left.set_yscale("log", nonpositive="mask")
    right.set_ylim(-0.03, 1.03)
    for axes, words in ((left, "loss"), (right, "share of facts that are right")):
        title(axes, words)
        axes.set_xlabel("step")
    more = f", {NAMED} of {len(outcomes)} named" if len(outcomes) > NAMED else ""
    legend(right)
    text = f"{heading}\n" if heading else ""
    text += f"lines: the batch before its update; dots: the kept weights on all facts{more}"
    figure.suptitle(text, x=0.01, ha="left", fontsize=9)
    return figure
