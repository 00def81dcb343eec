"""The matrix that editors change: what a memory writes into its stream, as one linear map of keys.

    y(t) = b(t) + k(t) W,      T(t) = y(t) W_U

| memory | k(t), a row | W | b(t) |
|---|---|---|---|
| attention-only | outputs F^h of the last layer's heads, side by side | W_O (H d_h, d) | skip |
| MLP Transformer | hidden activations of the last layer | W_out (w, d) | stream before it |
| sharded | outputs F^h of the heads of the shard that owns t | W_O of that shard | x_S |

In the literal layer of a sharded memory foreign heads write 0 (below e^-28), so that its keys fall
apart into blocks, one a shard: `K^T K` is block-diagonal, and whatever a closed form computes from
it, it computes shard by shard. The other memories are a single block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import singledispatch

import numpy as np
import torch
from torch import Tensor

from byheart.errors import ByheartError, FactsError
from byheart.facts import Facts
from byheart.models import attention_only, mlp_transformer, sharded
from byheart.models.memory import Memory, answer_margins
from byheart.models.sharded_memory import ShardedMemory
from byheart.models.token_memory import TokenMemory
from byheart.specs import AttentionOnlySpec, MLPTransformerSpec, ShardedSpec, Spec


@dataclass(frozen=True)
class Block:
    """Facts whose keys share weights: `facts` (n,) are their numbers, `K` (n, m) their keys, and
    `at` the rows of the read-out matrix that they read."""

    facts: Tensor
    K: Tensor
    at: slice


@dataclass(frozen=True)
class Readout:
    """The linear read-out of a memory over given facts, float64 from the stored weights: `base`
    (T, d), `W` (rows, d), `W_U` (d, N), `name` of the weight that holds W."""

    base: Tensor
    W: Tensor
    W_U: Tensor
    blocks: tuple[Block, ...]
    name: str

    def selected(self, facts: Sequence[int]) -> list[Block]:
        """The blocks of some facts, with these facts alone."""
        chosen = torch.zeros(len(self.base), dtype=torch.bool)
        chosen[list(facts)] = True
        found = []
        for block in self.blocks:
            here = chosen[block.facts]
            if here.any():
                found.append(Block(block.facts[here], block.K[here], block.at))
        return found

    def streams(self, W: Tensor | None = None) -> Tensor:
        """y (T, d) with this W, or with the memory's own."""
        y = self.base.clone()
        chosen = self.W if W is None else W
        for block in self.blocks:
            y[block.facts] += block.K @ chosen[block.at]
        return y

    def margins(self, answers: Tensor, W: Tensor | None = None) -> Tensor:
        """Logit of each fact's answer minus the largest other one: (T,)."""
        return answer_margins(self.streams(W) @ self.W_U, answers)

    def written(self, memory: TokenMemory, W: Tensor) -> TokenMemory:
        """The memory with W in the place of its read-out, in its number format; its facts are no
        longer known to be held, and are left out."""
        whole = memory.weights[self.name].clone()
        whole.view(-1, whole.shape[-1])[:, : W.shape[1]] = W.to(whole.dtype)
        return replace(memory, weights={**memory.weights, self.name: whole}, facts=None)


def readout_of(memory: Memory, facts: Facts | None = None) -> Readout:
    """The read-out of a memory, with the keys of its facts or of `facts`.

    >>> import byheart as bh
    >>> memory = bh.build("elements")
    >>> margins = readout_of(memory).margins(memory.answers_of(memory.facts))
    >>> bool(np.allclose(margins, memory.margins(), atol=1e-3))
    True
    """
    table = memory.facts if facts is None else facts
    if not isinstance(memory, TokenMemory) or not isinstance(table, Facts):
        found = "one saved without its facts" if table is None else memory.name
        raise FactsError(f"expected a memory of tokens with its facts, found {found}.")
    with torch.no_grad():
        return _readout(memory.spec, memory, table)


@singledispatch
def _readout(spec: Spec, memory: TokenMemory, facts: Facts) -> Readout:
    raise ByheartError(
        f"{memory.name} has no read-out that editors change: expected attention-only layers, an "
        "MLP Transformer or a sharded memory."
    )


@_readout.register
def _(spec: AttentionOnlySpec, memory: TokenMemory, facts: Facts) -> Readout:
    skip, F = attention_only.head_outputs(spec, _stacked(memory), memory.inputs_of(facts))
    return _one_block(memory, "W_O", skip[0], F[0].flatten(1))


@_readout.register
def _(spec: MLPTransformerSpec, memory: TokenMemory, facts: Facts) -> Readout:
    x, hidden = mlp_transformer.before_readout(spec, _stacked(memory), memory.inputs_of(facts))
    return _one_block(memory, "W_out", x[0], hidden[0])


@_readout.register
def _(spec: ShardedSpec, memory: TokenMemory, facts: Facts) -> Readout:
    assert isinstance(memory, ShardedMemory)
    if spec.gate == "subject-sink":
        raise ByheartError(
            "expected a memory with `gate=query` or key, found a subject sink: its cancelling "
            "heads add up all shards, so that no shard's W_O can be changed alone."
        )
    weights, tokens, d = memory.tensors, memory.in_order(facts.tokens), spec.d_g
    owners, start = sharded.shard_of(weights, tokens), weights["head_start"].tolist()
    base, blocks = torch.zeros(len(tokens), d, dtype=torch.float64), []
    for g in owners.unique().tolist():
        rows = (owners == g).nonzero()[:, 0]
        first, end = (start[g], start[g + 1]) if g >= 0 else (0, 0)
        x_S, F = sharded.own_features(spec, weights, tokens[rows], end - first, torch.float64)
        base[rows] = x_S
        blocks.append(Block(rows, F.flatten(1), slice(first * spec.d_h, end * spec.d_h)))
    W = weights["W_O"].double().flatten(0, 1)[:, :d]
    return Readout(base, W, weights["W_U"].double(), tuple(blocks), "W_O")


def _one_block(memory: TokenMemory, name: str, base: Tensor, K: Tensor) -> Readout:
    """Of all layers' rows of the weight `name`, the last ones."""
    flat = memory.weights[name].double()
    flat = flat.reshape(-1, flat.shape[-1])
    at = slice(len(flat) - K.shape[1], len(flat))
    block = Block(torch.from_numpy(np.arange(len(K))), K, at)
    return Readout(base, flat, memory.weights["W_U"].double(), (block,), name)


def _stacked(memory: TokenMemory) -> dict[str, Tensor]:
    return {name: w[None].double() for name, w in memory.weights.items()}
