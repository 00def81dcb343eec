"""What commands print: tables for people, JSON for programs, and how work goes."""

from __future__ import annotations

import json
import math
import os
import sys
import time
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import typer

from byheart._json import plain
from byheart._progress import Progress, Report

# --json: what is given to `emit` is printed, instead of the rest.
for_programs: ContextVar[bool] = ContextVar("for_programs", default=False)
QUIET_SECONDS = 5.0  # between two lines of progress where there is no terminal


def fail(message: str, code: int, **extra: Any) -> None:
    emit({"error": message, **extra})
    _write(f"error: {_printable(message)}", err=True)
    raise typer.Exit(code)


def warn(message: str) -> None:
    """One line on stderr that a reader should not miss; the command goes on."""
    _write(f"note: {_printable(message)}", err=True)


def emit(record: dict[str, Any]) -> None:
    """With --json: one object on stdout. Infinity and NaN, which JSON lacks, become null."""
    if for_programs.get():
        _write(json.dumps(plain(record), ensure_ascii=False, indent=1))


def table(*rows: tuple[str, ...], header: tuple[str, ...] | None = None) -> None:
    """A borderless table; user text is printed as it is (no markup)."""
    if for_programs.get():
        return

    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=SIMPLE_HEAD if header else None, show_header=bool(header), pad_edge=False)
    for name in header or ("",) * len(rows[0]):
        shown.add_column(name, overflow="fold")
    for row in rows:
        shown.add_row(*(Text(_printable(cell)) for cell in row))
    console = Console(width=None if sys.stdout.isatty() else 100, highlight=False)
    with console.capture() as drawn:
        console.print(shown)
    _write(drawn.get().rstrip("\n"))


def say(text: str = "") -> None:
    if not for_programs.get():
        _write(_printable(text))


def reasons(why: Iterable[str], title: str = "") -> None:
    """A list of reasons below a title, where there are some."""
    lines = "".join(f"\n  - {reason}" for reason in why)
    if lines:
        say(f"{title}{lines}")


def _write(text: str, err: bool = False) -> None:
    """Print, with escapes for what the terminal cannot encode. Where the reader has gone
    (`| head`), go on in silence: the exit code still counts."""
    encoding = getattr(sys.stderr if err else sys.stdout, "encoding", None) or "utf-8"
    try:
        typer.echo(text.encode(encoding, "backslashreplace").decode(encoding), err=err)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# Overrides of the writing direction: they would reorder the rest of the line.
DIRECTION = {*"\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"}


def _printable(text: str) -> str:
    """Control characters, lone surrogates and direction overrides as escapes; the rest as it is."""
    return "\n".join(map(token_text, text.split("\n")))


def token_text(token: str) -> str:
    """One token on one line."""
    escaped = (c in DIRECTION or unicodedata.category(c) in ("Cc", "Cs") for c in token)
    return "".join(repr(c)[1:-1] if bad else c for c, bad in zip(token, escaped, strict=True))


def key_text(key: tuple[str, ...] | list[str]) -> str:
    return " · ".join(map(token_text, key))


def number(value: float | None) -> str:
    """Three significant digits, or that there is nothing to compare with."""
    return "no competitor" if value is None or not math.isfinite(value) else f"{value:.3g}"


@contextmanager
def progress(counted: str = "", eager: bool = False) -> Iterator[Report]:
    """How work goes: live on a terminal, a line now and then in a log (`eager`: the first and the
    last one anyway). `counted`: what is counted, for work that has a bar."""
    if sys.stderr.isatty():
        with _live(counted) as tell:
            yield tell
        return
    said = -math.inf if eager else time.monotonic()
    first: tuple[float, int] | None = None  # what was done before may be that of a resumed run

    def log(text: str) -> None:
        nonlocal said, first
        now, finished, line = time.monotonic(), False, f"{text} ..."
        if isinstance(text, Progress):
            first = first or (now, text.done)
            finished, line, more = text.done == text.total, str(text), text.done - first[1]
            if more and not hasattr(text, "left"):
                left = (now - first[0]) / more * (text.total - text.done)
                line += f", at most {left:.0f} s left"
        elif counted:
            return
        if eager if finished else now - said >= QUIET_SECONDS:
            said = now
            typer.echo(line, err=True)

    yield log


@contextmanager
def _live(counted: str) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if not counted:
        with console.status("starting") as status:
            yield lambda text: status.update(text)
        return
    words = TextColumn("{task.fields[words]}", markup=False)  # user text is no markup
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(elapsed_when_finished=True))
    with Bar(TextColumn("{task.description}"), *columns, words, console=console) as bar:
        task = bar.add_task(counted, total=None, words="starting")

        def draw(text: str) -> None:
            if isinstance(text, Progress):
                words = getattr(text, "words", getattr(text, "state", ""))
                bar.update(task, completed=text.done, total=text.total, words=words)

        yield draw
