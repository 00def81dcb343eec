"""Records of tables with columns, of objects with fields, and of Python's own data: mappings, rows,
data frames and series, whose packages are not imported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, cast

import numpy as np

from byheart._words import listed, quote
from byheart.errors import FactsError, did_you_mean
from byheart.facts._records import COLUMNS, Cells, Options, Record, Source

if TYPE_CHECKING:
    import pandas


Rows = Iterator[tuple[int, Sequence[object]]]
"""(row, cells) of each record; row is what messages call it."""
Objects = Iterable[tuple[int, Mapping[str, object]]]
"""(row, object) of each fact."""

OBJECT = '{"input": ["France", "capital"], "output": "Paris"}'
ROW = 'a tuple or list such as ("France", "Paris"), key tokens and then the answer'
FRAMES = {"pandas.DataFrame", "pandas.Series", "polars.DataFrame"}
SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}


def table_source(rows: Rows, cells: Cells, columns: list[str] | None = None) -> Source:
    """The facts of a table. Its first row holds the names of the columns, unless they are given
    (`columns`) or there are none (`header` is False): then they are 1, 2, ...

    Example:
        >>> rows = [(1, ["country", "capital", "continent"]), (2, ["Italy", "Rome", "Europe"])]
        >>> cells = Cells(Options("table.csv", "table", melt=True))
        >>> for _, key, answer, _ in table_source(iter(rows), cells).records:
        ...     print(key, answer)
        ['Italy', 'capital'] Rome
        ['Italy', 'continent'] Europe
    """
    options = cells.options
    in_first_row = columns is None and options.header is not False
    if columns is None:
        first = next(rows, None)
        if first is None:
            raise FactsError(f"{options.where}: expected a header and facts, found an empty file.")
        columns = [str(i + 1) for i in range(len(first[1]))]
        if in_first_row:
            columns = cells.tokens(first[1], first[0], columns)
        else:
            rows = chain([first], rows)
    keys, values, weight = choose_columns(columns, options)
    names = tuple(columns[i] for i in keys)
    named = options.keys or options.answer or options.weights or options.melt
    return Source(
        _cut(rows, columns, (keys, values, weight), cells),
        cells,
        "facts below the header" if in_first_row else "facts",
        (*names, "relation") if options.melt else names,
        "value" if options.melt else columns[values[0]],
        implied_header=in_first_row and options.header is None and not named,
    )


Positions = tuple[list[int], list[int], int | None]
"""Of the keys, of the answers (one, or with melt every column that is no key), of the weight."""


def _cut(rows: Rows, header: list[str], positions: Positions, cells: Cells) -> Iterator[Record]:
    keys, values, at = positions
    used, S, melt, weight = [*keys, *values], len(keys), cells.options.melt, None
    names = [header[i] for i in used]
    for row, line in rows:
        if len(line) != len(header):
            advice = "Add the missing cells."
            if len(line) > len(header):
                advice = "Remove the extra cells, or quote a cell that contains the separator."
            expected = f"expected {len(header)} cells as in the header, found {len(line)}."
            raise cells.error(row, f"{expected} {advice}")
        if at is not None:
            weight = cells.weight(line[at], row, header[at])
        tokens = cells.tokens([line[i] for i in used], row, names)
        if melt:
            # The name of the column is the last token of the key.
            for name, token in zip(names[S:], tokens[S:], strict=True):
                yield row, [*tokens[:S], name], token, weight
        else:
            yield row, tokens[:S], tokens[S], weight


def choose_columns(header: list[str], options: Options) -> Positions:
    """The columns that the options ask for: by default the last one is the answer.

    Example:
        >>> options = Options("t.csv", "t", weights="population")
        >>> choose_columns(["country", "population", "capital"], options)
        ([0], [2], 1)
    """
    where = options.where
    _check_header(header, options)

    def position(option: str, column: str) -> int:
        if column not in header:
            raise FactsError(
                f"{where}: expected one of the columns {listed(header)} for `{option}`, found the "
                f"unknown column {quote(column)}. {did_you_mean(column, header)}".rstrip()
            )
        return header.index(column)

    weight = None if options.weights is None else position("weights", options.weights)
    others = [i for i in range(len(header)) if i != weight]
    keys = None if options.keys is None else [position("keys", key) for key in options.keys]
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
        values = [others[-1] if options.answer is None else position("answer", options.answer)]
        keys = [i for i in others if i not in values] if keys is None else keys
    problem = _problem(header, keys, values, weight)
    if problem:
        raise FactsError(f"{where}: expected {problem}")
    return keys, values, weight


def _check_header(header: list[str], options: Options) -> None:
    place = f"{options.where}, row 1: expected"
    if len(header) < 2:
        seen = [word for mark, word in SEPARATORS.items() if header and mark in header[0]]
        advice = (
            f"Are the cells separated by {seen[0]}? Save them with commas (.csv) or tabs (.tsv)."
            if seen
            else "Add a column."
        )
        raise FactsError(
            f"{place} at least two columns, keys and an answer, found {len(header)}: "
            f"{listed(header)}. {advice}"
        )
    for i, column in enumerate(header):
        if column in header[:i]:
            no_header = "" if options.header else ", or read with `header=False` if it is a fact"
            raise FactsError(
                f"{place} distinct column names, found {quote(column)} as columns "
                f"{header.index(column) + 1} and {i + 1}. Rename one of them{no_header}."
            )


def _problem(header: list[str], keys: list[int], values: list[int], weight: int | None) -> str:
    """Every column has one role, and there are keys and answers; what is expected otherwise."""
    for i in keys:
        if i in values:
            return (
                f"the answer column not to be a key, found {quote(header[i])} as both. Name "
                "another answer column, or leave it out of the keys."
            )
        if keys.count(i) > 1:
            return f"distinct keys, found {quote(header[i])} twice."
    if weight is not None and weight in (*keys, *values):
        return (
            f"the weights in a column of their own, found {quote(header[weight])} as key or "
            "answer too."
        )
    if not keys or not values:
        return (
            f"at least one key column and one answer column, found {len(keys)} and {len(values)} "
            f"in {listed(header)}. Add a column, or name the columns with `keys` and `answer`."
        )
    return ""


def keyed_source(objects: Objects, cells: Cells) -> Source:
    """Facts from objects `{"input": [tokens] or token, "output": token, "weight": number}`; an
    output may also be an object token -> probability.

    Notes:
        "weight" is optional: where some objects have one, the others weigh 1. Other fields are
        ignored.
    """
    expected = f"{cells.unit}s such as {OBJECT}"
    return Source(_unpacked(objects, cells), cells, expected, None, "output", "input")


def _unpacked(objects: Objects, cells: Cells) -> Iterator[Record]:
    weights = cells.options.weights
    weight_field, fields = weights or "weight", ["input", "output", *([weights] if weights else [])]
    for row, record in objects:
        for field in fields:
            if field not in record:
                found = listed(list(map(str, record))) or "no fields"
                problem = f"expected the field {quote(field)}, found {found}. Example: {OBJECT}"
                raise cells.error(row, problem)
        key, output, weight = record["input"], record["output"], None
        key = list(key) if isinstance(key, (list, tuple)) else [key]
        if not key:
            problem = "expected at least one token in 'input', found an empty list."
            raise cells.error(row, problem)
        tokens = cells.tokens(key, row, ["input"] * len(key))
        if weight_field in record:
            weight = cells.weight(record[weight_field], row, weight_field)
        if isinstance(output, list):
            raise cells.error(
                row,
                "expected one token in 'output', or an object token -> probability, found a list. "
                "One label for each token is a sequence-to-sequence task, not an association.",
            )
        yield row, tokens, _output(output, row, "output", cells), weight


def _output(output: object, row: int, column: str, cells: Cells) -> str | dict[str, float]:
    """An answer, or token -> probability; `Distributions.make` refuses what does not sum to 1."""
    if not isinstance(output, Mapping):
        return cells.token(output, row, column)
    if not output:
        raise cells.error(row, "expected at least one answer, found none.")
    probabilities: dict[str, float] = {}
    for answer, value in output.items():
        token = cells.token(answer, row, "output")
        what = f"probability of {quote(token)}"
        if isinstance(value, str):
            raise cells.error(
                row,
                f"expected a number as {what}, found {quote(value)}. Relations belong to the key: "
                f"write it as (key, {token}) -> {value}.",
            )
        number = cells.weight(value, row, "output", what)
        probabilities[token] = probabilities.get(token, 0.0) + number
    return probabilities


def python_source(data: object, reading: Mapping[str, object]) -> Source:
    """The facts in any of the forms that Python data have."""
    if _frame_kind(data):
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
        raise FactsError(
            "expected facts: a path, a built-in table, a recipe, a dict key -> answer, rows, or a "
            f"data frame, found {refusals.get(kind) or _shown(data)}."
        )
    return rows_source(data, None, reading)


def _shown(value: object) -> str:
    return f"{quote(repr(value))[1:-1]} ({type(value).__name__})"


def dict_source(data: Mapping[object, object], reading: Mapping[str, object]) -> Source:
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
    expected = 'entries such as {("France", "capital"): "Paris"}'
    return Source(_entries(data, cells), cells, expected)


def _entries(data: Mapping[object, object], cells: Cells) -> Iterator[Record]:
    for row, (key, answer) in enumerate(data.items(), start=1):
        parts = list(key) if isinstance(key, tuple) else [key]
        if not parts:
            raise cells.error(row, "expected a key with tokens, found ().")
        tokens = cells.tokens(parts, row, ["key"] * len(parts))
        if isinstance(answer, (list, tuple, set, frozenset, np.ndarray)):
            raise cells.error(
                row,
                f"expected one answer to {listed(tokens)}, found a {type(answer).__name__}. "
                "Several right answers are a dict token -> probability; columns of a table are "
                "rows: zip(*columns).",
            )
        yield row, tokens, _output(answer, row, "answer", cells), None


def rows_source(
    rows: Iterable[object], columns: Sequence[str] | None, reading: Mapping[str, object]
) -> Source:
    """Facts from rows of cells, or from dicts column -> cell (or with "input" and "output", as in
    JSON lines); `columns` names the columns, which are 1, 2, ... by default."""
    options = Options.of("rows", reading)
    options.refuse(["header"], "rows: names of columns go into `columns`")
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        raise FactsError(f"{options.where}: expected rows, each {ROW}, found {_shown(rows)}.")
    cells = Cells(replace(options, header=False))
    numbered = enumerate(rows, start=1)
    first = next(numbered, None)
    if first is None:
        raise FactsError(f"{options.where}: expected rows, each {ROW}, found none. Add rows.")
    every = chain([first], numbered)
    if not isinstance(first[1], Mapping):
        table = cast("Rows", _alike(every, (tuple, list, np.ndarray), ROW, cells))
        return table_source(table, cells, None if columns is None else list(columns))
    objects = cast("Objects", _alike(every, Mapping, "a dict as in the rows above", cells))
    if {"input", "output"} <= first[1].keys():
        return keyed_source(objects, cells)
    names = [str(name) for name in (first[1] if columns is None else columns)]
    return table_source(_ordered(objects, names, cells), cells, names)


def _alike(
    rows: Iterable[tuple[int, object]],
    kinds: type | tuple[type, ...],
    expected: str,
    cells: Cells,
) -> Iterator[tuple[int, object]]:
    for row, values in rows:
        if not isinstance(values, kinds):
            raise cells.error(row, f"expected {expected}, found {_shown(values)}.")
        yield row, values


def _ordered(objects: Objects, names: list[str], cells: Cells) -> Rows:
    for row, values in objects:
        texts = {str(name): value for name, value in values.items()}
        if texts.keys() != set(names):
            missing = [name for name in names if name not in texts]
            extra = [name for name in texts if name not in names]
            wrong = f"no {listed(missing)}" if missing else f"{listed(extra)} too"
            expected = f"expected the columns {listed(names)} in every row"
            raise cells.error(row, f"{expected}, found {wrong}. Write None for a gap.")
        yield row, [texts[name] for name in names]


def _frame_kind(data: object) -> str | None:
    """The member of `FRAMES` that is among the classes of `data`."""
    kinds = (f"{kind.__module__.split('.')[0]}.{kind.__name__}" for kind in type(data).__mro__)
    return next((kind for kind in kinds if kind in FRAMES), None)


def frame_source(data: object, reading: Mapping[str, object]) -> Source:
    """Facts from a data frame (named levels of its index are columns too), or from a series whose
    index holds the keys."""
    kind = _frame_kind(data)
    if kind is None:
        raise FactsError(
            f"expected a data frame or series of pandas, found {type(data).__name__}. Rows go into "
            "`from_rows`, a dict into `from_dict`, anything else into `as_facts`."
        )
    options = Options.of("series" if kind == "pandas.Series" else "frame", reading)
    if kind == "pandas.Series":
        options.refuse(COLUMNS, "a series, whose index holds the keys")
        series = cast("pandas.Series", data)
        names: list[object] = [*series.index.names]
        names.append("answer" if series.name is None else str(series.name))
        pairs = zip(series.index, series, strict=True)
        rows = ([*(k if isinstance(k, tuple) else (k,)), answer] for k, answer in pairs)
    elif kind == "pandas.DataFrame":
        frame = cast("pandas.DataFrame", data)
        if any(name is not None for name in frame.index.names):
            frame = frame.reset_index()
        names, rows = list(frame.columns), map(list, frame.itertuples(index=False, name=None))
    else:
        names, rows = [*getattr(data, "columns", ())], getattr(data, "iter_rows", tuple)()
    options.refuse(["header"], "a data frame, which names its columns")
    levels = next((name for name in names if isinstance(name, (tuple, list))), None)
    if levels is not None:
        raise FactsError(
            f"{options.where}: expected one name for each column, found {levels!r}. Flatten the "
            "levels of the columns first."
        )
    columns = [str(i) if name is None else str(name) for i, name in enumerate(names, start=1)]
    if len(columns) < 2:
        raise FactsError(
            f"{options.where}: expected at least two columns, keys and an answer, found "
            f"{len(columns)}: {listed(columns)}. If the keys are its index, name the index."
        )
    return table_source(enumerate(rows, start=1), Cells(options), columns)
