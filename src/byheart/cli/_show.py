"""What commands print: tables for people, JSON for programs, errors without tracebacks."""

from __future__ import annotations

import functools
import json
import math
import os
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
from byheart.cli._flags import with_flags
from byheart.errors import ByheartError, ConflictError

Item = TypeVar("Item")
INTERRUPTED = 130  # 128 + SIGINT, as shells report it
QUIET_SECONDS = 5.0  # between two lines of progress where there is no terminal


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
                message = with_flags(str(error), _parameters(options))
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


# What options are called in Python, where commands have other names for them.
PYTHON_NAMES = {"d_model": "d", "heads": "H", "d_head": "d_h", "length": "S", "vocab": "N",
                "context": "n", "output": "folder", "family": "families", "unordered": "ordered",
                "no_facts": "with_facts", "values": "set"}  # fmt: skip
# Parameters of `build` that messages of every command may name.
ADVISED = {"method", "with_facts"}


def _parameters(options: dict[str, Any]) -> set[str]:
    """The parameters that the options of a command set, as the library calls them."""
    return {PYTHON_NAMES.get(name, name) for name in options} | options.keys() | ADVISED


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
    width = None if sys.stdout.isatty() else 100
    console = Console(width=width, highlight=False)
    with console.capture() as drawn:
        console.print(shown)
    _write(drawn.get().rstrip("\n"))


def columns(items: Iterable[Item], cells: dict[str, Callable[[Item], str]]) -> None:
    """A table with a row for each item: the titles, and what stands under each."""
    table([tuple(cell(item) for cell in cells.values()) for item in items], tuple(cells))


def say(text: str = "") -> None:
    _write(_printable(text))


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
    return "".join(c if c == "\n" or not _dangerous(c) else repr(c)[1:-1] for c in text)


def _dangerous(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs") or character in DIRECTION


def token_text(token: str) -> str:
    """One token on one line."""
    return "".join(repr(c)[1:-1] if _dangerous(c) else c for c in token)


def key_text(key: tuple[str, ...] | list[str]) -> str:
    return " · ".join(map(token_text, key))


def number(value: float | None) -> str:
    """Three significant digits; "none" where there is nothing to compare with."""
    if value is None or not math.isfinite(value):
        return "no competitor"
    return f"{value:.3g}"


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A line that says what is going on: live on a terminal, now and then in a log."""
    if sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status("starting") as status:
            yield lambda text: status.update(text)
        return
    last = time.monotonic()

    def log(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= QUIET_SECONDS:
            last = time.monotonic()
            typer.echo(f"{text} ...", err=True)

    yield log
