"""Facts to CSV, TSV and JSONL files."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from byheart.errors import FactsError

if TYPE_CHECKING:
    from byheart.facts.facts import Facts

__all__ = ["write_facts"]

DELIMITERS = {".csv": ",", ".tsv": "\t"}
JSON_LINES = (".jsonl", ".ndjson")


def write_facts(facts: Facts, path: str | os.PathLike[str]) -> None:
    """Write beside `path`, then rename: a reader sees the old file or the new one, never half."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in DELIMITERS and suffix not in JSON_LINES:
        raise FactsError(
            f"{path}: expected a name that ends in .csv, .tsv, .jsonl or .ndjson, found "
            f"{suffix or 'no suffix'!r}. Choose one of these."
        )
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        try:
            with temporary.open("w", encoding="utf-8", newline="") as stream:
                if suffix in JSON_LINES:
                    _write_jsonl(facts, stream)
                else:
                    _write_table(facts, stream, DELIMITERS[suffix])
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise FactsError(f"{path}: cannot be written: {error.strerror}.") from error


def _records(facts: Facts) -> Iterator[tuple[list[str], str, float]]:
    """(key, answer, weight) of each fact."""
    names = facts.vocabulary.tokens
    for key, answer, weight in zip(facts.tokens, facts.answers, facts.prior, strict=True):
        yield [names[t] for t in key], names[answer], float(weight)


def _is_uniform(facts: Facts) -> bool:
    return bool((facts.prior == facts.prior[0]).all())


def _write_table(facts: Facts, stream: TextIO, delimiter: str) -> None:
    # RFC 4180: lines end in CR LF; this also makes the writer quote cells with CR or LF in them.
    writer = csv.writer(stream, delimiter=delimiter, lineterminator="\r\n")
    keys = facts.columns or tuple(f"token {s + 1}" for s in range(facts.S))
    weighted = not _is_uniform(facts)
    header = [*keys, *(["weight"] if weighted else []), facts.answer_column]
    writer.writerow(_distinct_names(header))
    for key, answer, weight in _records(facts):
        # repr of a Python float is the shortest text that reads back as the same number.
        writer.writerow([*key, *([repr(weight)] if weighted else []), answer])


def _distinct_names(names: list[str]) -> list[str]:
    """Primes tell equal column names apart: a header with duplicates could not be read back."""
    distinct: list[str] = []
    for name in names:
        while name in distinct:
            name += "'"
        distinct.append(name)
    return distinct


def _write_jsonl(facts: Facts, stream: TextIO) -> None:
    weighted = not _is_uniform(facts)
    pad = None if facts.pad_id is None else facts.vocabulary.token(facts.pad_id)
    for key, answer, weight in _records(facts):
        record: dict[str, object] = {"input": [t for t in key if t != pad], "output": answer}
        if weighted:
            record["weight"] = weight
        stream.write(json.dumps(record, ensure_ascii=False) + "\n")
