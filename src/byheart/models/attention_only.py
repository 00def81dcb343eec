"""The attention-only Transformer of Dana et al. (2025).

    T(t) = W_U ( x_S + Σ_h W_O^h W_V^h Σ_s softmax_s(x_S^T W_QK^h x_s) x_s ),  x_s = e(t_s) + pos_s

Only the last position is read, so only the last position is computed in the last layer. Weights
carry the names and the layout of TransformerLens; W_QK^h = W_Q^h W_K^h^T has rank r (`qk_rank`, d_h
in the paper, 1 is enough by its Remark 2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from byheart.models.architectures import Weights, embed
from byheart.specs import AttentionOnlySpec

SURROGATES = ("straight-through", "annealed")
# Ranks of W_QK at which heads carry gates (`sharded`), whose sums are exact while each channel is
# summed by itself. Rank 1 has a single channel; larger ranks are faster with x_S^T W_QK first.
GATED_RANKS = (2, 3)

INITS = ("as-coded", "linear")


@dataclass(frozen=True)
class Hardmax:
    """What stands in for the gradient of hardmax, which is 0 (of no consequence to softmax).

    `straight-through`: forward exact, backward that of softmax(scores / temperature); `annealed`:
    both that of the softmax, which tends to hardmax as the temperature falls to 0.
    """

    surrogate: str = "straight-through"
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if self.surrogate not in SURROGATES:
            names = ", ".join(SURROGATES)
            raise ValueError(f"surrogate must be one of {names}, found {self.surrogate!r}")
        if not self.temperature > 0:
            raise ValueError(f"temperature must be above 0, found {self.temperature}")


EXACT = Hardmax()


def attention_weights(
    scores: Tensor, attention: str, future: Tensor | None = None, hardmax: Hardmax = EXACT
) -> Tensor:
    """Weights over the last axis of `scores`; `future` (True: not read) masks positions.

    Hardmax gives 1/|I| to the positions I with the largest score, ties sharing, and 0 to the others
    (Kajitsuka and Sato 2025). Scores tie when they are equal as computed; equal vectors that miss a
    tie by a rounding have the same weighted sum.

    >>> attention_weights(torch.tensor([1.0, 3.0, 3.0, 2.0]), "hardmax").tolist()
    [0.0, 0.5, 0.5, 0.0]
    """
    masked = scores if future is None else scores.masked_fill(future, -torch.inf)
    if attention == "softmax":
        return torch.softmax(masked, dim=-1)
    if hardmax.surrogate == "annealed":
        return torch.softmax(masked / hardmax.temperature, dim=-1)
    top = (masked == masked.amax(-1, keepdim=True)).to(scores.dtype)
    hard = top / top.sum(-1, keepdim=True)
    if not (torch.is_grad_enabled() and scores.requires_grad):
        return hard
    soft = torch.softmax(masked / hardmax.temperature, dim=-1)
    return hard + (soft - soft.detach())  # adds exactly 0


def start_bounds(spec: AttentionOnlySpec, init: str) -> dict[str, float]:
    """`as-coded` (Dana et al. 2025): d^-1/2 for W_E and W_U, d_h^-1/2 for W_pos and W_O,
    and Xavier on the stacked in-projection (d columns, 2r + d_h rows a head), sqrt(6 / (d + 2r +
    d_h)), for W_Q, W_K, W_V: sqrt(1.5 / d) where r = d_h = d. `linear`: W_Q, W_K, W_V as
    `nn.Linear` starts, d^-1/2; the others the same."""
    xavier = math.sqrt(6 / (spec.d + 2 * spec.qk_rank + spec.d_h))
    projection = xavier if init == "as-coded" else spec.d**-0.5
    return {
        **dict.fromkeys(("W_E", "W_U"), spec.d**-0.5),
        **dict.fromkeys(("W_pos", "W_O"), spec.d_h**-0.5),
        **dict.fromkeys(("W_Q", "W_K", "W_V"), projection),
    }


@dataclass(frozen=True)
class Stack:
    """The attention of a stack of models, layer by layer; x is (models, B, S, d)."""

    spec: AttentionOnlySpec
    weights: Weights
    hardmax: Hardmax = EXACT

    def embed(self, tokens: Tensor) -> Tensor:
        """x_s = e(t_s), plus pos_s if positions are added at the input."""
        x = embed(self.weights["W_E"], tokens)
        return x + self.weights["W_pos"][:, None] if self.spec.positions == "input" else x

    def before_last(self, tokens: Tensor) -> Tensor:
        """The residual stream before the last layer, at every position."""
        x = self.embed(tokens)
        for layer in range(self.spec.layers - 1):
            x = self.all_positions(layer, x)
        return x

    def all_positions(self, layer: int, x: Tensor) -> Tensor:
        """A layer that another one reads: x + Σ_h W_O^h F^h at every position, causal."""
        F = self.heads(layer, x, last_only=False)
        added = torch.einsum("mbqhe,mhed->mbqd", F, self.weights["W_O"][:, layer])
        return x + added if self.spec.skip else added

    def heads(self, layer: int, x: Tensor, last_only: bool) -> Tensor:
        """W_V^h Σ_s a^h_s x_s for the last query or for all: (models, B, queries, H, d_h)."""
        a, x = self.attention(layer, x, last_only)
        one_query = last_only and self.spec.qk_rank not in GATED_RANKS
        A = (a[:, :, :, 0] @ x)[:, :, :, None] if one_query else a @ x[:, :, None]
        return torch.einsum("mbhqd,mhde->mbqhe", A, self.weights["W_V"][:, layer])

    def attention(self, layer: int, x: Tensor, last_only: bool) -> tuple[Tensor, Tensor]:
        """Attention of the last query or of all, (models, B, H, queries, S), and what it is over:
        x, plus pos_s if positions are added there."""
        spec, W_Q, W_K = self.spec, self.weights["W_Q"][:, layer], self.weights["W_K"][:, layer]
        if spec.positions == "attention":
            x = x + self.weights["W_pos"][:, None]
        q = torch.einsum("mbqd,mhdr->mbhqr", x[:, :, -1:] if last_only else x, W_Q)
        if last_only and spec.qk_rank not in GATED_RANKS:
            # x_S^T W_QK first, instead of the keys of all positions
            y = torch.einsum("mbhr,mhdr->mbhd", q[:, :, :, 0], W_K)
            scores = (y @ x.transpose(-1, -2))[:, :, :, None]
        else:
            k = torch.einsum("mbsd,mhdr->mbhsr", x, W_K)
            scores = q @ k.transpose(-1, -2)
        if spec.scale:
            scores = scores / math.sqrt(spec.qk_rank)
        future = None
        if not last_only:  # causal: a position reads itself and what came before
            future = torch.ones(spec.S, spec.S, dtype=torch.bool, device=x.device).triu(1)
        return attention_weights(scores, spec.attention, future, self.hardmax), x


def head_outputs(
    spec: AttentionOnlySpec, weights: Weights, tokens: Tensor, hardmax: Hardmax = EXACT
) -> tuple[Tensor, Tensor]:
    """What the last layer adds up at the last position: the skip, and F^h = W_V^h A^h(t).

    `tokens` is (B, S), the same for every model, or (models, B, S).
    Returns the residual stream before the last layer, (models, B, d) (zeros without skip), and
    F (models, B, H, d_h).
    """
    stack = Stack(spec, weights, hardmax)
    x = stack.before_last(tokens)
    F, skip = stack.heads(spec.layers - 1, x, last_only=True)[:, :, 0], x[:, :, -1]
    return (skip if spec.skip else torch.zeros_like(skip)), F


def attention(spec: AttentionOnlySpec, weights: Weights, tokens: Tensor) -> Tensor:
    """a^h_s of the last query in the last layer, every head: (models, B, H, S)."""
    stack = Stack(spec, weights)
    return stack.attention(spec.layers - 1, stack.before_last(tokens), last_only=True)[0][
        :, :, :, 0
    ]


def residual(
    spec: AttentionOnlySpec, weights: Weights, tokens: Tensor, hardmax: Hardmax = EXACT
) -> Tensor:
    """x_S + Σ_h W_O^h F^h, the vector that W_U reads: (models, B, d)."""
    skip, F = head_outputs(spec, weights, tokens, hardmax)
    return torch.baddbmm(skip, F.flatten(2), weights["W_O"][:, -1].flatten(1, 2))


def forward(
    spec: AttentionOnlySpec, weights: Weights, tokens: Tensor, hardmax: Hardmax = EXACT
) -> Tensor:
    """Logits T(t) = W_U residual(t) of every model: (models, B, N)."""
    return residual(spec, weights, tokens, hardmax) @ weights["W_U"]
