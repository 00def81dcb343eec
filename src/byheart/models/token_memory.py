"""Memories that are asked with tokens: attention-only, associative and trained stacks; and those
whose keys have several right answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import torch
from safetensors.torch import save as dump_tensors
from torch import Tensor

from byheart._json import Json
from byheart.errors import FactsError
from byheart.facts import Distributions, Facts, Vocabulary
from byheart.models.architectures import module_of
from byheart.models.construction import Construction, DistributionConstruction
from byheart.models.facts_files import (
    distribution_from,
    distribution_record,
    facts_from,
    facts_record,
    facts_tensors,
)
from byheart.models.folder import FACTS, WEIGHTS, Files, Record
from byheart.models.memory import (
    FactTable,
    HeadParts,
    Memory,
    PageWords,
    Part,
    Recall,
    answer_margins,
    check_shapes,
)
from byheart.models.token_layers import margin_parts, token_parts
from byheart.specs import (
    AssociativeSpec,
    AttentionOnlySpec,
    MLPTransformerSpec,
    SharedBottleneckSpec,
    Spec,
    TokenSpec,
)

NAMES = {
    AttentionOnlySpec.family: "attention-only Transformer",
    AssociativeSpec.family: "associative memory",
    MLPTransformerSpec.family: "Transformer with feed-forward layers",
    SharedBottleneckSpec.family: "attention-only Transformer with shared projections",
}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TokenMemory(Memory[Tensor]):
    """A spec with weights (no model axis), the vocabulary and, usually, the facts it holds.

    `start_id`: the token put in front of every key (keys of one token need it, see
    `byheart.construct.attention_only`); `order`: the key columns as the model reads them, where
    that is not the order in which they are asked. Inputs are token ids (B, S), outputs logits
    (B, N).
    """

    specs: ClassVar[Sequence[type[TokenSpec]]] = (
        AttentionOnlySpec,
        AssociativeSpec,
        MLPTransformerSpec,
        SharedBottleneckSpec,
    )

    answer_part: ClassVar[Part] = Part("answer", ("largest logit",))

    spec: TokenSpec
    weights: Mapping[str, Tensor]
    vocabulary: Vocabulary
    construction: Construction
    facts: Facts | None = None
    start_id: int | None = None
    pad_id: int | None = None
    order: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        check_shapes(self.spec, self.weights)

    @property
    def name(self) -> str:
        return NAMES.get(self.spec.family, self.spec.title or self.spec.family)

    @property
    def dtype(self) -> torch.dtype:
        """The number format in which the weights are stored."""
        return self.weights["W_U"].dtype

    @property
    def key_length(self) -> int:
        """Tokens that a user gives: S without the start token."""
        return self.spec.S - (self.start_id is not None)

    @cached_property
    def key_vocabulary(self) -> Vocabulary:
        """The tokens that a key may hold: all but the start token, which is the last."""
        return Vocabulary(self.vocabulary.tokens[: self.spec.N - (self.start_id is not None)])

    # Asking

    def key_ids(self, keys: Sequence[Sequence[str]]) -> np.ndarray:
        """Token ids (B, key length) of keys given in words, as the table of facts has them: padded
        where the facts are, in the order in which they are asked."""
        return key_ids(keys, self.key_length, self.key_vocabulary, self.pad_id, self.facts)

    def encode(self, keys: Sequence[Sequence[str]]) -> Tensor:
        """Token ids (B, S) of keys given in words, with padding and start token."""
        return self.with_start(self.key_ids(keys))

    def inputs_of(self, facts: FactTable) -> Tensor:
        return self.with_start(token_table(facts).tokens)

    def answers_of(self, facts: FactTable) -> Tensor:
        return torch.tensor(token_table(facts).answers)

    def with_start(self, tokens: Tensor | np.ndarray) -> Tensor:
        """Token ids as the model reads them: in its order, the start token, if any, in front."""
        ids = self.in_order(tokens)
        if self.start_id is None:
            return ids
        return torch.cat([ids.new_full((len(ids), 1), self.start_id), ids], dim=1)

    def in_order(self, tokens: Tensor | np.ndarray) -> Tensor:
        """Token ids in the order in which the model reads them."""
        # torch.tensor copies: facts keep their arrays read-only.
        ids = tokens if isinstance(tokens, Tensor) else torch.tensor(tokens)
        return ids if self.order is None else ids[:, list(self.order)]

    def outputs(self, inputs: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Logits T(t) (B, N) for token ids (B, S), in the stored number format or in `dtype`."""
        stacked = {name: w[None].to(dtype or w.dtype) for name, w in self.weights.items()}
        return module_of(self.spec).forward(self.spec, stacked, inputs)[0]

    def answers(self, inputs: Tensor) -> Tensor:
        """argmax of the logits for token ids (B, S), in batches of bounded memory."""
        return torch.cat([self.outputs(inputs[b]).argmax(1) for b in self.batches(len(inputs))])

    def margins(
        self, facts: FactTable | None = None, dtype: torch.dtype | None = None
    ) -> np.ndarray:
        """Logit of the right answer minus the largest other one, per fact: > 0 means recalled.

        `facts` must use this memory's vocabulary. Evaluated in the stored number format unless
        `dtype` says otherwise; in batches of bounded memory.
        """
        table = token_table(self.own(facts))
        inputs, right = self.inputs_of(table), torch.tensor(table.answers)
        parts = [
            answer_margins(self.outputs(inputs[b], dtype), right[b])
            for b in self.batches(len(inputs))
        ]
        return torch.cat(parts).to(torch.float64).numpy()

    def recall(self, *tokens: str) -> Recall:
        """Ask for one key, in words. Keys shorter than S are padded if the facts were."""
        keys = self.key_ids([tokens])
        logits = self.outputs(self.with_start(keys))[0]
        best = torch.topk(logits, min(2, len(logits))).indices.tolist()
        margin = float(logits[best[0]] - logits[best[1]]) if len(best) == 2 else float("inf")
        names = [self.vocabulary.token(i) for i in best] + [None]
        return Recall(tuple(tokens), str(names[0]), margin, names[1], self.knows(keys[0]))

    def knows(self, key: np.ndarray) -> bool | None:
        """Whether the key (key length,) is stored; None without the facts."""
        if self.facts is None:
            return None
        return bool((self.facts.tokens == key).all(axis=1).any())

    def example(self) -> tuple[str, ...]:
        return () if self.facts is None else self.facts.key(0)

    def answer_name(self, answer: int) -> str:
        return self.vocabulary.token(answer)

    @property
    def no_heads(self) -> str | None:
        if self.spec.N == 1:
            return "There is only one token: no answer has a competitor, and no margin is split."
        if "W_Q" not in self.spec.weight_shapes():
            return NO_HEADS.get(type(self.spec), f"A {self.name} has no heads.")
        return NO_HEADS.get(type(self.spec))

    def head_parts(self, inputs: Tensor, answers: Tensor | None = None) -> Iterator[HeadParts]:
        if self.no_heads is not None:
            return super().head_parts(inputs, answers)
        return self._head_parts(inputs, answers)

    def _head_parts(self, inputs: Tensor, answers: Tensor | None) -> Iterator[HeadParts]:
        module, weights = (
            module_of(self.spec),
            {k: w[None].double() for k, w in self.weights.items()},
        )
        heads = torch.arange(self.spec.H)  # type: ignore[attr-defined]
        for b in self.batches(len(inputs), copies=3):
            skip, F = module.head_outputs(self.spec, weights, inputs[b])
            written = torch.einsum("bhe,hed->bhd", F[0], weights["W_O"][0, -1])
            a = module.attention(self.spec, weights, inputs[b])[0]
            at = torch.arange(b.start, b.stop)
            right = None if answers is None else answers[b]
            yield margin_parts(at, heads, skip[0], written, a, weights["W_U"][0], right)

    # Describing

    def parts(self) -> tuple[Part, ...]:
        return token_parts(self.spec, self.key_length, self.answer_part)

    def page_words(self) -> PageWords:
        key = ", ".join(map(repr, self.example())) or "..."
        asking = (
            f"memory.recall({key})",
            "module = memory.to_torch()  # a plain torch.nn.Module with named, hookable parts",
            f"logits = module(memory.encode([{self.example() or ...}]))",
            "memory.answer_name(int(logits.argmax()))",
        )
        answers = None if self.facts is None else len(self.facts.answer_ids)
        bits = 8 * self.dtype.itemsize * self.spec.parameters
        return PageWords(asking, self.positions, answers=answers, bits=bits)

    @property
    def positions(self) -> tuple[str | int, ...]:
        """What each position of an input holds: the start token, or a column of the key."""
        return (*["start"][: self.start_id is not None], *(self.order or range(self.key_length)))

    # Files

    def to_dense(self) -> TokenMemory:
        return self

    def to_torch(self) -> torch.nn.Module:
        """The formula of the family (docs/models.md) with trainable weights and hookable parts; it
        takes what `encode` gives and returns logits (B, N). See `byheart.models.modules`.

        >>> import byheart as bh
        >>> memory = bh.build("elements")
        >>> logits = memory.to_torch()(memory.encode([("Fe", "name")]))
        >>> memory.vocabulary.token(int(logits.argmax()))
        'iron'
        """
        from byheart.models.modules import to_module

        return to_module(self)

    def weight_files(self) -> dict[str, bytes]:
        return {WEIGHTS: dump_tensors({k: w.contiguous() for k, w in self.weights.items()})}

    def facts_file(self) -> bytes | None:
        return None if self.facts is None else dump_tensors(facts_tensors(self.facts, None))

    def record(self) -> dict[str, Json]:
        return {
            "start_id": self.start_id,
            "pad_id": self.pad_id,
            "order": None if self.order is None else list(self.order),
            "facts": None if self.facts is None else facts_record(self.facts),
            "distribution": None,
            "vocabulary": list(self.vocabulary.tokens),
        }

    @classmethod
    def from_files(cls, record: Record, files: Files) -> Self:
        return cls(**token_fields(cls, record, files))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DistributionMemory(TokenMemory):
    """A memory whose keys have several right answers: its softmax over the answers follows the
    `distribution`; `facts` holds the most probable ones.

    >>> import byheart as bh
    >>> memory = bh.build(bh.random_distributions("gauss", N=6, seed=1))
    >>> said = memory.recall(*memory.facts.key(0))
    >>> said.answer == said.probabilities[0][0]
    True
    """

    answer_part: ClassVar[Part] = Part("distribution", ("softmax over the answers",))

    construction: DistributionConstruction
    distribution: Distributions | None = None

    @property
    def name(self) -> str:
        return f"{super().name} of distributions"

    @property
    def table(self) -> FactTable | None:
        return self.distribution

    def answer_logits(self, table: Distributions | None = None) -> np.ndarray:
        """Logits (T, A) of the answers, the stored weights evaluated in float64."""
        table = self.distribution if table is None else table
        if table is None:
            raise FactsError("this memory was saved without its facts: give the table.")
        inputs, support = self.inputs_of(table), torch.tensor(table.support)
        parts = [
            self.outputs(inputs[b], torch.float64)[:, support] for b in self.batches(len(inputs))
        ]
        return torch.cat(parts).numpy()

    def recall(self, *tokens: str) -> Recall:
        """Ask for one key: the most probable answer, and all answers with their probabilities."""
        said = super().recall(*tokens)
        logits = self.outputs(self.encode([tokens]), torch.float64)[0]
        support = self.support
        q = torch.softmax(logits[support], 0)
        order = q.argsort(descending=True, stable=True).tolist()
        pairs = tuple((self.vocabulary.token(int(support[j])), float(q[j])) for j in order)
        return Recall(
            said.key, pairs[0][0], said.margin, said.runner_up, said.known, probabilities=pairs
        )

    @property
    def support(self) -> Tensor:
        """The token ids of the answers, over which the softmax runs: other tokens have zero
        columns in W_U."""
        if self.distribution is not None:
            return torch.tensor(self.distribution.support)
        return (self.weights["W_U"] != 0).any(0).nonzero()[:, 0]

    def facts_file(self) -> bytes | None:
        if self.facts is None:
            return None
        return dump_tensors(facts_tensors(self.facts, self.distribution))

    def record(self) -> dict[str, Json]:
        record = super().record()
        record["distribution"] = distribution_record(self.distribution)
        return record

    @classmethod
    def from_files(cls, record: Record, files: Files) -> Self:
        values = token_fields(cls, record, files)
        return cls(**values, distribution=distribution_from(values["facts"], record, files))


