"""A memory whose owners are known, and hidden from whoever looks at its weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from byheart.errors import ByheartError
from byheart.models import attention_only
from byheart.models.construction import Construction
from byheart.models.folder import Files, Record
from byheart.models.memory import HeadParts
from byheart.models.owner import Owner, Owners
from byheart.models.token_memory import TokenMemory, margin_parts
from byheart.specs import AttentionOnlySpec, TokenSpec

NOBODY = -1


@dataclass(frozen=True, kw_only=True)
class DisguisedConstruction(Construction, method="sharded", kind="disguise"):
    """A sharded memory in disguise (`construct/disguise.py`): the `layer` of its heads, the `shard`
    (T,) of each fact and the `heads` of each shard as they are numbered now, and what was done.

    `noise`: the largest change of a logit of a stored fact by what distractors write; `width`: of
    the sharded memory's own stream, before coordinates of the distractors were added.
    """

    promise: ClassVar[str] = "H·d_h of the sharded memory, Corollary 1 shard by shard"

    ideal_margin: float | None
    layer: int
    shard: tuple[int, ...]
    heads: tuple[tuple[int, ...], ...]
    others: str
    survive: tuple[int, ...]
    rotated: bool
    permuted: bool
    distractors: int
    cancelling: int
    noise: float
    width: int

    def _quality(self) -> list[tuple[str, str]]:
        owned = sum(map(len, self.heads))
        rows = [*super()._quality(), ("owners", f"{owned:,} heads of layer {self.layer}")]
        done = [word for word in ("rotated", "permuted") if getattr(self, word)]
        done += [f"{self.distractors:,} distractor heads"] if self.distractors else []
        done += [f"{self.cancelling:,} cancelling pairs of heads"] if self.cancelling else []
        done += [f"noise of {self.noise:.3g} on the logits"] if self.noise else []
        return [*rows, ("disguise", ", ".join(done) or "none")]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DisguisedMemory(TokenMemory):
    """A literal attention-only Transformer of one or more layers that is a sharded memory in
    disguise: it is still known which heads hold which fact.

    >>> import byheart as bh
    >>> memory = bh.build("countries", bh.Sharded(facts_per_head=1))
    >>> hidden = bh.disguise(memory, bh.Disguise(permute=True))
    >>> hidden.owner("France", "capital").heads != memory.owner("France", "capital").heads
    True
    """

    specs: ClassVar[Sequence[type[TokenSpec]]] = (AttentionOnlySpec,)

    spec: AttentionOnlySpec
    construction: DisguisedConstruction

    @property
    def name(self) -> str:
        return f"{super().name} in disguise"

    def owners(self) -> Owners | None:
        if self.facts is None:
            return None
        made = self.construction
        return Owners(made.layer, np.array(made.shard), made.heads, made.others, made.survive)

    def owner(self, *key: str) -> Owner:
        """The heads of the shard that owns a stored key, and all facts of that shard."""
        owners, facts = self.owners(), self.facts
        if owners is None or facts is None:
            raise ByheartError(
                "this memory was saved without its facts, by which owners are found. Keep the "
                "facts in the folder."
            )
        rows = np.flatnonzero((facts.tokens == self.key_ids([key])).all(axis=1))
        shard = int(owners.shard[rows[0]]) if len(rows) else NOBODY
        if shard == NOBODY:
            return Owner(tuple(key), (), (), layer=owners.layer)
        mates = tuple(np.flatnonzero(owners.shard == shard).tolist())
        return Owner(tuple(key), owners.heads[shard], mates, shard, owners.others, owners.layer)

    def _head_parts(self, inputs: Tensor, answers: Tensor | None) -> Iterator[HeadParts]:
        """Margins split over the heads of the owners' layer; what other layers write is counted
        with the skip. The sum is exact in any layer, because all write into one stream."""
        weights = {name: w[None].double() for name, w in self.weights.items()}
        stack, layer = attention_only.Stack(self.spec, weights), self.construction.layer
        heads = torch.arange(self.spec.H)
        for b in self.batches(len(inputs), copies=3):
            x = stack.embed(inputs[b])
            for below in range(layer):
                x = stack.all_positions(below, x)
            F = stack.heads(layer, x, last_only=True)[0, :, 0]
            written = torch.einsum("bhe,hed->bhd", F, weights["W_O"][0, layer])
            a = stack.attention(layer, x, last_only=True)[0][0, :, :, 0]
            stream = attention_only.residual(self.spec, weights, inputs[b])[0]
            at = torch.arange(b.start, b.stop)
            skip = stream - written.sum(1)
            yield margin_parts(at, heads, skip, written, a, weights["W_U"][0], answers)

    @classmethod
    def fields_of(cls, record: Record, files: Files) -> dict[str, Any]:
        fields = super().fields_of(record, files)
        made, spec, facts = fields["construction"], fields["spec"], fields["facts"]
        if not isinstance(made, DisguisedConstruction):
            raise ValueError(f"a disguise made by {made.method}")
        if not 0 <= made.layer < spec.layers:
            raise ValueError(f"owners in layer {made.layer} of {spec.layers}")
        owned = [head for heads in made.heads for head in heads]
        if len(set(owned)) < len(owned) or not all(0 <= head < spec.H for head in owned):
            raise ValueError(f"heads beyond the {spec.H} there are, or of two shards")
        if not all(NOBODY <= shard < len(made.heads) for shard in made.shard):
            raise ValueError(f"shards beyond the {len(made.heads)} there are")
        if facts is not None and len(made.shard) != facts.T:
            raise ValueError(f"owners of {len(made.shard)} facts, found {facts.T}")
        if not all(0 <= fact < len(made.shard) for fact in made.survive):
            raise ValueError("surviving facts beyond those there are")
        return fields
