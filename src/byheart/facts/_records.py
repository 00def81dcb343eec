"""One pipeline for every source of facts: records of values -> checked tokens -> ids. Files and
Python data differ in how they give records (`Source`); `gather` turns tokens into ids."""

from __future__ import annotations

import operator
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, NamedTuple, TypedDict

import numpy as np

from byheart._words import has_utf8_form, quote
from byheart.errors import FactsError, OptionError, check_choice, did_you_mean
from byheart.facts.vocabulary import Vocabulary

COLUMNS = ("keys", "answer", "weights", "melt", "header")
"""Options that mean something only where there are columns."""
MAX_CELL = 65_536
"""Characters that a token may have. A longer cell is nearly always an unclosed quote."""
LISTED = 5


class Reading(TypedDict, total=False):
    """The options of `read_facts`, and behind `pad` those of `read_distributions`."""

    name: str | None
    keys: str | Sequence[str] | None
    answer: str | None
    weights: str | None
    melt: bool
    header: bool | None
    trim: bool | None
    empty: Literal["error", "skip", "token"]
    pad: bool
    distribution: bool
    on_conflict: Literal["error", "distribution"]
    normalise: bool
    smooth: float | None
    ngram: int | None
    contexts: int | None


@dataclass(frozen=True)
class Options:
    """`Reading` with defaults, checked; `where` is how messages call the source."""

    where: str
    name: str
    keys: tuple[str, ...] | None = None
    answer: str | None = None
    weights: str | None = None
    melt: bool = False
    header: bool | None = None
    trim: bool | None = None
    empty: str = "error"
    pad: bool = False
    distribution: bool = False
    on_conflict: str = "error"
    normalise: bool = False
    smooth: float | None = None
    ngram: int | None = None
    contexts: int | None = 5000

    @classmethod
    def of(cls, where: str | os.PathLike[str], reading: Mapping[str, object]) -> Options:
        """The options of one source; by default facts are called as their file without suffix."""
        where, given = os.fspath(where), dict(reading)
        names = [field.name for field in fields(cls)][1:]
        unknown = next((option for option in given if option not in names), None)
        if unknown is not None:
            near = did_you_mean(unknown, names)
            raise FactsError(f"`{unknown}` is no option of reading facts. {near}")
        name = given.pop("name", None) or Path(where).stem
        keys = given.pop("keys", None)
        if isinstance(keys, (str, int)):
            keys = (keys,)
        if not isinstance(keys, Iterable | None):
            raise OptionError("keys", "names of columns", keys)
        keys = None if keys is None else tuple(map(str, keys))
        return cls(where, str(name), keys, **given)  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        check_choice("empty", self.empty, ("error", "skip", "token"))
        check_choice("on_conflict", self.on_conflict, ("error", "distribution"))

    def refuse(self, names: Sequence[str], kind: str) -> None:
        """A source must not silently ignore an option that means nothing to it."""
        defaults = {field.name: field.default for field in fields(self)}
        given = [f"`{name}`" for name in names if getattr(self, name) != defaults[name]]
        if given:
            refused = " or ".join(given)
            raise FactsError(f"{self.where}: expected no {refused} for {kind}. Leave it out.")


class Labels(TypedDict, total=False):
    """What facts carry beside their numbers; see `Facts`."""

    name: str
    columns: Sequence[str] | None
    answer_column: str
    skipped: int
    trimmed: int
    notes: tuple[str, ...]
    pad_id: int | None


Record = tuple[int, Sequence[str], str | Mapping[str, float], float | None]
"""Row, key, output and weight of one fact: the output is an answer, or probabilities of several."""


class Gathered(NamedTuple):
    """T records as ids. `mixtures` has the probabilities of answer ids where a record gives any;
    its answer is then -1."""

    tokens: np.ndarray
    answers: np.ndarray
    mixtures: dict[int, dict[int, float]]
    vocabulary: Vocabulary
    prior: np.ndarray | None
    rows: np.ndarray
    labels: Labels
    source: Source


ONE_TOKEN = "A cell is one token: give each token a column of its own."
ADVICE = {
    "float": "Write it as text: one number has many spellings.",
    "bytes": "Decode it to text.",
    "Tensor": "Turn it into Python numbers with .tolist().",
    **dict.fromkeys(("list", "tuple", "dict"), ONE_TOKEN),
}


