"""How far a run of a study is: a bar on a terminal, plain lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from byheart.cli._show import QUIET_SECONDS

if TYPE_CHECKING:
    from byheart.studies.run import Progress
    from byheart.studies.study import Row


def duration(seconds: float | None) -> str:
    """Seconds for people.

    >>> duration(3.2), duration(75), duration(7300), duration(None)
    ('3 s', '1 min 15 s', '2 h 2 min', 'unknown')
    """
    if seconds is None:
        return "unknown"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min"


def result(row: Row | None) -> str:
    """The last row in a few words: the sizes that vary most, and the accuracy or the error."""
    if row is None:
        return ""
    sizes = ", ".join(
        f"{n}={row.params[n]}" for n in ("N", "d", "d_h", "H", "T") if n in row.params
    )
    if row.error is not None:
        return f"{sizes}: failed, {row.error.splitlines()[0][:60]}"
    for name in ("accuracy", "facts", *row.measurements):
        value = row.get(name)
        if isinstance(value, (int, float)):
            return f"{sizes}: {name} {value:.4g}"
    return sizes


def line(name: str, p: Progress) -> str:
    if p.last is None:
        return f"{name}: {p.done} of {p.total} rows are there; computing the others"
    failed = f", {p.failed} failed" if p.failed else ""
    return (
        f"{p.last.study}: {p.done} of {p.total} rows{failed}, {p.rate:.0f} a minute, "
        f"{duration(p.left)} left; {result(p.last)}"
    )


@contextmanager
def shown(name: str) -> Iterator[Callable[[Progress], None]]:
    """A callback for `run`: live on a terminal, a line now and then elsewhere."""
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

            def update(p: Progress) -> None:
                words = (
                    f"{p.rate:.0f}/min, {duration(p.left)} left · {result(p.last)}"
                    if p.last
                    else ""
                )
                bar.update(task, completed=p.done, total=p.total, words=words)

            yield update
        return
    last: float | None = None

    def log(p: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        if last is None or now - last >= QUIET_SECONDS or p.done == p.total:
            last = now
            typer.echo(line(name, p), err=True)

    yield log
