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
        write_new(path, "".join(json_line(facts, *record) for record in _records(facts)))
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


def _weighted(facts: Facts) -> bool:
    return bool((facts.prior != facts.prior[0]).any())


def _records(facts: Facts) -> Iterator[tuple[list[str], str, float | None]]:
    """(key, answer, weight) of each fact; no weight where the prior is uniform."""
    names, weighted = facts.vocabulary.tokens, _weighted(facts)
    for key, answer, weight in zip(facts.tokens, facts.answers, facts.prior, strict=True):
        yield [names[t] for t in key], names[answer], float(weight) if weighted else None


def as_table(facts: Facts) -> tuple[list[str], Iterator[list[str | float]]]:
    """Names of the columns, and the rows below them: key, weight unless uniform, answer."""
    keys = facts.columns or tuple(f"token {s + 1}" for s in range(facts.S))
    header: list[str] = []
    for name in (*keys, *(["weight"] if _weighted(facts) else []), facts.answer_column):
        while name in header:  # equal names could not be read back: primes tell them apart
            name += "'"
        header.append(name)
    rows: Iterator[list[str | float]] = (
        [*key, *([] if weight is None else [weight]), answer]
        for key, answer, weight in _records(facts)
    )
    return header, rows


def _delimited(facts: Facts, delimiter: str) -> str:
    text = io.StringIO(newline="")
    # RFC 4180: lines end in CR LF; this also makes the writer quote cells with CR or LF in them.
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\r\n")
    header, rows = as_table(facts)
    writer.writerow(header)
    writer.writerows(rows)  # floats as the shortest text that reads back as the same number
    return text.getvalue()


def json_line(
    facts: Facts, key: list[str], output: str | dict[str, float], weight: float | None
) -> str:
    """One object, padding left out of the key."""
    pad = None if facts.pad_id is None else facts.vocabulary.token(facts.pad_id)
    record: dict[str, object] = {"input": [t for t in key if t != pad], "output": output}
    if weight is not None:
        record["weight"] = weight
    return json.dumps(record, ensure_ascii=False) + "\n"
