"""Several layers over pairs of tokens (S = 2), feature-major: for the depth experiments, any loss.

The first position reads only itself, so its stream is a table of N tokens in every layer:

    x_0 <- x_0 + (Σ_h W_h)^T c_0            (N columns, not B)

The second reads both: with δ = c_0 - c_1, G_h = s W_Q W_K^T and W_h = W_V W_O,

    a_h = σ(c_1^T G_h δ),   x_1 <- x_1 + (Σ_h W_h)^T c_1 + Σ_h a_h W_h^T δ

where features c_1 ⊗ δ give all scores, and a the matrix Σ_h a_h W_h, in one product each, as in
`bilinear`. MLPs act on x_0's table and on x_1. Gradients are autograd's.
"""

from __future__ import annotations

import torch
from torch import Tensor

from byheart.training.data import Data
from byheart.training.kernels.stages import score_scale
from byheart.training.learner import Autograd, Goal, Weights
from byheart.training.trainable import TrainableSpec

WIDEST = 25  # of the heads' inputs: d² features a pair


def pairs_forward(spec: TrainableSpec, weights: Weights, tokens: Tensor) -> Tensor:
    """Logits of every model, (models, B, N), as the architecture's own `forward` gives them."""
    heads, gelu = spec.heads, getattr(spec, "activation", None) == "gelu"
    M = len(weights["W_E"])
    x = tokens.expand(M, *tokens.shape) if tokens.dim() == 2 else tokens
    first, last = (x[:, None, :, s] for s in (0, 1))
    E = weights["W_E"].transpose(1, 2)  # (M, d, N)
    pos = [None, None]
    if "W_pos" in weights:
        pos = [weights["W_pos"][:, s, :, None] for s in (0, 1)]
    x_0, x_1 = E, E.gather(2, last.expand(-1, E.shape[1], -1))
    if heads.positions == "input" and pos[0] is not None and pos[1] is not None:
        x_0, x_1, pos = x_0 + pos[0], x_1 + pos[1], [None, None]
    compressed = "W_C" in weights
    for layer in range(spec.layers):
        c_0, c_1 = x_0, x_1
        if compressed:
            W_C = weights["W_C"][:, layer].transpose(1, 2)
            c_0, c_1 = W_C @ x_0, W_C @ x_1
        if pos[0] is not None and pos[1] is not None:
            c_0, c_1 = c_0 + pos[0], c_1 + pos[1]
        G = (score_scale(heads) * weights["W_Q"][:, layer]) @ weights["W_K"][:, layer].transpose(
            -1, -2
        )
        W = weights["W_V"][:, layer] @ weights["W_O"][:, layer]  # (M, H, d, d)
        both = W.sum(1).transpose(1, 2)
        out_1 = both @ c_1 + _moved(G, W, c_0, c_1, first)
        out_0 = both @ c_0 if layer < spec.layers - 1 else None
        if compressed:
            W_D = weights["W_D"][:, layer].transpose(1, 2)
            out_1, out_0 = W_D @ out_1, None if out_0 is None else W_D @ out_0
        x_1 = x_1 + out_1
        if out_0 is not None:
            x_0 = x_0 + out_0
        if "W_in" in weights:
            x_1 = _mlp(weights, layer, x_1, gelu)
            if out_0 is not None:
                x_0 = _mlp(weights, layer, x_0, gelu)
    return (weights["W_U"].transpose(1, 2) @ x_1).transpose(1, 2)


def _moved(G: Tensor, W: Tensor, c_0: Tensor, c_1: Tensor, first: Tensor) -> Tensor:
    """Σ_h a_h W_h^T δ: (M, d, B), for c_0 (M, d, N), c_1 (M, d, B), first tokens (M, 1, B)."""
    M, d, B = c_1.shape
    delta = c_0.gather(2, first.expand(-1, d, -1)) - c_1
    features = (c_1[:, :, None] * delta[:, None]).view(M, d * d, B)
    a = torch.sigmoid(G.flatten(2) @ features)  # (M, H, B)
    Y = (W.flatten(2).transpose(1, 2) @ a).view(M, d, d, B)
    return (delta[:, :, None] * Y).sum(1)


def _mlp(weights: Weights, layer: int, x: Tensor, gelu: bool) -> Tensor:
    """x + W_out^T act(W_in^T x + b_in) for x (models, d, columns)."""
    W_in, b_in, W_out = (weights[name][:, layer] for name in ("W_in", "b_in", "W_out"))
    hidden = torch.baddbmm(b_in[:, :, None], W_in.transpose(1, 2), x)
    act = torch.nn.functional.gelu if gelu else torch.relu
    return torch.baddbmm(x, W_out.transpose(1, 2), act(hidden))


class DeepPairs(Autograd[TrainableSpec]):
    name = "deep pairs"

    @classmethod
    def covers(cls, spec: TrainableSpec, goal: Goal, data: Data) -> bool:
        """Two or more softmax layers with skips over pairs of tokens, heads that read at most 25
        numbers; any loss."""
        heads = spec.heads
        pairs = heads.layers >= 2 and heads.S == 2
        return pairs and heads.attention == "softmax" and heads.skip and heads.d <= WIDEST

    def forward(self, *inputs: Tensor) -> Tensor:
        return pairs_forward(self.spec, self.leaves, *inputs)
