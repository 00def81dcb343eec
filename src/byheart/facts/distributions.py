"""Keys with several right answers: a conditional distribution over answers for each key."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Unpack

import numpy as np
from numpy.typing import ArrayLike

from byheart._json import Json
from byheart._words import listed, quote
from byheart.errors import OptionError
from byheart.facts import _checks as check
from byheart.facts._records import Gathered, Labels
from byheart.facts.distinct import group_equal_rows
from byheart.facts.facts import Facts, TokenTable, write_whole
from byheart.facts.vocabulary import Vocabulary

LARGEST_DELTA = 1e100  # of smoothing: all answers are equally probable long before


@dataclass(frozen=True, eq=False, repr=False)
class Distributions(TokenTable):
    """T sequences, each with a distribution π_t over A answers, and a prior over the sequences.

    Symbols:
        facts: the keys, the prior and everything else that `Facts` holds; its answers are the most
            probable ones, g(t) = argmax π_t. Its name, tokens, prior, vocabulary and notes are
            here too.
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
        Call `make`, `count` or `read_distributions`: they check, and the constructor does not.
    """

    kind: ClassVar = "distributions"
    on_conflict: ClassVar = "distribution"

    facts: Facts
    support: np.ndarray
    probabilities: np.ndarray
    smoothing: str = ""
    never_asked: int = 0
    name: str = field(init=False)
    tokens: np.ndarray = field(init=False)
    prior: np.ndarray = field(init=False)
    vocabulary: Vocabulary = field(init=False)
    notes: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        for name in ("name", "tokens", "prior", "vocabulary", "notes"):
            object.__setattr__(self, name, getattr(self.facts, name))
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
            >>> Distributions.make([[0]], [[1, 3, 0]], vocabulary, normalise=True).probabilities
            array([[0.25, 0.75]])

        Notes:
            Sums may be off by 1e-5 (decimals in files) and are scaled to 1. Answers that have
            probability 0 everywhere are left out of the support. `prior` may be any weights.
        """
        name, N = labels.setdefault("name", "distributions"), len(vocabulary)
        pi = np.asarray(probabilities, dtype=np.float64)
        tokens = check.keys(tokens, pi, "probabilities of shape (T, A)", 2, name)
        T, A = pi.shape
        ids = np.arange(A) if support is None else check.integers(support, "support", name)
        if ids.shape != (A,):
            check.refuse(name, f"{A} answers, one a column of π, found shape {ids.shape}")
        if len(np.unique(ids)) < A:
            check.refuse(name, "distinct answers, found one of them twice")
        if A and (ids.min() < 0 or ids.max() >= N):
            check.refuse(name, f"answers from 0 to {N - 1}, found {ids.min()} to {ids.max()}")
        rows = check.row_numbers(rows, T, name)
        check.ids(tokens, "tokens", N, rows, name)
        pi = check.probabilities(pi, rows, normalise, name)
        weights = check.weights(prior, rows, name)
        order, starts = group_equal_rows(tokens, N)
        if len(starts) < T:
            i = int(np.delete(order, starts).min())
            key = listed([vocabulary.token(int(t)) for t in tokens[i]])
            advice = "Delete it, or mix them by weight (`on_conflict=distribution`)"
            found = f"found a second one for {key}. {advice}"
            check.refuse(name, f"one distribution for each key, {found}", rows[i])
        asked = weights > 0
        used = pi[asked].max(axis=0) > 0
        if used.sum() < 2:
            found = f"found {vocabulary.token(int(ids[used][0]))!r} alone"
            check.refuse(name, f"at least two different answers, {found}: use facts")
        pi, ids = pi[asked][:, used], ids[used]
        likeliest = ids[pi.argmax(axis=1)]
        facts = Facts.make(
            tokens[asked], likeliest, vocabulary, weights[asked], rows=rows[asked], **labels
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
        rows: ArrayLike | None = None,
        **labels: Unpack[Labels],
    ) -> Distributions:
        """π_t(y) = weight of the rows (t, y) / weight of the rows t; the prior is the latter.

        Example:
            >>> vocabulary = Vocabulary(("the", "end", "cat"))
            >>> table = Distributions.count([[0], [0], [0], [1]], [1, 2, 1, 0], vocabulary)
            >>> table.probabilities.round(3).tolist(), table.prior
            ([[0.0, 0.667, 0.333], [1.0, 0.0, 0.0]], array([0.75, 0.25]))
        """
        name = labels.setdefault("name", "distributions")
        answers = check.integers(answers, "answers", name)
        tokens = check.keys(tokens, answers, "answers of shape (T,)", 1, name)
        T = len(answers)
        rows = check.row_numbers(rows, T, name)
        weights = check.weights(prior, rows, name)
        order, starts = group_equal_rows(tokens, len(vocabulary))
        group = np.empty(T, dtype=np.int64)
        group[order] = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, T)))
        support, column = np.unique(answers, return_inverse=True)
        check.room(len(starts), len(support), name)
        mass = np.zeros((len(starts), len(support)))
        np.add.at(mass, (group, column), weights)
        total = mass.sum(axis=1)
        by_file = np.argsort(order[starts])
        kept = by_file[total[by_file] > 0]
        first, pi, prior = order[starts][kept], mass[kept] / total[kept, None], total[kept]
        tokens, rows = tokens[first], rows[first]
        table = cls.make(
            tokens, pi, vocabulary, prior, support=support, normalise=True, rows=rows, **labels
        )
        return replace(table, never_asked=len(total) - len(kept))

    @classmethod
    def gathered(cls, read: Gathered, mix: bool = False) -> Distributions:
        """Distributions from records, counted; or mixed by weight if they are distributions, or
        all taken as such (`mix`)."""
        tokens, answers, mixtures, vocabulary, prior, rows, labels, source = read
        options = source.options
        conflict, normalise = options.on_conflict, options.normalise
        if not mix and not mixtures:
            if conflict == "error":  # two answers to one key are a `ConflictError`
                Facts.make(tokens, answers, vocabulary, prior, rows=rows, **labels)
            table = cls.count(tokens, answers, vocabulary, prior, rows=rows, **labels)
            return table.smoothed(options.smooth or 0.0)
        support, pi = _matrix(answers, mixtures, options.where)
        if conflict == "distribution":
            pi = check.probabilities(pi, rows, normalise, options.name)
            tokens, pi, prior, rows = _mixed(tokens, pi, prior, rows, len(vocabulary))
        table = cls.make(
            tokens, pi, vocabulary, prior, support=support, normalise=normalise, rows=rows, **labels
        )
        return table.smoothed(options.smooth or 0.0)

    @property
    def A(self) -> int:
        """Number of answers: the N of the paper's statements about distributions."""
        return len(self.support)

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
            t, j = zeros[0]
            token = self.vocabulary.tokens[self.support[j]]
            found = f"found probability 0 for {token!r} and {len(zeros) - 1:,} zeros more"
            advice = "Smooth them: `smooth=0.001` makes every probability (π + δ)/(1 + Aδ)"
            needed = "full support (Assumption 2: log π is needed)"
            check.refuse(self.name, f"{needed}, {found}. {advice}", self.facts.rows[t])
        return np.log(self.probabilities)

    def smoothed(self, delta: float) -> Distributions:
        """π_δ = (π + δ)/(1 + A δ): full support for δ > 0 (the π_δ of Corollary 1's proof).

        Example:
            >>> table = Distributions.make([[0], [1]], [[1, 0], [0.5, 0.5]], Vocabulary(("a", "b")))
            >>> table.smoothed(0.125).probabilities
            array([[0.9, 0.1],
                   [0.5, 0.5]])
        """
        if not 0 <= delta <= LARGEST_DELTA:
            raise OptionError("smooth", f"a number from 0 to {LARGEST_DELTA:g}", delta)
        if delta == 0:
            return self
        pi = (self.probabilities + delta) / (1 + self.A * delta)
        said = f"(π + δ)/(1 + Aδ) with δ = {delta:g}, A = {self.A:,}"
        both = f"{self.smoothing}; {said}" if self.smoothing else said
        return replace(self, probabilities=pi / pi.sum(axis=1, keepdims=True), smoothing=both)

    def by_prior(self) -> np.ndarray:
        """Indices of the sequences, likely ones first; ties keep their order."""
        return np.argsort(-self.prior, kind="stable")

    def top(self, i: int, n: int = 5) -> list[tuple[str, float]]:
        """The `n` most probable answers of sequence `i`, with probabilities."""
        pi, names = self.probabilities[i], self.vocabulary.tokens
        order = np.argsort(-pi, kind="stable")[:n]
        return [(names[self.support[j]], float(pi[j])) for j in order]

    def digest(self) -> str:
        """sha256 (hexadecimal) of the facts' digest, the support and the probabilities."""
        header = f"byheart distributions 1 {self.facts.digest()}"
        return check.digest(header, self.support, self.probabilities)

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
            "uniform_prior": self.uniform_prior,
            "T_eps": {str(eps): self.effective_size(eps) for eps in (0.1, 0.01)},
        }

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write JSON lines that `read_distributions` reads back, without probabilities of 0."""
        names = self.vocabulary.tokens
        outputs = (
            {names[self.support[j]]: float(row[j]) for j in np.flatnonzero(row)}
            for row in self.probabilities
        )
        write_whole(path, self.facts.json_lines(outputs, weighted=True).encode())

    def _table(self) -> tuple[list[str], Iterator[list[str | float]], int]:
        names = self.vocabulary.tokens
        rows = (
            [*key, names[self.support[j]], float(row[j]), float(p * row[j])]
            for key, row, p in zip(self.facts.keys(), self.probabilities, self.prior, strict=True)
            for j in np.flatnonzero(row)
        )
        header = [*self.facts.key_columns, self.facts.answer_column, "probability", "weight"]
        return header, rows, int(np.count_nonzero(self.probabilities))

    def __repr__(self) -> str:
        sizes = f"T={self.T}, S={self.S}, A={self.A}, N={self.N}"
        return f"Distributions({quote(self.name)}, {sizes})"


def _matrix(
    answers: np.ndarray, mixtures: Mapping[int, Mapping[int, float]], where: str
) -> tuple[np.ndarray, np.ndarray]:
    """The answers' ids (A,), and π (T, A): a row without a mixture has its answer for sure."""
    outputs = [mixtures.get(i) or {int(answer): 1.0} for i, answer in enumerate(answers)]
    support = np.array(sorted({token for output in outputs for token in output}), dtype=np.int64)
    check.room(len(outputs), len(support), where)
    pi = np.zeros((len(outputs), len(support)))
    for i, output in enumerate(outputs):
        pi[i, np.searchsorted(support, [*output])] = [*output.values()]
    return support, pi


def _mixed(
    tokens: np.ndarray, pi: np.ndarray, prior: np.ndarray | None, rows: np.ndarray, N: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Records with one key as one: the mixture of their distributions, weights added up."""
    weights = np.ones(len(pi)) if prior is None else prior
    order, starts = group_equal_rows(tokens, N)
    total = np.add.reduceat(weights[order], starts)
    mass = np.add.reduceat((weights[:, None] * pi)[order], starts, axis=0)
    first = order[starts]
    # A key whose records all weigh nothing keeps its first distribution and its weight 0.
    empty = total == 0
    mass[empty], safe = pi[first[empty]], np.where(empty, 1.0, total)
    by_file = np.argsort(first)
    kept = first[by_file]
    return tokens[kept], (mass / safe[:, None])[by_file], total[by_file], rows[kept]
