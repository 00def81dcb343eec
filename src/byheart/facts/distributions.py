"""Keys with several right answers: a conditional distribution over answers for each key."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np
from numpy.typing import ArrayLike

from byheart._json import Json
from byheart._tables import data_frame, html_table
from byheart._words import quote
from byheart.errors import FactsError, OptionError, check_choice
from byheart.facts import _checks as check
from byheart.facts import _write
from byheart.facts._mixtures import mixed_by_key, probability_matrix
from byheart.facts._python import dict_source, frame_source, rows_source
from byheart.facts._reading import Counting, Options
from byheart.facts._records import Gathered, Labels, gather
from byheart.facts.distinct import group_equal_rows
from byheart.facts.facts import Facts
from byheart.facts.vocabulary import Vocabulary

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Distributions"]


@dataclass(frozen=True, eq=False, repr=False)
class Distributions:
    """T sequences, each with a distribution π_t over A answers, and a prior over the sequences.

    Symbols:
        facts: the keys, the prior and everything else that `Facts` holds; its answers are the most
            probable ones, g(t) = argmax π_t.
        support: (A,) int64, the token ids of the answers; a distribution runs over these tokens,
            and a memory's softmax too. Tokens that are never answers have no part in it.
        probabilities: (T, A) float64, π_t(support[j]); rows sum to 1.
        smoothing: what was done to zero probabilities, in words; "" if nothing.
        never_asked: sequences with weight 0, which are left out (T_0 counts the others).

    Example:
        >>> vocabulary = Vocabulary(("the", "end", "cat"))
        >>> table = Distributions.make([[0], [1]], [[0, 0.75, 0.25], [1, 0, 0]], vocabulary)
        >>> table
        Distributions('distributions', T=2, S=1, A=3, N=3)
        >>> table.facts.answer(0), table.entropy.round(3), table.full_support
        ('end', array([0.562, 0.   ]), False)

    Notes:
        Call `Distributions.make`, `Distributions.count` or `read_distributions`: they check, and
        the constructor does not. Arrays are read-only.
    """

    kind: ClassVar = "distributions"

    facts: Facts
    support: np.ndarray
    probabilities: np.ndarray
    smoothing: str = ""
    never_asked: int = 0

    def __post_init__(self) -> None:
        check.freeze(self, support=np.int64, probabilities=np.float64)

    @classmethod
    def make(
        cls,
        tokens: ArrayLike,
        probabilities: ArrayLike,
        vocabulary: Vocabulary,
        prior: ArrayLike | None = None,
        *,
        support: ArrayLike | None = None,
        normalise: bool = False,
        rows: ArrayLike | None = None,
        **labels: Unpack[Labels],
    ) -> Distributions:
        """Distributions from arrays, checked. Without `support` the columns are all N tokens.

        Example:
            >>> vocabulary = Vocabulary(("a", "b", "c"))
            >>> Distributions.make([[0]], [[1, 3, 0]], vocabulary)
            Traceback (most recent call last):
            ...
            byheart.errors.FactsError: distributions, row 1: expected probabilities that sum to 1, \