class Source:
    """Where facts come from: options, what messages call rows (`unit`) and columns (`part`), and
    the records. `expected` is what a source without records lacks; `implied_header`: nobody said
    that the first row holds names, so that facts say when it looks like a fact.

    Values become tokens in one way everywhere: text as it is or without the blanks around it
    (counted in `trimmed`), whole numbers as decimals, None and NaN as gaps; nothing else.
    """

    records: Iterator[Record]
    expected: str = "facts"
    columns: tuple[str, ...] | None = None
    key_column, answer_column = "key", "answer"
    implied_header: bool = False
    trimmed: int = 0

    def __init__(
        self, options: Options, unit: str = "row", part: str = "column", trim: bool = False
    ) -> None:
        self.options, self.unit, self.part = options, unit, part
        trim = trim if options.trim is None else options.trim
        # Both raise a TypeError for what is no text; subclasses of str become str.
        self.form = str.strip if trim else str.__str__

    def column_of(self, i: int, tokens: Sequence[str]) -> str:
        """The column of the i-th of a record's tokens (key, then answer)."""
        if self.columns is None:
            return self.answer_column if i == len(tokens) - 1 else self.key_column
        # With melt the last key token names the column, for itself and for the answer.
        if self.options.melt and i >= len(tokens) - 2:
            return tokens[-2]
        return (*self.columns, self.answer_column)[i]

    def error(self, row: int, problem: str, column: str | None = None) -> FactsError:
        """The problem, after `capitals.csv, row 3, column 'country'`: where something is wrong."""
        part = "" if column is None else f", {self.part} {quote(column)}"
        return FactsError(f"{self.options.where}, {self.unit} {row}{part}: {problem}")

    def tokens(self, values: Sequence[object], row: int, columns: Sequence[str]) -> list[str]:
        """The tokens of some cells; `columns` name them in messages."""
        texts: Sequence[object] = values
        try:
            tokens = [*map(self.form, values)]  # type: ignore[arg-type]
        except TypeError:
            texts = [self._text(*cell, row) for cell in zip(values, columns, strict=True)]
            tokens = [*map(self.form, texts)]  # type: ignore[arg-type]
        if tokens != texts:  # also where one is a tuple; nothing is counted then
            self.trimmed += sum(map(operator.ne, tokens, texts))
        return tokens

    def token(self, value: object, row: int, column: str) -> str:
        return self.tokens([value], row, [column])[0]

    def _text(self, value: object, column: str, row: int) -> str:
        if isinstance(value, str):
            return value
        decimal = isinstance(value, (float, np.floating))
        kind = type(value).__name__
        if value is None or kind in ("NAType", "NaTType") or (decimal and value != value):
            if self.options.empty == "error":
                raise self.empty(row, column, str(value))
            return ""
        if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            try:
                return str(int(value))
            except ValueError:  # Python writes out at most 4,300 digits
                problem = "expected a token, found a number too long to write out. Give it as text."
                raise self.error(row, problem, column) from None
        advice = ADVICE.get(kind.rstrip("_0123456789"), "Write it as text.")
        if decimal and float(value).is_integer():
            advice += ' pandas turns whole numbers with gaps into floats: use astype("Int64").'
        found = f"found {quote(repr(value))[1:-1]} ({kind}). {advice}"
        raise self.error(row, f"expected text or a whole number as token, {found}", column)

    def weight(self, value: object, row: int, column: str, what: str = "weight") -> float:
        """Only that it is a number: `Facts.make` refuses NaN, infinite and negative weights."""
        numbers = (int, float, np.integer, np.floating)
        written = isinstance(value, str) and self.part == "column"
        try:
            if written or (isinstance(value, numbers) and not isinstance(value, bool)):
                return float(value)  # type: ignore[arg-type]
        except (ValueError, OverflowError):
            pass
        found = f"found {value if value is None else quote(str(value))}"
        problem = f"expected a number as {what}, {found}. Correct it, or leave it out."
        raise self.error(row, problem, column)

    def empty(self, row: int, column: str, found: str = "an empty cell") -> FactsError:
        skip = "read with `empty=skip` to leave such facts out"
        advice = f"Fill it in, or {skip}, or with `empty=token` to keep the empty text as a token."
        return self.error(row, f"expected a token, found {found}. {advice}", column)


