"""Multi-head attention over (context, query) with its products folded: fewer multiplications.

The same function as `models.multi_head.forward`, with the products regrouped (row vectors, s the
scale of the logits, A_h = s W_Q^h W_K^h^T; tokens x, embedded as x W_E + b + pos):

    shared context C:  logits_h = e M_h^T,  M_h = s C W_K^h W_Q^h^T    (n x d, once a step)
    own contexts X:    logits_h = (e A_h W_E^T) X^T + e A_h pos^T      (b moves all logits alike)
                       values   = X (W_E W_V) + (b + pos) W_V

A shared context is embedded, and its keys and values are computed, once a step for all examples.
Own contexts are never embedded and get no keys: the query moves to their side, where there is one
vector a head instead of n, and values of width d_v come from one product with the raw tokens.
Gradients are autograd's.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from byheart.models.multi_head import positions, with_axes
from byheart.specs import MultiHeadSpec
from byheart.training.data import Data
from byheart.training.learner import Autograd, Goal, Weights


def folded_forward(spec: MultiHeadSpec, weights: Weights, context: Tensor, query: Tensor) -> Tensor:
    """f(E, e) of every model, (models, B, d_out)."""
    E, e = with_axes(spec, weights, context, query)
    pos = positions(spec.n + 1, spec.d, e.dtype).to(e.device) if spec.embed else None
    if pos is not None:
        e = torch.baddbmm((weights["b_E"] + pos[0])[:, None], e, weights["W_E"])
    attend = _shared if E.shape[1] == 1 else _own
    a, values = attend(spec, weights, E, e, None if pos is None else pos[1:])
    F = (a * values[..., 0]).sum(-1) if spec.d_v == 1 else (a[..., None, :] @ values).flatten(2)
    read = weights["W_O"].flatten(1, 2)
    if not spec.decoder:
        return torch.bmm(F, read)
    return torch.baddbmm(weights["b_U"][:, None], F, torch.bmm(read, weights["W_U"]))


def _shared(
    spec: MultiHeadSpec, weights: Weights, E: Tensor, e: Tensor, pos: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Attention (M, B, H, n) and values (M, 1, H, n, d_v) of one context."""
    W_Q, W_K, W_V = (weights[name] for name in ("W_Q", "W_K", "W_V"))
    M, H, d, n = len(W_Q), spec.H, spec.d, spec.n
    C = E[:, 0].expand(M, -1, -1)
    if pos is not None:
        C = torch.baddbmm(weights["b_E"][:, None] + pos, C, weights["W_E"])
    keys = C[:, None] @ (W_K * score_scale(spec))  # (M, H, n, d_h)
    fold = (keys @ W_Q.transpose(-1, -2)).view(M, H * n, d)
    logits = torch.bmm(e, fold.transpose(1, 2)).view(M, -1, H, n)
    return torch.softmax(logits, -1), (C[:, None] @ W_V)[:, None]


def _own(
    spec: MultiHeadSpec, weights: Weights, E: Tensor, e: Tensor, pos: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Attention (M, B, H, n) and values (M, B, H, n, d_v) of a context for each example."""
    W_Q, W_K, W_V = (weights[name] for name in ("W_Q", "W_K", "W_V"))
    M, B, H, d, n = len(W_Q), e.shape[1], spec.H, spec.d, spec.n
    A = (W_Q * score_scale(spec)) @ W_K.transpose(-1, -2)
    W_V = W_V.transpose(1, 2).reshape(M, d, H * spec.d_v)
    added = at = None
    if pos is not None:
        W_E = weights["W_E"]
        added = torch.bmm(e, side_by_side(A @ pos.T)).view(M * B, H, n)
        A = A @ W_E.transpose(1, 2)[:, None]
        at = (weights["b_E"][:, None] + pos) @ W_V  # (M, n, H d_v)
        W_V = W_E @ W_V
    moved = torch.bmm(e, side_by_side(A)).view(M * B, H, d)
    tokens = E.expand(M, -1, -1, -1).reshape(M * B, n, d)
    over = tokens.transpose(1, 2)
    logits = moved @ over if added is None else torch.baddbmm(added, moved, over)
    values = torch.bmm(tokens.view(M, B * n, d), W_V).view(M, B, n, H * spec.d_v)
    if at is not None:
        values = values + at[:, None]
    values = values.view(M, B, n, H, spec.d_v).transpose(2, 3)
    return torch.softmax(logits, -1).view(M, B, H, n), values


def score_scale(spec: MultiHeadSpec) -> float:
    """What the scores of every head are multiplied by."""
    return 1 / math.sqrt(spec.d) if spec.scale else 1.0


def side_by_side(W: Tensor) -> Tensor:
    """All heads side by side: (models, H, d, k) -> (models, d, H k)."""
    return W.transpose(1, 2).flatten(2)


class FoldedMultiHead(Autograd[MultiHeadSpec]):
    name = "folded"

    @classmethod
    def covers(cls, spec: MultiHeadSpec, goal: Goal, data: Data) -> bool:
        """Any multi-head layer with any loss: folding is plain algebra."""
        return True

    def forward(self, *inputs: Tensor) -> Tensor:
        return folded_forward(self.spec, self.leaves, *inputs)
