"""The memory whose heads are gated to shards of facts: each fact is owned by known heads."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from safetensors.torch import save as dump_tensors
from torch import Tensor

from byheart._machine import check_room
from byheart.errors import ByheartError, MemoryFileError
from byheart.facts import Facts
from byheart.models import sharded
from byheart.models.construction import AttentionConstruction, ShardedConstruction
from byheart.models.description import Part
from byheart.models.folder import (
    DIGESTS,
    INDEX,
    WEIGHTS,
    WHOLE,
    Files,
    Layouts,
    Record,
    Sizes,
    check_shapes,
    tensors,
)
from byheart.models.memory import Dtype, HeadParts
from byheart.models.owner import Owner, Owners
from byheart.models.threads import one_thread
from byheart.models.token_memory import TokenMemory, margin_parts, token_parts
from byheart.specs import ShardedSpec, TokenSpec

# What else depends on the heads of a shard whose foreign keys read x_1.
SINK = (
    "every other fact depends on them too: for it they write W_O V x_1, which the cancelling heads "
    "take away. Zeroing their W_O loses facts elsewhere; replacing what they write by W_O V x_1 "
    "loses exactly these"
)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ShardedMemory(TokenMemory):
    """An attention-only layer whose heads are gated to shards (`models/sharded.py`).

    Inputs have the start token (BOS) in front, as the literal layer reads them; a key's own heads
    answer, and `to_dense` writes all of them out.

    >>> import byheart as bh
    >>> memory = bh.build("countries", "sharded")
    >>> owner = memory.owner("France", "capital")
    >>> len(owner.heads) < memory.spec.H, len(owner.facts) < memory.facts.T
    (True, True)
    """

    specs: ClassVar[Sequence[type[TokenSpec]]] = (ShardedSpec,)

    spec: ShardedSpec
    construction: ShardedConstruction

    def __post_init__(self) -> None:
        weights, J = dict(self.weights), len(self.weights.get("u", ()))
        if not 1 <= J <= self.spec.H:
            raise ValueError(f"u: expected 1 to {self.spec.H:,} heads, found {J:,}")
        if self.start_id is not None:
            raise ValueError("start_id: expected none, the start token stands in front of all keys")
        shapes = self.spec.weight_shapes() | tied(self.spec, J)
        check_shapes(self.spec, shapes | digests(self.spec, DIGESTS in weights), weights)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The weights as the functions of `models/sharded.py` take them."""
        return dict(self.weights)

    def with_start(self, tokens: Tensor | np.ndarray) -> Tensor:
        return sharded.with_bos(self.spec, self.in_order(tokens))

    def outputs(self, inputs: Tensor, dtype: Dtype | None = None) -> Tensor:
        """Logits (B, N) through the own heads, for keys with the start token in front."""
        out = sharded.residual(self.spec, self.tensors, inputs[:, 1:], dtype)
        return out[:, : self.spec.d_g] @ self.weights["W_U"].to(out.dtype)

    def shards_of(self, facts: Facts) -> np.ndarray:
        """The shard that owns each fact (T,); -1 where the deciding token decides for none."""
        return sharded.shard_of(self.tensors, self.in_order(facts.tokens)).numpy()

    def shard(self, *key: str) -> int:
        """The shard that owns a key; -1 where its deciding token decides for none."""
        return int(sharded.shard_of(self.tensors, self.in_order(self.key_ids([key])))[0])

    def knows(self, key: np.ndarray) -> bool | None:
        """Whether the key is stored: by the facts, by its fingerprint, or because its deciding
        token decides for no shard; None where none of them can tell."""
        tokens = self.in_order(key[None])
        if int(sharded.shard_of(self.tensors, tokens)[0]) < 0:
            return False
        if self.facts is None and self.construction.abstain is not None:
            return bool(self.knows_by_fingerprint(tokens)[0])
        return super().knows(key)

    @property
    def false_positive_rate(self) -> float | None:
        abstain = self.construction.abstain
        return None if abstain is None else abstain.false_positive_rate

    def check_errors(self, tokens: Tensor, seed: int) -> Tensor:
        """max_i |v_i - φ_i| of each key (B,), float64; tokens in the model's order, no BOS."""
        with one_thread():
            out = sharded.residual(self.spec, self.tensors, tokens)[:, self.spec.d_g :].double()
        return (out - sharded.fingerprints(tokens, self.spec.check, seed)).abs().amax(1)

    def knows_by_fingerprint(self, tokens: Tensor) -> Tensor:
        """Which keys (B, S), in the model's order without BOS, are stored: (B,) bool; wrong for
        other keys at the stated false-positive rate.

        >>> import byheart as bh
        >>> memory = bh.build("countries", "sharded", abstain=True)
        >>> keys = memory.key_ids([("France", "capital"), ("capital", "France")])
        >>> memory.knows_by_fingerprint(memory.in_order(keys)).tolist()
        [True, False]
        """
        abstain = self.construction.abstain
        if not self.spec.check or abstain is None:
            raise ByheartError(
                "this memory has no fingerprints, so it cannot tell stored keys from others "
                "without its facts. Build it with `abstain`."
            )
        housed = sharded.shard_of(self.tensors, tokens) >= 0
        return housed & (self.check_errors(tokens, abstain.seed) <= abstain.tolerance)

    def owner(self, *key: str) -> Owner:
        """The heads of the shard that owns a key, and all facts of that shard. With a subject sink
        the cancelling heads count on them for every other fact (`Owner.others`)."""
        shard = self.shard(*key)
        if shard < 0:
            return Owner(tuple(key), (), ())
        first, end = self.weights["head_start"][shard : shard + 2].tolist()
        mates = () if self.facts is None else np.flatnonzero(self.shards_of(self.facts) == shard)
        others = SINK if self.spec.gate == "subject-sink" else ""
        return Owner(tuple(key), tuple(range(first, end)), tuple(map(int, mates)), shard, others)

    def owners(self) -> Owners | None:
        if self.facts is None:
            return None
        ends = pairwise(self.weights["head_start"].tolist())
        heads = tuple(tuple(range(first, end)) for first, end in ends)
        others = SINK if self.spec.gate == "subject-sink" else ""
        return Owners(0, self.shards_of(self.facts), heads, others, self.survivors(self.facts))

    def survivors(self, facts: Facts) -> tuple[int, ...]:
        """The facts that x_S alone names, which is what is left of the stream when their own heads
        are zeroed; float64."""
        last, at = self.in_order(facts.tokens)[:, -1].unique(return_inverse=True)
        x_S = self.weights["W_E"][last].double() + self.weights["W_pos"][-1].double()
        W_U = self.weights["W_U"].double()
        top = [torch.topk(x_S[b] @ W_U, 2) for b in self.batches(len(x_S))]
        values, answers = torch.cat([t.values for t in top]), torch.cat([t.indices for t in top])
        named = torch.where(values[:, 0] > values[:, 1], answers[:, 0], -1)[at]
        return tuple((named == torch.tensor(facts.answers)).nonzero()[:, 0].tolist())

    @property
    def positions(self) -> tuple[str | int, ...]:
        return ("start", *super().positions)

    def _head_parts(self, inputs: Tensor, answers: Tensor | None) -> Iterator[HeadParts]:
        spec, weights, tokens = self.spec, self.tensors, inputs[:, 1:]
        W_U = weights["W_U"].double()
        shards = sharded.shard_of(weights, tokens)
        for shard in shards.unique().tolist():
            at = (shards == shard).nonzero()[:, 0]
            first, end = weights["head_start"][shard : shard + 2].tolist() if shard >= 0 else (0, 0)
            skip, F = sharded.own_features(spec, weights, tokens[at], end - first, torch.float64)
            W_O = weights["W_O"][first:end].double()[..., : spec.d_g]
            written = torch.einsum("bhe,hed->bhd", F, W_O)
            attention = sharded.own_attention(spec, weights, tokens[at], first, end)
            heads = torch.arange(first, end)
            yield margin_parts(at, heads, skip, written, attention, W_U, answers)

    def parts(self) -> tuple[Part, ...]:
        gated = f"in {self.spec.shards} shards, gated"
        return token_parts(self.spec.dense(), self.key_length, self.answer_part, gated)

    def to_dense(self) -> TokenMemory:
        """One plain attention-only layer, every head and gate written out. Refused, with the size,
        where it does not fit into this machine."""
        what = f"the literal layer of {self.spec.parameters:,} parameters"
        # float64 while it is written, a copy, and as much again to use them
        check_room(4 * 8 * self.spec.parameters, what, "Recall and certificates do without it.")
        spec, weights = sharded.to_dense(self.spec, self.tensors)
        kept = ("facts", "recalled", "capacity", "margin", "readout", "dtype", "seed")
        kept = {n: getattr(self.construction, n) for n in (*kept, "ideal_margin", "beta")}
        why = (*self.construction.why, "a sharded memory with every head and gate written out")
        made = AttentionConstruction(**kept, why=why)
        own = {name: getattr(self, name) for name in ("vocabulary", "facts", "pad_id", "order")}
        start = self.spec.N - 1
        return TokenMemory(spec=spec, weights=weights, construction=made, start_id=start, **own)

    def weight_files(self) -> dict[str, bytes]:
        """W_O apart, so that recall can map it and read one shard only; each shard has a digest."""
        weights = {k: w.contiguous() for k, w in self.weights.items() if k != DIGESTS}
        W_O = weights.pop("W_O")
        sums = [shard_sha256(W_O, a, b) for a, b in pairwise(weights["head_start"].tolist())]
        digests = torch.frombuffer(bytearray(b"".join(sums)), dtype=torch.uint8)
        weights[DIGESTS] = digests.view(-1, 32)
        return {WEIGHTS: dump_tensors({"W_O": W_O}), INDEX: dump_tensors(weights)}

    @classmethod
    def layouts(cls, record: Record) -> Layouts:
        """W_O in a file of its own; the index holds all other weights, lattice and layout as whole
        numbers, and at most as many tied heads as there are heads."""
        spec = ShardedSpec(**record["spec"])
        shapes = spec.weight_shapes()
        index = tensors(
            {name: shape for name, shape in shapes.items() if name not in FLOATING}, WHOLE
        )
        index |= tensors({name: shapes[name] for name in FLOATING if name in shapes})
        index |= tensors(tied(spec, range(1, spec.H + 1))) | tensors(digests(spec), ("U8",))
        return {**super().layouts(record), WEIGHTS: {"W_O": index.pop("W_O")}, INDEX: index}

    @classmethod
    def fields_of(cls, record: Record, files: Files) -> dict[str, Any]:
        fields = super().fields_of(record, files)
        if not isinstance(fields["construction"], ShardedConstruction):
            raise ValueError(f"shards made by {fields['construction'].method}")
        if wrong := sharded.layout_fault(fields["spec"], fields["weights"]):
            raise ValueError(wrong)
        return fields

    def check_shard(self, shard: int) -> None:
        """Refuse a lazily loaded memory whose shard is not the one that was written."""
        a, b = self.weights["head_start"][shard : shard + 2].tolist()
        digest = self.weights[DIGESTS][shard].numpy().tobytes()
        if shard_sha256(self.weights["W_O"], a, b) != digest:
            raise MemoryFileError(
                f"shard {shard} of {WEIGHTS} differs from its SHA-256 in {INDEX}: it was changed. "
                "Restore the memory from a copy or build it again."
            )


FLOATING = ("W_E", "W_pos", "W_O", "W_U", "cancel", "u", "w", "V")


def tied(spec: ShardedSpec, heads: int | range) -> dict[str, Sizes]:
    """Shapes of the heads that all shards share; {} where every shard has its own."""
    g = spec.d_g
    return {} if spec.untied else {"u": (heads, g), "w": (heads, g), "V": (heads, g, spec.d_h)}


def digests(spec: ShardedSpec, there: bool = True) -> dict[str, Sizes]:
    """The shape of the shards' sums, in a memory that was read."""
    return {DIGESTS: (spec.shards, 32)} if there else {}


def shard_sha256(W_O: Tensor, a: int, b: int) -> bytes:
    """SHA-256 of the bytes of heads a..b-1."""
    return hashlib.sha256(W_O[a:b].contiguous().view(torch.uint8).numpy().tobytes()).digest()
