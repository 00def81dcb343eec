"""A query that reads a context of vectors several times (after Mahdavi et al. 2024).

    e_0 = e,   e_l = e_(l-1) + Σ_h softmax(E W_K^h W_Q^h^T e_(l-1) / sqrt(d))^T E W_V^h W_O^h
    output = e_L W_U + b_U                                              E (n, d), row vectors

One layer is the authors' layer with a skip connection; nobody attends to the query, so contexts do
not depend on it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from byheart.models.architectures import Weights
from byheart.specs import DeepMultiHeadSpec

INITS = ("as-coded",)


def start_bounds(spec: DeepMultiHeadSpec, init: str) -> dict[str, float]:
    """Xavier for every head, d^-1/2 for the decoder."""
    bounds: dict[str, float] = dict.fromkeys(("W_U", "b_U"), 1 / math.sqrt(spec.d))
    for name in ("W_Q", "W_K", "W_V"):
        bounds[name] = math.sqrt(6 / sum(spec.weight_shapes()[name][-2:]))
    return bounds | {"W_O": math.sqrt(6 / (spec.H * spec.d_v + spec.d))}


def forward(spec: DeepMultiHeadSpec, weights: Weights, context: Tensor, query: Tensor) -> Tensor:
    """Outputs of every model: (models, B, d_out).

    `context`: (n, d) for all examples, or (B, n, d) or (models, B, n, d), one for each; `query`:
    (B, d), or (models, B, d).
    """
    models = len(weights["W_Q"])
    e = query.expand(models, *query.shape) if query.dim() == 2 else query
    if context.shape[-2:] != (spec.n, spec.d) or e.shape[-1] != spec.d or len(e) != models:
        raise ValueError(
            f"{spec}: expected a query (B, {spec.d}) and a context ({spec.n}, {spec.d}) or one for "
            f"each, found {tuple(query.shape)} and {tuple(context.shape)}"
        )
    E = context[None] if context.dim() == 3 else context  # own contexts: (models or 1, B, n, d)
    for layer in range(spec.layers):
        W_Q, W_K, W_V, W_O = (weights[name][:, layer] for name in ("W_Q", "W_K", "W_V", "W_O"))
        y = torch.einsum("mbd,mhdk,mhck->mbhc", e, W_Q, W_K) / math.sqrt(spec.d)
        logits = y @ E.transpose(-1, -2)
        z = torch.softmax(logits, -1) @ E
        e = e + torch.einsum("mbhd,mhdv,mhvc->mbc", z, W_V, W_O)
    return torch.baddbmm(weights["b_U"][:, None], e, weights["W_U"])
