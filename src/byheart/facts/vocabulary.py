"""Tokens and their ids."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from byheart._words import has_utf8_form, quote
from byheart.errors import FactsError, did_you_mean


@dataclass(frozen=True, repr=False)
class Vocabulary:
    """A bijection between N distinct token strings and the ids 0, ..., N-1.

    Example:
        >>> vocabulary = Vocabulary(("France", "Paris", "Rome"))
        >>> vocabulary.id("Paris"), vocabulary.token(2), len(vocabulary)
        (1, 'Rome', 3)

    Notes:
        Tokens are kept exactly: case, spaces and the empty string all count.
    """

    tokens: tuple[str, ...]
    _ids: dict[str, int] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        tokens = tuple(self.tokens)
        object.__setattr__(self, "tokens", tokens)
        for token in tokens:
            if not isinstance(token, str):
                found = f"{token!r} of type {type(token).__name__}. Turn it into a string first"
                raise FactsError(f"vocabulary: expected every token to be a string, found {found}.")
            if not (token.isascii() or has_utf8_form(token)):
                found = f"{quote(token)}, which has a lone surrogate (half a character)"
                raise FactsError(f"vocabulary: expected tokens that UTF-8 can hold, found {found}.")
        object.__setattr__(self, "_ids", {token: i for i, token in enumerate(tokens)})
        if len(self._ids) < len(tokens):
            i = next(i for i, token in enumerate(tokens) if self._ids[token] != i)
            found = f"{quote(tokens[i])} at positions {i} and {self._ids[tokens[i]]}"
            raise FactsError(f"vocabulary: expected distinct tokens, found {found}.")

    def id(self, token: str) -> int:
        """The id of `token`; a `FactsError` with the nearest known tokens if there is none."""
        if token not in self._ids:
            found = f"unknown token {quote(token)}. {did_you_mean(token, self.tokens)}".rstrip()
            known = f"one of the {len(self):,} tokens of this vocabulary"
            raise FactsError(f"expected {known}, found the {found}")
        return self._ids[token]

    def ids(self, tokens: Iterable[str]) -> list[int]:
        return [self.id(token) for token in tokens]

    def token(self, token_id: int) -> str:
        # A negative id would silently count from the end.
        if not 0 <= token_id < len(self.tokens):
            advice = "Was it made with another vocabulary?"
            raise FactsError(
                f"expected a token id from 0 to {len(self) - 1}, found {token_id}. {advice}"
            )
        return self.tokens[token_id]

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, token: object) -> bool:
        return token in self._ids

    def with_special(self, base: str) -> tuple[Vocabulary, int]:
        """This vocabulary with one reserved token more, and its id. Primes are appended to `base`
        until no other token has this name; all other ids stay.

        >>> Vocabulary(("a", "<start>")).with_special("<start>")
        (Vocabulary(3 tokens: 'a', '<start>', "<start>'"), 2)
        """
        name = base
        while name in self:
            name += "'"
        return Vocabulary((*self.tokens, name)), len(self)

    def digest(self) -> str:
        """sha256 (hexadecimal) of the tokens in order, written as a JSON array in UTF-8."""
        text = json.dumps(self.tokens, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def __repr__(self) -> str:
        shown = ", ".join(quote(token) for token in self.tokens[:5])
        more = ", ..." if len(self) > 5 else ""
        return f"Vocabulary({len(self)} tokens: {shown}{more})"
