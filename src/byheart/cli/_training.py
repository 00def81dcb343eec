"""What `byheart train` and `byheart capacity` share: options of the method `Train`, and the bar."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from byheart._progress import Report
from byheart.cli._flags import with_flags
from byheart.training.method import Train

QUIET_SECONDS = 10.0


def option(name: str, *flags: str) -> Any:
    """The option that a field of `Train` describes."""
    about = Train.__dataclass_fields__[name].metadata
    return typer.Option(
        *flags,
        min=about["min"],
        help=with_flags(about["help"], ["model"]),
        metavar="|".join(about["choices"] or ()) or about["metavar"],
        rich_help_panel=about["panel"],
    )


Model = Annotated[str, option("model")]
DModel = Annotated[int | None, option("d")]
Heads = Annotated[int | None, option("H")]
DHead = Annotated[int | None, option("d_h")]
Layers = Annotated[int, option("layers")]
Width = Annotated[int | None, option("width")]
Seeds = Annotated[int, option("seeds")]
Steps = Annotated[int, option("steps")]
Rate = Annotated[float, option("lr", "--lr")]
LossName = Annotated[str, option("loss", "--loss")]
OptimizerName = Annotated[str, option("optimizer", "--optimizer")]
ScheduleName = Annotated[str, option("schedule", "--schedule")]
Batch = Annotated[int | None, option("batch")]
Device = Annotated[str, option("device")]
Threads = Annotated[int | None, option("threads")]
Checkpoint = Annotated[str | None, option("checkpoint")]
Dtype = Annotated[str, option("dtype")]


@contextmanager
def bar() -> Iterator[Report]:
    """Steps, loss, accuracy and time left: live on a terminal, a line now and then in a log."""
    from byheart.training import Progress

    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
        )
        with Bar(*columns, console=Console(stderr=True), transient=True) as shown:
            task = shown.add_task("", total=None)

            def draw(p: str) -> None:
                if isinstance(p, Progress):
                    shown.update(task, completed=p.done, total=p.total, description=p.state)

            yield draw
        return
    last = time.monotonic()
    first: tuple[float, int] | None = None  # the steps before it may be those of a resumed run

    def log(p: str) -> None:
        nonlocal last, first
        now = time.monotonic()
        if not isinstance(p, Progress):
            return
        first = (now, p.done) if first is None else first
        if now - last >= QUIET_SECONDS and p.running:
            last, text = now, str(p)
            if p.done > first[1]:
                left = (now - first[0]) / (p.done - first[1]) * (p.total - p.done)
                text += f", at most {left:.0f} s left"
            typer.echo(text, err=True)

    yield log
