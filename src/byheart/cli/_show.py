"""What commands print: tables for people, JSON for programs, and how work goes."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import re
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, TextIO

import typer

from byheart._json import plain
from byheart._progress import Progress, Report
from byheart._words import visible as token_text
from byheart.errors import ByheartError

# --json: what is given to `emit` is printed, instead of the rest.
for_programs: ContextVar[bool] = ContextVar("for_programs", default=False)
in_command: ContextVar[bool] = ContextVar("in_command", default=False)
SIGNALLED = 128  # + the signal, as shells report it
QUIET_SECONDS = 5.0  # between two lines of progress where there is no terminal
UNWRITTEN = "what it says cannot be written"
GONE = (errno.EPIPE, errno.EBADF)  # the reader of a pipe; a stream that was closed
# What JSON may hold and a terminal obeys: controls that are not ASCII, overrides of the direction.
UNSEEN = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def fail(message: str, code: int, **extra: Any) -> None:
    _error(message, **extra)
    raise typer.Exit(code)


def interrupted(signum: int = signal.SIGINT) -> int:
    """Say that it was interrupted; the exit code."""
    _error("interrupted: nothing is half-written.")
    return SIGNALLED + signum


def _error(message: str, **extra: Any) -> None:
    emit_error(message, **extra)
    _write(f"error: {printable(message)}", err=True)


def emit_error(message: str, **extra: Any) -> None:
    """With --json: the message as an object. Where stdout is full, stderr has the message."""
    with suppress(ByheartError):
        emit({"error": message, **extra})


def warn(message: str) -> None:
    """One line on stderr that a reader should not miss; the command goes on."""
    _write(f"note: {printable(message)}", err=True)


def emit(record: dict[str, Any]) -> None:
    """With --json: one object on stdout. Infinity and NaN, which JSON lacks, become null."""
    if for_programs.get():
        text = json.dumps(plain(record), ensure_ascii=False, indent=1)
        _write(UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


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
        shown.add_row(*(Text(printable(cell)) for cell in row))
    drawn, seen = io.StringIO(), terminal(sys.stdout)
    width = None if seen else 100
    Console(file=drawn, width=width, force_terminal=seen, highlight=False).print(shown)
    _write(drawn.getvalue().rstrip("\n"))


def say(text: str = "") -> None:
    if not for_programs.get():
        _write(printable(text))


def reasons(why: Iterable[str], title: str = "") -> None:
    """A list of reasons below a title, where there are some."""
    lines = "".join(f"\n  - {reason}" for reason in why)
    if lines:
        say(f"{title}{lines}")


def terminal(stream: TextIO | None) -> bool:
    """Whether people look at a stream. A process may be started without one (`>&-`)."""
    return stream is not None and stream.isatty()


def _write(text: str, err: bool = False) -> None:
    """Print, with escapes for what the terminal cannot encode. Where the reader has gone
    (`| head`), go on in silence: the exit code still counts. A disk that refuses is an error."""
    stream = sys.stderr if err else sys.stdout
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        typer.echo(text.encode(encoding, "backslashreplace").decode(encoding), err=err)
    except OSError as error:
        _silence(stream)
        if error.errno not in GONE and not err:
            raise ByheartError(f"{UNWRITTEN}: {error.strerror}.") from None


def _silence(stream: TextIO | None) -> None:
    if stream is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def parsing() -> Iterator[None]:
    """Around the parser, which knows no full disk: where its own words (help, version, wrong use)
    cannot be written, the message and the exit code are those of the commands."""
    in_command.set(False)
    try:
        yield
    except OSError as error:
        if in_command.get():
            raise
        _silence(sys.stdout)
        _write(f"error: {UNWRITTEN}: {error.strerror}.", err=True)
        sys.exit(ByheartError.exit_code)


def printable(text: str) -> str:
    """Control characters, lone surrogates and direction overrides as escapes; the rest as it is."""
    return "\n".join(map(token_text, text.split("\n")))


def key_text(key: tuple[str, ...] | list[str]) -> str:
    return " · ".join(map(token_text, key))


def number(value: float | None) -> str:
    """Three significant digits, or that there is nothing to compare with."""
    return "no competitor" if value is None or not math.isfinite(value) else f"{value:.3g}"


@contextmanager
def progress(counted: str = "", eager: bool = False) -> Iterator[Report]:
    """How work goes: live on a terminal, a line now and then in a log (`eager`: the first and the
    last one anyway). `counted`: what is counted, for work that has a bar."""
    if terminal(sys.stderr):
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
            _write(printable(line), err=True)

    yield log


@contextmanager
def _live(counted: str) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar
    from rich.text import Text

    console = Console(stderr=True)
    if not counted:
        with console.status("starting") as status:
            yield lambda text: status.update(Text(token_text(text)))  # user text is no markup
        return
    name, words = (
        TextColumn(f"{{task.{x}}}", markup=False) for x in ("description", "fields[words]")
    )
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(elapsed_when_finished=True))
    with Bar(name, *columns, words, console=console) as bar:
        task = bar.add_task(token_text(counted), total=None, words="starting")

        def draw(text: str) -> None:
            if isinstance(text, Progress):
                words = getattr(text, "words", getattr(text, "state", ""))
                bar.update(task, completed=text.done, total=text.total, words=token_text(words))

        yield draw
