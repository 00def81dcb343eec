"""Rows as tables: in a notebook, and as a data frame."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice
from typing import TYPE_CHECKING

from byheart._install import install
from byheart.errors import ByheartError

if TYPE_CHECKING:
    from pandas import DataFrame

ROWS, COLUMNS, CHARACTERS = 5, 8, 60


def data_frame(rows: Iterable[object], columns: Sequence[str] | None = None) -> DataFrame:
    """The rows as a data frame of pandas, which is optional."""
    try:
        from pandas import DataFrame
    except ImportError:
        missing = "data frames need pandas, which is not installed"
        raise ByheartError(f"{missing}: {install('pandas')}.") from None
    return DataFrame(list(rows), columns=columns)  # type: ignore[arg-type]


def html_table(
    title: str,
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    count: int,
    notes: Sequence[str] = (),
    most: int = ROWS,
) -> str:
    """An HTML table with a title; long cells, many columns and all rows but `most` are cut.

    >>> html_table("two", ["<k>"], [["a"], ["b"]], 2).count("<tr>")
    3
    """
    lines = [_line(row, "td") for row in islice(rows, most)]
    more = f"<p>and {count - most:,} more</p>" if count > most else ""
    said = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return (
        f"<div><p><code>{escape(title)}</code></p>"
        f"<table><thead>{_line(header, 'th')}</thead><tbody>{''.join(lines)}</tbody></table>"
        f"{more}{said}</div>"
    )


def _line(cells: Sequence[object], tag: str) -> str:
    texts = [f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in cells]
    shown = [text if len(text) <= CHARACTERS else text[:CHARACTERS] + "…" for text in texts]
    if len(shown) > COLUMNS:  # the last column is the answer
        shown = [*shown[: COLUMNS - 2], "…", shown[-1]]
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in shown)}</tr>"
