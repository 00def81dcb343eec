"""What `byheart train` and `byheart capacity` share: sizes, the recipe's options, the bar."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from byheart.errors import ByheartError

if TYPE_CHECKING:
    from byheart.training import Progress, Recipe

SIZES = "Sizes"
TRAINING = "Training"
QUIET_SECONDS = 10.0

Model = Annotated[
    str,
    typer.Option(
        metavar="attention|mlp|as-coded",
        help="attention: one or more attention-only layers; mlp: few heads and a hidden layer; "
        "as-coded: one bottleneck for all heads (Dana et al.'s code).",
        rich_help_panel=SIZES,
    ),
]
DModel = Annotated[int | None, typer.Option(min=1, help="Width d.", rich_help_panel=SIZES)]
Heads = Annotated[int | None, typer.Option(min=1, help="Heads H a layer.", rich_help_panel=SIZES)]
DHead = Annotated[
    int | None, typer.Option(min=1, help="Head width d_h. Default: d.", rich_help_panel=SIZES)
]
Layers = Annotated[int, typer.Option(min=1, help="Layers.", rich_help_panel=SIZES)]
Width = Annotated[
    int | None,
    typer.Option(min=0, help="Hidden units of --model mlp.", rich_help_panel=SIZES),
]
Steps = Annotated[int, typer.Option(min=1, help="At most so many.", rich_help_panel=TRAINING)]
Rate = Annotated[float, typer.Option("--lr", help="Learning rate.", rich_help_panel=TRAINING)]
Optimizer = Annotated[
    str, typer.Option(metavar="adam|adamw|sgd", help="Optimizer.", rich_help_panel=TRAINING)
]
ScheduleName = Annotated[
    str,
    typer.Option(
        "--schedule", metavar="cosine|linear|constant", help="Schedule.", rich_help_panel=TRAINING
    ),
]
Batch = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Examples a step, each seen once an epoch. Default: all.",
        rich_help_panel=TRAINING,
    ),
]
Device = Annotated[
    str,
    typer.Option(metavar="cpu|cuda|mps", help="Where the training runs.", rich_help_panel=TRAINING),
]


def recipe(
    steps: int, lr: float, optimizer: str, schedule: str, batch: int | None, **more: Any
) -> Recipe:
    """A recipe from the options; full batch unless `batch` is given."""
    from byheart.training import Recipe

    if batch is not None:
        more |= {"sampling": "without-replacement", "batch": batch}
    return Recipe(steps=steps, lr=lr, optimizer=optimizer, schedule=schedule, **more)  # type: ignore[arg-type]


def check_device(device: str) -> None:
    """Refuse a device that is not there, before any work."""
    if device == "cpu":
        return
    import torch

    kind = device.split(":")[0]
    present = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}
    if kind not in present:
        raise ByheartError(f"--device must be cpu, cuda or mps, found {device!r}")
    if not present[kind]():
        raise ByheartError(f"--device {device}: torch finds no such device here. Use --device cpu.")


@contextmanager
def bar() -> Iterator[Callable[[Progress], None]]:
    """Steps, loss, accuracy and time left: live on a terminal, a line now and then in a log."""
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
            yield lambda p: shown.update(
                task, completed=p.step, total=p.steps, description=_where(p)
            )
        return
    last = time.monotonic()
    first: tuple[float, int] | None = None  # the steps before it may be those of a resumed run

    def log(p: Progress) -> None:
        nonlocal last, first
        now = time.monotonic()
        first = (now, p.step) if first is None else first
        if now - last >= QUIET_SECONDS and p.running:
            last = now
            text = f"step {p.step:,} of {p.steps:,}, {_where(p)}"
            if p.step > first[1]:
                left = (now - first[0]) / (p.step - first[1]) * (p.steps - p.step)
                text += f", at most {left:.0f} s left"
            typer.echo(text, err=True)

    yield log


def _where(p: Progress) -> str:
    models = f"{p.running} model{'s'[: p.running != 1]}"
    if p.loss is None or p.accuracy is None:
        return models
    return f"{models}, best loss {p.loss:.3g}, accuracy {p.accuracy:.4f}"
