"""Tables with columns: which of them are keys, answers and weights, and the records they state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from byheart._words import listed, quote
from byheart.errors import FactsError, did_you_mean
from byheart.facts._reading import Options
from byheart.facts._records import Cells, Record, Source

__all__ = ["Rows", "choose_columns", "table_source"]

Rows = Iterator[tuple[int, Sequence[object]]]
"""(row, cells) of each record; row is what messages call it."""


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

    def column_of(self, position: int, tokens: Sequence[str]) -> str:
        """Name of the column that the token at `position` of a fact comes from."""
        if position < len(self.keys):
            return self.header[self.keys[position]]
        # With melt the last key token names the column, for itself and for the answer.
        return tokens[-2] if self.melt else self.answer_column


def table_source(
    rows: Rows, options: Options, cells: Cells, columns: list[str] | None = None
) -> Source:
    """The facts of a table. Its first row holds the names of the columns, unless they are given
    (`columns`) or there are none (`options.header` is False): then they are 1, 2, ...

    Example:
        >>> rows = [(1, ["country", "capital", "continent"]), (2, ["Italy", "Rome", "Europe"])]
        >>> options = Options("table.csv", "table", melt=True)
        >>> for _, key, answer, _ in table_source(iter(rows), options, Cells(options)).records:
        ...     print(key, answer)
        ['Italy', 'capital'] Rome
        ['Italy', 'continent'] Europe
    """
    in_first_row = columns is None and options.header is not False
    if columns is None:
        first = next(rows, None)
        if first is None:
            raise FactsError(f"{options.where}: expected a header and facts, found an empty file.")
        if in_first_row:
            columns = cells.tokens(first[1], first[0], [str(i + 1) for i in range(len(first[1]))])
        else:
            columns, rows = [str(i + 1) for i in range(len(first[1]))], chain([first], rows)
    layout = choose_columns(columns, options)
    named = options.keys or options.answer or options.weights or options.melt
    return Source(
        _records(rows, layout, cells),
        cells,
        layout.column_of,
        "facts below the header" if in_first_row else "facts",
        layout.columns,
        layout.answer_column,
        implied_header=in_first_row and options.header is None and not named,
    )


def _records(rows: Rows, layout: Layout, cells: Cells) -> Iterator[Record]:
    header, S = layout.header, len(layout.keys)
    used = (*layout.keys, *layout.values)
    names = [header[i] for i in used]
    weight = None
    for row, values in rows:
        if len(values) != len(header):
            advice = (
                "Add the missing cells."
                if len(values) < len(header)
                else "Remove the extra cells, or put quotes around a cell that contains the "
                "separator."
            )
            raise FactsError(
                f"{cells.place(row)}: expected {len(header)} cells as in the header, found "
                f"{len(values)}. {advice}"
            )
        if layout.weight is not None:
            weight = cells.weight(values[layout.weight], row, header[layout.weight])
        tokens = cells.tokens([values[i] for i in used], row, names)
        if layout.melt:
            for name, token in zip(names[S:], tokens[S:], strict=True):
                yield row, [*tokens[:S], name], token, weight
        else:
            yield row, tokens[:S], tokens[S], weight


def choose_columns(header: list[str], options: Options) -> Layout:
    """The layout that the options ask for: by default the last column is the answer.

    Example:
        >>> options = Options("t.csv", "t", weights="population")
        >>> layout = choose_columns(["country", "population", "capital"], options)
        >>> layout.columns, layout.answer_column, layout.weight
        (('country',), 'capital', 1)
    """
    where = options.where
    _check_header(header, options)
    weight = (
        None if options.weights is None else _position("weights", options.weights, header, where)
    )
    others = [i for i in range(len(header)) if i != weight]
    if options.keys is not None and not options.keys:
        raise FactsError(f"{where}: expected at least one key column, found none in `keys=[]`.")
    keys = None
    if options.keys is not None:
        keys = [_position("keys", key, header, where) for key in options.keys]
    if options.melt:
        if options.answer is not None:
            raise FactsError(
                f"{where}: expected either `melt` or an `answer` column, found both. With melt "
                "every column that is no key holds answers."
            )
        keys = others[:1] if keys is None else keys
        values = [i for i in others if i not in keys]
        if options.empty != "token" and any(header[i] == "" for i in values):
            raise FactsError(
                f"{where}, row 1, column {header.index('') + 1}: expected a column name, found "
                "none; with melt it becomes a token. Name the column."
            )
    else:
        answer = options.answer
        values = [others[-1] if answer is None else _position("answer", answer, header, where)]
        keys = [i for i in others if i not in values] if keys is None else keys
    _check_roles(header, keys, values, weight, where)
    return Layout(tuple(header), tuple(keys), tuple(values), weight, options.melt)


def _check_header(header: list[str], options: Options) -> None:
    where = options.where
    if len(header) < 2:
        separators = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
        seen = [word for mark, word in separators.items() if header and mark in header[0]]
        advice = "Add a column."
        if seen:
            advice = (
                f"Are the cells separated by {seen[0]}? Save the file with commas (.csv) or tabs "
                "(.tsv)."
            )
        raise FactsError(
            f"{where}, row 1: expected at least two columns, keys and an answer, found "
            f"{len(header)}: {listed(header)}. {advice}"
        )
    for i, column in enumerate(header):
        if column in header[:i]:
            no_header = "" if options.header else ", or read with `header=False` if it is a fact"
            raise FactsError(
                f"{where}, row 1: expected distinct column names, found {quote(column)} as columns "
                f"{header.index(column) + 1} and {i + 1}. Rename one of them{no_header}."
            )


def _position(option: str, column: str, header: list[str], where: str) -> int:
    if column not in header:
        raise FactsError(
            f"{where}: expected one of the columns {listed(header)} for `{option}`, found the "
            f"unknown column {quote(column)}. {did_you_mean(column, header)}".rstrip()
        )
    return header.index(column)


def _check_roles(
    header: list[str], keys: list[int], values: list[int], weight: int | None, where: str
) -> None:
    """Every column has one role, and there are keys and answers."""
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
            f"{len(keys)} and {len(values)} in {listed(header)}. Add a column, or name the columns "
            "with `keys` and `answer`."
        )
