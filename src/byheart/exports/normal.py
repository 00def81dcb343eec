"""One form for all attention-only memories: what other people's layers can express.

Other libraries have layers that read the stream they add to, with positions added once at the
input, causal softmax attention and one head width. byheart's options are rewritten in that form,
exactly, on a wider stream of blocks of d coordinates:

    positions="attention"   positions in a block of their own, which heads read and nobody writes
    skip=False              every layer writes a new block; W_U reads the last one only
    scale=True              the factor 1/sqrt(r) folded into W_Q
    r != d_h                zero columns up to one head width
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from byheart.errors import ByheartError
from byheart.models.memory import Memory
from byheart.models.token_memory import TokenMemory
from byheart.specs import AttentionOnlySpec


@dataclass(frozen=True)
class NormalForm:
    """`W_E (N, d)`, `W_pos (S, d)`, `W_Q, W_K, W_V (layers, H, d, d_head)`,
    `W_O (layers, H, d_head, d)`, `W_U (d, N)`: causal softmax attention without scale, a skip in
    every layer, no biases."""

    W_E: Tensor
    W_pos: Tensor
    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor
    W_O: Tensor
    W_U: Tensor

    @property
    def layers(self) -> int:
        return self.W_Q.shape[0]

    @property
    def H(self) -> int:
        return self.W_Q.shape[1]

    @property
    def d(self) -> int:
        return self.W_E.shape[1]

    @property
    def d_head(self) -> int:
        return self.W_Q.shape[3]

    @property
    def N(self) -> int:
        return self.W_E.shape[0]

    @property
    def S(self) -> int:
        return self.W_pos.shape[0]

    def stream_bound(self) -> float:
        """A bound on |x_i| of every coordinate of the stream at every layer: attention averages, so
        max|x| grows by at most the factor 1 + Σ_h ‖W_V^h W_O^h‖ (largest column sum of |·|)."""
        x = float(self.W_E.abs().max() + self.W_pos.abs().max())
        for layer in range(self.layers):
            growth = 0.0
            for h in range(self.H):
                OV = self.W_V[layer, h].double() @ self.W_O[layer, h].double()
                growth += float(OV.abs().sum(0).max())
            x *= 1 + growth
        return x


def dense_layer(memory: Memory) -> tuple[TokenMemory, AttentionOnlySpec]:
    """The memory as a literal attention-only layer; refused, with the reason, if it is none."""
    dense = memory.to_dense()
    if not (isinstance(dense, TokenMemory) and isinstance(dense.spec, AttentionOnlySpec)):
        raise ByheartError(
            f"a memory of the {memory.spec.family} family has no attention-only layer, which this "
            "export needs: those of the attention-only and sharded families have "
            "(`method=attention` or `method=sharded`); vectors go `to=torch`."
        )
    return dense, dense.spec


def normal_form(memory: Memory, d_head: int | None = None) -> NormalForm:
    """The memory's layer in normal form, in its own number format.

    `d_head`: head width to pad to (default: the larger of r and d_h).

    >>> import byheart as bh
    >>> form = normal_form(bh.build(bh.read_facts("elements")))
    >>> form.W_Q.shape == form.W_V.shape, form.d
    (True, 10)
    """
    dense, spec = dense_layer(memory)
    if spec.attention == "hardmax":
        raise ByheartError(
            "hardmax attention has no counterpart in TransformerLens, GPT-2 or the ONNX export: "
            "use `to=torch`, or build with softmax attention."
        )
    w = dense.weights
    width = d_head or max(spec.qk_rank, spec.d_h)
    W_Q = w["W_Q"] / math.sqrt(spec.qk_rank) if spec.scale else w["W_Q"]
    d, layers = spec.d, spec.layers
    # Blocks of the stream: what the layers write, then positions of their own if there are any.
    written = 1 if spec.skip else layers + 1
    own = spec.positions == "attention"
    blocks = written + own
    dtype = w["W_U"].dtype

    def block(i: int) -> slice:
        return slice(i * d, (i + 1) * d)

    W_E = torch.zeros(spec.N, blocks * d, dtype=dtype)
    W_E[:, block(0)] = w["W_E"]
    W_pos = torch.zeros(spec.S, blocks * d, dtype=dtype)
    if spec.positions != "none":
        W_pos[:, block(written if own else 0)] = w["W_pos"]
    read = {
        name: torch.zeros(layers, spec.H, blocks * d, width, dtype=dtype)
        for name in ("W_Q", "W_K", "W_V")
    }
    W_O = torch.zeros(layers, spec.H, width, blocks * d, dtype=dtype)
    for layer in range(layers):
        source = block(0 if spec.skip else layer)
        for name, given in (("W_Q", W_Q), ("W_K", w["W_K"]), ("W_V", w["W_V"])):
            for rows in (source, block(written)) if own else (source,):
                read[name][layer, :, rows, : given.shape[-1]] = given[layer]
        W_O[layer, :, : spec.d_h, block(0 if spec.skip else layer + 1)] = w["W_O"][layer]
    W_U = torch.zeros(blocks * d, spec.N, dtype=dtype)
    W_U[block(written - 1)] = w["W_U"]
    return NormalForm(W_E, W_pos, read["W_Q"], read["W_K"], read["W_V"], W_O, W_U)
