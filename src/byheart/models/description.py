"""A memory in words: what `repr`, notebooks, the command line and pages are made of."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from byheart._json import Json

SHOWN_ROWS = 6  # of a description, in `repr`


@dataclass(frozen=True)
class Part:
    """One part that a key runs through; `heads` draws that many heads, `skip` a bypass."""

    name: str
    lines: tuple[str, ...]
    parameters: int | None = None
    heads: int = 0
    skip: bool = False


@dataclass(frozen=True)
class PageWords:
    """What pages and figures say in a family's own words: `asking`, lines of Python that ask
    `memory`; `positions`, what the attention of `head_parts` runs over, words or numbers of key
    columns; `margin`, what `margins` are (None: an answer is right or wrong); `answers`, among how
    many a fact has its own (None: labels are numbers); `bits` of all weights as stored."""

    asking: tuple[str, ...]
    positions: tuple[str | int, ...] = ()
    margin: str | None = "right answer minus the next best"
    answers: int | None = None
    bits: int | None = None


@dataclass(frozen=True)
class Description:
    """A memory in words: `rows` are (what, value); `why` the reasons of the construction; `parts`
    the architecture; `record` the same as JSON."""

    title: str
    rows: tuple[tuple[str, str], ...]
    why: tuple[str, ...]
    parts: tuple[Part, ...]
    record: dict[str, Json]

    def text(self) -> str:
        """At most eight lines."""
        width = max((len(name) for name, _ in self.rows[:SHOWN_ROWS]), default=0)
        lines = [f"  {name:<{width}}  {value}" for name, value in self.rows[:SHOWN_ROWS]]
        return "\n".join([self.title, *lines])

    def html(self) -> str:
        """A small table."""
        cells = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th>"
            f"<td style='text-align:left'>{escape(value)}</td></tr>"
            for name, value in self.rows
        )
        return f"<b>{escape(self.title)}</b><table>{cells}</table>"
