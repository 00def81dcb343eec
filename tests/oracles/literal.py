"""Every architecture by its formula, one model, sequence, head and position at a time: what the
forward passes on stacks (`byheart.models`) are checked against."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import singledispatch

import torch
from torch import Tensor

from byheart.models.architectures import Weights, module_of
from byheart.models.attention_only import EXACT, Hardmax
from byheart.models.multi_head import positions, with_axes
from byheart.specs import (
    AttentionOnlySpec,
    DeepMultiHeadSpec,
    FeedForwardTransformerSpec,
    MLPTransformerSpec,
    MultiHeadSpec,
    SequenceEncoderSpec,
    SharedBottleneckSpec,
    Spec,
)


@singledispatch
def literal_forward(
    spec: Spec, weights: Weights, inputs: Tensor, query: Tensor | None = None, **options: Hardmax
) -> Tensor:
    """What `module_of(spec).forward` computes, by the formula: (models, B, outputs)."""
    raise TypeError(f"no formula is known for {spec.family}")


def memory_logits(
    spec: Spec, weights: Weights, tokens: Tensor, dtype: torch.dtype | None = None
) -> Tensor:
    """Logits (B, N) of one model whose weights have no model axis, evaluated in `dtype`."""
    stacked = {name: w[None].to(dtype or w.dtype) for name, w in weights.items()}
    return module_of(spec).forward(spec, stacked, tokens)[0]


def each(
    one: Callable[[Weights, Tensor], Tensor], weights: Weights, inputs: Tensor, own: bool
) -> Tensor:
    """`one(weights, input)` for each model and each of its inputs: (models, B, ...).

    `own`: the inputs have a model axis; otherwise all models read the same.
    """
    models = len(next(iter(weights.values())))
    batch = inputs if own else inputs.expand(models, *inputs.shape)
    return torch.stack(
        [
            torch.stack([one({k: w[m] for k, w in weights.items()}, x) for x in batch[m]])
            for m in range(models)
        ]
    )


def attention_weights(scores: Tensor, attention: str, hardmax: Hardmax) -> Tensor:
    """The definition, for one query: scores (S,) -> weights (S,)."""
    if attention == "softmax":
        return torch.softmax(scores, dim=0)
    soft = torch.softmax(scores / hardmax.temperature, dim=0)
    if hardmax.surrogate == "annealed":
        return soft
    values = scores.tolist()
    largest = [s for s, value in enumerate(values) if value == max(values)]
    hard = [1 / len(largest) if s in largest else 0.0 for s in range(len(values))]
    return torch.tensor(hard, dtype=scores.dtype) + (soft - soft.detach())


@literal_forward.register
def attention_only(
    spec: AttentionOnlySpec, weights: Weights, tokens: Tensor, *, hardmax: Hardmax = EXACT
) -> Tensor:
    def one(w: Weights, t: Tensor) -> Tensor:
        x = token_vectors(spec, w, t)
        for layer in range(spec.layers):
            x = attention_layer(spec, w, layer, x, hardmax)
        return x[-1] @ w["W_U"]

    return each(one, weights, tokens, own=tokens.dim() == 3)


def token_vectors(spec: AttentionOnlySpec, w: Weights, tokens: Tensor) -> list[Tensor]:
    """x_s of one sequence."""
    x = [w["W_E"][t] for t in tokens]
    return with_positions(x, w) if spec.positions == "input" else x


def with_positions(x: list[Tensor], w: Weights) -> list[Tensor]:
    return [x_s + pos_s for x_s, pos_s in zip(x, w["W_pos"], strict=True)]


def attention_layer(
    spec: AttentionOnlySpec, w: Weights, layer: int, x: list[Tensor], hardmax: Hardmax
) -> list[Tensor]:
    """One layer at every position of one sequence."""
    read = with_positions(x, w) if spec.positions == "attention" else x
    new = []
    for s in range(spec.S):
        total = x[s].clone() if spec.skip else torch.zeros_like(x[s])
        for h in range(spec.H):
            W_QK = w["W_Q"][layer, h] @ w["W_K"][layer, h].T
            raw = torch.stack([read[s] @ W_QK @ read[j] for j in range(s + 1)])
            if spec.scale:
                raw = raw / math.sqrt(spec.qk_rank)
            a = attention_weights(raw, spec.attention, hardmax)
            A = sum((a[j] * read[j] for j in range(s + 1)), torch.zeros_like(x[s]))
            total = total + A @ w["W_V"][layer, h] @ w["W_O"][layer, h]
        new.append(total)
    return new


@literal_forward.register
def mlp_transformer(
    spec: MLPTransformerSpec, weights: Weights, tokens: Tensor, *, hardmax: Hardmax = EXACT
) -> Tensor:
    def one(w: Weights, t: Tensor) -> Tensor:
        x = token_vectors(spec.heads, w, t)
        for layer in range(spec.layers):
            x = attention_layer(spec.heads, w, layer, x, hardmax)
            x = [mlp(spec, w, layer, x_s) for x_s in x]
        return x[-1] @ w["W_U"]

    return each(one, weights, tokens, own=tokens.dim() == 3)


def mlp(spec: MLPTransformerSpec, w: Weights, layer: int, x: Tensor) -> Tensor:
    total = x
    for unit in range(spec.w):
        z = x @ w["W_in"][layer, :, unit] + w["b_in"][layer, unit]
        if spec.activation == "gelu":  # z Φ(z), Φ the normal distribution function
            act = z * (1 + torch.erf(z / math.sqrt(2))) / 2
        else:
            act = torch.clamp(z, min=0)
        total = total + act * w["W_out"][layer, unit]
    return total


@literal_forward.register
def shared_bottleneck(spec: SharedBottleneckSpec, weights: Weights, tokens: Tensor) -> Tensor:
    def one(w: Weights, t: Tensor) -> Tensor:
        x = [w["W_E"][token] for token in t]
        for layer in range(spec.layers):
            z = [x_s @ w["W_C"][0] if spec.compressed else x_s for x_s in x]
            z = [z_s + w["W_pos"][s] for s, z_s in enumerate(z)]
            x = [x[s] + bottleneck_heads(spec, w, layer, z[: s + 1]) for s in range(spec.S)]
        return x[-1] @ w["W_U"]

    return each(one, weights, tokens, own=tokens.dim() == 3)


def bottleneck_heads(spec: SharedBottleneckSpec, w: Weights, layer: int, z: list[Tensor]) -> Tensor:
    """What the layer adds at the last of the positions `z`."""
    total = torch.zeros_like(z[0])
    for h in range(spec.H):
        q = z[-1] @ w["W_Q"][layer, h]
        raw = torch.stack([q @ (z_s @ w["W_K"][layer, h]) for z_s in z]) / math.sqrt(spec.d_h)
        a = torch.softmax(raw, dim=0)
        v = sum((a[s] * (z_s @ w["W_V"][layer, h]) for s, z_s in enumerate(z)), 0 * total)
        total = total + v @ w["W_O"][layer, h]
    return total @ w["W_D"][0] if spec.compressed else total


@literal_forward.register
def feed_forward(
    spec: FeedForwardTransformerSpec, weights: Weights, inputs: Tensor, *, hardmax: Hardmax = EXACT
) -> Tensor:
    """At every position, although one is read."""

    def one(w: Weights, X: Tensor) -> Tensor:
        z = [x @ w["E_in"] for x in X]
        for block in range(spec.first):
            z = [relu_block(w, block, z_k) for z_k in z]
        z = [self_attention(z, k, w) for k in range(spec.n)]
        for block in range(spec.first, spec.blocks):
            z = [relu_block(w, block, z_k) for z_k in z]
        return z[spec.read] @ w["E_out"]

    def self_attention(z: list[Tensor], k: int, w: Weights) -> Tensor:
        W_QK = torch.zeros(spec.m, spec.m, dtype=z[k].dtype)
        if not spec.uniform:
            W_QK = w["W_Q"] @ w["W_K"].T
        scores = torch.stack([z[k] @ W_QK @ z_l for z_l in z])
        a = attention_weights(scores, spec.attention, hardmax)
        values = [a[j] * (z_l @ w["W_V"] @ w["W_O"]) for j, z_l in enumerate(z)]
        return z[k] + torch.stack(values).sum(0)

    return each(one, weights, inputs, own=inputs.dim() == 4)


def relu_block(w: Weights, block: int, z: Tensor) -> Tensor:
    out = z + w["b_2"][block]
    for unit in range(w["W_1"].shape[-1]):
        hidden = z @ w["W_1"][block, :, unit] + w["b_1"][block, unit]
        out = out + torch.clamp(hidden, min=0) * w["W_2"][block, unit]
    return out


@literal_forward.register
def sequence_encoder(spec: SequenceEncoderSpec, weights: Weights, sequences: Tensor) -> Tensor:
    def one(w: Weights, t: Tensor) -> Tensor:
        e = w["E"][int(t)]
        return torch.stack([w["W_U"][:, j] @ e for j in range(spec.N)])

    alone = sequences.dim() == 1 or (sequences.dim() == 2 and sequences.shape[1] != 1)
    numbers = sequences[..., None] if alone else sequences
    return each(one, weights, numbers, own=numbers.dim() == 3)


@literal_forward.register
def deep_multi_head(
    spec: DeepMultiHeadSpec, weights: Weights, context: Tensor, query: Tensor
) -> Tensor:
    models = len(weights["W_Q"])
    e = query.expand(models, *query.shape) if query.dim() == 2 else query
    E = context.expand(models, e.shape[1], spec.n, spec.d)
    out = torch.empty(models, e.shape[1], spec.d_out, dtype=e.dtype)
    for m in range(models):
        w = {name: tensor[m] for name, tensor in weights.items()}
        for b in range(e.shape[1]):
            x = e[m, b]
            for layer in range(spec.layers):
                read = torch.zeros_like(x)
                for h in range(spec.H):
                    keys = E[m, b] @ w["W_K"][layer, h]
                    a = torch.softmax(keys @ (x @ w["W_Q"][layer, h]) / math.sqrt(spec.d), 0)
                    read = read + a @ E[m, b] @ w["W_V"][layer, h] @ w["W_O"][layer, h]
                x = x + read
            out[m, b] = x @ w["W_U"] + w["b_U"]
    return out


@literal_forward.register
def multi_head(spec: MultiHeadSpec, weights: Weights, context: Tensor, query: Tensor) -> Tensor:
    """The authors compute all n+1 positions and read the first. No position reads what another one
    gave, so the first is all there is to compute."""
    E, e = with_axes(spec, weights, context, query)
    E = E.expand(len(e), e.shape[1], -1, -1)
    return torch.stack(
        [
            torch.stack(
                [
                    one_example(spec, {k: w[m] for k, w in weights.items()}, E[m, b], e[m, b])
                    for b in range(e.shape[1])
                ]
            )
            for m in range(len(e))
        ]
    )


def one_example(spec: MultiHeadSpec, w: Weights, E: Tensor, e: Tensor) -> Tensor:
    tokens = [e, *E]
    if spec.embed:
        pos = positions(spec.n + 1, spec.d, e.dtype)
        tokens = [x @ w["W_E"] + w["b_E"] + p for x, p in zip(tokens, pos, strict=True)]
    total = torch.zeros_like(w["W_O"][0, 0])
    for h in range(spec.H):
        q = tokens[0] @ w["W_Q"][h]
        logits = torch.stack([q @ (x @ w["W_K"][h]) for x in tokens])
        if spec.scale:
            logits = logits / math.sqrt(spec.d)
        logits = torch.cat([torch.full_like(logits[:1], -torch.inf), logits[1:]])
        a = torch.softmax(logits, dim=0)
        values = torch.stack([x @ w["W_V"][h] for x in tokens])
        total = total + a @ values @ w["W_O"][h]
    return total @ w["W_U"] + w["b_U"] if spec.decoder else total
