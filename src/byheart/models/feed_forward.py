"""Residual ReLU blocks around one attention layer: E_out o FF_2 o SA o FF_1 o E_in.

    FF block:   z <- z + W_2 relu(W_1 z + b_1) + b_2                 (token by token)
    attention:  z_k <- z_k + W_O W_V Σ_l a_kl z_l,   a_k = softmax_l(z_k^T W_Q W_K^T z_l)
    uniform:    a_kl = 1/n, which softmax and hardmax both give for W_Q = 0 or W_K = 0

(Kajitsuka and Sato 2025; eq. 165 is the model of their experiments, `FeedForwardTransformerSpec.
experiment`.) No mask, no positions, no scale: the model cannot tell an order. Inputs are vectors.
One position is read, so attention and FF_2 are computed there only. FF_1's blocks come first.
"""

from __future__ import annotations

import torch
from torch import Tensor

from byheart.models.architectures import Weights, embed
from byheart.models.attention_only import EXACT, Hardmax, attention_weights
from byheart.specs import FeedForwardTransformerSpec

INITS = ("linear",)


def start_bounds(spec: FeedForwardTransformerSpec, init: str) -> dict[str, float]:
    """`linear`: every weight and bias as `nn.Linear` starts, U(±fan_in^-1/2). The paper does not
    say how its models start."""
    fan_in = dict.fromkeys(("W_1", "b_1", "W_Q", "W_K", "W_V", "E_out"), spec.m)
    fan_in |= {"E_in": spec.d, "W_O": spec.s} | dict.fromkeys(("W_2", "b_2"), spec.q)
    return {name: fan**-0.5 for name, fan in fan_in.items()}


def forward(
    spec: FeedForwardTransformerSpec, weights: Weights, *inputs: Tensor, hardmax: Hardmax = EXACT
) -> Tensor:
    """Outputs at the position `read`: (models, B, d_out).

    `inputs`: tokens in R^d, (B, n, d), the same for every model, or (models, B, n, d), its own; or
    a table of vectors (K, d) and numbers of its rows, (B, n) or (models, B, n); or these numbers
    alone, of rows of E_in: tokens that are one-hot vectors, so that E_in is a table of its own.
    """
    models, tokens = len(weights["E_in"]), inputs[-1]
    if len(inputs) == 2:
        tokens = inputs[0][tokens]
    vectors = tokens.is_floating_point()
    if tokens.dim() == 3 + vectors and len(tokens) != models:
        raise ValueError(f"inputs for {len(tokens)} models, weights of {models}")
    B, n = tokens.shape[-3:-1] if vectors else tokens.shape[-2:]
    if vectors:
        rows = tokens.reshape(-1, B * n, spec.d).expand(models, -1, -1)
        z = torch.bmm(rows, weights["E_in"])
    else:
        z = embed(weights["E_in"], tokens).flatten(1, 2)
    for block in range(spec.first):
        z = _block(weights, block, z)
    z = z.unflatten(1, (B, n))
    y = z[:, :, spec.read]
    if spec.uniform:
        mean = z.mean(2)
    else:
        q = torch.bmm(y, weights["W_Q"])
        key = torch.bmm(q, weights["W_K"].transpose(1, 2))  # z_k^T W_Q W_K^T
        scores = (z @ key[..., None])[..., 0]
        a = attention_weights(scores, spec.attention, hardmax=hardmax)
        mean = (a[:, :, None] @ z)[:, :, 0]
    y = torch.baddbmm(y, mean @ weights["W_V"], weights["W_O"])
    for block in range(spec.first, spec.blocks):
        y = _block(weights, block, y)
    return y @ weights["E_out"]


def _block(weights: Weights, block: int, z: Tensor) -> Tensor:
    """z + W_2 relu(W_1 z + b_1) + b_2 for z (models, rows, m)."""
    hidden = torch.baddbmm(weights["b_1"][:, block, None], z, weights["W_1"][:, block])
    skip = z + weights["b_2"][:, block, None]
    return torch.baddbmm(skip, torch.relu(hidden), weights["W_2"][:, block])
