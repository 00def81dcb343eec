"""Memories that are asked with tokens: attention-only, associative and trained stacks; and those
whose keys have several right answers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from safetensors.torch import save as dump_tensors
from torch import Tensor

from byheart._json import Json
from byheart._json import record as typed_record
from byheart.errors import FactsError
from byheart.facts import Distributions, Facts
from byheart.models.architectures import module_of
from byheart.models.construction import DistributionConstruction
from byheart.models.description import PageWords, Part
from byheart.models.folder import FACTS, WEIGHTS, Files, Layouts, Record, check_shapes, tensors
from byheart.models.memory import Dtype, FactTable, HeadParts, Recall, answer_margins, projections
from byheart.models.word_memory import WordMemory, check_sums, token_table
from byheart.specs import (
    AssociativeSpec,
    AttentionOnlySpec,
    MLPTransformerSpec,
    SharedBottleneckSpec,
    Spec,
    TokenSpec,
)

AFTER_HEADS = "Feed-forward or shared layers follow the heads: the logit is no sum over heads."
NO_HEADS: dict[type[Spec], str] = {
    AssociativeSpec: "An associative memory is one matrix: it has no heads.",
    MLPTransformerSpec: AFTER_HEADS,
    SharedBottleneckSpec: AFTER_HEADS,
}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TokenMemory(WordMemory[Tensor]):
    """A spec with weights (no model axis), the vocabulary and, usually, the facts it holds. Inputs
    are token ids (B, S), outputs logits (B, N)."""

    specs: ClassVar[Sequence[type[TokenSpec]]] = (
        AttentionOnlySpec,
        AssociativeSpec,
        MLPTransformerSpec,
        SharedBottleneckSpec,
    )

    answer_part: ClassVar[Part] = Part("answer", ("largest logit",))

    weights: Mapping[str, Tensor]

    def __post_init__(self) -> None:
        check_shapes(self.spec, self.spec.weight_shapes(), self.weights)

    @property
    def dtype(self) -> torch.dtype:
        """The number format in which the weights are stored."""
        return self.weights["W_U"].dtype

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

    def outputs(self, inputs: Tensor, dtype: Dtype | None = None) -> Tensor:
        """Logits T(t) (B, N) for token ids (B, S), in the stored number format or in `dtype`."""
        stacked = {name: w[None].to(dtype or w.dtype) for name, w in self.weights.items()}
        return module_of(self.spec).forward(self.spec, stacked, inputs)[0]

    def answers(self, inputs: Tensor) -> Tensor:
        """argmax of the logits for token ids (B, S), in batches of bounded memory."""
        return torch.cat([self.outputs(inputs[b]).argmax(1) for b in self.batches(len(inputs))])

    def margins(self, facts: FactTable | None = None, dtype: Dtype | None = None) -> np.ndarray:
        """Logit of the right answer minus the largest other one, per fact of a table in this
        memory's vocabulary; in the stored number format unless `dtype` says otherwise."""
        table = token_table(self.own(facts))
        inputs, right = self.inputs_of(table), torch.tensor(table.answers)
        batches = self.batches(len(inputs))
        parts = [answer_margins(self.outputs(inputs[b], dtype), right[b]) for b in batches]
        return torch.cat(parts).to(torch.float64).numpy()

    def recall(self, *tokens: str) -> Recall:
        """Ask for one key, in words. Keys shorter than S are padded if the facts were."""
        keys = self.key_ids([tokens])
        logits = self.outputs(self.with_start(keys))[0]
        best = torch.topk(logits, min(2, len(logits))).indices.tolist()
        margin = float(logits[best[0]] - logits[best[1]]) if len(best) == 2 else float("inf")
        names = [self.vocabulary.token(i) for i in best] + [None]
        return Recall(tuple(tokens), str(names[0]), margin, names[1], self.knows(keys[0]))

    def answer_name(self, answer: int) -> str:
        return self.vocabulary.token(answer)

    @property
    def no_heads(self) -> str | None:
        if self.spec.N == 1:
            return "There is only one token: no answer has a competitor, and no margin is split."
        other = None if "W_O" in self.spec.weight_shapes() else f"A {self.name} has no heads."
        return NO_HEADS.get(type(self.spec), other)

    def head_parts(self, inputs: Tensor, answers: Tensor | None = None) -> Iterator[HeadParts]:
        if self.no_heads is not None:
            return super().head_parts(inputs, answers)
        return self._head_parts(inputs, answers)

    def _head_parts(self, inputs: Tensor, answers: Tensor | None) -> Iterator[HeadParts]:
        module = module_of(self.spec)
        weights = {k: w[None].double() for k, w in self.weights.items()}
        heads = torch.arange(self.spec.H)  # type: ignore[attr-defined]
        for b in self.batches(len(inputs), copies=3):
            skip, F = module.head_outputs(self.spec, weights, inputs[b])
            written = torch.einsum("bhe,hed->bhd", F[0], weights["W_O"][0, -1])
            a = module.attention(self.spec, weights, inputs[b])[0]
            at = torch.arange(b.start, b.stop)
            yield margin_parts(at, heads, skip[0], written, a, weights["W_U"][0], answers)

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
        from byheart.models.modules import module_for, reading

        dense = self.to_dense()
        return module_for(dense.spec, dense.weights, reading(dense), dense.vocabulary.tokens)

    def weight_files(self) -> dict[str, bytes]:
        return {WEIGHTS: dump_tensors({k: w.contiguous() for k, w in self.weights.items()})}

    @classmethod
    def fields_of(cls, record: Record, files: Files) -> dict:
        weights: dict[str, Tensor] = {}
        for name, content in files.items():
            if name != FACTS and isinstance(content, dict):
                weights |= content
        return super().fields_of(record, files) | {"weights": weights}


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
        batches = self.batches(len(inputs))
        return torch.cat(
            [self.outputs(inputs[b], torch.float64)[:, support] for b in batches]
        ).numpy()

    def recall(self, *tokens: str) -> Recall:
        """Ask for one key: the most probable answer, and all answers with their probabilities."""
        said = super().recall(*tokens)
        logits, support = self.outputs(self.encode([tokens]), torch.float64)[0], self.support
        q = torch.softmax(logits[support], 0)
        order = q.argsort(descending=True, stable=True).tolist()
        pairs = tuple((self.vocabulary.token(int(support[j])), float(q[j])) for j in order)
        return replace(said, answer=pairs[0][0], probabilities=pairs)

    @property
    def support(self) -> Tensor:
        """The token ids of the answers, over which the softmax runs: other tokens have zero
        columns in W_U."""
        if self.distribution is not None:
            return torch.tensor(self.distribution.support)
        return (self.weights["W_U"] != 0).any(0).nonzero()[:, 0]

    def facts_tensors(self, facts: Facts) -> dict[str, Tensor]:
        """Also `support (A)` int32 and `probabilities (T, A)` float64."""
        tensors, table = super().facts_tensors(facts), self.distribution
        if table is not None:
            tensors["support"] = torch.from_numpy(table.support.astype(np.int32))
            tensors["probabilities"] = torch.from_numpy(table.probabilities.copy())
        return tensors

    def record(self) -> dict[str, Json]:
        record, table = super().record(), self.distribution
        if table is not None:
            about: dict[str, Json] = {"digest": table.digest(), "answers": table.A}
            about |= {"smoothing": table.smoothing, "never_asked": table.never_asked}
            record["distribution"] = about
        return record

    @classmethod
    def layouts(cls, record: Record) -> Layouts:
        layouts, said = super().layouts(record), _about(record)
        facts = layouts.get(FACTS)
        if said is None or not isinstance(facts, dict):
            return layouts
        more = tensors({"support": (said.answers,)}, ("I32",))
        more |= tensors({"probabilities": (*facts["prior"].shapes[0], said.answers)}, ("F64",))
        return {**layouts, FACTS: facts | more}

    @classmethod
    def fields_of(cls, record: Record, files: Files) -> dict:
        values = super().fields_of(record, files)
        return values | {"distribution": distribution_from(values["facts"], record, files)}


