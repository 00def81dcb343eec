"""What `byheart bound` and `byheart size` share: counts as people write them, files, sweeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from byheart.cli._group import option
from byheart.errors import ByheartError, OptionError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Output = Annotated[str | None, option(..., "CSV of the sweep.", "-o", "--output", metavar="FILE")]
Plot = Annotated[str | None, option(..., "Plot: png, svg or pdf.", "--plot", metavar="FILE")]


def count(text: str, parameter: str) -> int:
    """A whole number >= 1, written 100000, 100_000, 100,000 or 1e5.

    >>> count("1e5", "facts"), count("25_000", "facts")
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
        raise OptionError(parameter, "a whole number of at least 1", text)
    return value


def is_count(text: str) -> bool:
    """Does it look like a number (and not like a file)?"""
    return (text.strip()[:1].isdigit() and not Path(text).exists()) or text.strip()[:1] in "-+"


def check_files(output: str | None, plot: str | None) -> None:
    """Refuse files that could not be written, before any work."""
    if output is not None and not Path(output).parent.is_dir():
        raise ByheartError(f"{output} cannot be written: there is no folder {Path(output).parent}.")
    if plot is not None:
        from byheart.theory.plots import check_path

        check_path(plot)


def write_sweep(
    output: str | None,
    first: str,
    rows: Sequence[dict[str, object]],
    plot: str | None,
    figure: Callable[[], Figure],
) -> None:
    """The rows as CSV, the column `first` in front, and the figure, each whole or not at all."""
    from byheart._folders import write_text
    from byheart.theory import plots, sweeps

    if output is not None:
        try:
            write_text(Path(output), sweeps.as_csv(first, rows))
        except OSError as error:
            raise ByheartError(f"{output} cannot be written: {error.strerror}.") from None
    if plot is not None:
        plots.save(figure(), plot)
