"""Facts from files, built-in tables and recipes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from importlib.resources import as_file
from pathlib import Path
from typing import Literal

from byheart.errors import FactsError
from byheart.facts._csv import csv_records
from byheart.facts._jsonl import jsonl_facts
from byheart.facts._options import Options
from byheart.facts._parquet import parquet_records
from byheart.facts._table import table_facts
from byheart.facts._words import did_you_mean, quote
from byheart.facts.builtin import builtin_file, builtin_tables
from byheart.facts.facts import Facts
from byheart.facts.tasks import RECIPE, facts_from_recipe

__all__ = ["read_facts"]

DELIMITERS = {".csv": ",", ".tsv": "\t"}
JSON_LINES = (".jsonl", ".ndjson")
ACCEPTED = (
    "a file that ends in .csv, .tsv, .jsonl, .ndjson or .parquet, a built-in table "
    f"({', '.join(builtin_tables())}) or a recipe ({RECIPE})"
)


def read_facts(
    source: str | os.PathLike[str],
    *,
    keys: Sequence[str] | None = None,
    answer: str | None = None,
    weights: str | None = None,
    melt: bool = False,
    empty: Literal["error", "skip", "token"] = "error",
    pad: bool = False,
    name: str | None = None,
) -> Facts:
    """Facts (key tokens -> answer token) from a file, a built-in table or a recipe.

    Arguments:
        source: a path (.csv, .tsv, .jsonl, .ndjson, .parquet), a built-in name, or a recipe such
            as "random:N=50,S=2,T=1000,seed=0".
        keys: the key columns, in order. Default: all but answer and weights.
        answer: the answer column. Default: the last that does not hold weights.
        weights: the column (in JSONL the field) with the weight of each fact. Default: uniform;
            in JSONL the field "weight" where there is one.
        melt: read one record as several facts (key..., column name) -> cell, one for each column
            that is no key. Default key: the first column.
        empty: for an empty cell, "error", "skip" (leave the fact out) or "token" (keep it).
        pad: pad unequal inputs of JSONL on the left with a reserved token.
        name: the name of the facts. Default: the name of the file without its suffix.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "capitals.csv"
        >>> _ = path.write_text("country,capital\\nFrance,Paris\\nItaly,Rome\\n")
        >>> facts = read_facts(path)
        >>> facts, facts.key(1), facts.answer(1)
        (Facts('capitals', T=2, S=1, N=4), ('Italy',), 'Rome')

    Notes:
        Each cell is one token, kept exactly: nothing is stripped. Text is UTF-8. Built-in tables
        are read with melt unless keys or answer are given. Rows in messages are lines of the file,
        the header being row 1. Whatever cannot be read is a `FactsError`.
    """
    if isinstance(keys, str):
        keys = (keys,)
    where = os.fspath(source)
    options = Options(
        where=where,
        # A file name need not be valid text; the name of the facts goes into JSON.
        name=(name or Path(where).stem).encode("utf-8", "backslashreplace").decode(),
        keys=None if keys is None else tuple(keys),
        answer=answer,
        weights=weights,
        melt=melt,
        empty=empty,
        pad=pad,
    )
    path = Path(where)
    if _exists(path):
        return _read_file(path, options)
    if where in builtin_tables():
        if options.keys is None and options.answer is None:
            options = replace(options, melt=True)
        with as_file(builtin_file(where)) as inside:
            return _read_file(inside, options)
    if where.startswith("random:"):
        _refuse_column_options(options, "a recipe")
        facts = facts_from_recipe(where)
        return facts if name is None else replace(facts, name=name)
    raise FactsError(
        f"expected {ACCEPTED}, found no file {quote(where, 200)}. "
        f"Check the path.{did_you_mean(where, builtin_tables())}"
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise FactsError(f"{path}: cannot be looked up: {error.strerror}.") from error


def _read_file(path: Path, options: Options) -> Facts:
    where = options.where
    if path.is_dir():
        raise FactsError(f"{where}: expected {ACCEPTED}, found a directory. Name a file in it.")
    suffix = path.suffix.lower()
    if suffix in JSON_LINES:
        _refuse_column_options(replace(options, weights=None), "JSON lines")
        return jsonl_facts(path, options)
    if suffix in DELIMITERS:
        records = csv_records(path, DELIMITERS[suffix], where)
    elif suffix == ".parquet":
        records = parquet_records(path, where)
    else:
        found = f"the suffix {suffix!r}" if suffix else "no suffix"
        raise FactsError(
            f"{where}: expected {ACCEPTED}, found {found}. Rename or convert the file."
        )
    # Closed at once, so that an error does not keep the file open.
    with closing(records):
        return table_facts(records, options)


def _refuse_column_options(options: Options, kind: str) -> None:
    """A source without columns must not silently ignore the options that name columns."""
    given = {
        "keys": options.keys,
        "answer": options.answer,
        "weights": options.weights,
        "melt": options.melt or None,
    }
    names = [option for option, value in given.items() if value is not None]
    if names:
        raise FactsError(
            f"{options.where}: expected no {' or '.join(names)} for {kind}, which has no columns. "
            "Leave it out."
        )
