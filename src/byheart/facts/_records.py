"""One pipeline for every source of facts: records of values -> checked tokens -> ids.

Files and Python data differ in how they give records (`Source`). What counts as a token, a weight
or a gap is decided in one place (`Cells`), and `gather` turns tokens into ids.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypedDict

import numpy as np

from byheart._words import has_utf8_form, quote
from byheart.errors import FactsError
from byheart.facts._reading import Options
from byheart.facts.vocabulary import Vocabulary

__all__ = ["MAX_CELL", "Cells", "Gathered", "Labels", "Record", "Source", "gather"]

MAX_CELL = 65_536
"""Characters that a token may have. A longer cell is nearly always an unclosed quote."""
PAD = "<pad>"
LISTED = 5


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


@dataclass(frozen=True)
class Source:
    """Records, and what messages and facts call their parts.

    `column_of(i, tokens)` names the column of the i-th of a record's tokens (key, then answer);
    `expected` says what a source without records lacks. `implied_header`: nobody said that the
    first row holds names, so that facts say when it looks like a fact.
    """

    records: Iterator[Record]
    cells: Cells
    column_of: Callable[[int, Sequence[str]], str]
    expected: str
    columns: tuple[str, ...] | None = None
    answer_column: str = "answer"
    implied_header: bool = False


class Gathered(NamedTuple):
    """T records as ids. `mixtures` has the probabilities of answer ids if the source gives any;
    `answers` are then -1 where a record has several."""

    tokens: np.ndarray
    answers: np.ndarray
    mixtures: dict[int, dict[int, float]]
    vocabulary: Vocabulary
    prior: np.ndarray | None
    rows: np.ndarray
    labels: Labels


ADVICE = {
    "float": "Write it as text: one number has many spellings.",
    "bool": "Write it as text.",
    "bytes": "Decode it to text.",
    "list": "A cell is one token: give each token a column of its own.",
    "tuple": "A cell is one token: give each token a column of its own.",
    "dict": "A cell is one token: choose other columns.",
    "Tensor": "Turn it into Python numbers with .tolist().",
}


class Cells:
    """Values of any source as tokens and weights: text as it is or without the blanks around it
    (counted in `trimmed`), whole numbers as decimals, None and NaN as gaps; nothing else.

    Example:
        >>> cells = Cells(Options("rows", "rows"), trim=True)
        >>> cells.tokens([" Paris", 7], 1, ["capital", "rank"]), cells.trimmed
        (['Paris', '7'], 1)
        >>> cells.tokens(["Paris", 2.5], 1, ["capital", "size"])
        Traceback (most recent call last):
        ...
        byheart.errors.FactsError: rows, row 1, column 'size': expected text or a whole number as \
token, found 2.5 (float). Write it as text: one number has many spellings.
    """

    def __init__(
        self, options: Options, unit: str = "row", part: str = "column", trim: bool = False
    ) -> None:
        self.options, self.unit, self.part, self.trimmed = options, unit, part, 0
        trim = trim if options.trim is None else options.trim
        # Both raise a TypeError for what is no text; subclasses of str become str.
        self.form = str.strip if trim else str.__str__

    def place(self, row: int, column: str | None = None) -> str:
        """`capitals.csv, row 3, column 'country'`: where something is wrong."""
        where = f"{self.options.where}, {self.unit} {row}"
        return where if column is None else f"{where}, {self.part} {quote(column)}"

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
        if _is_missing(value):
            if self.options.empty == "error":
                raise self.empty(row, column, str(value))
            return ""
        if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            try:
                return str(int(value))
            except ValueError:  # Python writes out at most 4,300 digits
                raise FactsError(
                    f"{self.place(row, column)}: expected a token, found a number too long to "
                    "write out. Give it as text."
                ) from None
        kind = type(value).__name__.rstrip("_0123456789")
        floats = ""
        if isinstance(value, (float, np.floating)) and float(value).is_integer():
            floats = ' pandas turns whole numbers with gaps into floats: use astype("Int64") there.'
        raise FactsError(
            f"{self.place(row, column)}: expected text or a whole number as token, found "
            f"{quote(repr(value))[1:-1]} ({type(value).__name__}). "
            f"{ADVICE.get(kind, 'Turn it into text.')}{floats}"
        )

    def weight(self, value: object, row: int, column: str, what: str = "weight") -> float:
        """Only that it is a number: `Facts.make` refuses NaN, infinite and negative weights."""
        numbers = (int, float, np.integer, np.floating)
        written = isinstance(value, str) and self.part == "column"
        try:
            if written or (isinstance(value, numbers) and not isinstance(value, bool)):
                return float(value)  # type: ignore[arg-type]
        except (ValueError, OverflowError):
            pass
        raise FactsError(
            f"{self.place(row, column)}: expected a number as {what}, found "
            f"{value if value is None else quote(str(value))}. Correct it, or leave it out."
        )

    def empty(self, row: int, column: str, found: str = "an empty cell") -> FactsError:
        return FactsError(
            f"{self.place(row, column)}: expected a token, found {found}. Fill it in, or read with "
            "`empty=skip` to leave such facts out, or with `empty=token` to keep the empty text as "
            "a token."
        )

    def unfit(self, token: str, row: int, column: str) -> FactsError:
        """What no table should hold: nearly always an unclosed quote, or half a character."""
        problem = (
            f"expected at most {MAX_CELL:,} characters in a cell, found {len(token):,} that begin "
            f"{quote(token, 30)}. Is there an unclosed quote?"
        )
        # JSON can spell half a character ("\\ud83d") that no file or digest can hold.
        if not has_utf8_form(token):
            problem = (
                f"expected text that UTF-8 can hold, found {quote(token)}, which has a lone "
                "surrogate (half a character). Correct the text."
            )
        return FactsError(f"{self.place(row, column)}: {problem}")


def _is_missing(value: object) -> bool:
    """None, NaN of any kind, and what pandas calls NA and NaT."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (float, np.floating)) and bool(value != value)


