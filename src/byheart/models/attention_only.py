"""The attention-only Transformer of Dana et al. (2025): spec, stacked forward, literal oracle.

    T(t) = W_U ( x_S + Σ_h W_O^h W_V^h Σ_s softmax_s(x_S^T W_QK^h x_s) x_s ),  x_s = e(t_s) + pos_s

Only the last position is read, so only the last position is computed in the last layer.
Weights carry the names and the row-vector layout of TransformerLens, after a leading model axis:
`W_E (models, N, d)`, `W_pos (models, S, d)`, `W_Q, W_K (models, layers, H, d, r)`,
`W_V (models, layers, H, d, d_h)`, `W_O (models, layers, H, d_h, d)`, `W_U (models, d, N)`;
W_QK^h = W_Q^h W_K^h^T has rank r (`qk_rank`, d_h in the paper, 1 is enough by its Remark 2).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from byheart.specs import AttentionOnlySpec

Weights = dict[str, Tensor]

# Ranks of W_QK at which heads carry gates (`sharded`), whose sums are exact while each channel is
# summed by itself. Rank 1 has a single channel; larger ranks are faster with x_S^T W_QK first.
GATED_RANKS = (2, 3)


def head_outputs(
    spec: AttentionOnlySpec, weights: Weights, tokens: Tensor
) -> tuple[Tensor, Tensor]:
    """What the last layer adds up at the last position: the skip, and F^h = W_V^h A^h(t).

    `tokens` is (B, S), the same for every model, or (models, B, S).
    Returns the residual stream before the last layer, (models, B, d) (zeros without skip), and
    F (models, B, H, d_h).
    """
    x = _embed(spec, weights, tokens)
    for layer in range(spec.layers - 1):
        F = _heads(spec, weights, layer, x, last_only=False)
        added = torch.einsum("mbqhe,mhed->mbqd", F, weights["W_O"][:, layer])
        x = x + added if spec.skip else added
    F = _heads(spec, weights, spec.layers - 1, x, last_only=True)[:, :, 0]
    skip = x[:, :, -1]
    return (skip if spec.skip else torch.zeros_like(skip)), F


def residual(spec: AttentionOnlySpec, weights: Weights, tokens: Tensor) -> Tensor:
    """x_S + Σ_h W_O^h F^h, the vector that W_U reads: (models, B, d)."""
    skip, F = head_outputs(spec, weights, tokens)
    W_O = weights["W_O"][:, -1]
    return torch.baddbmm(skip, F.flatten(2), W_O.flatten(1, 2))


def forward(spec: AttentionOnlySpec, weights: Weights, tokens: Tensor) -> Tensor:
    """Logits T(t) = W_U residual(t) of every model: (models, B, N)."""
    return residual(spec, weights, tokens) @ weights["W_U"]


def memory_logits(
    spec: AttentionOnlySpec, weights: Weights, tokens: Tensor, dtype: torch.dtype | None = None
) -> Tensor:
    """Logits (B, N) of one model whose weights have no model axis, evaluated in `dtype`."""
    stacked = {name: w[None].to(dtype or w.dtype) for name, w in weights.items()}
    return forward(spec, stacked, tokens)[0]


def _embed(spec: AttentionOnlySpec, weights: Weights, tokens: Tensor) -> Tensor:
    if tokens.dim() == 2:
        x = weights["W_E"][:, tokens]
    else:
        x = torch.stack([e[t] for e, t in zip(weights["W_E"], tokens, strict=True)])
    return x + weights["W_pos"][:, None] if spec.positions == "input" else x


def _heads(
    spec: AttentionOnlySpec, weights: Weights, layer: int, x: Tensor, last_only: bool
) -> Tensor:
    """W_V^h Σ_s a^h_s x_s for the last query or for all: (models, B, queries, H, d_h)."""
    if spec.positions == "attention":
        x = x + weights["W_pos"][:, None]
    W_Q, W_K, W_V = (weights[name][:, layer] for name in ("W_Q", "W_K", "W_V"))
    query = x[:, :, -1:] if last_only else x
    q = torch.einsum("mbqd,mhdr->mbhqr", query, W_Q)
    if last_only and spec.qk_rank not in GATED_RANKS:
        # One query: x_S^T W_QK first, instead of the keys of all positions.
        y = torch.einsum("mbhqr,mhdr->mbhqd", q, W_K)
        scores = y @ x[:, :, None].transpose(-1, -2)
    else:
        k = torch.einsum("mbsd,mhdr->mbhsr", x, W_K)
        scores = q @ k.transpose(-1, -2)
    if spec.scale:
        scores = scores / math.sqrt(spec.qk_rank)
    if not last_only:  # causal: a position reads itself and what came before
        future = torch.ones(spec.S, spec.S, dtype=torch.bool, device=x.device).triu(1)
        scores = scores.masked_fill(future, -torch.inf)
    A = torch.softmax(scores, dim=-1) @ x[:, :, None]
    return torch.einsum("mbhqd,mhde->mbqhe", A, W_V)


def literal_forward(spec: AttentionOnlySpec, weights: Weights, tokens: Tensor) -> Tensor:
    """The formula of the paper, one model, sequence, head and position at a time: the oracle."""
    models = weights["W_E"].shape[0]
    batch = tokens if tokens.dim() == 3 else tokens.expand(models, *tokens.shape)
    return torch.stack(
        [
            torch.stack(
                [_literal(spec, {k: w[m] for k, w in weights.items()}, t) for t in batch[m]]
            )
            for m in range(models)
        ]
    )


def _literal(spec: AttentionOnlySpec, w: Weights, tokens: Tensor) -> Tensor:
    pos = w.get("W_pos")
    x = [w["W_E"][t] for t in tokens]
    if spec.positions == "input" and pos is not None:
        x = [x_s + pos_s for x_s, pos_s in zip(x, pos, strict=True)]
    for layer in range(spec.layers):
        read = x
        if spec.positions == "attention" and pos is not None:
            read = [x_s + pos_s for x_s, pos_s in zip(x, pos, strict=True)]
        new = []
        for s in range(spec.S):
            total = x[s].clone() if spec.skip else torch.zeros_like(x[s])
            for h in range(spec.H):
                W_QK = w["W_Q"][layer, h] @ w["W_K"][layer, h].T
                raw = torch.stack([read[s] @ W_QK @ read[j] for j in range(s + 1)])
                if spec.scale:
                    raw = raw / math.sqrt(spec.qk_rank)
                a = torch.softmax(raw, dim=0)
                A = sum((a[j] * read[j] for j in range(s + 1)), torch.zeros_like(x[s]))
                total = total + A @ w["W_V"][layer, h] @ w["W_O"][layer, h]
            new.append(total)
        x = new
    return x[-1] @ w["W_U"]
