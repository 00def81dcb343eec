"""What `byheart bound` and `byheart size` share: counts as people write them, files, numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from byheart.errors import ByheartError

Output = Annotated[
    str | None, typer.Option("-o", "--output", metavar="FILE", help="CSV of the sweep.")
]
Plot = Annotated[str | None, typer.Option("--plot", metavar="FILE", help="Plot: png, svg or pdf.")]


def count(text: str, flag: str) -> int:
    """A whole number >= 1, written 100000, 100_000, 100,000 or 1e5.

    >>> count("1e5", "--facts"), count("25_000", "--facts")
    (100000, 25000)
    """
    plain = text.replace("_", "").replace(",", "").strip()
    try:
        value = int(plain)
    except ValueError:
        try:
            number = float(plain)
            value = int(number) if number == int(number) else 0
        except (ValueError, OverflowError):
            value = 0
    if value < 1:
        raise ByheartError(f"{flag} must be a whole number of at least 1, found {text!r}")
    return value


def is_count(text: str) -> bool:
    """Does it look like a number (and not like a file)?"""
    return (text.strip()[:1].isdigit() and not Path(text).exists()) or text.strip()[:1] in "-+"


def check_places(output: str | None, plot: str | None) -> None:
    """Refuse files that could not be written, before any work."""
    if output is not None and not Path(output).parent.is_dir():
        raise ByheartError(f"{output} cannot be written: there is no folder {Path(output).parent}.")
    if plot is not None:
        from byheart.theory.plots import check_path

        check_path(plot)


def write(path: str, text: str) -> None:
    """The whole text file or none of it."""
    from byheart._folders import write_text

    try:
        write_text(Path(path), text)
    except OSError as error:
        raise ByheartError(f"{path} cannot be written: {error.strerror}.") from None


def shown(value: float | int | None, unit: str = "facts") -> str:
    """Whole numbers in full up to a billion, else three digits; nothing is "-"."""
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**12 else f"{float(value):.3g}"
    if unit == "accuracy":
        return f"{value:.4f}"
    return f"{value:.3g}"
