"""One form for all attention-only memories: what other people's layers can express.

byheart's options are rewritten exactly on a wider stream, of blocks of d coordinates: positions of
the attention's own in a block that heads read and nobody writes; without a skip, every layer writes
a new block and W_U reads the last one (docs/export.md).
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from byheart.errors import ByheartError
from byheart.models.memory import Memory
from byheart.models.token_memory import TokenMemory
from byheart.specs import AttentionOnlySpec, ShardedSpec

Layer = tuple[TokenMemory, AttentionOnlySpec]


def dense_spec(memory: Memory) -> AttentionOnlySpec:
    """The spec of a memory as a literal attention-only layer; refused, with the reason, if it is
    none. Nothing is written out."""
    spec = memory.spec.dense() if isinstance(memory.spec, ShardedSpec) else memory.spec
    if not isinstance(spec, AttentionOnlySpec):
        raise ByheartError(
            f"a memory of the {memory.spec.family} family has no attention-only layer, which this "
            "export needs: those of the attention-only and sharded families have "
            "(`method=attention` or `method=sharded`); vectors go `to=torch`."
        )
    return spec


def dense_layer(memory: Memory) -> Layer:
    """The memory as a literal attention-only layer."""
    spec, dense = dense_spec(memory), memory.to_dense()
    assert isinstance(dense, TokenMemory)
    return dense, spec


def normal_spec(spec: AttentionOnlySpec, d_head: int | None = None) -> AttentionOnlySpec:
    """The spec of `normal_form`."""
    if spec.attention == "hardmax":
        raise ByheartError(
            "hardmax attention has no counterpart in TransformerLens, GPT-2 or the ONNX export: "
            "use `to=torch`, or build with softmax attention."
        )
    # Blocks of the stream: what the layers write, then positions of their own if there are any.
    blocks = (1 if spec.skip else spec.layers + 1) + (spec.positions == "attention")
    width = d_head or max(spec.qk_rank, spec.d_h)
    return AttentionOnlySpec(spec.N, spec.S, blocks * spec.d, width, spec.H, spec.layers)


def normal_form(memory: Memory, d_head: int | None = None) -> Layer:
    """The memory as a layer with positions at the input, a skip, softmax without scale and heads of
    one width (`d_head`; default: the larger of r and d_h), in its own number format.

    >>> import byheart as bh
    >>> form, spec = normal_form(bh.build(bh.read_facts("elements")))
    >>> spec.qk_rank == spec.d_h, spec.d
    (True, 10)
    """
    wide = normal_spec(dense_spec(memory), d_head)
    dense, spec = dense_layer(memory)
    old, d = dict(dense.weights), spec.d
    if spec.scale:
        old["W_Q"] = old["W_Q"] / math.sqrt(spec.qk_rank)
    written, own = 1 if spec.skip else spec.layers + 1, spec.positions == "attention"
    blocks = [slice(i * d, (i + 1) * d) for i in range(written + own)]
    new = {
        name: torch.zeros(shape, dtype=dense.dtype) for name, shape in wide.weight_shapes().items()
    }
    new["W_E"][:, blocks[0]] = old["W_E"]
    if spec.positions != "none":
        new["W_pos"][:, blocks[-1 if own else 0]] = old["W_pos"]
    for layer in range(spec.layers):
        source, target = (0, 0) if spec.skip else (layer, layer + 1)
        for name in ("W_Q", "W_K", "W_V"):
            for rows in (blocks[source], blocks[-1]) if own else (blocks[source],):
                new[name][layer, :, rows, : old[name].shape[-1]] = old[name][layer]
        new["W_O"][layer, :, : spec.d_h, blocks[target]] = old["W_O"][layer]
    new["W_U"][blocks[written - 1]] = old["W_U"]
    return replace(dense, spec=wide, weights=new), wide