NO_HEADS: dict[type[Spec], str] = {
    AssociativeSpec: "An associative memory is one matrix: it has no heads.",
    **dict.fromkeys(
        (MLPTransformerSpec, SharedBottleneckSpec),
        "Feed-forward or shared layers follow the heads: the logit is no sum over heads.",
    ),
}


def key_ids(
    keys: Sequence[Sequence[str]],
    length: int,
    vocabulary: Vocabulary,
    pad_id: int | None,
    facts: Facts | None,
) -> np.ndarray:
    """Token ids (B, length) of keys in words, padded on the left where the facts are."""
    rows = []
    for key in keys:
        if isinstance(key, str):
            raise FactsError(
                f"expected a key as a sequence of tokens, found the string {key!r}. "
                f"Write ({key!r},) for a key of one token."
            )
        if wrong := [token for token in key if not isinstance(token, str)]:
            raise FactsError(
                f"expected tokens as text, found {wrong[0]!r} ({type(wrong[0]).__name__}). Give "
                "each token of the key as one argument: memory.recall('France', 'capital')."
            )
        if len(key) > length or (len(key) < length and pad_id is None) or not key:
            example = ", ".join(map(repr, facts.key(0))) if facts is not None else ""
            raise FactsError(
                f"this memory takes keys of {length} token{'s'[: length > 1]}, found {len(key)}: "
                f"{', '.join(map(repr, key)) or 'nothing'}."
                + (f" Example: {example}" if example else "")
            )
        pad = [] if pad_id is None else [pad_id] * (length - len(key))
        rows.append(pad + vocabulary.ids(key))
    return np.array(rows, dtype=np.int64).reshape(len(rows), length)


