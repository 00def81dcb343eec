"""A memory of exact integers: a square-root Transformer with a vocabulary, that can be asked.

Tokens are vectors (id, position), or (id) where keys are multisets; the network's output is a
class: 0 for "unknown", i for the i-th answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from byheart.errors import ByheartError, FactsError
from byheart.exact.blocks import Network
from byheart.exact.literal import evaluate
from byheart.exact.parts import Parts, emit
from byheart.exact.structured import Structured
from byheart.facts import Facts, Vocabulary
from byheart.specs import ExactSpec

UNKNOWN = "unknown"
TABLE_CELLS = 20_000_000  # (token, position) pairs whose ids are kept for fast recall


@dataclass(frozen=True)
class ExactRecall:
    """One answer; `known` is false, and `answer` "unknown", where the network outputs 0."""

    key: tuple[str, ...]
    answer: str
    known: bool
    output: int


@dataclass(frozen=True)
class ExactMemory:
    """Integer weights with a vocabulary and, usually, the facts they hold.

    `answers`: the token ids of the classes 1, 2, ...

    >>> import byheart as bh
    >>> memory = bh.build_sqrt(bh.read_facts("elements"))
    >>> memory.recall("Fe", "name").answer, memory.recall("iron", "Fe").answer
    ('iron', 'unknown')
    """

    spec: ExactSpec
    parts: Parts
    vocabulary: Vocabulary
    answers: tuple[int, ...]
    facts: Facts | None = None
    pad_id: int | None = None
    construction: Mapping[str, Any] = field(default_factory=dict)

    start_id: ClassVar[None] = None
    order: ClassVar[None] = None

    @cached_property
    def network(self) -> Network:
        """The weights, block by block."""
        return emit(self.parts)

    @cached_property
    def structured(self) -> Structured:
        return Structured(self.parts)

    @property
    def key_length(self) -> int:
        return self.spec.S

    def vectors(self, tokens: np.ndarray) -> np.ndarray:
        """Token ids (B, S) -> what the network reads, (B, S, 2) with positions or (B, S, 1)."""
        return as_vectors(tokens, self.spec.ordered)

    def recall(self, *tokens: str) -> ExactRecall:
        """Ask for one key, in words; a token that no fact uses is unknown, too."""
        key = tuple(tokens)
        if any(token not in self.vocabulary for token in key):
            self.check_length(key)
            return ExactRecall(key, UNKNOWN, False, 0)
        return self._answer(key, int(self.outputs(self.encode([key]))[0]))

    def recall_literally(self, *tokens: str) -> ExactRecall:
        """The same, every block executed in exact integers."""
        output = evaluate(self.network, self.vectors(self.encode([tokens])))
        return self._answer(tuple(tokens), int(output[0]))

    def _answer(self, key: tuple[str, ...], output: int) -> ExactRecall:
        if not 1 <= output <= len(self.answers):
            return ExactRecall(key, UNKNOWN, False, output)
        return ExactRecall(key, self.vocabulary.token(self.answers[output - 1]), True, output)

    def encode(self, keys: Sequence[Sequence[str]]) -> np.ndarray:
        """Token ids (B, S) of keys given in words, short ones padded if the facts were."""
        rows = []
        for key in keys:
            self.check_length(key)
            pad = [self.pad_id] * (self.key_length - len(key)) if self.pad_id is not None else []
            rows.append(pad + self.vocabulary.ids(key))
        return np.array(rows, dtype=np.int64).reshape(len(rows), self.key_length)

    def check_length(self, key: Sequence[str]) -> None:
        n = self.key_length
        if len(key) > n or (len(key) < n and self.pad_id is None) or not key:
            raise FactsError(
                f"this memory takes keys of {n} token{'s'[: n > 1]}, found {len(key)}: "
                f"{', '.join(map(repr, key)) or 'nothing'}."
            )

    def outputs(self, tokens: np.ndarray) -> np.ndarray:
        """Classes (B,) of token ids (B, S), by the structured evaluator; 0 is unknown."""
        ids = np.asarray(tokens)
        if self._table is None:
            return self.structured.evaluate(self.vectors(ids))
        keys, numbers = self._table
        at = ids + np.arange(self.key_length) * self.spec.N if self.spec.ordered else ids
        return self.structured.outputs(keys[at], numbers[at])

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Keys and ids of every (token, position): FF1 is token-wise, so it can be done once."""
        N, S = self.spec.N, self.spec.S if self.spec.ordered else 1
        if N * S > TABLE_CELLS:
            return None
        pairs = np.arange(N * S)
        vectors = np.stack([pairs % N, pairs // N], 1) if self.spec.ordered else pairs[:, None]
        keys = self.structured.keys(vectors)
        return keys, self.structured.ids(keys)

    def literal_outputs(
        self, tokens: np.ndarray, progress: Callable[[str], None] = lambda _: None
    ) -> np.ndarray:
        """The same, every block executed in exact integers: the oracle."""
        return evaluate(self.network, self.vectors(tokens), progress=progress)

    def classes(self, answers: np.ndarray) -> np.ndarray:
        """Class of each answer given as a token id; -1 where it is no answer of this memory."""
        known = np.array(self.answers, dtype=np.int64)
        at = np.minimum(np.searchsorted(known, answers), len(known) - 1)
        return np.where(known[at] == answers, at + 1, -1)

    def save(self, folder: str | Path, *, force: bool = False, with_facts: bool = True) -> Path:
        """Write the memory folder; see `byheart.models.memory_files.save`."""
        from byheart.models.memory_files import save

        return save(self, folder, force=force, with_facts=with_facts)

    def to_dense(self) -> ExactMemory:
        raise _no_layer("the literal layer")

    def to_torch(self) -> None:
        raise _no_layer("a torch module")


def _no_layer(what: str) -> ByheartError:
    return ByheartError(
        f"{what} has floating-point weights, and this memory has integers that no float holds: "
        "`byheart precision` says what is lost. Build with --method attention or sharded instead."
    )


def as_vectors(tokens: np.ndarray, ordered: bool) -> np.ndarray:
    """Token ids (B, S) -> vectors (B, S, 2) = (id, position), or (B, S, 1).

    >>> as_vectors(np.array([[7, 8]]), True).tolist()
    [[[7, 0], [8, 1]]]
    """
    ids = np.asarray(tokens, dtype=np.int64)
    if not ordered:
        return ids[:, :, None]
    return np.stack([ids, np.broadcast_to(np.arange(ids.shape[1]), ids.shape)], axis=2)


def assemble(
    record: Mapping[str, Any], parts: Parts, vocabulary: Vocabulary, facts: Facts | None
) -> ExactMemory:
    """The memory that a description and a network make; ValueError if they do not fit together."""
    spec = ExactSpec(**record["spec"])
    network = emit(parts)
    said = {name: getattr(spec, name) for name in network.counts().to_json()}
    if said != network.counts().to_json() or network.m != spec.m:
        raise ValueError(f"the spec counts {said}, the network {network.counts().to_json()}")
    answers = tuple(record["construction"]["answers"])
    if len(answers) != spec.classes or list(answers) != sorted(set(answers)):
        raise ValueError(f"{len(answers)} answers for {spec.classes} classes")
    if answers and not 0 <= answers[0] <= answers[-1] < len(vocabulary):
        raise ValueError("answers outside the vocabulary")
    limits = (spec.N - 1, spec.S - 1) if spec.ordered else (spec.N - 1,)
    if parts.projection.high != limits or any(parts.projection.low):
        raise ValueError(f"the network takes tokens up to {parts.projection.high}")
    return ExactMemory(
        spec=spec,
        parts=parts,
        vocabulary=vocabulary,
        answers=answers,
        facts=facts,
        pad_id=record["pad_id"],
        construction=record["construction"],
    )
