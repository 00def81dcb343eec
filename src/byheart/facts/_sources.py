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
from byheart.facts._records import COLUMNS, Options, Record, Source

if TYPE_CHECKING:
    import pandas

Rows = Iterator[tuple[int, Sequence[object]]]
"""(row, cells) of each record; row is what messages call it."""
Objects = Iterable[tuple[int, Mapping[str, object]]]
"""(row, object) of each fact."""
Positions = tuple[list[int], list[int], int | None]
"""Of the keys, of the answers (one, or with melt every column that is no key), of the weight."""

OBJECT = '{"input": ["France", "capital"], "output": "Paris"}'
ROW = 'a tuple or list such as ("France", "Paris"), key tokens and then the answer'
FRAMES = {"pandas.DataFrame", "pandas.Series", "polars.DataFrame"}
SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
NO_FACTS = {
    "bytes": "bytes. Decode a path to text; give the content of a file as rows",
    **dict.fromkeys(("set", "frozenset"), "a set, which has no order. Give a list of rows"),
    "ndarray": "an array that is not two-dimensional. Give one row a fact",
    "Tensor": "a torch Tensor. Token ids go into Facts.make(tokens, answers, vocabulary), "
    "vectors into VectorFacts.make(context, query, label)",
}


def table_source(rows: Rows, source: Source, columns: list[str] | None = None) -> Source:
    """The facts of a table. Its first row holds the names of the columns, unless they are given
    (`columns`) or there are none (`header` is False): then they are 1, 2, ...

    Example:
        >>> rows = [(1, ["country", "capital", "continent"]), (2, ["Italy", "Rome", "Europe"])]
        >>> source = Source(Options("table.csv", "table", melt=True))
        >>> [(key, answer) for _, key, answer, _ in table_source(iter(rows), source).records]
        [(['Italy', 'capital'], 'Rome'), (['Italy', 'continent'], 'Europe')]
    """
    options = source.options
    if columns is None:
        first = next(rows, None)
        if first is None:
            raise FactsError(f"{options.where}: expected a header and facts, found an empty file.")
        columns = [str(i + 1) for i in range(len(first[1]))]
        if options.header is False:
            rows = chain([first], rows)
        else:
            columns = source.tokens(first[1], first[0], columns)
            named = options.keys or options.answer or options.weights or options.melt
            source.implied_header = options.header is None and not named
            source.expected = "facts below the header"
    keys, values, weight = choose_columns(columns, options)
    source.columns = tuple(columns[i] for i in keys) + ("relation",) * options.melt
    source.answer_column = "value" if options.melt else columns[values[0]]
    source.records = _cut(rows, columns, (keys, values, weight), source)
    return source


def _cut(rows: Rows, header: list[str], positions: Positions, source: Source) -> Iterator[Record]:
    keys, values, at = positions
    used, S, melt, weight = [*keys, *values], len(keys), source.options.melt, None
    names = [header[i] for i in used]
    for row, line in rows:
        if len(line) != len(header):
            advice = "Add the missing cells."
            if len(line) > len(header):
                advice = "Remove the extra cells, or quote a cell that contains the separator."
            expected = f"expected {len(header)} cells as in the header, found {len(line)}."
            raise source.error(row, f"{expected} {advice}")
        if at is not None:
            weight = source.weight(line[at], row, header[at])
        tokens = source.tokens([line[i] for i in used], row, names)
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

    def position(option: str, column: str) -> int:
        if column not in header:
            raise FactsError(
                f"{options.where}: expected one of the columns {listed(header)} for `{option}`, "
                f"found the unknown column {quote(column)}. {did_you_mean(column, header)}".rstrip()
            )
        return header.index(column)

    problem = _wrong_header(header, options)
    if problem:
        raise FactsError(f"{options.where}, row 1: expected {problem}.")
    weight = None if options.weights is None else position("weights", options.weights)
    others = [i for i in range(len(header)) if i != weight]
    keys = None if options.keys is None else [position("keys", key) for key in options.keys]
    if options.melt:
        keys = others[:1] if keys is None else keys
        values = [i for i in others if i not in keys]
        if options.empty != "token" and any(header[i] == "" for i in values):
            place = f"{options.where}, row 1, column {header.index('') + 1}"
            found = "found none; with melt it becomes a token"
            raise FactsError(f"{place}: expected a column name, {found}. Name the column.")
    else:
        values = [others[-1] if options.answer is None else position("answer", options.answer)]
        keys = [i for i in others if i not in values] if keys is None else keys
    problem = _wrong_roles(header, keys, values, weight, options)
    if problem:
        raise FactsError(f"{options.where}: expected {problem}.")
    return keys, values, weight


