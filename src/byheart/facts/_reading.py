"""What the caller asks for when data become facts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, TypedDict

from byheart.errors import FactsError, OptionError, check_choice, did_you_mean

__all__ = ["Counting", "Options", "Reading"]


class Reading(TypedDict, total=False):
    """The options of `read_facts` and of `Facts.from_rows`, `from_dict` and `from_pandas`, which
    are described there; `as_facts` takes those of `Counting` too."""

    name: str | None
    keys: str | Sequence[str] | None
    answer: str | None
    weights: str | None
    melt: bool
    header: bool | None
    trim: bool | None
    empty: Literal["error", "skip", "token"]
    pad: bool


class Counting(Reading, total=False):
    """The options of `read_distributions`, and of the same ways in for `Distributions`."""

    distribution: bool
    on_conflict: Literal["error", "distribution"]
    normalise: bool
    smooth: float | None
    ngram: int | None
    contexts: int | None


@dataclass(frozen=True)
class Options:
    """`Counting`, checked; `where` is how messages call the source."""

    where: str
    name: str
    keys: tuple[str, ...] | None = None
    answer: str | None = None
    weights: str | None = None
    melt: bool = False
    header: bool | None = None
    trim: bool | None = None
    empty: str = "error"
    pad: bool = False
    distribution: bool = False
    on_conflict: str = "error"
    normalise: bool = False
    smooth: float | None = None
    ngram: int | None = None
    contexts: int | None = 5000

    @classmethod
    def of(cls, where: str | os.PathLike[str], reading: Mapping[str, object]) -> Options:
        """The options of one source; by default facts are called as their file is, without suffix.

        Example:
            >>> Options.of("data/capitals.csv", {"keys": "country"}).name
            'capitals'
            >>> Options.of("capitals.csv", {"anwser": "capital"})
            Traceback (most recent call last):
            ...
            byheart.errors.FactsError: `anwser` is no option of reading facts. Did you mean \
'answer'?
        """
        where = os.fspath(where)
        names = [field.name for field in fields(cls)][1:]
        for option in reading:
            if option not in names:
                raise FactsError(
                    f"`{option}` is no option of reading facts. {did_you_mean(option, names)}"
                )
        given = dict(reading)
        name = given.pop("name", None) or Path(where).stem
        keys = given.pop("keys", None)
        if isinstance(keys, (str, int)):
            keys = (keys,)
        if not isinstance(keys, Iterable | None):
            raise OptionError("keys", "names of columns", keys)
        keys = None if keys is None else tuple(map(str, keys))
        # A file name need not be valid text; the name of the facts goes into JSON.
        text = str(name).encode("utf-8", "backslashreplace").decode()
        return cls(where, text, keys, **given)  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        check_choice("empty", self.empty, ("error", "skip", "token"))
        check_choice("on_conflict", self.on_conflict, ("error", "distribution"))

    def refuse(self, names: Sequence[str], kind: str) -> None:
        """A source must not silently ignore an option that means nothing to it."""
        defaults = {field.name: field.default for field in fields(self)}
        given = [f"`{name}`" for name in names if getattr(self, name) != defaults[name]]
        if given:
            raise FactsError(
                f"{self.where}: expected no {' or '.join(given)} for {kind}. Leave it out."
            )


COLUMNS = ("keys", "answer", "weights", "melt", "header")
"""Options that mean something only where there are columns."""
