"""Records of a table with columns -> facts."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import TypeVar, overload

import numpy as np

from byheart.errors import FactsError
from byheart.facts._columns import Layout, choose_columns
from byheart.facts._options import Options, TokenIds, empty_cell_error
from byheart.facts._words import quote
from byheart.facts.facts import Facts
from byheart.facts.vocabulary import Vocabulary

__all__ = ["table_facts"]


Records = Iterator[tuple[int, list[str]]]
Made = TypeVar("Made")


@overload
def table_facts(records: Records, options: Options) -> Facts: ...
@overload
def table_facts(records: Records, options: Options, make: Callable[..., Made]) -> Made: ...
def table_facts(
    records: Records, options: Options, make: Callable[..., object] = Facts.make
) -> object:
    """Facts from (row, cells), the header first; `make` as `Facts.make`, which is the default.

    Example:
        >>> records = [(1, ["country", "capital", "continent"]), (2, ["Italy", "Rome", "Europe"])]
        >>> facts = table_facts(iter(records), Options("table.csv", "table", melt=True))
        >>> [(facts.key(i), facts.answer(i)) for i in range(facts.T)]
        [(('Italy', 'capital'), 'Rome'), (('Italy', 'continent'), 'Europe')]

    Notes:
        Cells become ids as they are read; no record is kept. 10^6 records take a few seconds.
    """
    where = options.where
    first = next(records, None)
    if first is None:
        raise FactsError(f"{where}: expected a header and facts, found an empty file.")
    layout = choose_columns(first[1], options)
    width = len(layout.columns) + 1
    token_ids = TokenIds(where)
    known = token_ids.ids.get
    # (key ids, answer id) of one fact after the other.
    flat, rows, weights = array("q"), array("q"), array("d")
    skipped = 0
    for row, cells in records:
        if len(cells) != len(layout.header):
            raise _wrong_width(where, row, len(layout.header), len(cells))
        weight = 1.0 if layout.weight is None else _weight(cells[layout.weight], row, layout, where)
        for fact in _facts_of(cells, layout):
            if "" in fact and options.empty != "token":
                if options.empty == "error":
                    raise empty_cell_error(where, row, _column(fact.index(""), fact, layout))
                skipped += 1
                continue
            for position, token in enumerate(fact):
                token_id = known(token)
                # Names are looked up for new tokens only: this loop is where the time goes.
                if token_id is None:
                    token_id = token_ids.add(token, row, _column(position, fact, layout))
                flat.append(token_id)
            rows.append(row)
            weights.append(weight)
    if not rows:
        left_out = f" and {skipped:,} left out for empty cells" if skipped else ""
        raise FactsError(
            f"{where}: expected facts below the header, found none{left_out}. Add rows."
        )
    ids = np.frombuffer(flat, dtype=np.int64).reshape(-1, width)
    return make(
        ids[:, :-1],
        ids[:, -1],
        Vocabulary(tuple(token_ids.ids)),
        None if layout.weight is None else np.frombuffer(weights),
        name=options.name,
        columns=layout.columns,
        answer_column=layout.answer_column,
        rows=np.frombuffer(rows, dtype=np.int64),
        skipped=skipped,
    )


def _facts_of(cells: list[str], layout: Layout) -> list[tuple[str, ...]]:
    """Key tokens and answer of each fact that one record states."""
    key = [cells[i] for i in layout.keys]
    if layout.melt:
        return [(*key, layout.header[i], cells[i]) for i in layout.values]
    return [(*key, cells[layout.values[0]])]


def _column(position: int, fact: tuple[str, ...], layout: Layout) -> str:
    """Name of the column that the token at `position` of `fact` comes from."""
    if position < len(layout.keys):
        return layout.header[layout.keys[position]]
    # With melt the last key token names the column, for itself and for the answer.
    return fact[-2] if layout.melt else layout.answer_column


def _weight(cell: str, row: int, layout: Layout, where: str) -> float:
    """Only that it is a number: `Facts.make` refuses NaN, infinite and negative weights."""
    try:
        return float(cell)
    except ValueError:
        column = "" if layout.weight is None else layout.header[layout.weight]
        raise FactsError(
            f"{where}, row {row}, column {quote(column)}: expected a number as weight, found "
            f"{quote(cell)}. Correct it, or leave the weights out."
        ) from None


def _wrong_width(where: str, row: int, expected: int, found: int) -> FactsError:
    advice = (
        "Add the missing cells."
        if found < expected
        else "Remove the extra cells, or put quotes around a cell that contains the separator."
    )
    return FactsError(
        f"{where}, row {row}: expected {expected} cells as in the header, found {found}. {advice}"
    )
