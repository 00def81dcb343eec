"""Facts to CSV, TSV and JSONL files, and to data frames."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from byheart._folders import write_text
from byheart.errors import FactsError

if TYPE_CHECKING:
    from byheart.facts.facts import Facts

__all__ = [
    "DELIMITERS",
    "JSON_LINES",
    "as_table",
    "json_line",
    "write_facts",
    "write_new",
]

DELIMITERS = {".csv": ",", ".tsv": "\t"}
JSON_LINES = (".jsonl", ".ndjson")


def write_facts(facts: Facts, path: str | os.PathLike[str]) -> None:
    """The facts as a file, by the suffix of `path`."""
    suffix = Path(path).suffix.lower()
    if suffix in JSON_LINES:
        write_new(path, _json_lines(facts))
    elif suffix in DELIMITERS:
        write_new(path, _delimited(facts, DELIMITERS[suffix]))
    else:
        raise FactsError(
            f"{path}: expected a name that ends in .csv, .tsv, .jsonl or .ndjson, found "
            f"{suffix or 'no suffix'!r}. Choose one of these."
        )


def write_new(path: str | os.PathLike[str], text: str) -> None:
    """A reader sees the old file or the new one, never half."""
    try:
        write_text(Path(path), text)
    except OSError as error:
        raise FactsError(f"{path}: cannot be written: {error.strerror}.") from error


def _records(facts: Facts) -> Iterator[tuple[list[str], str, float]]:
    """(key, answer, weight) of each fact."""
    names = facts.vocabulary.tokens
    for key, answer, weight in zip(facts.tokens, facts.answers, facts.prior, strict=True):
        yield [names[t] for t in key], names[answer], float(weight)


def _is_uniform(facts: Facts) -> bool:
    return bool((facts.prior == facts.prior[0]).all())


def as_table(facts: Facts) -> tuple[list[str], Iterator[list[str | float]]]:
    """Names of the columns, and the rows below them: key, weight unless uniform, answer."""
    keys = facts.columns or tuple(f"token {s + 1}" for s in range(facts.S))
    weighted = not _is_uniform(facts)
    header = [*keys, *(["weight"] if weighted else []), facts.answer_column]
    rows: Iterator[list[str | float]] = (
        [*key, *([weight] if weighted else []), answer] for key, answer, weight in _records(facts)
    )
    return _distinct_names(header), rows


def _distinct_names(names: list[str]) -> list[str]:
    """Primes tell equal column names apart: a header with duplicates could not be read back."""
    distinct: list[str] = []
    for name in names:
        while name in distinct:
            name += "'"
        distinct.append(name)
    return distinct


def _delimited(facts: Facts, delimiter: str) -> str:
    text = io.StringIO(newline="")
    # RFC 4180: lines end in CR LF; this also makes the writer quote cells with CR or LF in them.
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\r\n")
    header, rows = as_table(facts)
    writer.writerow(header)
    writer.writerows(rows)  # floats as the shortest text that reads back as the same number
    return text.getvalue()


def _json_lines(facts: Facts) -> str:
    weighted = not _is_uniform(facts)
    return "".join(
        json_line(facts, key, answer, weight if weighted else None)
        for key, answer, weight in _records(facts)
    )


def json_line(
    facts: Facts, key: list[str], output: str | dict[str, float], weight: float | None
) -> str:
    """One object, padding left out of the key."""
    pad = None if facts.pad_id is None else facts.vocabulary.token(facts.pad_id)
    record: dict[str, object] = {"input": [t for t in key if t != pad], "output": output}
    if weight is not None:
        record["weight"] = weight
    return json.dumps(record, ensure_ascii=False) + "\n"
