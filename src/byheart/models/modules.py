"""Memories as plain `torch.nn.Module`s: every head written out, every intermediate with a name.

Attention-only and vector memories become the very classes that `byheart export` copies beside its
weights (`standalone/`), so that what is hooked here is hooked there. The other families are built
from the same attention.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import singledispatch
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from byheart.errors import ByheartError
from byheart.models import associative
from byheart.models.standalone import attention_only as standalone
from byheart.models.standalone import multi_head as standalone_multi_head
from byheart.specs import (
    AssociativeSpec,
    AttentionOnlySpec,
    MLPTransformerSpec,
    SharedBottleneckSpec,
    Spec,
)

if TYPE_CHECKING:
    from byheart.models.token_memory import TokenMemory
    from byheart.models.vector_memory import VectorInputs, VectorMemory

PER_LAYER = ("W_Q", "W_K", "W_V", "W_O")
Weights = Mapping[str, Tensor]


def to_module(memory: TokenMemory) -> nn.Module:
    """The module of a token memory; a sharded one is written out as a dense layer first."""
    dense = memory.to_dense()
    module = module_for(dense.spec, dict(dense.weights), reading(dense), dense.vocabulary.tokens)
    return module


def reading(memory: TokenMemory) -> dict[str, int | list[int] | None]:
    """How a key becomes the tokens that the model reads."""
    order = None if memory.order is None else list(memory.order)
    return {"start_id": memory.start_id, "pad_id": memory.pad_id, "order": order}


@singledispatch
def module_for(
    spec: Spec, weights: Weights, reading: Mapping[str, object], tokens: tuple[str, ...]
) -> nn.Module:
    """The module of an architecture in the number format of the weights, dispatched on the class of
    its spec."""
    raise ByheartError(f"there is no torch module for {spec.family} memories")


@module_for.register
def _(
    spec: AttentionOnlySpec, weights: Weights, reading: Mapping, tokens: tuple[str, ...]
) -> nn.Module:
    module = standalone.Model(torch_config(spec) | dict(reading), list(tokens))
    module.to(weights["W_U"].dtype).load_state_dict(torch_state(spec, weights))
    return module


def torch_config(spec: AttentionOnlySpec) -> dict:
    """The fields that the standalone model reads."""
    return {
        "d_vocab": spec.N,
        "n_ctx": spec.S,
        "d_model": spec.d,
        "d_head": spec.d_h,
        "d_query": spec.qk_rank,
        "n_heads": spec.H,
        "n_layers": spec.layers,
        "positions": spec.positions,
        "scale": spec.scale,
        "skip": spec.skip,
        "attention": spec.attention,
    }


def torch_state(spec: AttentionOnlySpec, weights: Weights) -> dict[str, Tensor]:
    """The state dict of the standalone model: heads layer by layer, W_pos always there."""
    state = {name: weights[name].contiguous() for name in ("W_E", "W_U")}
    state["W_pos"] = weights.get("W_pos", torch.zeros(spec.S, spec.d, dtype=state["W_U"].dtype))
    for layer in range(spec.layers):
        for name in PER_LAYER:
            state[f"layers.{layer}.{name}"] = weights[name][layer].contiguous()
    return state


class FeedForward(nn.Module):
    """x + W_out act(W_in x + b_in); `hook_pre` and `hook_post` are the hidden units before and
    after the activation."""

    def __init__(self, W_in: Tensor, b_in: Tensor, W_out: Tensor, activation: str) -> None:
        super().__init__()
        self.W_in, self.b_in, self.W_out = map(nn.Parameter, (W_in, b_in, W_out))
        gelu, relu = nn.functional.gelu, torch.relu
        self.activation: Callable[[Tensor], Tensor] = gelu if activation == "gelu" else relu
        self.hook_pre, self.hook_post = nn.Identity(), nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.hook_pre(x @ self.W_in + self.b_in)
        return x + self.hook_post(self.activation(hidden)) @ self.W_out


class Bottleneck(nn.Module):
    """x + D attention(C x): one compression for all heads of a layer (none where d = d_h)."""

    def __init__(self, attention: nn.Module, W_C: Tensor | None, W_D: Tensor | None) -> None:
        super().__init__()
        self.attention = attention
        self.W_C = None if W_C is None else nn.Parameter(W_C)
        self.W_D = None if W_D is None else nn.Parameter(W_D)
        self.hook_compressed, self.hook_resid_post = nn.Identity(), nn.Identity()

    def forward(self, x: Tensor, positions: Tensor | None) -> Tensor:
        z = self.hook_compressed(x if self.W_C is None else x @ self.W_C)
        added = self.attention(z, positions)
        return self.hook_resid_post(x + (added if self.W_D is None else added @ self.W_D))


class FeedForwardModel(standalone.Model):
    """The standalone model with a feed-forward layer behind each attention layer."""

    def __init__(self, config: dict, vocabulary: list[str], mlps: Sequence[nn.Module]) -> None:
        super().__init__(config, vocabulary)
        self.mlps = nn.ModuleList(mlps)

    def run_layers(self, x: Tensor, positions: Tensor | None) -> Tensor:
        for layer, mlp in zip(self.layers, self.mlps, strict=True):
            x = mlp(layer(x, positions))
        return x


@module_for.register
def _(
    spec: MLPTransformerSpec, weights: Weights, reading: Mapping, tokens: tuple[str, ...]
) -> nn.Module:
    mlps: list[nn.Module] = [nn.Identity() for _ in range(spec.layers if spec.w == 0 else 0)]
    for i in range(spec.layers if spec.w else 0):
        W_in, b_in, W_out = (weights[name][i].clone() for name in ("W_in", "b_in", "W_out"))
        mlps.append(FeedForward(W_in, b_in, W_out, spec.activation))
    model = FeedForwardModel(torch_config(spec.heads) | dict(reading), list(tokens), mlps)
    model.to(weights["W_U"].dtype).load_state_dict(torch_state(spec.heads, weights), strict=False)
    return model


@module_for.register
def _(
    spec: SharedBottleneckSpec, weights: Weights, reading: Mapping, tokens: tuple[str, ...]
) -> nn.Module:
    config = torch_config(spec.heads) | dict(reading) | {"skip": False, "positions": "attention"}
    model = standalone.Model(config, list(tokens))
    state = torch_state(spec.heads, weights)
    inner = {name: w for name, w in state.items() if name.startswith("layers.")}
    model.to(weights["W_U"].dtype).load_state_dict(inner, strict=False)
    for name in ("W_E", "W_U", "W_pos"):
        setattr(model, name, nn.Parameter(weights[name].clone()))
    model.layers = nn.ModuleList(
        Bottleneck(
            layer,
            weights["W_C"][i].clone() if spec.compressed else None,
            weights["W_D"][i].clone() if spec.compressed else None,
        )
        for i, layer in enumerate(model.layers)
    )
    return model


class AssociativeModel(nn.Module):
    """logits(t) = W_U^T W w_e(t); `hook_key` is w_e(t), `hook_value` what the matrix answers."""

    def __init__(self, spec: AssociativeSpec, weights: Weights) -> None:
        super().__init__()
        self.spec = spec
        for name in spec.weight_shapes():
            self.register_parameter(name, nn.Parameter(weights[name].clone()))
        self.hook_key, self.hook_value = nn.Identity(), nn.Identity()

    def forward(self, tokens: Tensor) -> Tensor:
        W = dict(self.named_parameters())
        key = self.hook_key(associative.keys(self.spec, {"W_E": W["W_E"][None]}, tokens)[0])
        return self.hook_value(key @ W["W"]) @ W["W_U"]


@module_for.register
def _(
    spec: AssociativeSpec, weights: Weights, reading: Mapping, tokens: tuple[str, ...]
) -> nn.Module:
    return AssociativeModel(spec, weights)


class VectorModel(standalone_multi_head.Model):
    """The standalone layer, which also takes what `VectorMemory.encode` gives."""

    def forward(self, context: Tensor | VectorInputs | None, query: Tensor | None = None) -> Tensor:
        if isinstance(context, tuple):
            context, query = context
        assert query is not None
        E = context if context is None or context.dim() == 3 else context.expand(len(query), -1, -1)
        dtype = self.W_Q.dtype
        return super().forward(None if E is None else E.to(dtype), query.to(dtype))


def vector_module(memory: VectorMemory) -> nn.Module:
    """The layer of a vector memory with trainable weights."""
    model = VectorModel(vector_config(memory)).to(memory.dtype)
    model.load_state_dict(vector_state(memory))
    return model


def vector_state(memory: VectorMemory) -> dict[str, Tensor]:
    """The state dict of the standalone layer: the weights, and the context that all share."""
    state = {name: w.contiguous() for name, w in memory.weights.items()}
    if memory.context is not None:
        state["context"] = torch.tensor(memory.context).to(memory.dtype)
    return state


def vector_config(memory: VectorMemory) -> dict:
    """The fields that the standalone layer reads."""
    spec = memory.spec
    return {
        "d_model": spec.d,
        "n_ctx": spec.n,
        "d_query": spec.d_h,
        "d_head": spec.d_v,
        "n_heads": spec.H,
        "d_out": spec.d_out,
        "shared": memory.context is not None,
        "classes": memory.classes,
        "embed": spec.embed,
        "scale": spec.scale,
        "decoder": spec.decoder,
    }
