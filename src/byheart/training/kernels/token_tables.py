"""Queries, keys and values once per (token, position), then gathered: for narrow heads, any loss.

With N tokens and a batch B >> N the projections of a step cost N rows instead of B S:

    q = s c_S W_Q,   k_s = c_s W_K,   v_s = c_s W_V       (tables of N rows, all heads at once)
    score_s = q[x_S] · (k_s[x_s] - k_S[x_S])              (logit 0 for position S itself)
    F = v_S[x_S] + Σ_s a_s (v_s[x_s] - v_S[x_S]),   T = W_U (skip[x_S] + F W_O)

Gradients are autograd's.
"""

from __future__ import annotations

import torch
from torch import Tensor

from byheart.specs import AttentionOnlySpec
from byheart.training.data import Data
from byheart.training.kernels.folded import side_by_side
from byheart.training.kernels.stages import score_scale
from byheart.training.learner import Autograd, Goal, Weights


def tables_forward(spec: AttentionOnlySpec, weights: Weights, tokens: Tensor) -> Tensor:
    """Logits of every model, (models, B, N), as `models.attention_only.forward` gives them."""
    W_E, pos = weights["W_E"], weights.get("W_pos")
    W_Q, W_K, W_V = (side_by_side(weights[name][:, 0]) for name in ("W_Q", "W_K", "W_V"))
    M, H, S = len(W_E), spec.H, spec.S
    x = tokens.expand(M, *tokens.shape) if tokens.dim() == 2 else tokens
    c = [W_E if pos is None else W_E + pos[:, s, None] for s in range(S)]
    x_S, c_S = x[:, :, -1], c[-1]
    q = _rows(c_S @ (W_Q * score_scale(spec)), x_S)
    k_S, v_S = _rows(c_S @ W_K, x_S), _rows(c_S @ W_V, x_S)
    scores, moves = [], []
    for s in range(S - 1):
        x_s = x[:, :, s]
        score = q * (_rows(c[s] @ W_K, x_s) - k_S)
        scores.append(score.view(*x_S.shape, H, -1).sum(-1))
        moves.append((_rows(c[s] @ W_V, x_s) - v_S).view(*x_S.shape, H, -1))
    if S == 2:
        F = torch.sigmoid(scores[0])[..., None] * moves[0]
    else:
        a = torch.softmax(torch.stack([*scores, torch.zeros_like(scores[0])], -1), -1)
        F = (a[..., :-1, None] * torch.stack(moves, -2)).sum(-2)
    F, W_O = F.flatten(2) + v_S, weights["W_O"][:, 0].flatten(1, 2)
    if spec.skip:
        skip = _rows(c_S if spec.positions == "input" else W_E, x_S)
        r = torch.baddbmm(skip, F, W_O)
    else:
        r = torch.bmm(F, W_O)
    return torch.bmm(r, weights["W_U"])


def _rows(table: Tensor, index: Tensor) -> Tensor:
    """table (models, N, K) at index (models, B): (models, B, K)."""
    M, N, K = table.shape
    at = index + torch.arange(M, device=index.device)[:, None] * N
    return table.reshape(M * N, K).index_select(0, at.flatten()).view(M, -1, K)


class TokenTables(Autograd[AttentionOnlySpec]):
    name = "token tables"

    @classmethod
    def covers(cls, spec: AttentionOnlySpec, goal: Goal, data: Data) -> bool:
        """One attention-only softmax layer over at least two tokens; any loss."""
        return spec.layers == 1 and spec.S >= 2 and spec.attention == "softmax"

    def forward(self, *inputs: Tensor) -> Tensor:
        return tables_forward(self.spec, self.leaves, *inputs)