found the sum 4. Correct the row, or scale it (`normalise=True`).
            >>> Distributions.make([[0]], [[1, 3, 0]], vocabulary, normalise=True).probabilities
            array([[0.25, 0.75]])

        Notes:
            Sums may be off by 1e-5 (decimals in files) and are scaled to 1. Answers that have
            probability 0 everywhere are left out of the support. `prior` may be any weights.
        """
        name = labels.setdefault("name", "distributions")
        tokens = check.integers(tokens, "tokens", name)
        pi = np.asarray(probabilities, dtype=np.float64)
        if tokens.ndim != 2 or not tokens.shape[1] or pi.ndim != 2 or len(pi) != len(tokens):
            raise FactsError(
                f"{name}: expected tokens of shape (T, S) with S >= 1 and probabilities of shape "
                f"(T, A), found {tokens.shape} and {pi.shape}."
            )
        T = len(tokens)
        if T == 0:
            raise FactsError(f"{name}: expected at least one sequence, found none.")
        ids = (
            np.arange(pi.shape[1]) if support is None else check.integers(support, "support", name)
        )
        check.support(ids, pi.shape[1], len(vocabulary), name)
        rows = check.row_numbers(rows, T, name)
        check.ids(tokens, "tokens", len(vocabulary), rows, name)
        pi = check.probabilities(pi, rows, normalise, name)
        weights = np.ones(T) if prior is None else check.weights(prior, rows, name)
        order, starts = group_equal_rows(tokens, len(vocabulary))
        if len(starts) < T:
            again = order[np.setdiff1d(np.arange(T), starts)]
            i = int(again.min())
            key = ", ".join(quote(vocabulary.token(int(t))) for t in tokens[i])
            raise FactsError(
                f"{name}, row {rows[i]}: expected one distribution for each key, found a second "
                f"one for {key}. Delete it, or mix them by weight (`on_conflict=distribution`)."
            )
        asked = weights > 0
        used = pi[asked].max(axis=0) > 0
        if used.sum() < 2:
            raise FactsError(
                f"{name}: expected at least two different answers, found "
                f"{vocabulary.token(int(ids[used][0]))!r} alone. One answer needs no distribution."
            )
        pi, ids = pi[asked][:, used], ids[used]
        facts = Facts.make(
            tokens[asked],
            ids[pi.argmax(axis=1)],
            vocabulary,
            weights[asked],
            rows=rows[asked],
            **labels,
        )
        return cls(facts, ids, pi, never_asked=int(T - asked.sum()))

    @classmethod
    def count(
        cls,
        tokens: ArrayLike,
        answers: ArrayLike,
        vocabulary: Vocabulary,
        prior: ArrayLike | None = None,
        *,
        on_conflict: str = "distribution",
        rows: ArrayLike | None = None,
        **labels: Unpack[Labels],
    ) -> Distributions:
        """π_t(y) = weight of the rows (t, y) / weight of the rows t; the prior is the latter.

        Example:
            >>> vocabulary = Vocabulary(("the", "end", "cat"))
            >>> table = Distributions.count([[0], [0], [0], [1]], [1, 2, 1, 0], vocabulary)
            >>> table.probabilities.round(3).tolist(), table.prior
            ([[0.0, 0.667, 0.333], [1.0, 0.0, 0.0]], array([0.75, 0.25]))

        Notes:
            With `on_conflict="error"` two answers to one key are a `ConflictError`, as for `Facts`.
        """
        check_choice("on_conflict", on_conflict, ("error", "distribution"))
        name = labels.setdefault("name", "distributions")
        tokens = check.integers(tokens, "tokens", name)
        answers = check.integers(answers, "answers", name)
        if on_conflict == "error":
            # Facts.make refuses every conflict, and bad shapes and ids.
            Facts.make(tokens, answers, vocabulary, prior, name=name, rows=rows)
        T = len(answers)
        rows = check.row_numbers(rows, T, name)
        weights = np.ones(T) if prior is None else check.weights(prior, rows, name)
        order, starts = group_equal_rows(tokens, len(vocabulary))
        group = np.empty(T, dtype=np.int64)
        group[order] = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, T)))
        support, column = np.unique(answers, return_inverse=True)
        check.room(len(starts), len(support), name)
        mass = np.zeros((len(starts), len(support)))
        np.add.at(mass, (group, column), weights)
        total = mass.sum(axis=1)
        first = order[starts]
        kept = np.argsort(first)[total[np.argsort(first)] > 0]
        table = cls.make(
            tokens[first[kept]],
            mass[kept] / total[kept, None],
            vocabulary,
            total[kept],
            support=support,
            normalise=True,
            rows=rows[first[kept]],
            **labels,
        )
        return replace(table, never_asked=int((total <= 0).sum()))

    @classmethod
    def from_dict(cls, table: Mapping[Any, object], **reading: Unpack[Counting]) -> Distributions:
        """Distributions from a mapping of keys (a token, or a tuple of them) to dicts token ->
        probability; a single answer has probability 1. Options are those of `read_distributions`.

        Example:
            >>> table = Distributions.from_dict({("to", "be"): {"or": 0.75, ",": 0.25}})
            >>> table.key(0), table.top(0)
            (('to', 'be'), [('or', 0.75), (',', 0.25)])
        """
        source, options = dict_source(table, reading)
        return cls.gathered(gather(source, options, mixtures=True), options, mix=True)

    @classmethod
    def from_rows(
        cls,
        rows: Iterable[object],
        columns: Sequence[str] | None = None,
        **reading: Unpack[Counting],
    ) -> Distributions:
        """Distributions from rows of cells as in `Facts.from_rows`: rows with one key are counted,
        by their weights if a column holds some (`weights`).

        Example:
            >>> rows = [("ann", "tea"), ("ann", "tea"), ("ann", "milk"), ("bob", "milk")]
            >>> Distributions.from_rows(rows).probabilities.round(2).tolist()
            [[0.67, 0.33], [0.0, 1.0]]
        """
        reading.setdefault("on_conflict", "distribution")
        source, options = rows_source(rows, columns, reading)
        return cls.gathered(gather(source, options, mixtures=True), options)

    @classmethod
    def from_pandas(cls, frame: object, **reading: Unpack[Counting]) -> Distributions:
        """Distributions from a data frame or series as in `Facts.from_pandas`, counted as in
        `from_rows`."""
        reading.setdefault("on_conflict", "distribution")
        source, options = frame_source(frame, reading)
        return cls.gathered(gather(source, options), options)

    @classmethod
    def gathered(cls, read: Gathered, options: Options, mix: bool = False) -> Distributions:
        """Distributions from records, counted; or mixed by weight if they are distributions, or
        all taken as such (`mix`)."""
        tokens, answers, mixtures, vocabulary, prior, rows, labels = read
        if not mix and not mixtures:
            conflict = options.on_conflict
            table = cls.count(
                tokens, answers, vocabulary, prior, on_conflict=conflict, rows=rows, **labels
            )
            return table.smoothed(options.smooth or 0.0)
        support, pi = probability_matrix(answers, mixtures, options.where)
        if options.on_conflict == "distribution":
            pi = check.probabilities(pi, rows, options.normalise, options.name)
            tokens, pi, prior, rows = mixed_by_key(tokens, pi, prior, rows, len(vocabulary))
        table = cls.make(
            tokens,
            pi,
            vocabulary,
            prior,
            support=support,
            normalise=options.normalise,
            rows=rows,
            **labels,
        )
        return table.smoothed(options.smooth or 0.0)

    @property
    def T(self) -> int:
        """Number of sequences."""
        return self.facts.T

    @property
    def S(self) -> int:
        """Tokens in each sequence."""
        return self.facts.S

    @property
    def N(self) -> int:
        """Size of the vocabulary."""
        return self.facts.N

    @property
    def A(self) -> int:
        """Number of answers: the N of the paper's statements about distributions."""
        return len(self.support)

    @property
    def tokens(self) -> np.ndarray:
        return self.facts.tokens

    @property
    def prior(self) -> np.ndarray:
        return self.facts.prior

    @property
    def vocabulary(self) -> Vocabulary:
        return self.facts.vocabulary

    @property
    def name(self) -> str:
        return self.facts.name

    @property
    def entropy(self) -> np.ndarray:
        """H_t = -Σ_j π_t(j) log π_t(j), in nats: (T,)."""
        pi = self.probabilities
        return np.abs(np.sum(pi * np.log(np.where(pi > 0, pi, 1.0)), axis=1))

    @property
    def full_support(self) -> bool:
        """Assumption 2 of Dana et al. (2025): every answer has positive probability everywhere."""
        return bool(self.probabilities.min() > 0)

    def logarithms(self) -> np.ndarray:
        """log π, (T, A); a `FactsError` that says where the first zero is if there is one."""
        zeros = np.argwhere(self.probabilities == 0)
        if len(zeros):
            t, j = (int(i) for i in zeros[0])
            raise FactsError(
                f"{self.name}, row {self.facts.rows[t]}: expected full support (Assumption 2: "
                f"log π is needed), found probability 0 for "
                f"{self.vocabulary.token(int(self.support[j]))!r} and {len(zeros) - 1:,} zeros "
                "more. Smooth them: `smooth=0.001` makes every probability (π + δ)/(1 + Aδ)."
            )
        return np.log(self.probabilities)

    def smoothed(self, delta: float) -> Distributions:
        """π_δ = (π + δ)/(1 + A δ): full support for δ > 0 (the π_δ of Corollary 1's proof).

        Example:
            >>> table = Distributions.make([[0], [1]], [[1, 0], [0.5, 0.5]], Vocabulary(("a", "b")))
            >>> table.smoothed(0.125).probabilities
            array([[0.9, 0.1],
                   [0.5, 0.5]])
        """
        if not 0 <= delta < float("inf"):
            raise OptionError("smooth", "a finite number >= 0", delta)
        if delta == 0:
            return self
        pi = (self.probabilities + delta) / (1 + self.A * delta)
        said = f"(π + δ)/(1 + Aδ) with δ = {delta:g}, A = {self.A:,}"
        both = f"{self.smoothing}; {said}" if self.smoothing else said
        return replace(self, probabilities=pi / pi.sum(axis=1, keepdims=True), smoothing=both)

    def by_prior(self) -> np.ndarray:
        """Indices of the sequences, likely ones first; ties keep their order."""
        return np.argsort(-self.prior, kind="stable")

    def effective_size(self, eps: float) -> int:
        """T_eps: the smallest number of sequences whose prior sums to at least 1 - eps."""
        return self.facts.effective_size(eps)

    def key(self, i: int) -> tuple[str, ...]:
        """The S tokens of sequence `i`."""
        return self.facts.key(i)

    def top(self, i: int, n: int = 5) -> list[tuple[str, float]]:
        """The `n` most probable answers of sequence `i`, with probabilities."""
        order = np.argsort(-self.probabilities[i], kind="stable")[:n]
        return [
            (self.vocabulary.token(int(self.support[j])), float(self.probabilities[i, j]))
            for j in order
        ]

    def digest(self) -> str:
        """sha256 (hexadecimal) of the facts' digest, the support and the probabilities."""
        digest = hashlib.sha256(f"byheart distributions 1 {self.facts.digest()}\n".encode())
        digest.update(self.support.astype("<i8").tobytes())
        digest.update(self.probabilities.astype("<f8").tobytes())
        return digest.hexdigest()

    def describe(self) -> dict[str, Json]:
        """The table in numbers: a plain dict that JSON can hold."""
        entropy = self.entropy
        mean = float(self.prior @ entropy)
        return {
            "name": self.name,
            "sequences": self.T,
            "length": self.S,
            "vocabulary": self.N,
            "answers": self.A,
            "entropy": mean,
            "entropy_share": mean / float(np.log(self.A)),
            "entropy_range": [float(entropy.min()), float(entropy.max())],
            "full_support": self.full_support,
            "smallest_probability": float(self.probabilities.min()),
            "smoothing": self.smoothing,
            "merged": self.facts.merged,
            "skipped": self.facts.skipped,
            "trimmed": self.facts.trimmed,
            "notes": [*self.facts.notes],
            "never_asked": self.never_asked,
            "uniform_prior": bool(self.prior.min() == self.prior.max()),
            "T_eps": {str(eps): self.effective_size(eps) for eps in (0.1, 0.01)},
        }

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write JSON lines that `read_distributions` reads back; zero probabilities are left out.

        Notes:
            repr of a float reads back as the same float; a row is then scaled to sum to 1 again.
        """
        names = [self.vocabulary.token(int(i)) for i in self.support]
        lines = []
        for i, row in enumerate(self.probabilities):
            output = {names[j]: float(row[j]) for j in np.flatnonzero(row)}
            lines.append(_write.json_line(self.facts, [*self.key(i)], output, float(self.prior[i])))
        _write.write_new(path, "".join(lines))

    def to_pandas(self) -> DataFrame:
        """A data frame with a row for each key and answer of positive probability: the key, the
        answer, "probability", and "weight", which is the prior times it. `from_pandas` with that
        `answer`, these `keys` and `weights="weight"` reads it back."""
        header, rows = self._table()
        return data_frame(rows, header)

    def _table(self) -> tuple[list[str], Iterator[list[str | float]]]:
        keys = self.facts.columns or tuple(f"token {s + 1}" for s in range(self.S))
        names = [self.vocabulary.token(int(i)) for i in self.support]
        rows = (
            [*self.key(i), names[j], float(row[j]), float(self.prior[i] * row[j])]
            for i, row in enumerate(self.probabilities)
            for j in np.flatnonzero(row)
        )
        return [*keys, self.facts.answer_column, "probability", "weight"], rows

    def __repr__(self) -> str:
        sizes = f"T={self.T}, S={self.S}, A={self.A}, N={self.N}"
        return f"Distributions({quote(self.name)}, {sizes})"

    def _repr_html_(self) -> str:
        count = int(np.count_nonzero(self.probabilities))
        return html_table(repr(self), *self._table(), count, self.facts.notes)
