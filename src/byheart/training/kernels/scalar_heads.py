"""Multi-head attention over (context, query) with one value a head (d_v = 1), gradients by hand.

Products regrouped for fewer multiplications, in a layout that the hardware likes (row vectors, s
the scale of the logits, x and C the embedded query and context, X the raw context):

    shared context:  P_h = s C W_K^h W_Q^h^T,  logits (M H, n, B) = P_h x^T,  values C W_V^h
    own contexts:    logits (M B, n, H) = X (x A_h W_E^T)^T + pos (x A_h)^T,  A_h = s W_Q^h W_K^h^T
                     values X (W_E W_V) + (b + pos) W_V

The bias of the embedding moves all logits of a head alike. Contexts of their own are never embedded
and get no keys: the query moves to their side, where there is one vector a head instead of n.

Softmax runs over the middle axis, so that its sums are products or run along contiguous rows:

    F = Σ_i e^{l_i - max} v_i / z,    dv_i = a_i dF,    dl_i = a_i (v_i - F) dF

Everything is written into buffers that live as long as the batch size does: fresh memory of this
size costs as much as the products (the system hands out zeroed pages at every step).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from byheart.models.multi_head import positions, with_axes
from byheart.specs import MultiHeadSpec
from byheart.training.data import Data
from byheart.training.learner import Learner, evaluate

LONG = 64  # rows from which amax over the middle axis is as fast as halving it


class ScalarHeads(Learner[MultiHeadSpec]):
    """Outputs and gradients by hand; only the loss, on the outputs, is autograd's."""

    name = "scalar heads"

    @classmethod
    def covers(cls, spec: MultiHeadSpec, loss: str, data: Data) -> bool:
        """Multi-head attention with d_v = 1; any loss."""
        return spec.d_v == 1

    def bind(self) -> None:
        spec = self.spec
        self.w, self.g = self.views(self.theta), self.views(self.grad)
        self.scale = 1 / math.sqrt(spec.d) if spec.scale else 1.0
        self.pos = positions(spec.n + 1, spec.d, self.dtype).to(self.device)
        self.buffers: dict[tuple[str, tuple[int, ...]], Tensor] = {}
        heads = self.models * spec.H
        self.Q, self.K = (self.w[k].view(heads, spec.d, spec.d_h) for k in ("W_Q", "W_K"))
        self.gQ, self.gK = (self.g[k].view(heads, spec.d, spec.d_h) for k in ("W_Q", "W_K"))
        self.V, self.gV = (weights["W_V"][..., 0] for weights in (self.w, self.g))
        self.O, self.gO = (weights["W_O"][:, :, 0] for weights in (self.w, self.g))

    def buffer(self, name: str, *shape: int) -> Tensor:
        """The memory of this name and shape; what it held before is overwritten by its user."""
        key = (name, shape)
        if key not in self.buffers:
            self.buffers = {k: b for k, b in self.buffers.items() if k[0] != name}
            self.buffers[key] = torch.empty(shape, dtype=self.dtype, device=self.device)
        return self.buffers[key]

    def _examples(self, index: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        data, (M, B) = self.data, index.shape
        if data.context is None or not data.contexts_differ:
            return super()._examples(index)
        if data.own:
            index = index + torch.arange(M, device=index.device)[:, None] * data.T
        n, d = data.context.shape[-2:]
        X, flat = self.buffer("X", M * B, n, d), index.flatten()
        torch.index_select(data.context.reshape(-1, n, d), 0, flat, out=X)
        query = data.inputs.reshape(-1, d).index_select(0, flat).view(M, B, d)
        targets = data.targets.flatten(0, 1) if data.own else data.targets
        return (X.view(M, B, n, d), query), targets[index]

    def forward(self, *inputs: Tensor) -> Tensor:
        with torch.no_grad():
            return self._outputs(*inputs).requires_grad_()

    def _backward(self, outputs: Tensor, total: Tensor) -> None:
        total.backward()
        assert outputs.grad is not None
        with torch.no_grad():
            self._outputs_back(outputs.grad)

    def score(self, data: Data) -> tuple[Tensor, Tensor]:
        """By the same products, in batches of the size for which there are buffers."""
        rows = None if self.order is None else self.order.shape[2]
        return evaluate(self.spec, self.w, data, self.recipe, self._outputs, rows)

    def _outputs(self, *inputs: Tensor) -> Tensor:
        E, e = with_axes(self.spec, self.w, *inputs)
        self._embed(e)
        self.shared = E.shape[1] == 1
        return self._read(self._attend_shared(E[:, 0]) if self.shared else self._attend_own(E))

    def _embed(self, e: Tensor) -> None:
        """The embedded query x (M, B, d) of the query e."""
        self.x = self.e = e
        if self.spec.embed:
            added = (self.w["b_E"] + self.pos[0])[:, None]
            self.x = torch.baddbmm(added, e, self.w["W_E"], out=self.buffer("x", *e.shape))

    def _read(self, F: Tensor) -> Tensor:
        """Outputs of what the heads bring, F (M, B, H)."""
        self.F, self.R = F, self.O
        if not self.spec.decoder:
            return torch.bmm(F, self.R)
        self.R = torch.bmm(self.O, self.w["W_U"])
        return torch.baddbmm(self.w["b_U"][:, None], F, self.R)

    def _read_back(self, d_out: Tensor) -> None:
        """The gradients of what `_read` reads with."""
        dR = torch.bmm(self.F.transpose(1, 2), d_out)
        if self.spec.decoder:
            self.g["b_U"].add_(d_out.sum(1))
            self.g["W_U"].baddbmm_(self.O.transpose(1, 2), dR)
            dR = torch.bmm(dR, self.w["W_U"].transpose(1, 2))
        self.gO.add_(dR)

    def _outputs_back(self, d_out: Tensor) -> None:
        spec, g = self.spec, self.g
        self._read_back(d_out)
        if self.shared:
            dx = self._attend_shared_back(torch.bmm(self.R, d_out.transpose(1, 2)))
        else:
            dx = self._attend_own_back(torch.bmm(d_out, self.R.transpose(1, 2)))
        if spec.embed:
            g["W_E"].baddbmm_(self.e.transpose(1, 2), dx)
            g["b_E"].add_(dx.sum(1))

    def _attend_shared(self, raw: Tensor) -> Tensor:
        """F (M, B, H) of one context (M or 1, n, d)."""
        spec, (M, B, d) = self.spec, self.x.shape
        H, n = spec.H, spec.n
        self.raw = self.C = raw.expand(M, -1, -1)
        if spec.embed:
            self.C = torch.baddbmm(self.w["b_E"][:, None] + self.pos[1:], self.raw, self.w["W_E"])
        self.C_h = self.C.repeat_interleave(H, 0)
        self.keys = torch.bmm(self.C_h, self.K, out=self.buffer("keys", M * H, n, spec.d_h))
        P = self.buffer("P", M * H, n, d)
        torch.baddbmm(P, self.keys, self.Q.transpose(1, 2), beta=0, alpha=self.scale, out=P)
        logits = self.buffer("logits", M, H * n, B)
        torch.bmm(P.view(M, H * n, d), self.x.transpose(1, 2), out=logits)
        self.v = torch.bmm(self.V, self.C.transpose(1, 2)).view(M * H, n, 1)
        self.a = _exponentials_(logits.view(M * H, n, B))
        # Σ a v and Σ a in one product
        both = torch.bmm(_beside(self.v, 1.0).transpose(1, 2), self.a)
        self.z = both[:, 1]
        self.mean = both[:, 0] / self.z
        return self.mean.view(M, H, B).transpose(1, 2)

    def _attend_shared_back(self, dF: Tensor) -> Tensor:
        """dx from dF (M, H, B); adds to W_Q, W_K, W_V and the embedding of the context."""
        spec, (M, B, d) = self.spec, self.x.shape
        H, n = spec.H, spec.n
        share = dF.view(M * H, B) / self.z
        dv = torch.bmm(self.a, share[..., None]).view(M, H, n)
        d_logits = self.buffer("d logits", M * H, n, B)
        two = torch.stack([share, self.mean * share], 1)
        torch.bmm(_beside(self.v, -1.0), two, out=d_logits).mul_(self.a)
        flat = d_logits.view(M, H * n, B)
        dP = self.buffer("dP", M, H * n, d)
        torch.baddbmm(dP, flat, self.x, beta=0, alpha=self.scale, out=dP)
        P = self.buffer("P", M * H, n, d).view(M, H * n, d)
        dx = torch.bmm(flat.transpose(1, 2), P, out=self.buffer("dx", M, B, d))
        heads = dP.view(M * H, n, d)
        self.gQ.baddbmm_(heads.transpose(1, 2), self.keys)
        d_keys = torch.bmm(heads, self.Q, out=self.buffer("d keys", M * H, n, spec.d_h))
        self.gK.baddbmm_(self.C_h.transpose(1, 2), d_keys)
        self.gV.add_(torch.bmm(dv, self.C))
        if spec.embed:
            dC = torch.bmm(d_keys, self.K.transpose(1, 2)).view(M, H, n, d).sum(1)
            dC.baddbmm_(dv.transpose(1, 2), self.V)
            self.g["W_E"].baddbmm_(self.raw.transpose(1, 2), dC)
            self.g["b_E"].add_(dC.sum(1))
        return dx

    def _attend_own(self, E: Tensor) -> Tensor:
        """F (M, B, H) of a context for each example (M or 1, B, n, d)."""
        spec, (M, B, d) = self.spec, self.x.shape
        H, n = spec.H, spec.n
        self.X = E.expand(M, -1, -1, -1).reshape(M * B, n, d)
        A = self.buffer("A", M * H, d, d)
        torch.baddbmm(A, self.Q, self.K.transpose(1, 2), beta=0, alpha=self.scale, out=A)
        logits = self.buffer("logits", M * B, n, H)
        W_V = self.V.transpose(1, 2)
        if spec.embed:
            W_E = self.w["W_E"]
            # positions meet A itself, raw tokens meet A W_E^T
            placed = torch.matmul(A, self.pos[1:].T)
            self.placed = _heads_last(placed, M, self.buffer("placed", M, d, n, H))
            torch.bmm(self.x, self.placed.view(M, d, n * H), out=logits.view(M, B, n * H))
            self.A = A.view(M, H * d, d)
            A = torch.bmm(self.A, W_E.transpose(1, 2), out=self.buffer("A W_E", M, H * d, d))
            self.at = self.w["b_E"][:, None] + self.pos[1:]
            W_V = torch.bmm(W_E, W_V)
        self.moving = _heads_last(A.view(M * H, d, d), M, self.buffer("moving", M, d, d, H))
        moved = self.buffer("moved", M, B, d * H)
        torch.bmm(self.x, self.moving.view(M, d, d * H), out=moved)
        beta = 1 if spec.embed else 0
        torch.baddbmm(logits, self.X, moved.view(M * B, d, H), beta=beta, out=logits)
        v = self.buffer("values", M, B * n, H)
        torch.bmm(self.X.view(M, B * n, d), W_V, out=v)
        if spec.embed:
            v.view(M, B, n, H).add_(torch.bmm(self.at, self.V.transpose(1, 2))[:, None])
        self.v = v.view(M * B, n, H)
        self.a = _exponentials_(logits)
        self.z = self.a.sum(1)
        products = torch.mul(self.a, self.v, out=self.buffer("d logits", M * B, n, H))
        self.mean = products.sum(1) / self.z
        return self.mean.view(M, B, H)

    def _attend_own_back(self, dF: Tensor) -> Tensor:
        """dx from dF (M, B, H); adds to W_Q, W_K, W_V and the embedding of the contexts."""
        spec, (M, B, d) = self.spec, self.x.shape
        H, n = spec.H, spec.n
        dv = self.a.mul_((dF.reshape(M * B, H) / self.z)[:, None])
        d_logits = self.v.sub_(self.mean[:, None]).mul_(dv)
        d_moved = self.buffer("moved", M, B, d * H)
        torch.bmm(self.X.transpose(1, 2), d_logits, out=d_moved.view(M * B, d, H))
        moving = self.moving.view(M, d, d * H)
        dx = torch.bmm(moving, d_moved.transpose(1, 2)).transpose(1, 2)
        torch.bmm(self.x.transpose(1, 2), d_moved, out=moving)
        dA = self.buffer("dA", M, H, d, d).copy_(self.moving.permute(0, 3, 1, 2))
        dV = torch.bmm(dv.view(M, B * n, H).transpose(1, 2), self.X.view(M, B * n, d))
        if spec.embed:
            W_E, gW_E = self.w["W_E"], self.g["W_E"]
            # A W_E^T = moving, W_E W_V = the value vectors of raw tokens
            gW_E.baddbmm_(dA.view(M, H * d, d).transpose(1, 2), self.A)
            gW_E.baddbmm_(dV.transpose(1, 2), self.V)
            dA = torch.bmm(dA.view(M, H * d, d), W_E, out=self.buffer("A W_E", M, H * d, d))
            flat, placed = d_logits.view(M, B, n * H), self.placed.view(M, d, n * H)
            dx.baddbmm_(flat, placed.transpose(1, 2))
            torch.bmm(self.x.transpose(1, 2), flat, out=placed)
            d_placed = self.placed.permute(0, 3, 1, 2).reshape(M, H * d, n)
            dA.baddbmm_(d_placed, self.pos[1:].expand(M, -1, -1))
            d_at = dv.view(M, B, n, H).sum(1)
            dV = torch.bmm(dV, W_E).baddbmm_(d_at.transpose(1, 2), self.at)
            self.g["b_E"].add_(torch.bmm(d_at, self.V).sum(1))
        dA = dA.view(M * H, d, d)
        self.gQ.baddbmm_(dA, self.K, alpha=self.scale)
        self.gK.baddbmm_(dA.transpose(1, 2), self.Q, alpha=self.scale)
        self.gV.add_(dV)
        return dx


def _exponentials_(logits: Tensor) -> Tensor:
    """exp(l - max over the middle axis), in place."""
    if logits.shape[2] >= LONG:
        return logits.sub_(logits.amax(1, keepdim=True)).exp_()
    top = logits
    while (n := top.shape[1]) > 1:
        half = torch.maximum(top[:, : n // 2], top[:, n // 2 : n - n % 2])
        if n % 2:
            torch.maximum(half[:, 0], top[:, -1], out=half[:, 0])
        top = half
    return logits.sub_(top if top is not logits else top.clone()).exp_()


def _beside(v: Tensor, c: float) -> Tensor:
    """(v, c): a column of constants beside a column."""
    return torch.cat([v, torch.full_like(v, c)], 2)


def _heads_last(A: Tensor, M: int, out: Tensor) -> Tensor:
    """(M H, i, j) -> (M, i, j, H)."""
    return out.copy_(A.view(M, -1, *A.shape[1:]).permute(0, 2, 3, 1))
