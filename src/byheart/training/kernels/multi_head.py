"""Multi-head attention over (context, query) with its products folded: fewer multiplications.

The same function as `models.multi_head.forward`, with the products regrouped (row vectors, s the
scale of the logits):

    shared context:  logits_h = e M_h,          M_h = s W_Q^h (E W_K^h)^T    (d x n, once a step)
    own contexts:    logits_h = (e G_h) E^T,    G_h = s W_Q^h W_K^h^T        (d x d, once a step)

A shared context is embedded, and its keys and values are computed, once a step for all examples;
own contexts never get keys or values of their own: the query moves to the key side, and W_V reads
the attended mean. Gradients are autograd's.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from byheart.models.multi_head import positions, with_axes
from byheart.specs import MultiHeadSpec
from byheart.training.data import Data
from byheart.training.learner import Autograd, Goal, Weights


def multi_head_admissible(spec: object, goal: Goal, data: Data) -> bool:
    """Any multi-head layer with any loss: folding is plain algebra."""
    return isinstance(spec, MultiHeadSpec)


def folded_forward(spec: MultiHeadSpec, weights: Weights, context: Tensor, query: Tensor) -> Tensor:
    """f(E, e) of every model, (models, B, d_out)."""
    E, e = with_axes(spec, weights, context, query)
    W_Q, W_K, W_V, W_O = (weights[name] for name in ("W_Q", "W_K", "W_V", "W_O"))
    M, B, H, d, n = len(W_Q), e.shape[1], spec.H, spec.d, spec.n
    shared = E.shape[1] == 1
    pos = positions(n + 1, d, e.dtype).to(e.device) if spec.embed else None
    if pos is not None:
        e = torch.baddbmm((weights["b_E"] + pos[0])[:, None], e, weights["W_E"])
        if shared:
            E = E[:, 0].expand(M, -1, -1)
            E = (torch.baddbmm(weights["b_E"][:, None], E, weights["W_E"]) + pos[1:])[:, None]
    scale = 1 / math.sqrt(d) if spec.scale else 1.0
    if shared:
        context_keys = E[:, 0].expand(M, -1, -1)[:, None] @ W_K  # (M, H, n, d_h)
        fold = (W_Q * scale) @ context_keys.transpose(-1, -2)  # (M, H, d, n)
        logits = torch.bmm(e, fold.transpose(1, 2).reshape(M, d, H * n)).view(M, B, H, n)
        a = torch.softmax(logits, -1)
        values = E[:, 0].expand(M, -1, -1)[:, None] @ W_V  # (M, H, n, d_v)
        if spec.d_v == 1:
            F = (a * values[..., 0][:, None]).sum(-1)
        else:
            F = torch.einsum("mbhn,mhnv->mbhv", a, values).flatten(2)
    else:
        G = ((W_Q * scale) @ W_K.transpose(-1, -2)).transpose(1, 2).reshape(M, d, H * d)
        y = torch.bmm(e, G).view(M, B, H, d)
        if pos is None:
            z = torch.softmax(y @ E.transpose(-1, -2), -1) @ E
        else:
            # Tokens stay as they are: x W_E + b_E + pos is undone on the query side, where there
            # is one vector a head instead of n. b_E adds the same to all logits of a head: nothing.
            W_E = weights["W_E"]
            back = torch.bmm(y.flatten(1, 2), W_E.transpose(1, 2)).view(M, B, H, d)
            logits = back @ E.transpose(-1, -2) + y @ pos[1:].T
            a = torch.softmax(logits, -1)
            mean = (a @ E).flatten(1, 2)
            z = torch.baddbmm(weights["b_E"][:, None], mean, W_E).view(M, B, H, d) + a @ pos[1:]
        if spec.d_v == 1:
            F = (z * W_V[..., 0][:, None]).sum(-1)
        else:
            F = torch.einsum("mbhd,mhdv->mbhv", z, W_V).flatten(2)
    read = W_O.flatten(1, 2)
    if not spec.decoder:
        return torch.bmm(F, read)
    return torch.baddbmm(weights["b_U"][:, None], F, torch.bmm(read, weights["W_U"]))


class FoldedMultiHead(Autograd):
    name = "folded"

    def __init__(self, spec: MultiHeadSpec, models: int, goal: Goal, **options: Any) -> None:
        super().__init__(spec, models, goal, **options)
        self.forward = folded_forward
