"""The table of facts that every other part of byheart takes in."""

from __future__ import annotations

import csv
import io
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike

from byheart._folders import write_bytes
from byheart._json import Json
from byheart._tables import data_frame, html_table
from byheart._words import quote, written
from byheart.errors import FactsError
from byheart.facts import _checks as check
from byheart.facts._files import DELIMITERS, JSON_LINES
from byheart.facts._records import Gathered, Labels, Reading, gather
from byheart.facts._sources import dict_source, frame_source, rows_source
from byheart.facts.distinct import conflict_error, conflicting_groups, group_equal_rows
from byheart.facts.vocabulary import Vocabulary

if TYPE_CHECKING:
    from pandas import DataFrame

DISTRIBUTED = ("distribution", "on_conflict", "normalise", "smooth", "ngram", "contexts")
"""Options that mean something only where a key may have several answers."""


class TokenTable(ABC):
    """What `Facts` and `Distributions` share: T keys of S tokens out of N with a prior, the ways in
    from Python's own data (options: `read_facts`, `read_distributions`), and how they are shown.

    Example:
        >>> facts = Facts.from_dict({("Peru", "capital"): "Lima", ("Peru", "tongues"): 48})
        >>> facts.key(1), facts.answer(1)
        (('Peru', 'tongues'), '48')
    """

    on_conflict: ClassVar = "error"

    name: str
    tokens: np.ndarray
    prior: np.ndarray
    vocabulary: Vocabulary
    notes: tuple[str, ...]

    @classmethod
    @abstractmethod
    def gathered(cls, read: Gathered, mix: bool = False) -> Self:
        """The table from the records of a source; `mix`: each of them is a distribution."""

    @abstractmethod
    def _table(self) -> tuple[list[str], Iterator[list[str | float]], int]:
        """Names of the columns, the rows below them, and how many there are."""

    @classmethod
    def from_rows(
        cls,
        rows: Iterable[object],
        columns: Sequence[str] | None = None,
        **reading: Unpack[Reading],
    ) -> Self:
        """From rows of cells that `columns` names (default: 1, 2, ...), from dicts column -> cell,
        or from objects with "input" and "output". `Distributions` count rows with one key."""
        options = {"on_conflict": cls.on_conflict, **reading}
        return cls.gathered(gather(rows_source(rows, columns, options)))

    @classmethod
    def from_dict(cls, table: Mapping[Any, object], **reading: Unpack[Reading]) -> Self:
        """From a mapping of keys (a token, or a tuple of them) to answers, or for `Distributions`
        also to dicts token -> probability."""
        return cls.gathered(gather(dict_source(table, reading)), mix=True)

    @classmethod
    def from_pandas(cls, frame: object, **reading: Unpack[Reading]) -> Self:
        """From a data frame of pandas or polars (named levels of its index are columns too), or
        from a series, whose index holds the keys; as in `from_rows`."""
        options = {"on_conflict": cls.on_conflict, **reading}
        return cls.gathered(gather(frame_source(frame, options)))

    @property
    def T(self) -> int:
        return self.tokens.shape[0]

    @property
    def S(self) -> int:
        return self.tokens.shape[1]

    @property
    def N(self) -> int:
        return len(self.vocabulary)

    @property
    def uniform_prior(self) -> bool:
        return bool(self.prior.min() == self.prior.max())

    def key(self, i: int) -> tuple[str, ...]:
        """The S tokens of key `i`, padding included."""
        return tuple(self.vocabulary.token(int(t)) for t in self.tokens[i])

    def keys(self) -> Iterator[list[str]]:
        """The tokens of each key, one after the other."""
        names = self.vocabulary.tokens
        return ([names[t] for t in key] for key in self.tokens)

    def effective_size(self, eps: float) -> int:
        """T_eps: the smallest number of keys whose prior sums to at least 1 - eps.

        Example:
            >>> vocabulary = Vocabulary(("a", "b", "c"))
            >>> Facts.make([[0], [1], [2]], [0, 0, 0], vocabulary, [90, 9, 1]).effective_size(0.1)
            1
        """
        mass = np.cumsum(np.sort(self.prior)[::-1])
        # A sum of T rounded terms is off by at most T units in the last place.
        rounding = self.T * np.finfo(np.float64).eps
        return min(self.T, int(np.searchsorted(mass, 1 - eps - rounding)) + 1)

    def to_pandas(self) -> DataFrame:
        """A data frame that `from_pandas` reads back: key, "weight" if the prior is not uniform,
        answer. Distributions have a row for each answer of positive probability: key, answer,
        "probability", and "weight", which is the prior times it."""
        header, rows, _ = self._table()
        return data_frame(rows, header)

    def _repr_html_(self) -> str:
        return html_table(repr(self), *self._table(), self.notes)


