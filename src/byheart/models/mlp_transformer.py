"""The MLP Transformer: attention with H heads, then one hidden layer, in each of its layers.

    x <- x + Σ_h W_O^h W_V^h Σ_s softmax_s(x_S^T W_QK^h x_s) x_s
    x <- x + W_out act(W_in x + b_in),      T(t) = W_U x_S

with act the exact GELU, x Φ(x), or ReLU; attention is that of `attention_only`, with its options.
"""

from __future__ import annotations

import torch
from torch import Tensor

from byheart.models import attention_only
from byheart.models.architectures import Weights
from byheart.models.attention_only import EXACT, Hardmax
from byheart.specs import MLPTransformerSpec

INITS = attention_only.INITS


def start_bounds(spec: MLPTransformerSpec, init: str) -> dict[str, float]:
    """Attention as in `attention_only`; W_in, b_in and W_out as `nn.Linear` starts, fan_in^-1/2."""
    mlp = {"W_in": spec.d**-0.5, "b_in": spec.d**-0.5, "W_out": max(spec.w, 1) ** -0.5}
    return attention_only.start_bounds(spec.heads, init) | mlp


def before_readout(
    spec: MLPTransformerSpec, weights: Weights, tokens: Tensor, hardmax: Hardmax = EXACT
) -> tuple[Tensor, Tensor]:
    """What the last hidden layer adds to, and its activations act(W_in x + b_in), at the last
    position: x (models, B, d) and (models, B, w). W_out is linear in the latter."""
    stack = attention_only.Stack(spec.heads, weights, hardmax)
    x = stack.embed(tokens)
    for layer in range(spec.layers - 1):
        x = stack.all_positions(layer, x)
        flat = x.flatten(1, 2)
        x = _added(weights, layer, flat, _hidden(spec, weights, layer, flat)).view_as(x)
    F = stack.heads(spec.layers - 1, x, last_only=True).flatten(2)
    x = torch.baddbmm(x[:, :, -1], F, weights["W_O"][:, -1].flatten(1, 2))
    return x, _hidden(spec, weights, spec.layers - 1, x)


def forward(
    spec: MLPTransformerSpec, weights: Weights, tokens: Tensor, hardmax: Hardmax = EXACT
) -> Tensor:
    """Logits of every model for tokens (B, S) or (models, B, S): (models, B, N)."""
    x, hidden = before_readout(spec, weights, tokens, hardmax)
    return _added(weights, spec.layers - 1, x, hidden) @ weights["W_U"]


def _hidden(spec: MLPTransformerSpec, weights: Weights, layer: int, x: Tensor) -> Tensor:
    """act(W_in x + b_in) for x (models, rows, d); nothing where there is no hidden layer."""
    if not spec.w:
        return x[..., :0]
    W_in, b_in = weights["W_in"][:, layer], weights["b_in"][:, layer]
    hidden = torch.baddbmm(b_in[:, None], x, W_in)
    return torch.nn.functional.gelu(hidden) if spec.activation == "gelu" else torch.relu(hidden)


def _added(weights: Weights, layer: int, x: Tensor, hidden: Tensor) -> Tensor:
    """x + W_out hidden."""
    return torch.baddbmm(x, hidden, weights["W_out"][:, layer]) if hidden.shape[-1] else x
