"""What the kernels for one attention-only layer share: tables per token, loss, gradients.

The same training as the general path, in another order of products (S tokens, c_s = e(t_s) + pos_s,
δ_s = c_s - c_S, G_h = W_Q^h W_K^h^T, W_h = W_V^h W_O^h, all sums over s < S):

    a^h = softmax of (scale c_S^T G_h δ_s)_s with a logit 0 for position S itself
    T(t) = W_U ( x_S + Σ_h W_h^T c_S + Σ_h Σ_s a^h_s W_h^T δ_s )

With S = 2 the softmax is a sigmoid. The skip and Σ_h W_h^T c_S depend on the last token only, so
they are computed once per token and gathered. Everything is feature-major with the batch last,
(models, features, B): products then have long contiguous rows. Parameters and gradients stay on
W_Q, W_K, W_V, W_O. A stage (`stages`) stands around the heads: a shared bottleneck, in which they
have width e = d_h instead of d, or an MLP. Subclasses compute the attention in one of two forms:
`attend`, `attend_back`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from byheart.specs import AttentionOnlySpec
from byheart.training.data import Data
from byheart.training.kernels.stages import Bottleneck, score_scale, stage_of
from byheart.training.learner import Batch, Goal, Learner, Weights, split
from byheart.training.trainable import TrainableSpec

LOG2_E = 1 / math.log(2)
# exp2 of less is 0 in float32 all the same, and denormal results are many times slower.
FLOOR = -120.0


class OneLayer(Learner[TrainableSpec]):
    """Buffers and views are made once; every operation writes into them."""

    @classmethod
    def covers(cls, spec: TrainableSpec, goal: Goal, data: Data) -> bool:
        """One softmax layer, W_QK of rank d_h, at least two tokens, cross-entropy on classes."""
        heads = spec.heads
        layer = heads.layers == 1 and heads.S >= 2 and heads.attention == "softmax"
        classes = goal.loss == "cross-entropy" and data.kind == "class"
        return layer and heads.qk_rank == heads.d_h and classes

    @classmethod
    def step_bytes(
        cls, spec: TrainableSpec, models: int, rows: int, itemsize: int, full: bool
    ) -> int:
        heads = spec.heads
        shared = 4 * heads.S * heads.d + heads.N + 2 + stage_of(spec).numbers
        return models * rows * itemsize * (shared + cls.attention_numbers(heads))

    @classmethod
    def attention_numbers(cls, heads: AttentionOnlySpec) -> int:
        """How many numbers `attend` and `attend_back` keep of every example."""
        raise NotImplementedError

    def bind(self) -> None:
        self.stage = stage_of(self.spec)
        self.heads = heads = self.stage.heads
        M, H, e, d_h, N = self.models, heads.H, heads.d, heads.d_h, heads.N
        self.scale = score_scale(heads)
        w, g = self._parts(self.theta), self._parts(self.grad)
        self.E, self.QV, self.KO, self.U = (w[name] for name in ("E", "QV", "KO", "U"))
        self.gE, self.gQV, self.gKO, self.gU = (g[name] for name in ("E", "QV", "KO", "U"))
        self.pos, self.gpos = w.get("pos"), g.get("pos")
        self.stage.bind(w, g)
        # (2MH, e, d_h): the products of all heads of all models, G and W, in one call.
        self.QV3, self.KO3 = self.QV.view(-1, e, d_h), self.KO.view(-1, e, d_h)
        self.gQV3, self.gKO3 = self.gQV.view(-1, e, d_h), self.gKO.view(-1, e, d_h)
        self.KO3t = self.KO3.transpose(1, 2)
        self.GW, self.dGW = self._empty(2 * M * H, e, e), self._empty(2 * M * H, e, e)
        self.dGWt = self.dGW.transpose(1, 2)
        self.G, self.W = self.GW.view(2, M, H, e, e)
        self.dG, self.dW = self.dGW.view(2, M, H, e, e)
        self.A = self._empty(M, e, e)
        self.At, self.dA = self.A.transpose(1, 2), self._empty(M, e, e)
        self.eye = torch.eye(e, dtype=self.dtype, device=self.device) * float(heads.skip)
        self.tables, self.d_tables = (self._empty(heads.S + 1, M, e, N) for _ in range(2))
        self.gZ = self.gE if type(self.stage) is not Bottleneck else self._empty(M, e, N)
        self.Ut = self.U.transpose(1, 2)
        self.batch = 0

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=self.dtype, device=self.device)

    def _parts(self, flat: Tensor) -> Weights:
        """E and U (M,d,N), pos (S,M,e,1), QV = [W_Q, W_V] and KO = [W_K, W_O^T] (2,M,H,e,d_h), and
        the stage's own weights (M,...)."""
        M, s, own = self.models, self.heads, self.spec.weight_shapes()
        shapes = {"E": (M, self.spec.d, s.N), "pos": (s.S, M, s.d, 1)}
        if s.positions == "none":
            del shapes["pos"]
        shapes["QV"] = shapes["KO"] = (2, M, s.H, s.d, s.d_h)
        shapes["U"] = shapes["E"]
        return split(flat, shapes | {name: (M, *own[name]) for name in self.stage.names})

    def views(self, flat: Tensor) -> Weights:
        parts = self._parts(flat)
        QV, KO = parts["QV"], parts["KO"]
        weights = {
            "W_E": parts["E"].transpose(1, 2),
            "W_Q": QV[0].unsqueeze(1),
            "W_K": KO[0].unsqueeze(1),
            "W_V": QV[1].unsqueeze(1),
            "W_O": KO[1].transpose(-1, -2).unsqueeze(1),
            "W_U": parts["U"],
        }
        if "pos" in parts:
            weights["W_pos"] = parts["pos"][..., 0].transpose(0, 1)
        return weights | {name: parts[name] for name in self.stage.names}

    def prepare(self, data: Data, order: Tensor | None) -> None:
        """Token arrays (batches, S + 1, M, 1, B) of all batches; the last token stands twice."""
        M = self.models
        if order is None:
            (tokens,), answers = data.span(0, data.T)
            tokens, answers = tokens.expand(1, M, -1, -1), answers.expand(1, M, -1)
            self.row_weights = data.row_weights(0, data.T)
        else:
            self.row_weights = None
            if data.own:
                lead = torch.arange(M, device=order.device)[None, :, None]
                tokens, answers = data.inputs[lead, order], data.targets[lead, order]
            else:
                tokens, answers = data.inputs[order], data.targets[order]
        x = tokens.permute(0, 3, 1, 2).unsqueeze(3)
        x = torch.cat([x, x[:, -1:]], 1)
        self.x = x.expand(-1, -1, -1, self.heads.d, -1)
        self.last = x[:, -1].expand(-1, -1, self.spec.d, -1)
        self.y = answers.unsqueeze(2).contiguous()
        B = self.y.shape[-1]
        if B != self.batch:
            self.batch = B
            self._reserve(B)
        if self.row_weights is not None:
            self.row_weights = self.row_weights[:, None].to(self.dtype)

    def _reserve(self, B: int) -> None:
        """Buffers for batches of B, and views of them."""
        M, S, d, N = self.models, self.heads.S, self.heads.d, self.heads.N
        self.c = self._empty(S + 1, M, d, B)
        self.dc = self._empty(S + 1, M, d, B)
        self.c_S, self.r = self.c[S - 1], self.c[S]
        self.d_S, self.dr = self.dc[S - 1], self.dc[S]
        self.stage.reserve(self.r, self.dr)
        # (M, d, S-1, B); with S = 2 that is c[0] with an axis of one
        self.delta, self.d_delta = self._empty(M, d, S - 1, B), self._empty(M, d, S - 1, B)
        self.L = self._empty(M, N, B)
        self.top, self.total = self._empty(M, 1, B), self._empty(M, 1, B)
        self.Lt, self.dr_t = self.L.transpose(1, 2), self.dr.transpose(1, 2)
        self.minus = torch.full((), -1.0, dtype=self.dtype, device=self.device).expand(M, 1, B)
        self.others = self.c[: S - 1].permute(1, 2, 0, 3)
        self.d_others = self.dc[: S - 1].permute(1, 2, 0, 3)

    @torch.no_grad()
    def gradient(self, i: int, log: bool = False) -> Batch | None:
        spec, B, S, stage = self.heads, self.batch, self.heads.S, self.stage
        x, y, last_token = self.x[i], self.y[i], self.last[i]
        # Tables: c_s of every token at every position, and what the last token adds by itself.
        torch.bmm(self.QV3, self.KO3t, out=self.GW)
        torch.add(torch.sum(self.W, 1, out=self.A), self.eye, out=self.A)
        tables, last = self.tables, self.tables[S - 1]
        Z = stage.source(self.E)
        if self.pos is None:
            tables[:S] = Z
        else:
            torch.add(Z, self.pos, out=tables[:S])
        if spec.positions == "attention" and spec.skip and self.pos is not None:
            # the skip carries e(t_S) only: take back the position that A's identity added
            torch.baddbmm(self.pos[-1], self.At, last, beta=-1, out=tables[S])
        else:
            torch.bmm(self.At, last, out=tables[S])
        torch.gather(tables, 3, x, out=self.c)
        torch.sub(self.others, self.c_S[:, :, None], out=self.delta)
        self.attend()
        # Softmax in powers of two; L becomes (softmax - one-hot).
        stage.read(self.E, last_token)
        r, dr = stage.r_out, stage.dr_out
        L = torch.baddbmm(self.L, self.Ut, r, beta=0, alpha=LOG2_E, out=self.L)
        stats = self._statistics(L, y) if log else None
        torch.amax(L, 1, keepdim=True, out=self.top)
        L.sub_(self.top).clamp_(min=FLOOR).exp2_()
        torch.sum(L, 1, keepdim=True, out=self.total)
        L.mul_(self.total.reciprocal_()).scatter_add_(1, y, self.minus)
        share = 1 / B
        if self.row_weights is not None:
            L.mul_(self.row_weights)
            share = 1.0
        torch.baddbmm(self.gU, r, self.Lt, beta=0, alpha=share, out=self.gU)
        torch.baddbmm(dr, self.U, L, beta=0, alpha=share, out=dr)
        stage.read_back(last_token)
        self.attend_back()
        # dc_S collects -dδ_s of all s; then back to the tables, the tokens and the heads.
        self.d_others.copy_(self.d_delta)
        self.d_S.sub_(self.d_delta.sum(2) if S > 2 else self.d_delta[:, :, 0])
        dT = self.d_tables.zero_().scatter_add_(3, x, self.dc)
        torch.bmm(last, dT[S].transpose(1, 2), out=self.dA)
        self.dW.add_(self.dA[:, None])
        dT[S - 1].baddbmm_(self.A, dT[S])
        torch.sum(dT[:S], 0, out=self.gZ)
        stage.source_back(self.E, self.gZ, self.gE)
        if self.gpos is not None:
            torch.sum(dT[:S], 3, keepdim=True, out=self.gpos)
            if spec.positions == "attention" and spec.skip:
                self.gpos[-1].sub_(dT[S].sum(2, keepdim=True))
        torch.bmm(self.dGW, self.KO3, out=self.gQV3)
        torch.bmm(self.dGWt, self.QV3, out=self.gKO3)
        return stats

    def _statistics(self, L: Tensor, y: Tensor) -> Batch:
        """Loss and hits from logits in units of log2(e)."""
        # NaN wins an arg-max: a model that diverged has nothing right.
        hits = (L.argmax(1, keepdim=True) == y) & ~L.isnan().any(1, keepdim=True)
        losses = (torch.logsumexp(L / LOG2_E, 1) - L.gather(1, y)[:, 0] / LOG2_E)[:, None]
        if self.row_weights is None:
            return Batch(losses.mean((1, 2)), hits.sum((1, 2)))
        present = self.row_weights > 0
        return Batch((losses * self.row_weights).sum((1, 2)), (hits & present).sum((1, 2)))

    def attend(self) -> None:
        """r += Σ_h Σ_s a^h_s W_h^T δ_s."""
        raise NotImplementedError

    def attend_back(self) -> None:
        """From dr: dG, dW (without the last token's share), d_delta = dδ, d_S = dc_S by scores."""
        raise NotImplementedError

    def softmax_(self, scores: Tensor) -> Tensor:
        """Attention over s < S with a logit 0 for position S, in place: (M, H, S-1, B)."""
        if self.heads.S == 2:
            return scores.sigmoid_()
        top = scores.amax(2, keepdim=True).clamp_(min=0)
        scores.sub_(top).exp_()
        return scores.div_(scores.sum(2, keepdim=True).add_(top.neg_().exp_()))

    def softmax_back_(self, da: Tensor, a: Tensor) -> Tensor:
        """dS_s = a_s (da_s - Σ_s' a_s' da_s'), in place of da."""
        if self.heads.S == 2:
            return torch.ops.aten.sigmoid_backward.grad_input(da, a, grad_input=da)
        da.mul_(a)
        return da.sub_(a * da.sum(2, keepdim=True))
