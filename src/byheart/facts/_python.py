"""Facts from Python's own data: mappings, rows, data frames and series, without importing them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, TypeGuard

import numpy as np

from byheart._words import listed, quote
from byheart.errors import FactsError
from byheart.facts._columns import Rows, table_source
from byheart.facts._jsonl import keyed_source, mixture
from byheart.facts._reading import COLUMNS, Options
from byheart.facts._records import Cells, Record, Source

if TYPE_CHECKING:
    import pandas

__all__ = ["dict_source", "frame_source", "python_source", "rows_source"]

FRAMES = [("pandas", "DataFrame"), ("pandas", "Series"), ("polars", "DataFrame")]
ROW = 'a tuple or list such as ("France", "Paris"), key tokens and then the answer'


def _is_a(data: object, module: str, name: str) -> bool:
    """Whether a class of that name and package is among the classes of `data`."""
    return any(
        kind.__name__ == name and kind.__module__.split(".")[0] == module
        for kind in type(data).__mro__
    )


def _is_frame(data: object) -> TypeGuard[pandas.DataFrame]:
    return _is_a(data, "pandas", "DataFrame")


def _is_series(data: object) -> TypeGuard[pandas.Series]:
    return _is_a(data, "pandas", "Series")


def python_source(data: object, reading: Mapping[str, object]) -> tuple[Source, Options]:
    """The facts in any of the forms that Python data have."""
    if any(_is_a(data, *kind) for kind in FRAMES):
        return frame_source(data, reading)
    if isinstance(data, Mapping):
        return dict_source(data, reading)
    if isinstance(data, np.ndarray) and data.ndim == 2:
        return rows_source(data.tolist(), None, reading)
    refusals = {
        "bytes": "bytes. Decode a path to text; give the content of a file as rows",
        "set": "a set, which has no order. Give a list of rows",
        "frozenset": "a frozenset, which has no order. Give a list of rows",
        "ndarray": "an array that is not two-dimensional. Give one row a fact",
        "Tensor": "a torch Tensor. Token ids go into Facts.make(tokens, answers, vocabulary), "
        "vectors into VectorFacts.make(context, query, label)",
    }
    kind = type(data).__name__
    if kind in refusals or not isinstance(data, Iterable):
        found = refusals.get(kind, f"{quote(repr(data))[1:-1]} ({kind})")
        raise FactsError(
            "expected facts: a path, a built-in table, a recipe, a dict key -> answer, rows, or a "
            f"data frame, found {found}."
        )
    return rows_source(data, None, reading)


def dict_source(
    data: Mapping[object, object], reading: Mapping[str, object]
) -> tuple[Source, Options]:
    """Facts from `{("France", "capital"): "Paris"}` or `{"France": "Paris"}`; an answer may also
    be a dict token -> probability."""
    options = Options.of("dict", reading)
    if not isinstance(data, Mapping):
        raise FactsError(
            f"{options.where}: expected a dict key -> answer, found {type(data).__name__}. Other "
            "data go into `from_rows`, `from_pandas` or `as_facts`."
        )
    options.refuse(COLUMNS, "a dict, which has no columns")
    cells = Cells(options, "entry", "part")
    source = Source(
        _entries(data, cells),
        cells,
        lambda position, tokens: "answer" if position == len(tokens) - 1 else "key",
        'entries such as {("France", "capital"): "Paris"}',
    )
    return source, options


def _entries(data: Mapping[object, object], cells: Cells) -> Iterator[Record]:
    for row, (key, answer) in enumerate(data.items(), start=1):
        parts = list(key) if isinstance(key, tuple) else [key]
        if not parts:
            raise FactsError(f"{cells.place(row)}: expected a key with tokens, found ().")
        tokens = cells.tokens(parts, row, ["key"] * len(parts))
        if isinstance(answer, Mapping):
            yield row, tokens, mixture(answer, row, cells), None
            continue
        if isinstance(answer, (list, tuple, set, frozenset, np.ndarray)):
            raise FactsError(
                f"{cells.place(row)}: expected one answer to {listed(tokens)}, found a "
                f"{type(answer).__name__}. Several right answers are a dict token -> probability; "
                "columns of a table are rows: zip(*columns)."
            )
        yield row, tokens, cells.token(answer, row, "answer"), None


def rows_source(
    rows: Iterable[object], columns: Sequence[str] | None, reading: Mapping[str, object]
) -> tuple[Source, Options]:
    """Facts from rows of cells, or from dicts column -> cell (or with "input" and "output", as in
    JSON lines); `columns` names the columns, which are 1, 2, ... by default."""
    options = Options.of("rows", reading)
    options.refuse(["header"], "rows: names of columns go into `columns`")
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        raise _no_row(rows, options.where, f"rows, each {ROW}")
    cells = Cells(options)
    numbered = enumerate(rows, start=1)
    first = next(numbered, None)
    if first is None:
        raise FactsError(f"{options.where}: expected rows, each {ROW}, found none. Add rows.")
    every = chain([first], numbered)
    if isinstance(first[1], Mapping):
        objects = ((row, _object(values, cells.place(row))) for row, values in every)
        if {"input", "output"} <= first[1].keys():
            return keyed_source(objects, options, cells), options
        names = [str(name) for name in (first[1] if columns is None else columns)]
        return table_source(_ordered(objects, names, cells), options, cells, names), options
    table = ((row, _cells(values, cells.place(row))) for row, values in every)
    names = None if columns is None else list(columns)
    if names is None:  # as many as the first row has
        names = [str(i + 1) for i in range(len(_cells(first[1], cells.place(first[0]))))]
    return table_source(table, options, cells, names), options


def _cells(values: object, place: str) -> list[object]:
    if isinstance(values, (tuple, list, np.ndarray)):
        return list(values)
    raise _no_row(values, place, ROW)


def _object(values: object, place: str) -> Mapping[str, object]:
    if isinstance(values, Mapping):
        return values
    raise _no_row(values, place, "a dict as in the rows above")


def _no_row(values: object, place: str, expected: str) -> FactsError:
    found = f"{quote(repr(values))[1:-1]} ({type(values).__name__})"
    return FactsError(f"{place}: expected {expected}, found {found}.")


def _ordered(
    objects: Iterable[tuple[int, Mapping[str, object]]], names: list[str], cells: Cells
) -> Rows:
    for row, values in objects:
        texts = {str(name): value for name, value in values.items()}
        if texts.keys() != set(names):
            missing = [name for name in names if name not in texts]
            extra = [name for name in texts if name not in names]
            wrong = f"no {listed(missing)}" if missing else f"{listed(extra)} too"
            raise FactsError(
                f"{cells.place(row)}: expected the columns {listed(names)} in every row, found "
                f"{wrong}. Write None for a gap."
            )
        yield row, [texts[name] for name in names]


def frame_source(data: object, reading: Mapping[str, object]) -> tuple[Source, Options]:
    """Facts from a data frame (named levels of its index are columns too), or from a series whose
    index holds the keys."""
    if _is_series(data):
        options = Options.of("series", reading)
        options.refuse(COLUMNS, "a series, whose index holds the keys")
        names = _names(data.index.names, options.where)
        names.append("answer" if data.name is None else str(data.name))
        pairs = zip(data.index, data, strict=True)
        rows = ([*(k if isinstance(k, tuple) else (k,)), answer] for k, answer in pairs)
    elif _is_frame(data):
        options = Options.of("frame", reading)
        frame = data
        if any(name is not None for name in frame.index.names):
            frame = frame.reset_index()
        names = _names(frame.columns, options.where)
        rows = map(list, frame.itertuples(index=False, name=None))
    elif _is_a(data, "polars", "DataFrame"):
        options = Options.of("frame", reading)
        names = _names(getattr(data, "columns", ()), options.where)
        rows = map(list, getattr(data, "iter_rows", tuple)())
    else:
        raise FactsError(
            f"expected a data frame or series of pandas, found {type(data).__name__}. Rows go into "
            "`from_rows`, a dict into `from_dict`, anything else into `as_facts`."
        )
    options.refuse(["header"], "a data frame, which names its columns")
    if len(names) < 2:
        raise FactsError(
            f"{options.where}: expected at least two columns, keys and an answer, found "
            f"{len(names)}: {listed(names)}. If the keys are its index, name the index."
        )
    cells = Cells(options)
    return table_source(enumerate(rows, start=1), options, cells, names), options


def _names(names: Iterable[object], where: str) -> list[str]:
    texts = []
    for i, name in enumerate(names, start=1):
        if isinstance(name, (tuple, list)):
            raise FactsError(
                f"{where}: expected one name for each column, found {name!r}. Flatten the levels "
                "of the columns first."
            )
        texts.append(str(i) if name is None else str(name))
    return texts