def token_table(facts: FactTable) -> Facts:
    """The tokens and answers of a table: the most probable answers of distributions."""
    if isinstance(facts, Facts):
        return facts
    if isinstance(facts, Distributions):
        return facts.facts
    raise FactsError(
        "this memory holds tokens and was given vectors: memory and facts do not belong together."
    )


def token_fields(cls: type[TokenMemory], record: Record, files: Files) -> dict:
    """The fields of a token memory from its description and files, checked against each other."""
    kind = next(kind for kind in cls.specs if kind.family == record["family"])
    spec = kind(**record["spec"])
    vocabulary = Vocabulary(tuple(record["vocabulary"]))
    check_reading(record, spec, vocabulary)
    weights: dict[str, Tensor] = {}
    for name, content in files.items():
        if name != FACTS and isinstance(content, dict):
            weights |= content
    return {
        "spec": spec,
        "weights": weights,
        "vocabulary": vocabulary,
        "construction": Construction.from_json(record["construction"]),
        "facts": facts_from(record, files, vocabulary),
        "start_id": record["start_id"],
        "pad_id": record["pad_id"],
        "order": None if record["order"] is None else tuple(record["order"]),
    }


def check_reading(record: Record, spec: TokenSpec, vocabulary: Vocabulary) -> None:
    """Refuse a description whose vocabulary, special tokens or order do not fit its spec."""
    if len(vocabulary) != spec.N:
        raise ValueError(f"{len(vocabulary)} tokens in the vocabulary, N = {spec.N} in the spec")
    for name in ("start_id", "pad_id"):
        if record[name] is not None and not 0 <= record[name] < spec.N:
            raise ValueError(f"{name} = {record[name]} is no token of the vocabulary")
    keys = spec.S - (record["start_id"] is not None)
    if record["order"] is not None and sorted(record["order"]) != list(range(keys)):
        raise ValueError(f"order {record['order']} does not permute {keys} key columns")
