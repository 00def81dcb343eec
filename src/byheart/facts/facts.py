"""The table of facts that every other part of byheart takes in."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from byheart.errors import FactsError
from byheart.facts import _write
from byheart.facts._checks import check_ids, check_shapes, check_weights, integers
from byheart.facts._distinct import conflict_error, conflicting_groups, group_equal_rows
from byheart.facts._prior import effective_size
from byheart.facts.vocabulary import Vocabulary

__all__ = ["Facts"]


@dataclass(frozen=True, eq=False, repr=False)
class Facts:
    """T associations (x_1, ..., x_S) -> y over N tokens, with prior p_1 + ... + p_T = 1.

    Symbols:
        tokens: (T, S) int64, the keys x; all rows are distinct.
        answers: (T,) int64, the answers y.
        prior: (T,) float64, how often each fact is asked; sums to 1.
        rows: (T,) int64, where each fact stands in its file (1-based; a header is row 1).
        columns, answer_column: the names the file gives to key positions and answer.
        merged: how many rows repeated an earlier fact and were merged into it.
        skipped: how many facts were left out because a cell was empty (`empty="skip"`).
        pad_id: the id of the reserved token that pads short keys on the left, if any.

    Example:
        >>> vocabulary = Vocabulary(("France", "Italy", "Paris", "Rome"))
        >>> facts = Facts.make([[0], [1]], [2, 3], vocabulary, name="capitals")
        >>> facts
        Facts('capitals', T=2, S=1, N=4)
        >>> facts.key(1), facts.answer(1), facts.prior
        (('Italy',), 'Rome', array([0.5, 0.5]))

    Notes:
        Call `Facts.make` or `read_facts`: they check, and the constructor does not. Arrays are
        copied and read-only. Two tables are the same when their digests are.
    """

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

    def __post_init__(self) -> None:
        for field in ("tokens", "answers", "prior", "rows"):
            dtype = np.float64 if field == "prior" else np.int64
            array = np.array(getattr(self, field), dtype=dtype, order="C")
            array.flags.writeable = False
            object.__setattr__(self, field, array)

    @classmethod
    def make(
        cls,
        tokens: ArrayLike,
        answers: ArrayLike,
        vocabulary: Vocabulary,
        prior: ArrayLike | None = None,
        *,
        name: str = "facts",
        columns: Sequence[str] | None = None,
        answer_column: str = "answer",
        rows: ArrayLike | None = None,
        skipped: int = 0,
        pad_id: int | None = None,
    ) -> Facts:
        """Facts from token ids, checked; `prior` may be any weights and is scaled to sum to 1.

        Example:
            >>> vocabulary = Vocabulary(("a", "b", "c"))
            >>> facts = Facts.make([[0, 1], [1, 1], [0, 1]], [2, 0, 2], vocabulary, [1, 2, 1])
            >>> facts.T, facts.merged, facts.prior
            (2, 1, array([0.5, 0.5]))

        Notes:
            Rows that repeat a fact are merged and their weights added; without `prior` the merged
            facts are uniform. One key with two answers is a `ConflictError`. 10^6 facts take about
            a second.
        """
        tokens, answers = integers(tokens, "tokens", name), integers(answers, "answers", name)
        T = len(answers) if answers.ndim else 0
        rows = np.arange(1, T + 1) if rows is None else integers(rows, "rows", name)
        check_shapes(tokens, answers, rows, columns, name)
        check_ids(tokens, "tokens", len(vocabulary), rows, name)
        check_ids(answers, "answers", len(vocabulary), rows, name)
        weights = np.ones(T) if prior is None else check_weights(prior, rows, name)

        order, starts = group_equal_rows(tokens, len(vocabulary))
        clashes = conflicting_groups(answers, order, starts)
        if len(clashes):
            ends = np.append(starts[1:], T)
            groups = [order[starts[g] : ends[g]] for g in clashes]
            raise conflict_error(groups, tokens, answers, rows, vocabulary, name)
        if len(starts) < T:
            first = order[starts]
            total = np.add.reduceat(weights[order], starts)
            in_file_order = np.argsort(first)
            kept = first[in_file_order]
            tokens, answers, rows = tokens[kept], answers[kept], rows[kept]
            weights = np.ones(len(kept)) if prior is None else total[in_file_order]
        return cls(
            tokens=tokens,
            answers=answers,
            vocabulary=vocabulary,
            prior=weights / weights.sum(),
            rows=rows,
            name=name,
            columns=None if columns is None else tuple(columns),
            answer_column=answer_column,
            merged=T - len(starts),
            skipped=skipped,
            pad_id=pad_id,
        )

    @property
    def T(self) -> int:
        """Number of facts."""
        return self.tokens.shape[0]

    @property
    def S(self) -> int:
        """Tokens in each key."""
        return self.tokens.shape[1]

    @property
    def N(self) -> int:
        """Size of the vocabulary."""
        return len(self.vocabulary)

    @property
    def answer_ids(self) -> np.ndarray:
        """The distinct answers, sorted by id."""
        return np.unique(self.answers)

    @property
    def last_tokens(self) -> int:
        """Number of distinct last tokens."""
        return len(np.unique(self.tokens[:, -1]))

    def key(self, i: int) -> tuple[str, ...]:
        """The S tokens of fact `i`, padding included."""
        return tuple(self.vocabulary.token(int(t)) for t in self.tokens[i])

    def answer(self, i: int) -> str:
        """The answer of fact `i`."""
        return self.vocabulary.token(int(self.answers[i]))

    def digest(self) -> str:
        """sha256 (hexadecimal) of vocabulary, shape, tokens, answers and prior.

        Notes:
            The order of facts and of the vocabulary matters; names and row numbers do not.
        """
        header = f"byheart facts 1 {self.vocabulary.digest()} {self.T} {self.S}\n"
        digest = hashlib.sha256(header.encode())
        # Little-endian on every machine, so that digests can be compared between them.
        digest.update(self.tokens.astype("<i8").tobytes())
        digest.update(self.answers.astype("<i8").tobytes())
        digest.update(self.prior.astype("<f8").tobytes())
        return digest.hexdigest()

    def subset(self, indices: ArrayLike) -> Facts:
        """The facts at `indices` (or where a mask is true), same vocabulary, prior rescaled.

        Example:
            >>> vocabulary = Vocabulary(("a", "b", "c"))
            >>> Facts.make([[0], [1], [2]], [2, 1, 0], vocabulary, [1, 1, 2]).subset([2, 0]).prior
            array([0.66666667, 0.33333333])
        """
        indices = np.asarray(indices)
        if indices.dtype == bool and indices.shape != (self.T,):
            raise FactsError(f"expected a mask of shape ({self.T},), found {indices.shape}.")
        chosen = (
            np.flatnonzero(indices)
            if indices.dtype == bool
            else integers(indices, "indices", self.name)
        )
        check_ids(chosen, "indices", self.T, chosen + 1, self.name)
        return Facts.make(
            self.tokens[chosen],
            self.answers[chosen],
            self.vocabulary,
            self.prior[chosen],
            name=self.name,
            columns=self.columns,
            answer_column=self.answer_column,
            rows=self.rows[chosen],
            pad_id=self.pad_id,
        )

    def effective_size(self, eps: float) -> int:
        """T_eps: the smallest number of facts whose prior sums to at least 1 - eps.

        Example:
            >>> vocabulary = Vocabulary(("a", "b", "c"))
            >>> Facts.make([[0], [1], [2]], [0, 0, 0], vocabulary, [90, 9, 1]).effective_size(0.1)
            1
        """
        return effective_size(self.prior, eps)

    def describe(self) -> dict[str, Any]:
        """The table in numbers: a plain dict that JSON can hold."""
        return {
            "name": self.name,
            "facts": self.T,
            "length": self.S,
            "vocabulary": self.N,
            "answers": len(self.answer_ids),
            "last_tokens": self.last_tokens,
            "commonest_last_token": self._commonest(self.tokens[:, -1]),
            "commonest_answer": self._commonest(self.answers),
            "merged": self.merged,
            "skipped": self.skipped,
            "uniform_prior": bool(self.prior.min() == self.prior.max()),
            "T_eps": {str(eps): self.effective_size(eps) for eps in (0.1, 0.01)},
        }

    def _commonest(self, ids: np.ndarray) -> dict[str, Any]:
        counts = np.bincount(ids)
        top = int(np.argmax(counts))
        return {"token": self.vocabulary.token(top), "count": int(counts[top])}

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the facts as CSV, TSV or JSONL, by the suffix of `path`, all or nothing.

        Notes:
            `read_facts(path)` gives the same keys and answers in the same order, ids in order of
            appearance. A prior that is not uniform becomes a column "weight" before the answer
            (read it with `weights="weight"`). JSONL leaves padding out (read it with `pad=True`);
            CSV and TSV keep it as a token. The empty token is read with `empty="token"`.
        """
        _write.write_facts(self, path)

    def __repr__(self) -> str:
        return f"Facts({self.name!r}, T={self.T}, S={self.S}, N={self.N})"
