"""Which columns of a table are keys, answers and weights."""

from __future__ import annotations

from dataclasses import dataclass

from byheart.errors import FactsError
from byheart.facts._options import Options
from byheart.facts._words import did_you_mean, quote

__all__ = ["Layout", "choose_columns"]


@dataclass(frozen=True)
class Layout:
    """How a record becomes facts, by positions in the record.

    `values` are the columns that hold answers: one, or with melt every column that is no key; then
    the name of the column is the last token of the key.
    """

    header: tuple[str, ...]
    keys: tuple[int, ...]
    values: tuple[int, ...]
    weight: int | None
    melt: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the key positions."""
        named = tuple(self.header[i] for i in self.keys)
        return (*named, "relation") if self.melt else named

    @property
    def answer_column(self) -> str:
        return "value" if self.melt else self.header[self.values[0]]


def choose_columns(header: list[str], options: Options) -> Layout:
    """The layout that the options ask for: by default the last column is the answer.

    Example:
        >>> options = Options("t.csv", "t", weights="population")
        >>> layout = choose_columns(["country", "population", "capital"], options)
        >>> layout.columns, layout.answer_column, layout.weight
        (('country',), 'capital', 1)
    """
    where = options.where
    _check_header(header, where)
    weight = (
        None if options.weights is None else _position(options.weights, header, where, "weights")
    )
    others = [i for i in range(len(header)) if i != weight]
    if options.keys is not None and not options.keys:
        raise FactsError(f"{where}: expected at least one key column, found none in keys=[].")
    keys = (
        None
        if options.keys is None
        else [_position(k, header, where, "keys") for k in options.keys]
    )
    if options.melt:
        if options.answer is not None:
            raise FactsError(
                f"{where}: expected either melt or an answer column, found both. With melt every "
                "column that is no key holds answers."
            )
        keys = others[:1] if keys is None else keys
        values = [i for i in others if i not in keys]
        if options.empty != "token" and any(header[i] == "" for i in values):
            raise FactsError(
                f"{where}, row 1, column {header.index('') + 1}: expected a column name, found "
                "none; with melt it becomes a token. Name the column."
            )
    else:
        answer = (
            others[-1]
            if options.answer is None
            else _position(options.answer, header, where, "answer")
        )
        values = [answer]
        keys = [i for i in others if i != answer] if keys is None else keys
    _check_roles(header, keys, values, weight, options)
    return Layout(tuple(header), tuple(keys), tuple(values), weight, options.melt)


def _check_header(header: list[str], where: str) -> None:
    if len(header) < 2:
        separators = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
        seen = [word for mark, word in separators.items() if header and mark in header[0]]
        advice = (
            f" Are the cells separated by {seen[0]}? Save the file with commas (.csv) or tabs \
(.tsv)."
            if seen
            else " Add a column."
        )
        raise FactsError(
            f"{where}, row 1: expected at least two columns, keys and an answer, found "
            f"{len(header)}: {_listed(header)}.{advice}"
        )
    for i, column in enumerate(header):
        if column in header[:i]:
            raise FactsError(
                f"{where}, row 1: expected distinct column names, found {quote(column)} as columns "
                f"{header.index(column) + 1} and {i + 1}. Rename one of them."
            )


def _position(column: str, header: list[str], where: str, option: str) -> int:
    if column not in header:
        raise FactsError(
            f"{where}: expected one of the columns {_listed(header)} for {option} (--{option}), "
            f"found the unknown column {quote(column)}.{did_you_mean(column, header)}"
        )
    return header.index(column)


def _check_roles(
    header: list[str], keys: list[int], values: list[int], weight: int | None, options: Options
) -> None:
    """Every column has one role, and there are keys and answers."""
    where = options.where
    for i in keys:
        if i in values:
            raise FactsError(
                f"{where}: expected the answer column not to be a key, found {quote(header[i])} as "
                "both. Name another answer column, or leave it out of the keys."
            )
        if keys.count(i) > 1:
            raise FactsError(f"{where}: expected distinct keys, found {quote(header[i])} twice.")
    if weight is not None and (weight in keys or weight in values):
        raise FactsError(
            f"{where}: expected the weights in a column of their own, found {quote(header[weight])}"
            " as key or answer too."
        )
    if not keys or not values:
        raise FactsError(
            f"{where}: expected at least one key column and one answer column, found "
            f"{len(keys)} and {len(values)} in {_listed(header)}. Add a column, or name the columns"
            " with keys and answer."
        )


def _listed(header: list[str]) -> str:
    shown = ", ".join(quote(column) for column in header[:20])
    return shown + (f" and {len(header) - 20} more" if len(header) > 20 else "")
