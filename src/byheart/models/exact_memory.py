"""A memory of exact integers: a square-root Transformer with a vocabulary, that can be asked.

Tokens are vectors (id, position), or (id) where keys are multisets; the network's output is a
class: 0 for "unknown", i for the i-th answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NoReturn

import numpy as np

from byheart._progress import Report, quiet
from byheart.errors import ByheartError
from byheart.exact import files as exact_files
from byheart.exact.blocks import Network
from byheart.exact.literal import evaluate
from byheart.exact.parts import Parts, Structured, emit
from byheart.models.construction import SquareRootConstruction
from byheart.models.description import PageWords, Part
from byheart.models.folder import NETWORK, Files, Layouts, Record
from byheart.models.memory import Dtype, FactTable, Recall
from byheart.models.word_memory import WordMemory, token_table
from byheart.specs import ExactSpec, TokenSpec

UNKNOWN = "unknown"
HEADER_BYTES, WEIGHT_BYTES = 1 << 16, 32  # of network.bin: its header, and places of a weight
TABLE_CELLS = 20_000_000  # (token, position) pairs whose ids are kept for fast recall

NO_FLOATS = (
    "has floating-point weights, and this memory has integers that no float holds: `byheart "
    "precision` says what is lost. Build with `method=attention` or `method=sharded` instead."
)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ExactMemory(WordMemory[np.ndarray]):
    """Integer weights with a vocabulary and, usually, the facts they hold. Inputs are token ids
    (B, S), outputs classes (B,): 0 for "unknown", i for the i-th of the construction's answers.

    >>> import byheart as bh
    >>> memory = bh.build("elements", "sqrt")
    >>> memory.recall("Fe", "name").answer, memory.recall("iron", "Fe").answer
    ('iron', 'unknown')
    """

    specs: ClassVar[Sequence[type[TokenSpec]]] = (ExactSpec,)

    spec: ExactSpec
    integers: Parts
    construction: SquareRootConstruction

    @property
    def answers(self) -> tuple[int, ...]:
        """The token ids of the classes 1, 2, ..."""
        return self.construction.answers

    @cached_property
    def network(self) -> Network:
        """The weights, block by block."""
        return emit(self.integers)

    @cached_property
    def structured(self) -> Structured:
        return Structured(self.integers)

    def vectors(self, tokens: np.ndarray) -> np.ndarray:
        """Token ids (B, S) as the network reads them."""
        return as_vectors(tokens, self.spec.ordered)

    def encode(self, keys: Sequence[Sequence[str]]) -> np.ndarray:
        return self.key_ids(keys)

    def inputs_of(self, facts: FactTable) -> np.ndarray:
        return token_table(facts).tokens

    def outputs(self, inputs: np.ndarray, dtype: Dtype | None = None) -> np.ndarray:
        """Classes (B,) of token ids (B, S), by the structured evaluator; 0 is unknown. Integers
        have no other number format: `dtype` is for floats."""
        ids = np.asarray(inputs)
        try:
            if self._table is None:
                return self.structured.evaluate(self.vectors(ids))
            keys, numbers = self._table
            at = ids + np.arange(self.key_length) * self.spec.N if self.spec.ordered else ids
            return self.structured.outputs(keys[at], numbers[at])
        except OverflowError:
            raise ByheartError(
                "expected keys and records that fit into 64 bits, as those of a build do, found "
                "longer ones: these integers can only be evaluated block by block."
            ) from None

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

    def literal_outputs(self, tokens: np.ndarray, progress: Report = quiet) -> np.ndarray:
        """The same, every block executed in exact integers."""
        return evaluate(self.network, self.vectors(tokens), progress=progress)

    def classes(self, answers: np.ndarray) -> np.ndarray:
        """Class of each answer given as a token id; -1 where it is no answer of this memory."""
        stored = np.array(self.answers, dtype=np.int64)
        at = np.minimum(np.searchsorted(stored, answers), len(stored) - 1)
        return np.where(stored[at] == answers, at + 1, -1)

    def margins(self, facts: FactTable | None = None, dtype: Dtype | None = None) -> np.ndarray:
        """1 where the output is the class of the right answer, -1 elsewhere."""
        table = token_table(self.own(facts))
        return np.where(self.outputs(table.tokens) == self.classes(table.answers), 1.0, -1.0)

    def recall(self, *tokens: str, literally: bool = False) -> Recall:
        """Ask for one key, in words; a token that no fact uses is unknown, too. `literally`: every
        block executed in exact integers."""
        new = [token for token in tokens if token not in self.vocabulary]
        ids = self.key_ids([[self.vocabulary.token(0) if t in new else t for t in tokens]])
        asked = self.literal_outputs if literally else self.outputs
        output = 0 if new else int(asked(ids)[0])
        if not 1 <= output <= len(self.answers):
            return Recall(tuple(tokens), UNKNOWN, known=False, output=(output,))
        answer = self.vocabulary.token(self.answers[output - 1])
        known = self.knows(ids[0]) is not False  # without the facts, by what the integers say
        return Recall(tuple(tokens), answer, known=known, output=(output,))

    def knows(self, key: np.ndarray) -> bool | None:
        if self.spec.ordered or self.facts is None:
            return super().knows(key)
        return bool((np.sort(self.facts.tokens, axis=1) == np.sort(key)).all(axis=1).any())

    def quality(self) -> dict[str, float | None]:
        return {"margin": None}

    def quality_text(self) -> str:
        return "exactly"

    @property
    def false_positive_rate(self) -> float | None:
        return self.construction.unknown.rate

    @property
    def no_heads(self) -> str | None:
        return (
            "A square-root Transformer has uniform attention only: every fact runs through the "
            "same integers, and none belongs to a head."
        )

    def parameter_rows(self) -> list[tuple[str, str]]:
        spec, T = self.spec, self.construction.facts
        return [
            ("parameters", f"{spec.parameters:,} non-zero ({spec.parameters / T:.2f} per fact)"),
            ("", f"{spec.dense:,} dense, {spec.distinct:,} different values"),
            ("bits", f"{spec.total_bits:,} in all non-zero weights, without signs"),
        ]

    def parts(self) -> tuple[Part, ...]:
        spec = self.spec
        size = f"{spec.depth:,} blocks of width {spec.width}, {spec.parameters:,} parameters in all"
        reads = "(id, position)" if spec.ordered else "a multiset"
        attention = Part("attention", ("uniform: adds the ids up",), None, 1)
        if spec.register:
            links = f"{self.network.links(spec.S)} links with a register"
            attention = Part("attention", ("two: the ids add up there", links), None, 2)
        return (
            Part("key", (f"{spec.S} token{'s'[: spec.S > 1]}", reads)),
            Part("FF1", (f"{spec.ff1}: tokens to ids", "ReLU blocks")),
            attention,
            Part("FF2", ("the sum to a class", "by folds and tables")),
            Part("class", (f"one of {spec.classes:,}, 0: unknown", size)),
        )

    def page_words(self) -> PageWords:
        key = ", ".join(map(repr, self.example())) or "..."
        asking = f"memory.recall({key})", "# integers that no float holds: no torch module"
        answers = None if self.facts is None else len(self.facts.answer_ids)
        return PageWords(asking, margin=None, answers=answers, bits=self.spec.total_bits)

    def to_dense(self) -> NoReturn:
        raise ByheartError(f"the literal layer {NO_FLOATS}")

    def to_torch(self) -> NoReturn:
        raise ByheartError(f"a torch module {NO_FLOATS}")

    def weight_files(self) -> dict[str, bytes]:
        return {NETWORK: exact_files.dump(self.integers)}

    @classmethod
    def layouts(cls, record: Record) -> Layouts:
        """The integers, in at most what their bits and places take."""
        spec = ExactSpec(**record["spec"])
        most = HEADER_BYTES + spec.total_bits // 8 + WEIGHT_BYTES * spec.parameters
        return {**super().layouts(record), NETWORK: most}

    @classmethod
    def fields_of(cls, record: Record, files: Files) -> dict[str, Any]:
        fields, content = super().fields_of(record, files), files[NETWORK]
        if not isinstance(content, bytes):
            raise ValueError(f"{NETWORK} holds tensors, not integers")
        integers, made = exact_files.load(content), fields["construction"]
        if not isinstance(made, SquareRootConstruction):
            raise ValueError(f"integers made by {made.method}")
        if fields["start_id"] is not None or fields["order"] is not None:
            raise ValueError("integers that read a start token, or keys in another order")
        _check_network(fields["spec"], integers, made.answers)
        return fields | {"integers": integers}


def _check_network(spec: ExactSpec, integers: Parts, answers: tuple[int, ...]) -> None:
    """Refuse a network that is not the one that spec and answers describe."""
    network = emit(integers)
    counts = network.counts().to_json()
    said = {name: getattr(spec, name) for name in counts}
    if said != counts or network.m != spec.m:
        raise ValueError(f"the spec counts {said}, the network {counts}")
    if network.pooling != ("register" if spec.register else "attention"):
        raise ValueError(f"the spec has no pooling by {network.pooling}")
    if len(answers) != spec.classes or list(answers) != sorted(set(answers)):
        raise ValueError(f"{len(answers)} answers for {spec.classes} classes")
    if answers and not 0 <= answers[0] <= answers[-1] < spec.N:
        raise ValueError("answers outside the vocabulary")
    limits = (spec.N - 1, spec.S - 1) if spec.ordered else (spec.N - 1,)
    if integers.projection.high != limits or any(integers.projection.low):
        raise ValueError(f"the network takes tokens up to {integers.projection.high}")


def as_vectors(tokens: np.ndarray, ordered: bool) -> np.ndarray:
    """Token ids (B, S) -> vectors (B, S, 2) = (id, position), or (B, S, 1).

    >>> as_vectors(np.array([[7, 8]]), True).tolist()
    [[[7, 0], [8, 1]]]
    """
    ids = np.asarray(tokens, dtype=np.int64)
    if not ordered:
        return ids[:, :, None]
    return np.stack([ids, np.broadcast_to(np.arange(ids.shape[1]), ids.shape)], axis=2)
