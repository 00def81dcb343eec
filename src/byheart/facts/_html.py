"""Facts in a notebook: a small table of the first rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice

__all__ = ["html_table"]

ROWS, COLUMNS, CHARACTERS = 5, 8, 60


def html_table(
    title: str,
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    count: int,
    notes: Sequence[str] = (),
) -> str:
    """An HTML table with a title; long cells, many columns and all rows but the first are cut.

    Example:
        >>> html_table("two", ["<k>"], [["a"], ["b"]], 2).count("<tr>")
        3
    """
    lines = [_line(row, "td") for row in islice(rows, ROWS)]
    more = f"<p>and {count - ROWS:,} more</p>" if count > ROWS else ""
    said = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return (
        f"<div><p><code>{escape(title)}</code></p>"
        f"<table><thead>{_line(header, 'th')}</thead><tbody>{''.join(lines)}</tbody></table>"
        f"{more}{said}</div>"
    )


def _line(cells: Sequence[object], tag: str) -> str:
    shown = [_cut(cell) for cell in cells]
    if len(shown) > COLUMNS:  # the last column is the answer
        shown = [*shown[: COLUMNS - 2], "…", shown[-1]]
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in shown)}</tr>"


def _cut(cell: object) -> str:
    text = f"{cell:.4g}" if isinstance(cell, float) else str(cell)
    return text if len(text) <= CHARACTERS else text[:CHARACTERS] + "…"
