"""What the caller of `read_facts` asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from byheart.errors import FactsError
from byheart.facts._words import has_utf8_form, quote

__all__ = ["MAX_CELL", "Options", "TokenIds", "empty_cell_error"]

MAX_CELL = 65_536
"""Characters that a token may have. A longer cell is nearly always an unclosed quote."""


@dataclass(frozen=True)
class Options:
    """The keyword arguments of `read_facts`; `where` is how messages call the source."""

    where: str
    name: str
    keys: tuple[str, ...] | None = None
    answer: str | None = None
    weights: str | None = None
    melt: bool = False
    empty: Literal["error", "skip", "token"] = "error"
    pad: bool = False

    def __post_init__(self) -> None:
        if self.empty not in ("error", "skip", "token"):
            raise FactsError(
                f"expected empty to be 'error', 'skip' or 'token', found {self.empty!r}."
            )


class TokenIds:
    """token -> id in order of first appearance, while a file is read.

    Example:
        >>> ids = TokenIds("capitals.csv")
        >>> [ids.of(token, row=2, column="country") for token in ("France", "Paris", "France")]
        [0, 1, 0]
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.ids: dict[str, int] = {}

    def of(self, token: str, row: int, column: str) -> int:
        """The id of `token`; a new token is checked and gets the next id."""
        found = self.ids.get(token)
        return self.add(token, row, column) if found is None else found

    def add(self, token: str, row: int, column: str) -> int:
        """The next id, for a token that is not there yet."""
        place = f"{self.where}, row {row}, column {quote(column)}"
        if len(token) > MAX_CELL:
            raise FactsError(
                f"{place}: expected at most {MAX_CELL:,} characters in a cell, found "
                f"{len(token):,} that begin {quote(token, 30)}. Is there an unclosed quote?"
            )
        # JSON can spell half a character ("\\ud83d") that no file or digest can hold.
        if not has_utf8_form(token):
            raise FactsError(
                f"{place}: expected text that UTF-8 can hold, found {quote(token)}, which has a "
                "lone surrogate (half a character). Correct the text."
            )
        self.ids[token] = len(self.ids)
        return self.ids[token]


def empty_cell_error(where: str, row: int, column: str) -> FactsError:
    return FactsError(
        f"{where}, row {row}, column {quote(column)}: expected a token, found an empty cell. "
        'Fill it in, or read with empty="skip" (--empty skip) to leave such facts out, or with '
        'empty="token" (--empty token) to keep the empty text as a token.'
    )
