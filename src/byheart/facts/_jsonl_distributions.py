"""JSON lines whose `output` is an object token -> probability."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import numpy as np

from byheart.errors import FactsError
from byheart.facts._distinct import group_equal_rows
from byheart.facts._jsonl import align, as_token, as_weight, key_tokens, parse_line
from byheart.facts._options import Options, TokenIds, empty_cell_error
from byheart.facts._probabilities import check_probabilities, check_room
from byheart.facts._text import open_text
from byheart.facts._words import quote
from byheart.facts.distributions import Distributions
from byheart.facts.vocabulary import Vocabulary

__all__ = ["jsonl_distributions"]

EXAMPLE = '{"input": ["to", "be"], "output": {"or": 0.75, ",": 0.25}}'


def jsonl_distributions(
    path: Path, options: Options, normalise: bool = False, on_conflict: str = "error"
) -> Distributions:
    """Distributions from lines `{"input": [...], "output": {token: p, ...}, "weight": number}`.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "next.jsonl"
        >>> _ = path.write_text('{"input": "be", "output": {"or": 0.75, ",": 0.25}}')
        >>> jsonl_distributions(path, Options(path.name, "next")).top(0)
        [('or', 0.75), (',', 0.25)]

    Notes:
        An `output` that is one token is a point mass. A token that a line does not name has
        probability 0 there. With `on_conflict="distribution"` lines with one input are mixed by
        weight.
    """
    where = options.where
    token_ids = TokenIds(where)
    flat, lengths, rows, weights = array("q"), array("q"), array("q"), array("d")
    outputs: list[dict[int, float]] = []
    weighted, skipped = False, 0
    with open_text(path, where) as stream:
        for row, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            place = f"{where}, line {row}"
            record = parse_line(line, place)
            key, output = _key_and_output(record, place)
            if options.empty != "token" and ("" in key or "" in output):
                if options.empty == "error":
                    raise empty_cell_error(where, row, "input" if "" in key else "output")
                skipped += 1
                continue
            flat.extend([token_ids.of(token, row, "input") for token in key])
            lengths.append(len(key))
            outputs.append({token_ids.of(t, row, "output"): p for t, p in output.items()})
            rows.append(row)
            field = options.weights or "weight"
            if options.weights and field not in record:
                raise FactsError(f"{place}: expected the field {quote(field)}, found none.")
            weighted = weighted or field in record
            weights.append(as_weight(record[field], field, place) if field in record else 1.0)
    if not rows:
        raise FactsError(f"{where}: expected lines such as {EXAMPLE}, found none.")
    vocabulary = Vocabulary(tuple(token_ids.ids))
    tokens, vocabulary, pad_id = align(flat, lengths, rows, vocabulary, options)
    support = np.array(sorted({token for output in outputs for token in output}), dtype=np.int64)
    check_room(len(outputs), len(support), where)
    pi = np.zeros((len(outputs), len(support)))
    column = {int(token): j for j, token in enumerate(support)}
    for i, output in enumerate(outputs):
        for token, p in output.items():
            pi[i, column[token]] = p
    number = np.frombuffer(rows, dtype=np.int64)
    prior = np.frombuffer(weights) if weighted else None
    if on_conflict == "distribution":
        pi = check_probabilities(pi, number, normalise, options.name)
        tokens, pi, prior, number = _mixed(tokens, pi, prior, number, len(vocabulary))
    return Distributions.make(
        tokens,
        pi,
        vocabulary,
        prior,
        support=support,
        normalise=normalise,
        name=options.name,
        answer_column="output",
        rows=number,
        skipped=skipped,
        pad_id=pad_id,
    )


def _key_and_output(record: dict[str, Any], place: str) -> tuple[list[str], dict[str, float]]:
    for field in ("input", "output"):
        if field not in record:
            raise FactsError(
                f"{place}: expected the field {quote(field)}, found "
                f"{', '.join(quote(name) for name in record) or 'no fields'}. Example: {EXAMPLE}"
            )
    key, output = key_tokens(record["input"], place), record["output"]
    if isinstance(output, list):
        raise FactsError(
            f"{place}: expected an object token -> probability in 'output', found a list. "
            f"Example: {EXAMPLE}"
        )
    if not isinstance(output, dict):
        return key, {as_token(output, "output", place): 1.0}
    if not output:
        raise FactsError(f"{place}: expected at least one answer in 'output', found none.")
    return key, {token: _probability(value, token, place) for token, value in output.items()}


def _probability(value: Any, token: str, place: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return as_weight(value, token, place)
    raise FactsError(
        f"{place}: expected a number as probability of {quote(token)}, found {quote(repr(value))}."
    )


def _mixed(
    tokens: np.ndarray, pi: np.ndarray, prior: np.ndarray | None, rows: np.ndarray, N: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Lines with one key as one: the mixture of their distributions, weights added up."""
    weights = np.ones(len(pi)) if prior is None else np.asarray(prior)
    order, starts = group_equal_rows(tokens, N)
    total = np.add.reduceat(weights[order], starts)
    mass = np.add.reduceat((weights[:, None] * pi)[order], starts, axis=0)
    first = order[starts]
    # A key whose lines all weigh nothing keeps its first distribution and its weight 0.
    empty = total == 0
    mass[empty], safe = pi[first[empty]], np.where(empty, 1.0, total)
    mixed = mass / safe[:, None]
    by_file = np.argsort(first)
    kept = first[by_file]
    return tokens[kept], mixed[by_file], total[by_file], rows[kept]
