"""What commands print: tables for people, JSON for programs, errors without tracebacks, and
parameters as the command line spells them (nothing else knows flags)."""

from __future__ import annotations

import functools
import json
import math
import os
import re
import signal
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

import typer

from byheart._json import plain
from byheart._progress import Progress, Report
from byheart.errors import ByheartError, ConflictError

Item = TypeVar("Item")
INTERRUPTED = 130  # 128 + SIGINT, as shells report it
QUIET_SECONDS = 5.0  # between two lines of progress where there is no terminal


# Where the flag of a parameter is not its name with dashes.
FLAGS = {"d": "--d-model", "H": "--heads", "d_h": "--d-head", "S": "--length", "N": "--vocab",
         "n": "--context", "folder": "-o DIR", "families": "--family",
         "ordered=False": "--unordered", "with_facts=False": "--no-facts"}  # fmt: skip
# Options of commands by the names of their parameters in Python, where the two differ.
PARAMETERS = {"output": "folder", "values": "set"} | {
    spelled[2:].replace("-", "_"): name.removesuffix("=False") for name, spelled in FLAGS.items()
}
# Parameters of `build` that messages of every command may name.
ADVISED = {"method", "with_facts"}


def flag(parameter: str) -> str:
    """The flag of a parameter, or the one that turns a switch off.

    >>> flag("d_h"), flag("shard_size"), flag("trim=False")
    ('--d-head', '--shard-size', '--no-trim')
    """
    name = parameter.removesuffix("=False")
    spelled = ("--" if name == parameter else "--no-") + name.replace("_", "-")
    return FLAGS.get(parameter, spelled)


def with_flags(message: str, parameters: Iterable[str]) -> str:
    """A message of the library with the flags of `parameters` in place of the names that it has
    in backticks; other words in backticks stay as they are.

    >>> with_flags("use a larger `d`, or `dtype=float64`; see `docs`", ["d", "dtype"])
    'use a larger --d-model, or --dtype float64; see `docs`'
    """
    known = set(parameters)

    def spelled(match: re.Match[str]) -> str:
        whole, name, value = match[0], match[1], match[2]
        if name not in known:
            return whole
        if value == "False":
            return flag(whole[1:-1])
        return flag(name) if value in (None, "True") else f"{flag(name)} {value.strip(chr(39))}"

    return re.sub(r"`([A-Za-z_]\w*)(?:=([^`]*))?`", spelled, message)


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Errors a user can mend become one message on stderr (and `{"error": ...}` with --json)."""

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> None:
        as_json = bool(options.get("as_json"))
        interrupted = "interrupted: nothing is half-written."
        with interrupts() as pressed:
            try:
                command(*args, **options)
            except ByheartError as error:
                extra = {"conflicts": error.conflicts} if isinstance(error, ConflictError) else {}
                given = {PARAMETERS.get(name, name) for name in options} | options.keys()
                message = with_flags(str(error), given | ADVISED)
                fail(message, error.exit_code, as_json, **extra)
            except KeyboardInterrupt:
                fail(interrupted, INTERRUPTED, as_json)
            except Exception as error:
                if not pressed or isinstance(error, typer.Exit):
                    raise
                fail(interrupted, INTERRUPTED, as_json)

    return run


@contextmanager
def interrupts() -> Iterator[list[int]]:
    """The interrupts (Ctrl-C) of the block so far. Compiled modules that are interrupted while they
    are loaded raise anything, from ImportError to RecursionError."""
    pressed: list[int] = []

    def note(signum: int, frame: FrameType | None) -> None:
        pressed.append(signum)
        signal.default_int_handler(signum, frame)

    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield pressed  # someone else listens, or nobody shall
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def fail(message: str, code: int, as_json: bool, **extra: Any) -> None:
    if as_json:
        emit({"error": message, **extra})
    _write(f"error: {_printable(message)}", err=True)
    raise typer.Exit(code)


def warn(message: str) -> None:
    """One line on stderr that a reader should not miss; the command goes on."""
    _write(f"note: {_printable(message)}", err=True)


def emit(record: dict[str, Any]) -> None:
    """One JSON object on stdout. Infinity and NaN, which JSON lacks, become null."""
    _write(json.dumps(plain(record), ensure_ascii=False, indent=1))


def table(rows: list[tuple[str, ...]], header: tuple[str, ...] | None = None) -> None:
    """A borderless table; user text is printed as it is (no markup)."""
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


def columns(items: Iterable[Item], cells: dict[str, Callable[[Item], str]]) -> None:
    """A table with a row for each item: the titles, and what stands under each."""
    table([tuple(cell(item) for cell in cells.values()) for item in items], tuple(cells))


def say(text: str = "") -> None:
    _write(_printable(text))


def written(*paths: str | None) -> None:
    """Say which files were asked for, and are there now."""
    for path in filter(None, paths):
        say(f"Written to {path}")


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