def gather(source: Source, options: Options, mixtures: bool = False) -> Gathered:
    """Ids of all records; `mixtures`: whether an output may be probabilities of several answers.

    Notes:
        Ids count in order of appearance, key before answer. No record is kept: 10^6 of them take a
        few seconds.
    """
    cells, where, skipped, weighted = source.cells, options.where, 0, False
    ids: dict[str, int] = {}
    keys, lengths, answers = array("q"), array("q"), array("q")
    rows, weights = array("q"), array("d")
    mixed: dict[int, dict[int, float]] = {}
    for row, key, output, weight in source.records:
        plain = isinstance(output, str)
        if not plain and not mixtures:
            raise FactsError(
                f"{cells.place(row)}: expected one answer, found probabilities of several: a "
                "distribution. Read it with `distribution=True` (`as_facts`), or give a single "
                "answer."
            )
        tokens = [*key, output] if plain else [*key, *output]
        if options.empty != "token" and "" in tokens:
            if options.empty == "error":
                raise cells.empty(row, source.column_of(tokens.index(""), tokens))
            skipped += 1
            continue
        numbers, S = _numbers(tokens, ids, source, row), len(key)
        if not plain:
            mixed[len(rows)] = dict(zip(numbers[S:], output.values(), strict=True))
        answers.append(numbers[-1] if plain else -1)
        keys.extend(numbers[:S])
        lengths.append(S)
        rows.append(row)
        weighted = weighted or weight is not None
        weights.append(1.0 if weight is None else weight)
    if not rows:
        left_out = f" and {skipped:,} left out for empty cells" if skipped else ""
        raise FactsError(
            f"{where}: expected {source.expected}, found none{left_out}. Add {cells.unit}s."
        )
    numbers_of = np.frombuffer(rows, dtype=np.int64)
    vocabulary = Vocabulary(tuple(ids))
    table, vocabulary, pad_id = _align(keys, lengths, numbers_of, vocabulary, options, cells.unit)
    outputs = np.frombuffer(answers, dtype=np.int64)
    labels = Labels(
        name=options.name,
        columns=source.columns,
        answer_column=source.answer_column,
        skipped=skipped,
        trimmed=cells.trimmed,
        notes=tuple(_notes(source, options, table, outputs, numbers_of, ids)),
        pad_id=pad_id,
    )
    prior = np.frombuffer(weights) if weighted else None
    return Gathered(table, outputs, mixed, vocabulary, prior, numbers_of, labels)


def _numbers(tokens: list[str], ids: dict[str, int], source: Source, row: int) -> list[int]:
    """The ids of the tokens; a new token gets the next one."""
    numbers = [ids.get(token, -1) for token in tokens]
    if -1 not in numbers:  # most rows of a long table
        return numbers
    for i, token in enumerate(tokens):
        if token not in ids:
            if len(token) > MAX_CELL or not (token.isascii() or has_utf8_form(token)):
                raise source.cells.unfit(token, row, source.column_of(i, tokens))
            ids[token] = len(ids)
    return [ids[token] for token in tokens]


def _align(
    keys: array[int],
    lengths: array[int],
    rows: np.ndarray,
    vocabulary: Vocabulary,
    options: Options,
    unit: str,
) -> tuple[np.ndarray, Vocabulary, int | None]:
    """Keys as a (T, S) array; if their lengths differ, padded on the left or refused. So the last
    token stays last."""
    ids = np.frombuffer(keys, dtype=np.int64)
    length = np.frombuffer(lengths, dtype=np.int64)
    S = int(length.max())
    different = np.flatnonzero(length != length[0])
    if len(different) == 0:
        return ids.reshape(-1, S), vocabulary, None
    if not options.pad:
        shown = ", ".join(f"{unit} {rows[i]} has {length[i]}" for i in different[:LISTED])
        more = len(different) - LISTED
        raise FactsError(
            f"{options.where}: expected every key to have {length[0]} tokens as {unit} {rows[0]}, "
            f"found: {shown}{f' and {more:,} more' if more > 0 else ''}. Read with `pad=True` to "
            "pad short keys on the left with a reserved token."
        )
    vocabulary, pad_id = vocabulary.with_special(PAD)
    padded = np.full((len(length), S), pad_id, dtype=np.int64)
    # Both sides run through the facts in order, so each id lands in its own row.
    padded[np.arange(S) >= S - length[:, None]] = ids
    return padded, vocabulary, pad_id


def _notes(
    source: Source,
    options: Options,
    tokens: np.ndarray,
    answers: np.ndarray,
    rows: np.ndarray,
    ids: Mapping[str, int],
) -> Iterator[str]:
    """What a reader should know and would not notice."""
    trimmed = source.cells.trimmed
    if trimmed:
        cells = "1 cell was" if trimmed == 1 else f"{trimmed:,} cells were"
        yield f"{cells} read without the blanks around the text (`trim=False` keeps them)."
    elif options.trim is None:
        blanks = sum(token != token.strip() for token in ids)
        if blanks:
            are = "1 token begins or ends" if blanks == 1 else f"{blanks:,} tokens begin or end"
            yield f"{are} with a blank, which is kept (`trim=True` removes it)."
    if source.implied_header and source.columns is not None:
        named = zip((*source.columns, source.answer_column), (*tokens.T, answers), strict=True)
        for name, column in named:
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
