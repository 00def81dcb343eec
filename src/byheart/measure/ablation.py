"""Which facts are lost when heads are zeroed, in plain torch.

The stream is a sum, so without head h a layer hands on x - W_O^h F^h. In the last layer that
settles it: logits are W_U of the stream, and no head needs a forward pass of its own. What a head
of an earlier layer writes is read by later ones; there the rest of the model is evaluated again,
for the facts for which the head writes anything at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from byheart.errors import ByheartError, FactsError
from byheart.models.attention_only import Stack
from byheart.models.devices import on_cpu
from byheart.models.memory import Memory, answer_margins
from byheart.models.threads import one_thread
from byheart.models.token_memory import TokenMemory
from byheart.specs import AttentionOnlySpec

SILENT = 1e-9  # of the stream: a head that writes less at every position changes nothing
PAIRS_BYTES = 128 * 2**20  # of the pairs (fact, head) that are evaluated at once


@on_cpu
@one_thread()
def lost_without(memory: Memory, heads: Sequence[int], layer: int | None = None) -> tuple[int, ...]:
    """The facts (rows of the memory's table) that are recalled, and no longer so with the W_O of
    all `heads` of a layer zeroed; the owners' layer, or the last, by default. float64.

    >>> import byheart as bh
    >>> memory = bh.build("countries", bh.Sharded(facts_per_head=1))
    >>> owner = memory.owner("France", "capital")
    >>> lost_without(memory, owner.heads) == owner.facts
    True
    """
    case = _Case.of(memory, layer)
    W_O = case.weights["W_O"].clone()
    W_O[:, case.layer, list(heads)] = 0.0
    without = _Case(case.spec, {**case.weights, "W_O": W_O}, case.inputs, case.right, case.layer)
    lost = (case.margins() > 0) & (without.margins() <= 0)
    return tuple(lost.nonzero()[:, 0].tolist())


@on_cpu
@one_thread()
def lost_with_each(memory: Memory, layer: int | None = None) -> list[tuple[int, ...]]:
    """For every head of a layer (the owners', or the last, by default): the facts that are lost
    when it alone is zeroed. float64.

    >>> import byheart as bh
    >>> memory = bh.build("elements", bh.Sharded(facts_per_head=2))
    >>> lost, owners = lost_with_each(memory), memory.owners()
    >>> all(lost[head] == owners.facts_of(head) for head in range(memory.spec.H))
    True
    """
    case = _Case.of(memory, layer)
    lost: list[list[int]] = [[] for _ in range(case.spec.H)]
    for facts, heads, margins in case.without_each():
        for i in (margins <= 0).nonzero()[:, 0].tolist():
            lost[int(heads[i])].append(int(facts[i]))
    return [tuple(sorted(facts)) for facts in lost]


Pairs = tuple[Tensor, Tensor, Tensor]  # facts, heads, and margins without them


@dataclass(frozen=True)
class _Case:
    """A stack with a model axis of one, in float64, its facts, and the layer whose heads go."""

    spec: AttentionOnlySpec
    weights: dict[str, Tensor]
    inputs: Tensor
    right: Tensor
    layer: int

    @classmethod
    def of(cls, memory: Memory, layer: int | None) -> _Case:
        dense = memory.to_dense()
        if not isinstance(dense, TokenMemory) or not isinstance(dense.spec, AttentionOnlySpec):
            raise ByheartError(
                f"heads are zeroed in attention-only memories; this is {memory.name}. "
                "`byheart heads` measures vector memories."
            )
        if dense.facts is None:
            raise FactsError("this memory was saved without its facts: there is nothing to lose.")
        owners, spec = memory.owners(), dense.spec
        known = spec.layers - 1 if owners is None else owners.layer
        if layer is not None and not 0 <= layer < spec.layers:
            raise ByheartError(f"`layer` must lie between 0 and {spec.layers - 1}, found {layer}.")
        weights = {name: w[None].double() for name, w in dense.weights.items()}
        inputs, right = dense.inputs_of(dense.facts), dense.answers_of(dense.facts)
        return cls(spec, weights, inputs, right, known if layer is None else layer)

    @property
    def stack(self) -> Stack:
        return Stack(self.spec, self.weights)

    def batches(self) -> Iterator[Tensor]:
        """Rows of facts whose heads fit into memory at once, every head at every position."""
        spec = self.spec
        row = 8 * spec.H * spec.S * (spec.d + spec.d_h + 2 * spec.qk_rank + spec.S)
        return iter(torch.arange(len(self.inputs)).split(max(1, PAIRS_BYTES // row)))

    def margins(self) -> Tensor:
        """Of all facts, with all heads: (T,)."""
        return torch.cat([self.after(self.before(rows), 0, rows) for rows in self.batches()])

    def before(self, rows: Tensor) -> Tensor:
        return self.stack.embed(self.inputs[rows])

    def after(self, x: Tensor, layer: int, rows: Tensor) -> Tensor:
        """Margins (B,) from the stream x (1, B, S, d) before a layer on."""
        for k in range(layer, self.spec.layers):
            x = self.stack.all_positions(k, x)
        return answer_margins(x[0, :, -1] @ self.weights["W_U"][0], self.right[rows])

    def without_each(self) -> Iterator[Pairs]:
        """Pairs (fact, head) in which a margin may fall to 0, with the margin without the head."""
        for rows in self.batches():
            x = self.before(rows)
            for k in range(self.layer):
                x = self.stack.all_positions(k, x)
            yield from self._pairs(rows, x)

    def _pairs(self, rows: Tensor, x: Tensor) -> Iterator[Pairs]:
        """Of a batch of facts with the stream x before the layer."""
        W_O = self.weights["W_O"][0, self.layer]
        F = self.stack.heads(self.layer, x, last_only=False)[0]  # (B, S, H, d_h)
        gram = torch.einsum("hed,hfd->hef", W_O, W_O)
        size = torch.einsum("bshe,hef,bshf->bsh", F, gram, F).clamp_min(0).sqrt()
        stream = x[0] + torch.einsum("bshe,hed->bsd", F, W_O) if self.spec.skip else None
        stream = torch.einsum("bshe,hed->bsd", F, W_O) if stream is None else stream
        margins = self.after(stream[None], self.layer + 1, rows)
        if self.layer == self.spec.layers - 1:
            # A margin changes by max_j |w_g - w_j| <= 2 max|w| times what is written, at most.
            longest = float(self.weights["W_U"][0].norm(dim=0).max())
            touched = 2 * longest * size[:, -1] * (1 + 1e-9) >= margins[:, None]
        else:
            touched = (size > SILENT * stream.norm(dim=2).amax(1)[:, None, None]).any(1)
        pairs = (touched & (margins > 0)[:, None]).nonzero()
        step = max(1, PAIRS_BYTES // self.spec.row_bytes(8))
        if self.layer == self.spec.layers - 1:
            step = max(1, PAIRS_BYTES // (8 * (self.spec.N + self.spec.S * self.spec.d)))
        for some in pairs.split(step):
            b, h = some.T
            left = stream[b] - torch.einsum("pse,ped->psd", F[b, :, h], W_O[h])
            yield rows[b], h, self.after(left[None], self.layer + 1, rows[b])


def owned_exactly(memory: Memory) -> np.ndarray:
    """For every shard of a memory with owners: whether zeroing its heads loses exactly its facts,
    `survive` apart: (shards,) bool.

    >>> import byheart as bh
    >>> bool(owned_exactly(bh.build("elements", bh.Sharded(heads_by="relation"))).all())
    True
    """
    owners = memory.owners()
    if owners is None:
        raise ByheartError(f"{memory.name}: no head of this memory is known to hold a fact alone.")
    survive, exact = set(owners.survive), np.ones(len(owners.heads), dtype=bool)
    for shard, heads in enumerate(owners.heads):
        held = set(np.flatnonzero(owners.shard == shard).tolist())
        exact[shard] = set(lost_without(memory, heads, owners.layer)) == held - survive
    return exact