def gather(source: Source) -> Gathered:
    """Ids of all records, in order of appearance, key before answer. No record is kept: 10^6 of
    them take a few seconds."""
    options, skipped, weighted = source.options, 0, False
    ids: dict[str, int] = {}
    keys, lengths, answers, rows = array("q"), array("q"), array("q"), array("q")
    weights = array("d")
    mixtures: dict[int, dict[int, float]] = {}
    for row, key, output, weight in source.records:
        plain = isinstance(output, str)
        tokens = [*key, output] if plain else [*key, *output]
        if options.empty != "token" and "" in tokens:
            if options.empty == "error":
                raise source.empty(row, source.column_of(tokens.index(""), tokens))
            skipped += 1
            continue
        numbers, S = _numbers(tokens, ids, source, row), len(key)
        if not plain:
            mixtures[len(rows)] = dict(zip(numbers[S:], output.values(), strict=True))
        answers.append(numbers[-1] if plain else -1)
        keys.extend(numbers[:S])
        lengths.append(S)
        rows.append(row)
        weighted = weighted or weight is not None
        weights.append(1.0 if weight is None else weight)
    if not rows:
        left_out = f" and {skipped:,} left out for empty cells" if skipped else ""
        found = f"found none{left_out}. Add {source.unit}s"
        raise FactsError(f"{options.where}: expected {source.expected}, {found}.")
    row_numbers, outputs = np.frombuffer(rows, dtype=np.int64), np.frombuffer(answers, np.int64)
    length = np.frombuffer(lengths, dtype=np.int64)
    table, vocabulary, pad_id = _align(
        np.frombuffer(keys, np.int64), length, row_numbers, Vocabulary(tuple(ids)), source
    )
    labels = Labels(
        name=options.name,
        columns=source.columns,
        answer_column=source.answer_column,
        skipped=skipped,
        trimmed=source.trimmed,
        notes=tuple(_notes(source, (*table.T, outputs), row_numbers, ids)),
        pad_id=pad_id,
    )
    prior = np.frombuffer(weights) if weighted else None
    return Gathered(table, outputs, mixtures, vocabulary, prior, row_numbers, labels, source)


def _numbers(tokens: list[str], ids: dict[str, int], source: Source, row: int) -> list[int]:
    """The ids of the tokens; a new token gets the next one."""
    numbers = [ids.get(token, -1) for token in tokens]
    if -1 not in numbers:  # most rows of a long table
        return numbers
    for i, token in enumerate(tokens):
        if token not in ids:
            problem = ""
            if len(token) > MAX_CELL:
                found = f"{len(token):,} that begin {quote(token, 30)}. Is there an unclosed quote?"
                problem = f"expected at most {MAX_CELL:,} characters in a cell, found {found}"
            # JSON can spell half a character ("\\ud83d") that no file or digest can hold.
            elif not (token.isascii() or has_utf8_form(token)):
                found = f"{quote(token)}, which has a lone surrogate (half a character)"
                problem = f"expected text that UTF-8 can hold, found {found}. Correct the text."
            if problem:
                raise source.error(row, problem, source.column_of(i, tokens))
            ids[token] = len(ids)
    return [ids[token] for token in tokens]


def _align(
    ids: np.ndarray, length: np.ndarray, rows: np.ndarray, vocabulary: Vocabulary, source: Source
) -> tuple[np.ndarray, Vocabulary, int | None]:
    """Keys as a (T, S) array; if their lengths differ, padded on the left or refused. So the last
    token stays last."""
    S, unit = int(length.max()), source.unit
    different = np.flatnonzero(length != length[0])
    if len(different) == 0:
        return ids.reshape(-1, S), vocabulary, None
    if not source.options.pad:
        shown = ", ".join(f"{unit} {rows[i]} has {length[i]}" for i in different[:LISTED])
        more = f" and {len(different) - LISTED:,} more" if len(different) > LISTED else ""
        expected = f"expected every key to have {length[0]} tokens as {unit} {rows[0]}"
        advice = "Read with `pad=True` to pad short keys on the left with a reserved token"
        raise FactsError(f"{source.options.where}: {expected}, found: {shown}{more}. {advice}.")
    vocabulary, pad_id = vocabulary.with_special("<pad>")
    padded = np.full((len(length), S), pad_id, dtype=np.int64)
    # Both sides run through the facts in order, so each id lands in its own row.
    padded[np.arange(S) >= S - length[:, None]] = ids
    return padded, vocabulary, pad_id


def _notes(
    source: Source, columns: Sequence[np.ndarray], rows: np.ndarray, ids: Mapping[str, int]
) -> Iterator[str]:
    """What a reader should know and would not notice."""
    trimmed = source.trimmed
    if trimmed:
        cells = "1 cell was" if trimmed == 1 else f"{trimmed:,} cells were"
        yield f"{cells} read without the blanks around the text (`trim=False` keeps them)."
    elif source.options.trim is None:
        blanks = sum(token != token.strip() for token in ids)
        if blanks:
            are = "1 token begins or ends" if blanks == 1 else f"{blanks:,} tokens begin or end"
            yield f"{are} with a blank, which is kept (`trim=True` removes it)."
    if source.implied_header and source.columns is not None:
        for name, column in zip((*source.columns, source.answer_column), columns, strict=True):
            reason = "is a number" if _is_number(name) else ""
            again = np.flatnonzero(column == ids.get(name, -1))
            if len(again):
                reason = f"stands in the same column of row {rows[again[0]]} too"
            if reason:
                yield (
                    f"row 1 was read as column names, but {quote(name)} {reason}. If row 1 is a "
                    "fact, read with `header=False`; `header=True` says that it is not."
                )
                return


def _is_number(text: str) -> bool:
    try:
        return any(c.isdigit() for c in text) and bool(np.isfinite(float(text)))
    except ValueError:
        return False