def _wrong_header(header: list[str], options: Options) -> str | None:
    if len(header) < 2:
        seen = [word for mark, word in SEPARATORS.items() if header and mark in header[0]]
        advice = "Add a column"
        if seen:
            advice = f"Are they separated by {seen[0]}? Save them with commas (.csv) or tabs (.tsv)"
        found = f"found {len(header)}: {listed(header)}. {advice}"
        return f"at least two columns, keys and an answer, {found}"
    for i, name in enumerate(header):
        if name in header[:i]:
            found = f"found {quote(name)} as columns {header.index(name) + 1} and {i + 1}"
            no_header = "" if options.header else ", or read with `header=False` if it is a fact"
            return f"distinct column names, {found}. Rename one of them{no_header}"
    return None


def _wrong_roles(
    header: list[str], keys: list[int], values: list[int], weight: int | None, options: Options
) -> str | None:
    """Every column has one role, and there are keys and answers."""
    if options.melt and options.answer is not None:
        found = "found both. With melt every column that is no key holds answers"
        return f"either `melt` or an `answer` column, {found}"
    for i in keys:
        name = quote(header[i])
        if i in values:
            found = f"found {name} as both. Name another answer column"
            return f"the answer column not to be a key, {found}"
        if keys.count(i) > 1:
            return f"distinct keys, found {name} twice"
    if weight is not None and weight in (*keys, *values):
        name = quote(header[weight])
        return f"the weights in a column of their own, found {name} as key or answer too"
    if not keys or not values:
        found = f"found {len(keys)} and {len(values)} in {listed(header)}"
        advice = "Add a column, or name the columns with `keys` and `answer`"
        return f"at least one key column and one answer column, {found}. {advice}"
    return None


def keyed_source(objects: Objects, source: Source) -> Source:
    """Facts from objects `{"input": [tokens] or token, "output": token, "weight": number}`; an
    output may also be an object token -> probability. "weight" is optional: where some objects have
    one, the others weigh 1. Other fields are ignored."""
    source.key_column, source.answer_column = "input", "output"
    source.expected = f"{source.unit}s such as {OBJECT}"
    source.records = _unpacked(objects, source)
    return source


def _unpacked(objects: Objects, source: Source) -> Iterator[Record]:
    weights = source.options.weights
    weight_field, fields = weights or "weight", ["input", "output", *([weights] if weights else [])]
    for row, record in objects:
        for field in fields:
            if field not in record:
                found = listed(list(map(str, record))) or "no fields"
                problem = f"expected the field {quote(field)}, found {found}. Example: {OBJECT}"
                raise source.error(row, problem)
        key, output, weight = record["input"], record["output"], None
        key = list(key) if isinstance(key, (list, tuple)) else [key]
        if not key:
            problem = "expected at least one token in 'input', found an empty list."
            raise source.error(row, problem)
        tokens = source.tokens(key, row, ["input"] * len(key))
        if weight_field in record:
            weight = source.weight(record[weight_field], row, weight_field)
        if isinstance(output, list):
            expected = "expected one token in 'output', or an object token -> probability"
            advice = "One for each token of the input is a sequence-to-sequence task: give one."
            raise source.error(row, f"{expected}, found a list. {advice}")
        yield row, tokens, _output(output, row, "output", source), weight


def _output(output: object, row: int, column: str, source: Source) -> str | dict[str, float]:
    """An answer, or token -> probability; `Distributions.make` refuses what does not sum to 1."""
    if not isinstance(output, Mapping):
        return source.token(output, row, column)
    if not output:
        raise source.error(row, "expected at least one answer, found none.")
    probabilities: dict[str, float] = {}
    for answer, value in output.items():
        token = source.token(answer, row, "output")
        what = f"probability of {quote(token)}"
        if isinstance(value, str):
            found = f"expected a number as {what}, found {quote(value)}"
            advice = f"Relations belong to the key: write it as (key, {token}) -> {value}."
            raise source.error(row, f"{found}. {advice}")
        number = source.weight(value, row, "output", what)
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
    kind = type(data).__name__
    if kind in NO_FACTS or not isinstance(data, Iterable):
        raise FactsError(
            "expected facts: a path, a built-in table, a recipe, a dict key -> answer, rows, or a "
            f"data frame, found {NO_FACTS.get(kind) or _shown(data)}."
        )
    return rows_source(data, None, reading)


def _shown(value: object) -> str:
    return f"{quote(repr(value))[1:-1]} ({type(value).__name__})"


def dict_source(data: Mapping[object, object], reading: Mapping[str, object]) -> Source:
    """Facts from `{("France", "capital"): "Paris"}` or `{"France": "Paris"}`; an answer may also
    be a dict token -> probability."""
    options = Options.of("dict", reading)
    if not isinstance(data, Mapping):
        advice = "Other data go into `from_rows`, `from_pandas` or `as_facts`."
        raise FactsError(f"expected a dict key -> answer, found {type(data).__name__}. {advice}")
    options.refuse(COLUMNS, "a dict, which has no columns")
    source = Source(options, "entry", "part")
    source.expected = 'entries such as {("France", "capital"): "Paris"}'
    source.records = _entries(data, source)
    return source


