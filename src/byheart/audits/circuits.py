"""The QK and OV circuits of every head of a language model (GPT-2, Llama), as plain matrices.

Norms in front of a block are the model's own modules; the last norm's gain is folded into W_U.
Heads that share keys and values (grouped-query attention) are given their group's W_K and W_V.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Rotate = Callable[[Tensor, Tensor], Tensor]
"""Queries or keys (..., n, d_h) and their positions (n,) -> turned by rotary positions."""


@dataclass(frozen=True)
class Head:
    """One head: W_Q, W_K, W_V (d, d_h), W_O (d_h, d), the biases of queries and keys (d_h,), the
    factor of q·k before the softmax, and how positions turn queries and keys."""

    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor
    W_O: Tensor
    b_Q: Tensor
    b_K: Tensor
    scale: float
    rotate: Rotate

    def scores(self, queries: Tensor, keys: Tensor, at: Tensor, of: Tensor) -> Tensor:
        """q·k of normed rows (..., m, d) at positions (m,) with (..., n, d) at positions (n,)."""
        q = self.rotate(queries @ self.W_Q + self.b_Q, at)
        k = self.rotate(keys @ self.W_K + self.b_K, of)
        return self.scale * q @ k.transpose(-1, -2)

    def mixed_values(self, x: Tensor) -> Tensor:
        """Σ_j a_ij x_j W_V for normed rows x (contexts, n, d): what W_O reads, but for W_V's bias,
        which is the same everywhere."""
        n = x.shape[-2]
        at = torch.arange(n)
        hidden = torch.ones(n, n, dtype=torch.bool).triu(1)
        scores = self.scores(x, x, at, at).masked_fill(hidden, -torch.inf)
        return scores.softmax(-1) @ (x @ self.W_V)

    def shuffled(self, generator: torch.Generator) -> Head:
        """The control: the entries of each of the four matrices in random order, which keeps their
        distribution and nothing else."""

        def mixed(W: Tensor) -> Tensor:
            return W.flatten()[torch.randperm(W.numel(), generator=generator)].view_as(W)

        names = ("W_Q", "W_K", "W_V", "W_O")
        return replace(self, **{name: mixed(getattr(self, name)) for name in names})


@dataclass(frozen=True)
class Block:
    """An attention block: the norm in front of it, its heads, and the module that reads what the
    heads give, side by side (contexts, n, H·d_h)."""

    norm: nn.Module
    heads: list[Head]
    output: nn.Module


def blocks_of(model: PreTrainedModel, kind: str) -> list[Block]:
    """The attention blocks of a language model of a kind in `READERS`."""
    return READERS[kind](model)


def folded_unembedding(model: PreTrainedModel, kind: str, tokens: Tensor) -> Tensor:
    """W_U behind the gain γ of the last norm, (d, tokens): what a vector v of the stream adds to
    their logits is v @ W_U divided by the norm's scale at its position. LayerNorm's subtraction of
    the mean is folded in too; its bias is the same everywhere and left out."""
    head: Any = model.get_output_embeddings()
    norm: Any = LAST_NORM[kind](model)
    W_U = (head.weight[tokens] * norm.weight).T
    return W_U - W_U.mean(0) if isinstance(norm, nn.LayerNorm) else W_U


def _llama(model: Any) -> list[Block]:
    from transformers.models.llama.modeling_llama import rotate_half

    H, groups = model.config.num_attention_heads, model.config.num_key_value_heads

    def rotate(x: Tensor, at: Tensor) -> Tensor:
        cos, sin = (part[0] for part in model.model.rotary_emb(x, at[None]))
        return x * cos + rotate_half(x) * sin

    blocks = []
    for layer in model.model.layers:
        attention = layer.self_attn
        d_h = attention.head_dim
        W_Q, W_K, W_V = (
            getattr(attention, f"{name}_proj").weight.T.split(d_h, 1) for name in "qkv"
        )
        W_O = attention.o_proj.weight.T.split(d_h, 0)
        none = torch.zeros(d_h)
        heads = []
        for h in range(H):
            shared = h * groups // H  # the group whose keys and values head h reads
            matrices = (W_Q[h], W_K[shared], W_V[shared], W_O[h])
            heads.append(Head(*matrices, none, none, attention.scaling, rotate))
        blocks.append(Block(layer.input_layernorm, heads, attention.o_proj))
    return blocks


def _gpt2(model: Any) -> list[Block]:
    blocks = []
    for layer in model.transformer.h:
        attention = layer.attn
        d_h = attention.head_dim
        width = attention.embed_dim
        weights = [part.split(d_h, 1) for part in attention.c_attn.weight.split(width, 1)]
        biases = [part.split(d_h) for part in attention.c_attn.bias.split(width)]
        W_O = attention.c_proj.weight.split(d_h, 0)
        heads = []
        for h in range(attention.num_heads):
            (W_Q, W_K, W_V), (b_Q, b_K, _) = ([one[h] for one in x] for x in (weights, biases))
            matrices = (W_Q, W_K, W_V, W_O[h])
            heads.append(Head(*matrices, b_Q, b_K, attention.scaling, lambda x, at: x))
        blocks.append(Block(layer.ln_1, heads, attention.c_proj))
    return blocks


READERS: dict[str, Callable[[Any], list[Block]]] = {"llama": _llama, "gpt2": _gpt2}
LAST_NORM: dict[str, Callable[[Any], nn.Module]] = {
    "llama": lambda model: model.model.norm,
    "gpt2": lambda model: model.transformer.ln_f,
}
