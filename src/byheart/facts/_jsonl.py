"""JSON lines -> facts."""

from __future__ import annotations

import json
import math
from array import array
from pathlib import Path
from typing import Any

import numpy as np

from byheart.errors import FactsError
from byheart.facts._options import Options, TokenIds, empty_cell_error
from byheart.facts._text import open_text
from byheart.facts._words import quote
from byheart.facts.facts import Facts
from byheart.facts.vocabulary import Vocabulary

__all__ = ["align", "as_token", "as_weight", "jsonl_facts", "key_tokens", "parse_line"]

PAD = "<pad>"
LINES_LISTED = 5
EXAMPLE = '{"input": ["France", "capital"], "output": "Paris"}'


def jsonl_facts(path: Path, options: Options) -> Facts:
    """Facts from lines `{"input": [tokens] or token, "output": token, "weight": number}`.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "sums.jsonl"
        >>> _ = path.write_text('{"input": [1, "+", 2], "output": 3}')
        >>> facts = jsonl_facts(path, Options(path.name, "sums"))
        >>> facts.key(0), facts.answer(0)
        (('1', '+', '2'), '3')

    Notes:
        `weight` is optional: where some lines have one, the others weigh 1. Other fields are
        ignored. Rows are line numbers. With `pad`, short inputs are padded on the left, so that
        the last token stays last.
    """
    where = options.where
    token_ids = TokenIds(where)
    flat, lengths, answers = array("q"), array("q"), array("q")
    rows, weights = array("q"), array("d")
    skipped, weighted = 0, False
    with open_text(path, where) as stream:
        for row, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            record = parse_line(line, f"{where}, line {row}")
            key, answer, weight = _fact(record, options.weights, f"{where}, line {row}")
            if options.empty != "token" and "" in (*key, answer):
                if options.empty == "error":
                    raise empty_cell_error(where, row, "input" if "" in key else "output")
                skipped += 1
                continue
            flat.extend([token_ids.of(token, row, "input") for token in key])
            lengths.append(len(key))
            answers.append(token_ids.of(answer, row, "output"))
            rows.append(row)
            weighted = weighted or weight is not None
            weights.append(1.0 if weight is None else weight)
    if not rows:
        left_out = f"{skipped:,} left out for empty tokens" if skipped else "an empty file"
        raise FactsError(f"{where}: expected lines such as {EXAMPLE}, found {left_out}.")
    vocabulary = Vocabulary(tuple(token_ids.ids))
    tokens, vocabulary, pad_id = align(flat, lengths, rows, vocabulary, options)
    return Facts.make(
        tokens,
        np.frombuffer(answers, dtype=np.int64),
        vocabulary,
        np.frombuffer(weights) if weighted else None,
        name=options.name,
        answer_column="output",
        rows=np.frombuffer(rows, dtype=np.int64),
        skipped=skipped,
        pad_id=pad_id,
    )


def parse_line(line: str, place: str) -> dict[str, Any]:
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


def _fact(
    record: dict[str, Any], weight_field: str | None, place: str
) -> tuple[list[str], str, float | None]:
    """Key, answer and weight (None if the line has none)."""
    weight_name = weight_field or "weight"
    required = ["input", "output"] + ([weight_field] if weight_field else [])
    for field in required:
        if field not in record:
            raise FactsError(
                f"{place}: expected the field {quote(field)}, found "
                f"{', '.join(quote(name) for name in record) or 'no fields'}. Example: {EXAMPLE}"
            )
    key = key_tokens(record["input"], place)
    output = record["output"]
    if isinstance(output, list):
        raise FactsError(
            f"{place}: expected one token in 'output', found a list. One label for each token is a "
            "sequence-to-sequence task, not an association. Give a single token."
        )
    if isinstance(output, dict):
        raise FactsError(
            f"{place}: expected one token in 'output', found an object. Probabilities of tokens "
            "are a distribution, not an association: read them with --distribution "
            "(read_distributions), or give a single token."
        )
    weight = as_weight(record[weight_name], weight_name, place) if weight_name in record else None
    return key, as_token(output, "output", place), weight


def key_tokens(value: Any, place: str) -> list[str]:
    """The tokens of the field "input": a list of them, or one alone."""
    inputs = value if isinstance(value, list) else [value]
    if not inputs:
        raise FactsError(f"{place}: expected at least one token in 'input', found an empty list.")
    return [as_token(token, "input", place) for token in inputs]


def as_token(value: Any, field: str, place: str) -> str:
    if isinstance(value, str):
        return value
    # In Python True is a number; in a table of facts it is more likely a slip.
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return str(value)
    raise FactsError(
        f"{place}: expected a string or a number as token in {quote(field)}, found "
        f"{quote(json.dumps(value))}. Put quotes around it."
    )


def as_weight(value: Any, field: str, place: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            pass
    raise FactsError(
        f"{place}: expected a finite number in {quote(field)}, found {quote(json.dumps(value))}. "
        "Correct it, or leave the weights out."
    )


def align(
    flat: array[int],
    lengths: array[int],
    rows: array[int],
    vocabulary: Vocabulary,
    options: Options,
) -> tuple[np.ndarray, Vocabulary, int | None]:
    """Keys as a (T, S) array; if their lengths differ, padded on the left or refused."""
    ids = np.frombuffer(flat, dtype=np.int64)
    length = np.frombuffer(lengths, dtype=np.int64)
    S = int(length.max())
    different = np.flatnonzero(length != length[0])
    if len(different) == 0:
        return ids.reshape(-1, S), vocabulary, None
    if not options.pad:
        shown = ", ".join(f"line {rows[i]} has {length[i]}" for i in different[:LINES_LISTED])
        more = len(different) - LINES_LISTED
        raise FactsError(
            f"{options.where}: expected every input to have {length[0]} tokens as line {rows[0]}, "
            f"found: {shown}{f' and {more:,} more' if more > 0 else ''}. Read with pad=True to pad "
            "short inputs on the left with a reserved token."
        )
    vocabulary, pad_id = vocabulary.with_special(PAD)
    padded = np.full((len(length), S), pad_id, dtype=np.int64)
    # Both sides run through the facts in order, so each id lands in its own row.
    padded[np.arange(S) >= S - length[:, None]] = ids
    return padded, vocabulary, pad_id
