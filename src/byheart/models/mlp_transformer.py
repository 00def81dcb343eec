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


def forward(
    spec: MLPTransformerSpec, weights: Weights, tokens: Tensor, hardmax: Hardmax = EXACT
) -> Tensor:
    """Logits of every model for tokens (B, S) or (models, B, S): (models, B, N)."""
    stack = attention_only.Stack(spec.heads, weights, hardmax)
    x = stack.embed(tokens)
    for layer in range(spec.layers - 1):
        x = stack.all_positions(layer, x)
        x = _mlp(spec, weights, layer, x.flatten(1, 2)).view_as(x)
    F = stack.heads(spec.layers - 1, x, last_only=True).flatten(2)
    x = torch.baddbmm(x[:, :, -1], F, weights["W_O"][:, -1].flatten(1, 2))
    return _mlp(spec, weights, spec.layers - 1, x) @ weights["W_U"]


def _mlp(spec: MLPTransformerSpec, weights: Weights, layer: int, x: Tensor) -> Tensor:
    """x + W_out act(W_in x + b_in) for x (models, rows, d)."""
    if not spec.w:
        return x
    W_in, b_in, W_out = (weights[name][:, layer] for name in ("W_in", "b_in", "W_out"))
    hidden = torch.baddbmm(b_in[:, None], x, W_in)
    act = torch.nn.functional.gelu if spec.activation == "gelu" else torch.relu
    return torch.baddbmm(x, act(hidden), W_out)