@dataclass(frozen=True, eq=False, repr=False)
class Facts(TokenTable):
    """T associations (x_1, ..., x_S) -> y over N tokens, with prior p_1 + ... + p_T = 1.

    Symbols:
        tokens: (T, S) int64, the keys x; all rows are distinct.
        answers: (T,) int64, the answers y.
        prior: (T,) float64, how often each fact is asked; sums to 1.
        rows: (T,) int64, where each fact stands in its file (1-based; a header is row 1).
        columns, answer_column: the names the file gives to key positions and answer.
        merged: how many rows repeated an earlier fact and were merged into it.
        skipped: how many facts were left out because a cell was empty (`empty="skip"`).
        trimmed: how many cells were read without the blanks around their text.
        notes: what a reader should know about how they were read, in sentences.
        pad_id: the id of the reserved token that pads short keys on the left, if any.

    Example:
        >>> vocabulary = Vocabulary(("France", "Italy", "Paris", "Rome"))
        >>> facts = Facts.make([[0], [1]], [2, 3], vocabulary, name="capitals")
        >>> facts
        Facts('capitals', T=2, S=1, N=4)
        >>> facts.key(1), facts.answer(1), facts.prior
        (('Italy',), 'Rome', array([0.5, 0.5]))

    Notes:
        Call `read_facts`, `from_rows`, `from_dict`, `from_pandas` or `make`: they check, and the
        constructor does not. Arrays are read-only. Two tables are the same when their digests are.
    """

    kind: ClassVar = "facts"

    tokens: np.ndarray
    answers: np.ndarray
    vocabulary: Vocabulary
    prior: np.ndarray
    rows: np.ndarray
    name: str = "facts"
    columns: tuple[str, ...] | None = None
    answer_column: str = "answer"
    merged: int = 0
    skipped: int = 0
    pad_id: int | None = None
    trimmed: int = 0
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check.freeze(self, tokens=np.int64, answers=np.int64, prior=np.float64, rows=np.int64)
        if self.columns is not None:
            object.__setattr__(self, "columns", tuple(map(written, self.columns)))

    @classmethod
    def make(
        cls,
        tokens: ArrayLike,
        answers: ArrayLike,
        vocabulary: Vocabulary,
        prior: ArrayLike | None = None,
        *,
        rows: ArrayLike | None = None,
        **labels: Unpack[Labels],
    ) -> Facts:
        """Facts from token ids, checked; `prior` may be any weights and is scaled to sum to 1.
        `labels` are other fields: name, columns, answer_column, skipped, trimmed, notes, pad_id.

        Example:
            >>> vocabulary = Vocabulary(("a", "b", "c"))
            >>> facts = Facts.make([[0, 1], [1, 1], [0, 1]], [2, 0, 2], vocabulary, [1, 2, 1])
            >>> facts.T, facts.merged, facts.prior
            (2, 1, array([0.5, 0.5]))

        Notes:
            Rows that repeat a fact are merged and their weights added; without `prior` the merged
            facts are uniform. One key with two answers is a `ConflictError`.
        """
        name = labels.get("name", cls.name)
        answers = check.integers(answers, "answers", name)
        tokens = check.keys(tokens, answers, "answers of shape (T,)", 1, name)
        T, S = tokens.shape
        rows = check.row_numbers(rows, T, name)
        columns = labels.get("columns")
        if columns is not None and len(columns) != S:
            check.refuse(name, f"{S} column names, one a key position, found {[*columns]}")
        check.ids(tokens, "tokens", len(vocabulary), rows, name)
        check.ids(answers, "answers", len(vocabulary), rows, name)
        weights = check.weights(prior, rows, name)
        order, starts = group_equal_rows(tokens, len(vocabulary))
        groups = conflicting_groups(answers, order, starts)
        if groups:
            raise conflict_error(groups, tokens, answers, rows, vocabulary, name)
        if len(starts) < T:
            by_file = np.argsort(order[starts])
            kept = order[starts][by_file]
            tokens, answers, rows = tokens[kept], answers[kept], rows[kept]
            total = np.add.reduceat(weights[order], starts)
            weights = np.ones(len(kept)) if prior is None else total[by_file]
        prior = weights / weights.sum()
        return cls(tokens, answers, vocabulary, prior, rows, merged=T - len(starts), **labels)  # type: ignore[arg-type]

    @classmethod
    def gathered(cls, read: Gathered, mix: bool = False) -> Facts:
        """Facts from the records of a source, none of which may be a distribution."""
        tokens, answers, mixtures, vocabulary, prior, rows, labels, source = read
        source.options.refuse(DISTRIBUTED, "facts with one answer each")
        if mixtures:
            found = "expected one answer, found probabilities of several: a distribution"
            advice = "Read it with `distribution=True` (`as_facts`), or give a single answer."
            raise source.error(rows[min(mixtures)], f"{found}. {advice}")
        return cls.make(tokens, answers, vocabulary, prior, rows=rows, **labels)

    @property
    def answer_ids(self) -> np.ndarray:  # distinct and sorted
        return np.unique(self.answers)

    @property
    def last_tokens(self) -> int:
        """Number of distinct last tokens."""
        return len(np.unique(self.tokens[:, -1]))

    def answer(self, i: int) -> str:
        return self.vocabulary.token(int(self.answers[i]))

    def digest(self) -> str:
        """sha256 (hexadecimal) of vocabulary, shape, tokens, answers and prior. The order of facts
        and of the vocabulary matters; names and row numbers do not."""
        header = f"byheart facts 1 {self.vocabulary.digest()} {self.T} {self.S}"
        return check.digest(header, self.tokens, self.answers, self.prior)

    def subset(self, indices: ArrayLike) -> Facts:
        """The facts at `indices` (or where a mask is true), same vocabulary, prior rescaled."""
        indices = np.asarray(indices)
        if indices.dtype == bool:
            if indices.shape != (self.T,):
                raise FactsError(f"expected a mask of shape ({self.T},), found {indices.shape}.")
            indices = np.flatnonzero(indices)
        chosen = check.integers(indices, "indices", self.name)
        check.ids(chosen, "indices", self.T, chosen + 1, self.name)
        return Facts.make(
            self.tokens[chosen],
            self.answers[chosen],
            self.vocabulary,
            self.prior[chosen],
            rows=self.rows[chosen],
            name=self.name,
            columns=self.columns,
            answer_column=self.answer_column,
            pad_id=self.pad_id,
        )

    def describe(self) -> dict[str, Json]:
        """The table in numbers: a plain dict that JSON can hold."""
        last, answer = self.commonest(self.tokens[:, -1]), self.commonest(self.answers)
        return {
            "name": self.name,
            "facts": self.T,
            "length": self.S,
            "vocabulary": self.N,
            "answers": len(self.answer_ids),
            "last_tokens": self.last_tokens,
            "commonest_last_token": {"token": last[0], "count": last[1]},
            "commonest_answer": {"token": answer[0], "count": answer[1]},
            "merged": self.merged,
            "skipped": self.skipped,
            "trimmed": self.trimmed,
            "notes": [*self.notes],
            "uniform_prior": self.uniform_prior,
            "T_eps": {str(eps): self.effective_size(eps) for eps in (0.1, 0.01)},
        }

    def commonest(self, ids: np.ndarray) -> tuple[str, int]:
        """The commonest of some token ids, and how often it is there."""
        counts = np.bincount(ids)
        top = int(np.argmax(counts))
        return self.vocabulary.token(top), int(counts[top])

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the facts as CSV, TSV or JSONL, by the suffix of `path`, all or nothing, so that
        `read_facts(path)` gives the same keys and answers in the same order. A prior that is not
        uniform becomes a column "weight" before the answer (read it with `weights="weight"`).
        JSONL leaves padding out (`pad=True`); the empty token is read with `empty="token"`."""
        suffix = Path(path).suffix.lower()
        if suffix in JSON_LINES:
            outputs = (self.vocabulary.tokens[answer] for answer in self.answers)
            text = self.json_lines(outputs, weighted=not self.uniform_prior)
        elif suffix in DELIMITERS:
            stream = io.StringIO(newline="")
            # RFC 4180: lines end in CR LF; so the writer also quotes cells with CR or LF in them.
            writer = csv.writer(stream, delimiter=DELIMITERS[suffix], lineterminator="\r\n")
            header, rows, _ = self._table()
            writer.writerow(header)
            writer.writerows(rows)  # floats as the shortest text that reads back the same
            text = stream.getvalue()
        else:
            expected = "expected a name that ends in .csv, .tsv, .jsonl or .ndjson"
            raise FactsError(f"{path}: {expected}, found {suffix or 'no suffix'!r}.")
        write_whole(path, text.encode())

    def json_lines(self, outputs: Iterable[object], weighted: bool) -> str:
        """A line {"input": key without padding, "output": ..., "weight": prior} for each fact."""
        pad = None if self.pad_id is None else self.vocabulary.token(self.pad_id)
        lines = []
        for key, output, weight in zip(self.keys(), outputs, self.prior, strict=True):
            record = {"input": [token for token in key if token != pad], "output": output}
            record |= {"weight": float(weight)} if weighted else {}
            lines.append(json.dumps(record, ensure_ascii=False) + "\n")
        return "".join(lines)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Names of the key positions, whether the source names them or not."""
        return self.columns or tuple(f"token {s + 1}" for s in range(self.S))

    def _table(self) -> tuple[list[str], Iterator[list[str | float]], int]:
        weight, header = [] if self.uniform_prior else ["weight"], []
        for name in (*self.key_columns, *weight, self.answer_column):
            while name in header:  # equal names could not be read back: primes tell them apart
                name += "'"
            header.append(name)
        names = self.vocabulary.tokens
        rows: Iterator[list[str | float]] = (
            [*key, *([float(p)] if weight else []), names[answer]]
            for key, p, answer in zip(self.keys(), self.prior, self.answers, strict=True)
        )
        return header, rows, self.T

    def __repr__(self) -> str:
        return f"Facts({quote(self.name)}, T={self.T}, S={self.S}, N={self.N})"


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """A reader sees the old file or the new one, never half."""
    try:
        write_bytes(Path(path), data)
    except OSError as error:
        raise FactsError(f"{path}: cannot be written: {error.strerror}.") from error
