"""A memory: a spec with weights and a vocabulary, that can be asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from byheart._machine import memory_bytes
from byheart.errors import ByheartError, FactsError
from byheart.facts import Distributions, Facts, Vocabulary
from byheart.models import (
    associative,
    attention_only,
    mlp_transformer,
    multi_head,
    sharded,
    shared_bottleneck,
)
from byheart.specs import (
    AssociativeSpec,
    AttentionOnlySpec,
    MLPTransformerSpec,
    MultiHeadSpec,
    ShardedSpec,
    SharedBottleneckSpec,
    TokenSpec,
)

FAMILIES: dict[str, tuple[type, ModuleType]] = {
    AttentionOnlySpec.family: (AttentionOnlySpec, attention_only),
    AssociativeSpec.family: (AssociativeSpec, associative),
    ShardedSpec.family: (ShardedSpec, sharded),
    SharedBottleneckSpec.family: (SharedBottleneckSpec, shared_bottleneck),
    MLPTransformerSpec.family: (MLPTransformerSpec, mlp_transformer),
    MultiHeadSpec.family: (MultiHeadSpec, multi_head),  # `VectorMemory`
}

BATCH_BYTES = 256 * 2**20  # keeps intermediates well below the size of the solve that made them


@dataclass(frozen=True)
class Recall:
    """One answer: `margin` is its logit minus the next best (inf if there is only one token)."""

    key: tuple[str, ...]
    answer: str
    margin: float
    runner_up: str | None


@dataclass(frozen=True)
class Memory:
    """A spec with weights (no model axis), the vocabulary and, usually, the facts it holds.

    `start_id`: the token put in front of every key (keys of one token need it, see
    `byheart.construct.attention_only`); `order`: the key columns as the model reads them, where
    that is not the order in which they are asked; `construction` says how the weights were made.
    `distribution`: where keys have several right answers, what they are; `facts` then holds the
    most probable ones.

    >>> import byheart as bh
    >>> memory = bh.build(bh.read_facts("countries"))
    >>> memory.recall("France", "capital").answer
    'Paris'
    """

    spec: TokenSpec
    weights: Mapping[str, Tensor]
    vocabulary: Vocabulary
    facts: Facts | None = None
    start_id: int | None = None
    pad_id: int | None = None
    order: tuple[int, ...] | None = None
    construction: Mapping[str, Any] = field(default_factory=dict)
    distribution: Distributions | None = None

    def __post_init__(self) -> None:
        for name, shape in self.spec.weight_shapes().items():
            if name not in self.weights or tuple(self.weights[name].shape) != shape:
                found = tuple(self.weights[name].shape) if name in self.weights else "nothing"
                raise ValueError(f"{name}: expected shape {shape} for {self.spec}, found {found}")

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
        n = self.spec.N - (self.start_id is not None or isinstance(self.spec, ShardedSpec))
        return Vocabulary(self.vocabulary.tokens[:n])

    def recall(self, *tokens: str) -> Recall:
        """Ask for one key, in words. Keys shorter than S are padded if the facts were."""
        ids = self.encode([tokens])
        logits = self.logits(ids)[0]
        order = torch.topk(logits, min(2, len(logits))).indices.tolist()
        margin = float(logits[order[0]] - logits[order[1]]) if len(order) == 2 else float("inf")
        names = [self.vocabulary.token(i) for i in order] + [None]
        return Recall(tuple(tokens), str(names[0]), margin, names[1])

    def encode(self, keys: Sequence[Sequence[str]]) -> Tensor:
        """Token ids (B, S) of keys given in words, with padding and start token."""
        n = self.key_length
        rows = []
        for key in keys:
            if len(key) > n or (len(key) < n and self.pad_id is None) or not key:
                raise FactsError(
                    f"this memory takes keys of {n} token{'s'[: n > 1]}, found {len(key)}: "
                    f"{', '.join(map(repr, key)) or 'nothing'}. Example: {self._example_key()}"
                )
            pad = [self.pad_id] * (n - len(key)) if self.pad_id is not None else []
            rows.append(pad + self.key_vocabulary.ids(key))
        return self.with_start(torch.tensor(rows, dtype=torch.long).reshape(len(rows), n))

    def with_start(self, tokens: Tensor | np.ndarray) -> Tensor:
        """Token ids as the model reads them: in its order, the start token, if any, in front."""
        # torch.tensor copies: facts keep their arrays read-only.
        ids = tokens if isinstance(tokens, Tensor) else torch.tensor(tokens)
        if self.order is not None:
            ids = ids[:, list(self.order)]
        if self.start_id is None:
            return ids
        return torch.cat([torch.full((len(ids), 1), self.start_id), ids], dim=1)

    def logits(self, tokens: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """T(t) for token ids (B, S), evaluated in the stored number format or in `dtype`."""
        module = FAMILIES[self.spec.family][1]
        return module.memory_logits(self.spec, dict(self.weights), tokens, dtype)

    def answers(self, tokens: Tensor) -> Tensor:
        """argmax of the logits for token ids (B, S), in batches of bounded memory."""
        return torch.cat([self.logits(tokens[b]).argmax(1) for b in self.batches(len(tokens))])

    def margins(self, facts: Facts, dtype: torch.dtype | None = None) -> Tensor:
        """Logit of the right answer minus the largest other one, per fact: > 0 means recalled.

        `facts` must use this memory's vocabulary. Evaluated in the stored number format unless
        `dtype` says otherwise; in batches of bounded memory.
        """
        tokens = self.with_start(facts.tokens)
        right = torch.tensor(facts.answers)
        parts = [
            answer_margins(self.logits(tokens[b], dtype), right[b])
            for b in self.batches(len(tokens))
        ]
        return torch.cat(parts).to(torch.float64)

    def batches(self, rows: int, copies: int = 1) -> Iterator[slice]:
        """Slices of at most `BATCH_BYTES` of intermediates, of which `copies` are kept at once."""
        step = max(1, BATCH_BYTES // (copies * self.spec.row_bytes(8)))
        return (slice(i, min(i + step, rows)) for i in range(0, rows, step))

    def to_dense(self) -> Memory:
        """A sharded memory as one plain attention-only layer, every head and gate written out;
        other memories as they are. Refused, with the size, where it does not fit."""
        if not isinstance(self.spec, ShardedSpec):
            return self
        needed = 8 * 2 * self.spec.parameters  # float64 while it is written, then a copy
        present = memory_bytes()
        if needed > present / 2:
            raise ByheartError(
                f"the literal layer has {self.spec.parameters:,} parameters and needs about "
                f"{needed / 1e9:,.0f} GB to write out, this machine has {present / 1e9:.0f} GB. "
                "Recall and certificates do without it."
            )
        spec, weights = sharded.to_dense(self.spec, dict(self.weights))
        return replace(self, spec=spec, weights=weights, start_id=self.spec.N - 1)

    def to_torch(self) -> torch.nn.Module:
        """A plain `torch.nn.Module` of the literal layer; see `byheart.models.torch_module`."""
        from byheart.models.torch_module import to_torch

        return to_torch(self)

    def save(self, folder: str | Path, *, force: bool = False, with_facts: bool = True) -> Path:
        """Write the memory folder; see `byheart.models.memory_files.save`."""
        from byheart.models.memory_files import save

        return save(self, folder, force=force, with_facts=with_facts)

    def _example_key(self) -> str:
        if self.facts is None:
            return " ".join(["TOKEN"] * self.key_length)
        return " ".join(repr(token) for token in self.facts.key(0))


def answer_margins(logits: Tensor, right: Tensor) -> Tensor:
    """logits[right] - max of the others, row by row: (B,). inf where there are no others.

    >>> answer_margins(torch.tensor([[3.0, 1.0, 2.5]]), torch.tensor([0]))
    tensor([0.5000])
    """
    own = logits.gather(1, right[:, None])
    others = logits.scatter(1, right[:, None], -torch.inf)
    return (own - others.amax(1, keepdim=True))[:, 0]
