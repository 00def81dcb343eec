"""The forward of an architecture with its products regrouped, for fewer multiplications; gradients
are autograd's, the loss is any.

`DeepPairs`: several layers over pairs of tokens (S = 2), feature-major. The first position reads
only itself, so its stream is a table of N tokens in every layer; the second reads both. With
δ = c_0 - c_1, G_h = s W_Q W_K^T and W_h = W_V W_O,

    x_0 <- x_0 + (Σ_h W_h)^T c_0            (N columns, not B)
    a_h = σ(c_1^T G_h δ),   x_1 <- x_1 + (Σ_h W_h)^T c_1 + Σ_h a_h W_h^T δ

where features c_1 ⊗ δ give all scores, and a the matrix Σ_h a_h W_h, in one product each.

`TokenTables`: queries, keys and values once per (token, position), then gathered. With N tokens
and a batch B >> N the projections of a step cost N rows instead of B S:

    q = s c_S W_Q,   k_s = c_s W_K,   v_s = c_s W_V       (tables of N rows, all heads at once)
    score_s = q[x_S] · (k_s[x_s] - k_S[x_S])              (logit 0 for position S itself)
    F = v_S[x_S] + Σ_s a_s (v_s[x_s] - v_S[x_S]),   T = W_U (skip[x_S] + F W_O)
"""

from __future__ import annotations

import torch
from torch import Tensor

from byheart.specs import AttentionOnlySpec
from byheart.training.data import Data
from byheart.training.kernels.stages import score_scale
from byheart.training.learner import Learner, Weights
from byheart.training.recipe import TrainableSpec

WIDEST = 25  # of the heads' inputs of `DeepPairs`: d² features a pair
PER_LAYER = ("W_Q", "W_K", "W_V", "W_O", "W_in", "b_in", "W_out")


class DeepPairs(Learner[TrainableSpec]):
    name = "deep pairs"

    @classmethod
    def covers(cls, spec: TrainableSpec, loss: str, data: Data) -> bool:
        """Two or more softmax layers with skips over pairs of tokens, heads that read at most 25
        numbers; any loss."""
        heads = spec.heads
        pairs = heads.layers >= 2 and heads.S == 2
        return pairs and heads.attention == "softmax" and heads.skip and heads.d <= WIDEST

    def forward(self, *inputs: Tensor) -> Tensor:
        """Logits of every model, (models, B, N)."""
        spec, weights, (tokens,) = self.spec, self.leaves, inputs
        x = tokens.expand(self.models, *tokens.shape) if tokens.dim() == 2 else tokens
        first, last = (x[:, None, :, s] for s in (0, 1))
        E = weights["W_E"].transpose(1, 2)  # (M, d, N)
        x_0, x_1 = E, E.gather(2, last.expand(-1, E.shape[1], -1))
        pos = None
        if "W_pos" in weights:
            pos = [weights["W_pos"][:, s, :, None] for s in (0, 1)]
        if spec.heads.positions == "input" and pos is not None:
            x_0, x_1, pos = x_0 + pos[0], x_1 + pos[1], None
        for layer in range(spec.layers):
            own = {name: w[:, layer] for name, w in weights.items() if name in PER_LAYER}
            c_0, c_1 = x_0, x_1
            if "W_C" in weights:
                W_C = weights["W_C"][:, 0].transpose(1, 2)
                c_0, c_1 = W_C @ x_0, W_C @ x_1
            if pos is not None:
                c_0, c_1 = c_0 + pos[0], c_1 + pos[1]
            G = (score_scale(spec.heads) * own["W_Q"]) @ own["W_K"].transpose(-1, -2)
            W = own["W_V"] @ own["W_O"]  # (M, H, d, d)
            both = W.sum(1).transpose(1, 2)
            x_1 = self._after(own, x_1, both @ c_1 + _moved(G, W, c_0, c_1, first))
            if layer < spec.layers - 1:  # of the last layer, only the second position is read
                x_0 = self._after(own, x_0, both @ c_0)
        return (weights["W_U"].transpose(1, 2) @ x_1).transpose(1, 2)

    def _after(self, own: Weights, x: Tensor, out: Tensor) -> Tensor:
        """The stream x (models, d, columns) after the heads wrote `out`, and then
        x + W_out^T act(W_in^T x + b_in)."""
        if "W_D" in self.leaves:
            out = self.leaves["W_D"][:, 0].transpose(1, 2) @ out
        x = x + out
        if "W_in" not in own:
            return x
        hidden = torch.baddbmm(own["b_in"][:, :, None], own["W_in"].transpose(1, 2), x)
        gelu = getattr(self.spec, "activation", None) == "gelu"
        act = torch.nn.functional.gelu(hidden) if gelu else torch.relu(hidden)
        return torch.baddbmm(x, own["W_out"].transpose(1, 2), act)


def _moved(G: Tensor, W: Tensor, c_0: Tensor, c_1: Tensor, first: Tensor) -> Tensor:
    """Σ_h a_h W_h^T δ: (M, d, B), for c_0 (M, d, N), c_1 (M, d, B), first tokens (M, 1, B)."""
    M, d, B = c_1.shape
    delta = c_0.gather(2, first.expand(-1, d, -1)) - c_1
    features = (c_1[:, :, None] * delta[:, None]).view(M, d * d, B)
    a = torch.sigmoid(G.flatten(2) @ features)  # (M, H, B)
    Y = (W.flatten(2).transpose(1, 2) @ a).view(M, d, d, B)
    return (delta[:, :, None] * Y).sum(1)


class TokenTables(Learner[AttentionOnlySpec]):
    name = "token tables"

    @classmethod
    def covers(cls, spec: AttentionOnlySpec, loss: str, data: Data) -> bool:
        """One attention-only softmax layer over at least two tokens; any loss."""
        return spec.layers == 1 and spec.S >= 2 and spec.attention == "softmax"

    def forward(self, *inputs: Tensor) -> Tensor:
        """Logits of every model, (models, B, N)."""
        spec, weights, (tokens,) = self.spec, self.leaves, inputs
        W_E, pos = weights["W_E"], weights.get("W_pos")
        W_Q, W_K, W_V = (side_by_side(weights[name][:, 0]) for name in ("W_Q", "W_K", "W_V"))
        H, S = spec.H, spec.S
        x = tokens.expand(self.models, *tokens.shape) if tokens.dim() == 2 else tokens
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


def side_by_side(W: Tensor) -> Tensor:
    """All heads side by side: (models, H, d, k) -> (models, d, H k)."""
    return W.transpose(1, 2).flatten(2)
