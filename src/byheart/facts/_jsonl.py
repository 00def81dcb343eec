"""Objects with the fields "input", "output" and "weight": lines of JSON, or Python's own."""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Iterable, Iterator, Mapping
from pathlib import Path

from byheart._words import listed, quote
from byheart.errors import FactsError
from byheart.facts._reading import Options
from byheart.facts._records import Cells, Record, Source
from byheart.facts._text import open_text

__all__ = ["Objects", "json_lines", "keyed_source", "mixture"]

Objects = Iterable[tuple[int, Mapping[str, object]]]
"""(row, object) of each fact."""

EXAMPLE = '{"input": ["France", "capital"], "output": "Paris"}'


def json_lines(path: Path, where: str) -> Generator[tuple[int, dict[str, object]], None, None]:
    """The objects of a file with one a line. A number with a point that is used as a token becomes
    text, as Python writes it.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "sums.jsonl"
        >>> _ = path.write_text('{"input": [1.5, "+", 2], "output": 3.5}')
        >>> list(json_lines(path, path.name))
        [(1, {'input': ['1.5', '+', 2], 'output': '3.5'})]
    """
    with open_text(path, where) as stream:
        for row, line in enumerate(stream, start=1):
            if line.strip():
                record = _parse(line, f"{where}, line {row}")
                for field in ("input", "output"):
                    if field in record:
                        record[field] = _written(record[field])
                yield row, record


def _parse(line: str, place: str) -> dict[str, object]:
    try:
        record = json.loads(line, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise FactsError(
            f"{place}, column {error.colno}: expected one JSON object such as {EXAMPLE}, found "
            f"invalid JSON: {error.msg}. Every line is an object of its own."
        ) from error
    except (ValueError, RecursionError) as error:
        raise FactsError(f"{place}: expected JSON such as {EXAMPLE}, found: {error}.") from error
    if not isinstance(record, dict):
        raise FactsError(
            f"{place}: expected an object such as {EXAMPLE}, found {quote(line.strip())}."
        )
    return record


def _refuse_constant(text: str) -> float:
    # Python's json reads NaN and Infinity, which JSON does not have; neither is a token or weight.
    raise ValueError(f"{text}, which is not a finite number")


def _written(value: object) -> object:
    if isinstance(value, list):
        return [_written(part) for part in value]
    return str(value) if isinstance(value, float) and math.isfinite(value) else value


def keyed_source(objects: Objects, options: Options, cells: Cells) -> Source:
    """Facts from objects `{"input": [tokens] or token, "output": token, "weight": number}`; an
    output may also be an object token -> probability.

    Notes:
        "weight" is optional: where some objects have one, the others weigh 1. Other fields are
        ignored.
    """
    return Source(
        _records(objects, options.weights, cells),
        cells,
        lambda position, tokens: "output" if position == len(tokens) - 1 else "input",
        f"{cells.unit}s such as {EXAMPLE}",
        answer_column="output",
    )


def _records(objects: Objects, weights: str | None, cells: Cells) -> Iterator[Record]:
    weight_field = weights or "weight"
    for row, record in objects:
        for field in ("input", "output", *([weights] if weights else [])):
            if field not in record:
                raise FactsError(
                    f"{cells.place(row)}: expected the field {quote(field)}, found "
                    f"{listed(list(map(str, record))) or 'no fields'}. Example: {EXAMPLE}"
                )
        key, output, weight = record["input"], record["output"], None
        key = list(key) if isinstance(key, (list, tuple)) else [key]
        if not key:
            raise FactsError(
                f"{cells.place(row)}: expected at least one token in 'input', found an empty list."
            )
        tokens = cells.tokens(key, row, ["input"] * len(key))
        if weight_field in record:
            weight = cells.weight(record[weight_field], row, weight_field)
        if isinstance(output, list):
            raise FactsError(
                f"{cells.place(row)}: expected one token in 'output', or an object token -> "
                "probability, found a list. One label for each token is a sequence-to-sequence "
                "task, not an association. Give a single token."
            )
        if isinstance(output, Mapping):
            yield row, tokens, mixture(output, row, cells), weight
        else:
            yield row, tokens, cells.token(output, row, "output"), weight


def mixture(output: Mapping[object, object], row: int, cells: Cells) -> dict[str, float]:
    """Token -> probability, checked; `Distributions.make` refuses what does not sum to 1."""
    if not output:
        raise FactsError(f"{cells.place(row)}: expected at least one answer, found none.")
    probabilities: dict[str, float] = {}
    for answer, value in output.items():
        token = cells.token(answer, row, "output")
        if isinstance(value, str):
            raise FactsError(
                f"{cells.place(row)}: expected a number as probability of {quote(token)}, found "
                f"{quote(value)}. Relations belong to the key: write it as (key, {token}) -> "
                f"{value}."
            )
        number = cells.weight(value, row, "output", f"probability of {quote(token)}")
        probabilities[token] = probabilities.get(token, 0.0) + number
    return probabilities
