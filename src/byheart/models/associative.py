"""The linear associative memory W = Σ_i w_U(g(i)) w_e(i)^T (slides of 2024, after Bietti et al.).

    logits(t) = W_U^T W w_e(t),     w_e(t) = d^{-1/2} r_1(t_1) ⊙ ... ⊙ r_S(t_S)

The slides have S = 1. For longer keys the position embeddings r_s(t_s) in {-1, +1}^d are multiplied
entry by entry, which gives every sequence its own nearly orthogonal vector.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from byheart.models.architectures import Weights
from byheart.specs import AssociativeSpec


def keys(spec: AssociativeSpec, weights: Weights, tokens: Tensor) -> Tensor:
    """w_e(t), unit vectors: (models, B, d)."""
    W_E = weights["W_E"]
    product = W_E[:, 0][:, tokens[:, 0]]
    for s in range(1, spec.S):
        product = product * W_E[:, s][:, tokens[:, s]]
    return product / math.sqrt(spec.d)


def forward(spec: AssociativeSpec, weights: Weights, tokens: Tensor) -> Tensor:
    """Logits of every model: (models, B, N)."""
    return torch.bmm(keys(spec, weights, tokens), weights["W"]) @ weights["W_U"]
