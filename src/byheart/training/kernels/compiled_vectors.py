"""Contexts of their own, one value a head: what stands between the large products is C++
(`native/vectors.cpp`), which reads contexts where they lie in the data.

Row vectors, x the embedded query, A_h = s W_Q^h W_K^h^T. Products with J = (W_E^T, pos^T) give all
that a raw context X meets, its tokens and its positions beside each other:

    logits = X m_h^T + p_h,    (m_h, p_h) = x A_h J
    values = X w_h^T + u_h,    (w_h, u_h) = V_h J + (0, V_h b_E)

The bias of the embedding moves all logits of a head alike. Without an embedding J is (1, 0).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch
from torch import Tensor

from byheart.models.multi_head import with_axes
from byheart.specs import MultiHeadSpec
from byheart.training.data import Data
from byheart.training.kernels.scalar_heads import ScalarHeads
from byheart.training.native import load


class CompiledVectors(ScalarHeads):
    name = "compiled vectors"
    library = "vectors"

    @classmethod
    def covers(cls, spec: MultiHeadSpec, loss: str, data: Data) -> bool:
        """Multi-head attention with d_v = 1 over contexts that differ, d a multiple of 8; any
        loss."""
        return spec.d_v == 1 and spec.d % 8 == 0 and data.contexts_differ

    def bind(self) -> None:
        super().bind()
        spec, code = self.spec, load("vectors")
        assert code is not None  # `missing` was asked
        self.forward_call, self.back_call = code.vectors_forward, code.vectors_back
        for call in (self.forward_call, self.back_call):
            call.argtypes, call.restype = [ctypes.c_int64] * 5 + [ctypes.c_void_p] * 8, None
        self.padded = -(-spec.n // 8) * 8
        self.wide = spec.d + self.padded
        self.J = torch.zeros(self.models, spec.d, self.wide)
        self.J[:, :, : spec.d] = torch.eye(spec.d)
        if spec.embed:
            self.J[:, :, spec.d : spec.d + spec.n] = self.pos[1:].T

    def _examples(self, index: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Contexts are left where they are: `chosen` says which."""
        data, (M, B), d = self.data, index.shape, self.spec.d
        assert data.context is not None
        if data.own:
            index = index + torch.arange(M)[:, None] * data.T
        self.contexts, self.chosen = data.context.contiguous(), index.contiguous()
        query = data.inputs.reshape(-1, d).index_select(0, self.chosen.flatten()).view(M, B, d)
        targets = data.targets.flatten(0, 1) if data.own else data.targets
        return (query,), targets[index]

    def score(self, data: Data) -> tuple[Tensor, Tensor]:
        self._fold()
        return super().score(data)

    def _outputs(self, *inputs: Tensor, keep: bool = False) -> Tensor:
        if len(inputs) == 2:  # contexts themselves, (B, n, d) or (models, B, n, d)
            E, query = with_axes(self.spec, self.w, *inputs)
            n, d, B = self.spec.n, self.spec.d, query.shape[1]
            if E.stride()[1:] != (n * d, d, 1):
                E = E.contiguous()
            step = E.stride(0) // (n * d) if len(E) > 1 else 0
            self.contexts = E
            self.chosen = torch.arange(B) + torch.arange(self.models)[:, None] * step
            inputs = (query,)
        self.shared = False
        self._embed(*inputs)
        return self._read(self._attend(keep))

    def forward(self, *inputs: Tensor) -> Tensor:
        with torch.no_grad():
            self._fold()
            return self._outputs(*inputs, keep=True).requires_grad_()

    @torch.no_grad()
    def _fold(self) -> None:
        """What the weights alone decide: A, W = (A_1 J, A_2 J, ...) with d rows, (w_h, u_h)."""
        M, H, d, wide = self.models, self.spec.H, self.spec.d, self.wide
        A = self.buffer("A", M * H, d, d)
        torch.baddbmm(A, self.Q, self.K.transpose(1, 2), beta=0, alpha=self.scale, out=A)
        self.A = A.view(M, H * d, d)
        if self.spec.embed:
            self.J[:, :, :d] = self.w["W_E"].transpose(1, 2)
        self.model = torch.bmm(self.V, self.J)
        if self.spec.embed:
            self.model[:, :, d:] += torch.bmm(self.V, self.w["b_E"][..., None])
        AJ = torch.bmm(self.A, self.J, out=self.buffer("AJ", M, H * d, wide))
        self.W = self.buffer("W", M, d, H, wide).copy_(AJ.view(M, H, d, wide).transpose(1, 2))

    def _attend(self, keep: bool) -> Tensor:
        """F (M, B, H); what its gradient needs is kept if asked for."""
        (M, B, d), H, w = self.x.shape, self.spec.H, self.padded
        self.both = self.buffer("both", M, B, H * self.wide)
        torch.bmm(self.x, self.W.view(M, d, H * self.wide), out=self.both)
        self.mean = self.buffer("F", M, B, H)
        work = self.buffer("work", d + 2 * H, w)
        self.a, self.v = self.buffer("a", M, B * keep, H, w), self.buffer("v", M, B * keep, H, w)
        for m in range(M):
            kept = (self.a[m], self.v[m]) if keep else (None, None)
            self._call(self.forward_call, m, self.both[m], self.model[m], *kept, self.mean[m], work)
        return self.mean

    def _call(self, call: Callable[..., None], m: int, *arrays: Tensor | None) -> None:
        sizes = self.chosen.shape[1], self.spec.H, self.spec.n, self.spec.d, self.padded
        where = [None if x is None else x.data_ptr() for x in arrays]
        call(*sizes, self.contexts.data_ptr(), self.chosen[m].data_ptr(), *where)

    def _attend_own_back(self, dF: Tensor) -> Tensor:
        """dx from dF (M, B, H); adds to W_Q, W_K, W_V and the embedding of the contexts."""
        spec, (M, B, d), wide = self.spec, self.x.shape, self.wide
        H, dF, both, d_model = spec.H, dF.contiguous(), self.both, torch.zeros_like(self.model)
        for m in range(M):
            kept = self.a[m], self.v[m], self.mean[m], dF[m]
            self._call(self.back_call, m, both[m], d_model[m], *kept)
        W = self.W.view(M, d, H * wide)
        dx = torch.bmm(both, W.transpose(1, 2), out=self.buffer("dx", M, B, d))
        torch.bmm(self.x.transpose(1, 2), both, out=W)
        dAJ = self.buffer("AJ", M, H * d, wide)
        dAJ.view(M, H, d, wide).copy_(self.W.transpose(1, 2))
        dA = torch.bmm(dAJ, self.J.transpose(1, 2), out=self.buffer("dA", M, H * d, d))
        heads = dA.view(M * H, d, d)
        self.gQ.baddbmm_(heads, self.K, alpha=self.scale)
        self.gK.baddbmm_(heads.transpose(1, 2), self.Q, alpha=self.scale)
        self.gV.add_(torch.bmm(d_model, self.J.transpose(1, 2)))
        if spec.embed:
            gW_E = self.g["W_E"].baddbmm_(dAJ[:, :, :d].transpose(1, 2), self.A)
            gW_E.baddbmm_(d_model[:, :, :d].transpose(1, 2), self.V)
            at = d_model[:, :, d:].sum(2, keepdim=True)  # of V b_E
            self.gV.add_(at * self.w["b_E"][:, None])
            self.g["b_E"].add_((at * self.V).sum(1))
        return dx
