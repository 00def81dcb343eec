"""Keys with several right answers: a conditional distribution over answers for each key."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from byheart._folders import write_text
from byheart.errors import FactsError
from byheart.facts._checks import check_ids, check_weights, integers
from byheart.facts._distinct import group_equal_rows
from byheart.facts._probabilities import (
    check_probabilities,
    check_room,
    check_support,
    shannon_entropy,
)
from byheart.facts.facts import Facts
from byheart.facts.vocabulary import Vocabulary

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

    facts: Facts
    support: np.ndarray
    probabilities: np.ndarray
    smoothing: str = ""
    never_asked: int = 0

    def __post_init__(self) -> None:
        for field, dtype in (("support", np.int64), ("probabilities", np.float64)):
            array = np.array(getattr(self, field), dtype=dtype, order="C")
            array.flags.writeable = False
            object.__setattr__(self, field, array)

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
        name: str = "distributions",
        columns: Sequence[str] | None = None,
        answer_column: str = "answer",
        rows: ArrayLike | None = None,
        skipped: int = 0,
        pad_id: int | None = None,
    ) -> Distributions:
        """Distributions from arrays, checked. Without `support` the columns are all N tokens.

        Example:
            >>> vocabulary = Vocabulary(("a", "b", "c"))
            >>> Distributions.make([[0]], [[1, 3, 0]], vocabulary)
            Traceback (most recent call last):
            ...
            byheart.errors.FactsError: distributions, row 1: expected probabilities that sum to 1, \
found the sum 4. Correct the row, or scale it (--normalise).
            >>> Distributions.make([[0]], [[1, 3, 0]], vocabulary, normalise=True).probabilities
            array([[0.25, 0.75]])

        Notes:
            Sums may be off by 1e-5 (decimals in files) and are scaled to 1. Answers that have
            probability 0 everywhere are left out of the support. `prior` may be any weights.
        """
        tokens = integers(tokens, "tokens", name)
        pi = np.asarray(probabilities, dtype=np.float64)
        if tokens.ndim != 2 or not tokens.shape[1] or pi.ndim != 2 or len(pi) != len(tokens):
            raise FactsError(
                f"{name}: expected tokens of shape (T, S) with S >= 1 and probabilities of shape "
                f"(T, A), found {tokens.shape} and {pi.shape}."
            )
        T = len(tokens)
        if T == 0:
            raise FactsError(f"{name}: expected at least one sequence, found none.")
        ids = np.arange(pi.shape[1]) if support is None else integers(support, "support", name)
        check_support(ids, pi.shape[1], len(vocabulary), name)
        rows = np.arange(1, T + 1) if rows is None else integers(rows, "rows", name)
        check_ids(tokens, "tokens", len(vocabulary), rows, name)
        pi = check_probabilities(pi, rows, normalise, name)
        weights = np.ones(T) if prior is None else check_weights(prior, rows, name)
        order, starts = group_equal_rows(tokens, len(vocabulary))
        if len(starts) < T:
            again = order[np.setdiff1d(np.arange(T), starts)]
            i = int(again.min())
            key = ", ".join(repr(vocabulary.token(int(t))) for t in tokens[i])
            raise FactsError(
                f"{name}, row {rows[i]}: expected one distribution for each key, found a second "
                f"one for {key}. Delete it, or mix them by weight (--on-conflict distribution)."
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
            name=name,
            columns=columns,
            answer_column=answer_column,
            rows=rows[asked],
            skipped=skipped,
            pad_id=pad_id,
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
        name: str = "distributions",
        columns: Sequence[str] | None = None,
        answer_column: str = "answer",
        rows: ArrayLike | None = None,
        skipped: int = 0,
        pad_id: int | None = None,
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
        if on_conflict not in ("error", "distribution"):
            raise FactsError(
                f"expected on_conflict to be 'error' or 'distribution', found {on_conflict!r}."
            )
        tokens, answers = integers(tokens, "tokens", name), integers(answers, "answers", name)
        if on_conflict == "error":
            # Facts.make refuses every conflict, and bad shapes and ids.
            Facts.make(tokens, answers, vocabulary, prior, name=name, rows=rows)
        T = len(answers)
        rows = np.arange(1, T + 1) if rows is None else integers(rows, "rows", name)
        weights = np.ones(T) if prior is None else check_weights(prior, rows, name)
        order, starts = group_equal_rows(tokens, len(vocabulary))
        group = np.empty(T, dtype=np.int64)
        group[order] = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, T)))
        support, column = np.unique(answers, return_inverse=True)
        check_room(len(starts), len(support), name)
        mass = np.zeros((len(starts), len(support)))
        np.add.at(mass, (group, column), weights)
        total = mass.sum(axis=1)
        first = order[starts]
        kept = np.argsort(first)[total[np.argsort(first)] > 0]
        made = cls.make(
            tokens[first[kept]],
            mass[kept] / total[kept, None],
            vocabulary,
            total[kept],
            support=support,
            normalise=True,
            name=name,
            columns=columns,
            answer_column=answer_column,
            rows=rows[first[kept]],
            skipped=skipped,
            pad_id=pad_id,
        )
        return replace(made, never_asked=int((total <= 0).sum()))

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
        return shannon_entropy(self.probabilities)

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
                "more. Smooth them: --smooth 0.001 makes every probability (π + δ)/(1 + Aδ)."
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
            raise FactsError(f"expected --smooth to be a finite number >= 0, found {delta}.")
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

    def describe(self) -> dict[str, Any]:
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
            "never_asked": self.never_asked,
            "uniform_prior": bool(self.prior.min() == self.prior.max()),
            "T_eps": {str(eps): self.effective_size(eps) for eps in (0.1, 0.01)},
        }

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write JSON lines that `read_distributions` reads back; zero probabilities are left out.

        Notes:
            repr of a float reads back as the same float; a row is then scaled to sum to 1 again.
        """
        pad = None if self.facts.pad_id is None else self.vocabulary.token(self.facts.pad_id)
        names = [self.vocabulary.token(int(i)) for i in self.support]
        lines = []
        for i in range(self.T):
            row = self.probabilities[i]
            record = {
                "input": [token for token in self.key(i) if token != pad],
                "output": {names[j]: float(row[j]) for j in np.flatnonzero(row)},
                "weight": float(self.prior[i]),
            }
            lines.append(json.dumps(record, ensure_ascii=False))
        try:
            write_text(Path(path), "\n".join(lines) + "\n")
        except OSError as error:
            raise FactsError(f"{path}: cannot be written: {error.strerror}.") from error

    def __repr__(self) -> str:
        return f"Distributions({self.name!r}, T={self.T}, S={self.S}, A={self.A}, N={self.N})"
