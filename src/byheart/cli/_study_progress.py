"""How far a run of a study is: a bar on a terminal, plain lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from byheart._progress import Progress, Report
from byheart.cli._show import QUIET_SECONDS


@contextmanager
def shown(name: str) -> Iterator[Report]:
    """A `progress` for studies: live on a terminal, a line now and then elsewhere."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar
        from rich.text import Text

        class Words(TextColumn):
            def render(self, task):  # user text is no markup
                return Text(str(task.fields.get("words", "")))

        columns = (
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
            TimeElapsedColumn(), Words(""),
        )  # fmt: skip
        with Bar(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(name, total=None, words="starting")

            def update(text: str) -> None:
                if isinstance(text, Progress):
                    words = getattr(text, "words", "")
                    bar.update(task, completed=text.done, total=text.total, words=words)

            yield update
        return
    last: float | None = None

    def log(text: str) -> None:
        nonlocal last
        now = time.monotonic()
        finished = isinstance(text, Progress) and text.done == text.total
        if last is None or now - last >= QUIET_SECONDS or finished:
            last = now
            typer.echo(text, err=True)

    yield log
