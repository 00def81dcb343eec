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
# What a standalone model's config calls the fields of its spec.
CONFIG = {"d_vocab": "N", "n_ctx": "S", "d_model": "d", "d_head": "d_h", "d_query": "qk_rank"}
CONFIG |= {"n_heads": "H", "n_layers": "layers"}
CONFIG |= {name: name for name in ("positions", "scale", "skip", "attention")}
Weights = Mapping[str, Tensor]
Words = tuple[str, ...]


def reading(memory: TokenMemory) -> dict[str, int | list[int] | None]:
    """How a key becomes the tokens that the model reads."""
    order = None if memory.order is None else list(memory.order)
    return {"start_id": memory.start_id, "pad_id": memory.pad_id, "order": order}


@singledispatch
def module_for(spec: Spec, weights: Weights, reading: Mapping, tokens: Words) -> nn.Module:
    """The module of an architecture in the number format of the weights, dispatched on the class of
    its spec; `reading` and `tokens` are how keys are read and the vocabulary."""
    raise ByheartError(f"there is no torch module for {spec.family} memories")


@module_for.register
def _(spec: AttentionOnlySpec, weights: Weights, reading: Mapping, tokens: Words) -> nn.Module:
    module = standalone.Model(torch_config(spec) | dict(reading), list(tokens))
    module.to(weights["W_U"].dtype).load_state_dict(torch_state(spec, weights))
    return module


def torch_config(spec: AttentionOnlySpec) -> dict:
    """The fields that the standalone model reads."""
    return {key: getattr(spec, name) for key, name in CONFIG.items()}


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
def _(spec: MLPTransformerSpec, weights: Weights, reading: Mapping, tokens: Words) -> nn.Module:
    def mlp(layer: int) -> nn.Module:
        if not spec.w:
            return nn.Identity()
        W_in, b_in, W_out = (weights[name][layer].clone() for name in ("W_in", "b_in", "W_out"))
        return FeedForward(W_in, b_in, W_out, spec.activation)

    config, mlps = torch_config(spec.heads) | dict(reading), list(map(mlp, range(spec.layers)))
    model = FeedForwardModel(config, list(tokens), mlps)
    model.to(weights["W_U"].dtype).load_state_dict(torch_state(spec.heads, weights), strict=False)
    return model


class Bottleneck(nn.Module):
    """x + D attention(C x): one compression for all heads of all layers (none where d = d_h)."""

    def __init__(self, attention: nn.Module, *maps: nn.Parameter) -> None:
        super().__init__()
        self.attention = attention
        self.W_C, self.W_D = maps or (None, None)
        self.hook_compressed, self.hook_resid_post = nn.Identity(), nn.Identity()

    def forward(self, x: Tensor, positions: Tensor | None) -> Tensor:
        z = self.hook_compressed(x if self.W_C is None else x @ self.W_C)
        added = self.attention(z, positions)
        return self.hook_resid_post(x + (added if self.W_D is None else added @ self.W_D))


@module_for.register
def _(spec: SharedBottleneckSpec, weights: Weights, reading: Mapping, tokens: Words) -> nn.Module:
    config = torch_config(spec.heads) | dict(reading) | {"skip": False}
    model = standalone.Model(config, list(tokens))
    state = torch_state(spec.heads, weights)
    inner = {name: w for name, w in state.items() if name.startswith("layers.")}
    model.to(weights["W_U"].dtype).load_state_dict(inner, strict=False)
    for name in ("W_E", "W_U", "W_pos"):
        setattr(model, name, nn.Parameter(weights[name].clone()))
    names = ("W_C", "W_D") if spec.compressed else ()
    maps = [nn.Parameter(weights[name][0].clone()) for name in names]
    model.layers = nn.ModuleList(Bottleneck(layer, *maps) for layer in model.layers)
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
def _(spec: AssociativeSpec, weights: Weights, reading: Mapping, tokens: Words) -> nn.Module:
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


def vector_state(memory: VectorMemory) -> dict[str, Tensor]:
    """The state dict of the standalone layer: the weights, and the context that all share."""
    state = {name: w.contiguous() for name, w in memory.weights.items()}
    if memory.context is not None:
        state["context"] = torch.tensor(memory.context).to(memory.dtype)
    return state


def vector_config(memory: VectorMemory) -> dict:
    """The fields that the standalone layer reads."""
    spec = memory.spec
    config = {"d_model": spec.d, "n_ctx": spec.n, "d_query": spec.d_h, "d_head": spec.d_v}
    config |= {"n_heads": spec.H, "d_out": spec.d_out, "shared": memory.context is not None}
    options = {name: getattr(spec, name) for name in ("embed", "scale", "decoder")}
    return config | {"classes": memory.classes, **options}