def _entries(data: Mapping[object, object], source: Source) -> Iterator[Record]:
    for row, (key, answer) in enumerate(data.items(), start=1):
        parts = list(key) if isinstance(key, tuple) else [key]
        if not parts:
            raise source.error(row, "expected a key with tokens, found ().")
        tokens = source.tokens(parts, row, ["key"] * len(parts))
        if isinstance(answer, (list, tuple, set, frozenset, np.ndarray)):
            expected = f"expected one answer to {listed(tokens)}, found a {type(answer).__name__}"
            advice = (
                "Several right answers are a dict token -> probability; columns: zip(*columns)."
            )
            raise source.error(row, f"{expected}. {advice}")
        yield row, tokens, _output(answer, row, "answer", source), None


def rows_source(
    rows: Iterable[object], columns: Sequence[str] | None, reading: Mapping[str, object]
) -> Source:
    """Facts from rows of cells, or from dicts column -> cell (or with "input" and "output", as in
    JSON lines); `columns` names the columns, which are 1, 2, ... by default."""
    options = Options.of("rows", reading)
    options.refuse(["header"], "rows: names of columns go into `columns`")
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        raise FactsError(f"{options.where}: expected rows, each {ROW}, found {_shown(rows)}.")
    source = Source(replace(options, header=False))
    numbered = enumerate(rows, start=1)
    first = next(numbered, None)
    if first is None:
        raise FactsError(f"{options.where}: expected rows, each {ROW}, found none. Add rows.")
    every = chain([first], numbered)
    if not isinstance(first[1], Mapping):
        table = cast("Rows", _alike(every, (tuple, list, np.ndarray), ROW, source))
        return table_source(table, source, None if columns is None else list(columns))
    objects = cast("Objects", _alike(every, (Mapping,), "a dict as in the rows above", source))
    if {"input", "output"} <= first[1].keys():
        return keyed_source(objects, source)
    names = [str(name) for name in (first[1] if columns is None else columns)]
    return table_source(_ordered(objects, names, source), source, names)


def _alike(
    rows: Iterable[tuple[int, object]], kinds: tuple[type, ...], expected: str, source: Source
) -> Iterator[tuple[int, object]]:
    for row, values in rows:
        if not isinstance(values, kinds):
            raise source.error(row, f"expected {expected}, found {_shown(values)}.")
        yield row, values


def _ordered(objects: Objects, names: list[str], source: Source) -> Rows:
    for row, values in objects:
        texts = {str(name): value for name, value in values.items()}
        if texts.keys() != set(names):
            missing = [name for name in names if name not in texts]
            extra = [name for name in texts if name not in names]
            wrong = f"no {listed(missing)}" if missing else f"{listed(extra)} too"
            expected = f"expected the columns {listed(names)} in every row"
            raise source.error(row, f"{expected}, found {wrong}. Write None for a gap.")
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
        advice = "Rows go into `from_rows`, a dict into `from_dict`, anything else into `as_facts`."
        found = type(data).__name__
        raise FactsError(f"expected a data frame or series of pandas, found {found}. {advice}")
    options = Options.of("series" if kind == "pandas.Series" else "frame", reading)
    names: list[object]
    if kind == "pandas.Series":
        options.refuse(COLUMNS, "a series, whose index holds the keys")
        series = cast("pandas.Series", data)
        names = [*series.index.names, "answer" if series.name is None else str(series.name)]
        pairs = zip(series.index, series, strict=True)
        rows = ([*(k if isinstance(k, tuple) else (k,)), answer] for k, answer in pairs)
    elif kind == "pandas.DataFrame":
        frame = cast("pandas.DataFrame", data)
        if any(name is not None for name in frame.index.names):
            frame = frame.reset_index()
        names, rows = [*frame.columns], frame.itertuples(index=False, name=None)
    else:
        names, rows = [*getattr(data, "columns", ())], getattr(data, "iter_rows", tuple)()
    options.refuse(["header"], "a data frame, which names its columns")
    levels = next((name for name in names if isinstance(name, (tuple, list))), None)
    columns = [str(i) if name is None else str(name) for i, name in enumerate(names, start=1)]
    problem = ""
    if levels is not None:
        problem = f"one name for each column, found {levels!r}. Flatten the levels of the columns"
    elif len(columns) < 2:
        found = (
            f"found {len(columns)}: {listed(columns)}. If the keys are its index, name the index"
        )
        problem = f"at least two columns, keys and an answer, {found}"
    if problem:
        raise FactsError(f"{options.where}: expected {problem}.")
    return table_source(enumerate(rows, start=1), Source(options), columns)
