"""What the kernels for one attention-only layer share: tables per token, loss, gradients.

The same training as the general path, in another order of products (S tokens, c_s = e(t_s) + pos_s,
δ_s = c_s - c_S, G_h = W_Q^h W_K^h^T, W_h = W_V^h W_O^h, all sums over s < S):

    a^h = softmax of (scale c_S^T G_h δ_s)_s with a logit 0 for position S itself
    T(t) = W_U ( x_S + Σ_h W_h^T c_S + Σ_h Σ_s a^h_s W_h^T δ_s )

With S = 2 the softmax is a sigmoid. The skip and Σ_h W_h^T c_S depend on the last token only, so
they are computed once per token and gathered. Everything is feature-major with the batch last,
(models, features, B): products then have long contiguous rows. Parameters and gradients stay on
W_Q, W_K, W_V, W_O. A stage (`stages`) stands around the heads: a shared bottleneck, in which they
have width e = d_h instead of d, or an MLP. The attention is computed in one of two forms:
`Bilinear`: Φ = c_S ⊗ δ_s gives the scores of all heads in one product, 12 B d² H multiplications a
step for S = 2, and nothing grows with H d_h: best when H >= d and d² is at most a few hundred.
`UZ`: u = G_h^T c_S, z = a ⊗ δ, with widths H d instead of d²: best when H < d.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from byheart.specs import AttentionOnlySpec
from byheart.training.data import Data
from byheart.training.kernels.stages import Bottleneck, score_scale, stage_of
from byheart.training.learner import Learner, Weights, split
from byheart.training.recipe import TrainableSpec

LOG2_E = 1 / math.log(2)
# exp2 of less is 0 in float32 all the same, and denormal results are many times slower.
FLOOR = -120.0
WIDEST_FEATURES = 625  # d² up to which bilinear features were measured to win
NARROW = 600  # H d from which heads with d_h < d/2 are cheaper in token tables


class OneLayer(Learner[TrainableSpec]):
    """Buffers and views are made once; every operation writes into them."""

    @classmethod
    def covers(cls, spec: TrainableSpec, loss: str, data: Data) -> bool:
        """One softmax layer, W_QK of rank d_h, at least two tokens, cross-entropy on classes."""
        heads = spec.heads
        layer = heads.layers == 1 and heads.S >= 2 and heads.attention == "softmax"
        classes = loss == "cross-entropy" and data.kind == "class"
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
        self.GW, self.dGW = self._empties(2, 2 * M * H, e, e)
        self.dGWt = self.dGW.transpose(1, 2)
        self.G, self.W = self.GW.view(2, M, H, e, e)
        self.dG, self.dW = self.dGW.view(2, M, H, e, e)
        self.A, self.dA = self._empties(2, M, e, e)
        self.At, self.Ut = self.A.transpose(1, 2), self.U.transpose(1, 2)
        self.eye = torch.eye(e, dtype=self.dtype, device=self.device) * float(heads.skip)
        self.tables, self.d_tables = self._empties(2, heads.S + 1, M, e, N)
        # the heads read the embedding itself, but for a bottleneck
        self.gZ = self._empties(1, M, e, N)[0] if type(self.stage) is Bottleneck else self.gE
        self.batch = 0

    def _empties(self, count: int, *shape: int) -> list[Tensor]:
        how = {"dtype": self.dtype, "device": self.device}
        return [torch.empty(shape, **how) for _ in range(count)]

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
        self.row_weights = None
        if order is None:
            (tokens,), answers = data.span(0, data.T)
            tokens = tokens.expand(1, self.models, -1, -1)
            answers = answers.expand(1, self.models, -1)
            if (weights := data.row_weights(0, data.T)) is not None:
                self.row_weights = weights[:, None].to(self.dtype)
        else:
            (tokens,), answers = data.batch(order)
        x = tokens.permute(0, 3, 1, 2).unsqueeze(3)
        x = torch.cat([x, x[:, -1:]], 1)
        self.x = x.expand(-1, -1, -1, self.heads.d, -1)
        self.last = x[:, -1].expand(-1, -1, self.spec.d, -1)
        self.y = answers.unsqueeze(2).contiguous()
        if self.y.shape[-1] != self.batch:
            self.batch = self.y.shape[-1]
            self._reserve(self.batch)

    def _reserve(self, B: int) -> None:
        """Buffers for batches of B, and views of them."""
        M, S, d, N = self.models, self.heads.S, self.heads.d, self.heads.N
        self.c, self.dc = self._empties(2, S + 1, M, d, B)
        self.c_S, self.r = self.c[S - 1], self.c[S]
        self.d_S, self.dr = self.dc[S - 1], self.dc[S]
        self.stage.reserve(self.r, self.dr)
        # (M, d, S-1, B); with S = 2 that is c[0] with an axis of one
        self.delta, self.d_delta = self._empties(2, M, d, S - 1, B)
        (self.L,) = self._empties(1, M, N, B)
        self.top, self.total = self._empties(2, M, 1, B)
        self.Lt, self.dr_t = self.L.transpose(1, 2), self.dr.transpose(1, 2)
        self.minus = torch.full((), -1.0, dtype=self.dtype, device=self.device).expand(M, 1, B)
        self.others = self.c[: S - 1].permute(1, 2, 0, 3)
        self.d_others = self.dc[: S - 1].permute(1, 2, 0, 3)

    @torch.no_grad()
    def gradient(self, i: int, log: bool = False) -> Tensor | None:
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
        hits = self._hits(L, y) if log else None
        torch.amax(L, 1, keepdim=True, out=self.top)
        L.sub_(self.top)
        behind = L.gather(1, y) if log else None  # before it is clamped
        L.clamp_(min=FLOOR).exp2_()
        torch.sum(L, 1, keepdim=True, out=self.total)
        L.mul_(self.total.reciprocal_())
        if behind is not None:
            losses = -(behind / LOG2_E + self.total.log())[:, 0]
            weights = self.row_weights
            self.losses = losses.mean(1) if weights is None else (losses * weights[:, 0]).sum(1)
        L.scatter_add_(1, y, self.minus)
        share = 1 / B
        if self.row_weights is not None:
            L.mul_(self.row_weights)
            share = 1.0
        torch.baddbmm(self.gU, r, self.Lt, beta=0, alpha=share, out=self.gU)
        torch.baddbmm(dr, self.U, L, beta=0, alpha=share, out=dr)
        stage.read_back()
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
        return hits

    def _hits(self, L: Tensor, y: Tensor) -> Tensor:
        # NaN wins an arg-max: a model that diverged has nothing right.
        hits = (L.argmax(1, keepdim=True) == y) & ~L.isnan().any(1, keepdim=True)
        if self.row_weights is not None:
            hits &= self.row_weights > 0
        return hits.sum((1, 2))

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


class Bilinear(OneLayer):
    name = "bilinear"

    @classmethod
    def pays(cls, spec: TrainableSpec) -> bool:
        return spec.heads.H >= spec.heads.d and spec.heads.d**2 <= WIDEST_FEATURES

    @classmethod
    def attention_numbers(cls, heads: AttentionOnlySpec) -> int:
        d, H, K = heads.d, heads.H, heads.S - 1
        return 3 * d * d * K + 2 * H * K + d + d * K

    def _reserve(self, B: int) -> None:
        super()._reserve(B)
        M, H, d, K = self.models, self.heads.H, self.heads.d, self.heads.S - 1
        wide = self.phi, self.Y, self.work = self._empties(3, M, d, d, K, B)
        self.phi2, self.Y2, self.work2 = (z.view(M, d * d, K * B) for z in wide)
        self.phi2t, self.work2t = self.phi2.transpose(1, 2), self.work2.transpose(1, 2)
        self.a, self.da = self._empties(2, M, H, K, B)
        self.a2, self.da2 = self.a.view(M, H, K * B), self.da.view(M, H, K * B)
        self.G2, self.W2 = self.G.view(M, H, d * d), self.W.view(M, H, d * d)
        self.dG2, self.dW2 = self.dG.view(M, H, d * d), self.dW.view(M, H, d * d)
        self.G2t, self.W2t = self.G2.transpose(1, 2), self.W2.transpose(1, 2)
        self.c_i = self.c_S[:, :, None, None]  # c_S[i], over j, s
        self.delta_j, self.delta_i = self.delta[:, None], self.delta[:, :, None]
        self.dr_r = self.dr[:, None, :, None]  # dr[r], over i, s
        (self.sum_M,), (self.sum_s,) = self._empties(1, M, d, B), self._empties(1, M, d, K, B)

    def attend(self) -> None:
        torch.mul(self.c_i, self.delta_j, out=self.phi)
        torch.baddbmm(self.a2, self.G2, self.phi2, beta=0, alpha=self.scale, out=self.a2)
        self.softmax_(self.a)
        torch.bmm(self.W2t, self.a2, out=self.Y2)
        torch.mul(self.delta_i, self.Y, out=self.work)
        self.r.add_(torch.sum(self.work, (1, 3), out=self.sum_M))

    def attend_back(self) -> None:
        torch.mul(self.Y, self.dr_r, out=self.work)
        torch.sum(self.work, 2, out=self.d_delta)  # through the values
        torch.mul(self.delta_i, self.dr_r, out=self.work)  # dY
        torch.bmm(self.W2, self.work2, out=self.da2)
        torch.bmm(self.a2, self.work2t, out=self.dW2)
        self.softmax_back_(self.da, self.a)
        torch.baddbmm(self.dG2, self.da2, self.phi2t, beta=0, alpha=self.scale, out=self.dG2)
        torch.baddbmm(self.Y2, self.G2t, self.da2, beta=0, alpha=self.scale, out=self.Y2)  # dΦ
        torch.mul(self.Y, self.delta_j, out=self.work)
        torch.sum(self.work, (2, 3), out=self.d_S)
        torch.mul(self.Y, self.c_i, out=self.work)
        self.d_delta.add_(torch.sum(self.work, 1, out=self.sum_s))  # through the scores


class UZ(OneLayer):
    name = "u/z"

    @classmethod
    def pays(cls, spec: TrainableSpec) -> bool:
        heads = spec.heads
        return heads.H * heads.d <= NARROW or 2 * heads.d_h >= heads.d

    @classmethod
    def attention_numbers(cls, heads: AttentionOnlySpec) -> int:
        d, H, K = heads.d, heads.H, heads.S - 1
        return H * d * (3 + 2 * K + (K > 1)) + 2 * H * K + d * K

    def _reserve(self, B: int) -> None:
        super()._reserve(B)
        M, H, d, K = self.models, self.heads.H, self.heads.d, self.heads.S - 1
        flat = self.u, self.du, self.dzs = self._empties(3, M, H, d, B)
        self.u2, self.du2, self.dzs2 = (x.view(M, H * d, B) for x in flat)
        self.z, self.dz = self._empties(2, M, H, d, K, B)
        self.a, self.da = self._empties(2, M, H, K, B)
        (self.s,) = self._empties(1, M, d, K, B)
        # u_h = scale G_h^T c_S: G as (M, d, H d) is a copy, since heads are contiguous otherwise
        self.Gw, self.dGw = self._empties(2, M, d, H, d)
        self.Gw2, self.dGw2 = self.Gw.view(M, d, H * d), self.dGw.view(M, d, H * d)
        self.Gw2t, self.Gview = self.Gw2.transpose(1, 2), self.G.transpose(1, 2)
        self.dGview = self.dG.transpose(1, 2)
        self.W2, self.dW2 = self.W.view(M, H * d, d), self.dW.view(M, H * d, d)
        self.W2t = self.W2.transpose(1, 2)
        self.zsum = self._empties(1, M, H, d, B)[0] if K > 1 else self.z[:, :, :, 0]
        self.zsum2 = self.zsum.view(M, H * d, B)
        self.delta_h = self.delta[:, None]
        self.u_s, self.dz_s = self.u[:, :, :, None], self.dzs[:, :, :, None]
        self.a_d, self.da_d = self.a[:, :, None], self.da[:, :, None]
        self.c_St = self.c_S.transpose(1, 2)

    def attend(self) -> None:
        self.Gw.copy_(self.Gview)
        torch.baddbmm(self.u2, self.Gw2t, self.c_S, beta=0, alpha=self.scale, out=self.u2)
        torch.mul(self.u_s, self.delta_h, out=self.z)
        torch.sum(self.z, 2, out=self.a)
        self.softmax_(self.a)
        torch.mul(self.a_d, self.delta_h, out=self.z)
        if self.heads.S > 2:
            torch.sum(self.z, 3, out=self.zsum)
        self.r.baddbmm_(self.W2t, self.zsum2)

    def attend_back(self) -> None:
        torch.bmm(self.W2, self.dr, out=self.dzs2)
        torch.bmm(self.zsum2, self.dr_t, out=self.dW2)
        torch.mul(self.dz_s, self.delta_h, out=self.dz)
        torch.sum(self.dz, 2, out=self.da)
        torch.mul(self.a_d, self.dz_s, out=self.dz)
        torch.sum(self.dz, 1, out=self.d_delta)  # through the values
        self.softmax_back_(self.da, self.a)
        torch.mul(self.u_s, self.da_d, out=self.dz)
        self.d_delta.add_(torch.sum(self.dz, 1, out=self.s))  # through the scores
        torch.mul(self.da_d, self.delta_h, out=self.dz)
        if self.heads.S > 2:
            torch.sum(self.dz, 3, out=self.du)
        else:
            self.du.copy_(self.dz[:, :, :, 0])
        du_t, dGw = self.du2.transpose(1, 2), self.dGw2
        torch.baddbmm(dGw, self.c_S, du_t, beta=0, alpha=self.scale, out=dGw)
        self.dGview.copy_(self.dGw)
        torch.baddbmm(self.d_S, self.Gw2, self.du2, beta=0, alpha=self.scale, out=self.d_S)
