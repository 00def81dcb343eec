"""The attention-only Transformer `as-coded` by its authors: one bottleneck for all heads.

With z_s = C x_s + pos_s in R^{d_h} (x_s = e(t_s); pos is not part of the skip),

    T(t) = W_U ( x_S + D Σ_h W_O^h W_V^h Σ_s softmax_s(z_S^T W_QK^h z_s / sqrt(d_h)) z_s )

where C (d -> d_h) and D (d_h -> d) are one map each for all heads of all layers (none for d = d_h):
what the code of Dana et al. (2025) runs where the paper has projections for each head.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from byheart.models import attention_only
from byheart.models.architectures import Weights, embed
from byheart.specs import SharedBottleneckSpec

INITS = ("as-coded",)


def start_bounds(spec: SharedBottleneckSpec, init: str) -> dict[str, float]:
    """`as-coded` (Dana et al. 2025): d^-1/2 for W_E, W_U and W_C; d_h^-1/2 for W_pos, W_O and W_D;
    sqrt(1.5 / d_h) for W_Q, W_K, W_V (Xavier on 3 d_h x d_h)."""
    return {
        **dict.fromkeys(("W_E", "W_U", "W_C"), spec.d**-0.5),
        **dict.fromkeys(("W_pos", "W_O", "W_D"), spec.d_h**-0.5),
        **dict.fromkeys(("W_Q", "W_K", "W_V"), math.sqrt(1.5 / spec.d_h)),
    }


def forward(spec: SharedBottleneckSpec, weights: Weights, tokens: Tensor) -> Tensor:
    """Logits of every model for tokens (B, S) or (models, B, S): (models, B, N)."""
    x, stack = embed(weights["W_E"], tokens), attention_only.Stack(spec.heads, weights)
    for layer in range(spec.layers):
        last = layer == spec.layers - 1
        z = torch.einsum("mbsd,mde->mbse", x, weights["W_C"][:, 0]) if spec.compressed else x
        F = stack.heads(layer, z, last_only=last)
        W_O = weights["W_O"][:, layer].flatten(1, 2)
        out = torch.einsum("mbqf,mfe->mbqe", F.flatten(3), W_O)
        if spec.compressed:
            out = torch.einsum("mbqe,med->mbqd", out, weights["W_D"][:, 0])
        x = (x[:, :, -1:] if last else x) + out
    return x[:, :, -1] @ weights["W_U"]