@dataclass(frozen=True)
class _About:
    """What memory.json says of distributions."""

    digest: str
    answers: int
    smoothing: str
    never_asked: int


def _about(record: Record) -> _About | None:
    said = record.get("distribution")
    return None if said is None else typed_record(said, _About, "distribution")


def distribution_from(facts: Facts | None, record: Record, files: Files) -> Distributions | None:
    """The distributions in a folder; None where the facts were left out."""
    arrays, said = files.get(FACTS), _about(record)
    if facts is None or said is None or not isinstance(arrays, dict):
        return None
    support, pi = arrays["support"].numpy().astype(np.int64), arrays["probabilities"].numpy()
    if len(np.unique(support)) < len(support) or support.min() < 0 or support.max() >= facts.N:
        raise ValueError("support has token ids outside the vocabulary, or one of them twice")
    check_sums(pi, "probabilities")
    return Distributions(facts, support, pi, said.smoothing, said.never_asked)


def margin_parts(
    at: Tensor,
    heads: Tensor,
    skip: Tensor,
    written: Tensor,
    attention: Tensor,
    W_U: Tensor,
    answers: Tensor | None,
) -> HeadParts:
    """(w_g - w_j)·W_O^h F^h(t) for answer g and runner-up j, head by head."""
    logits = (skip + written.sum(1)) @ W_U
    g = logits.argmax(1) if answers is None else answers[at]
    j = logits.scatter(1, g[:, None], -torch.inf).argmax(1)
    direction = (W_U[:, g] - W_U[:, j]).T
    parts = torch.einsum("bhd,bd->bh", written, direction)
    through = (skip * direction).sum(1)
    return HeadParts(at, heads, parts, through, attention, g, j, logits, written)


def token_parts(spec: TokenSpec, key_length: int, answer: Part, *notes: str) -> tuple[Part, ...]:
    """The parts of a Transformer over tokens, or of whatever weights the spec names."""
    shapes = spec.weight_shapes()
    size = {name: math.prod(shape) for name, shape in shapes.items()}
    plural = "s"[: key_length > 1]
    start = ("behind a start token",) if spec.S > key_length else ()
    key = Part("key", (f"{key_length} token{plural}", f"of {spec.N:,}", *start))
    if "W_Q" not in shapes:
        blocks = [Part(n, (" × ".join(map(str, s)),), size[n]) for n, s in shapes.items()]
        return (key, *blocks, answer)
    sizes = spec.to_json()
    d, H, layers = sizes["d"], sizes["H"], sizes.get("layers", 1)
    embeddings = size["W_E"] + size.get("W_pos", 0)
    lines = (f"W_E: {spec.N:,} × {d}", f"W_pos: {spec.S} × {d}")
    between = spec.parameters - embeddings - size["W_U"]
    label = f"{H} head{'s'[: H != 1]}" + (f" × {layers} layers" if layers > 1 else "")
    if "w" in sizes:
        notes = (*notes, f"feed-forward width {sizes['w']}")
    return (
        key,
        Part("embedding", lines, embeddings),
        Part(label, (*projections(shapes), *notes), between, H, sizes.get("skip", True)),
        Part("W_U", (f"{d} × {spec.N:,}",), size["W_U"]),
        answer,
    )
