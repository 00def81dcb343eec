"""Contexts of their own, one value a head: all that is done example by example is C++
(`native/vectors.cpp`), which reads contexts where they lie in the data.

Row vectors, x the embedded query, A_h = s W_Q^h W_K^h^T. Products with J = (W_E^T, pos^T) give all
that a raw context X meets, its tokens and its positions beside each other:

    logits = X m_h^T + p_h,    (m_h, p_h) = x A_h J
    values = X w_h^T + u_h,    (w_h, u_h) = V_h J + (0, V_h b_E)

The bias of the embedding moves all logits of a head alike. Without an embedding J is (1, 0).

With x = E I, E = (query, 1) and I = (W_E, b_E + pos_0), gradients need no dx: over the batch
Y_h = E^T (dm_h, dp_h) gives I^T Y_h for W_h = A_h J and Y_h W_h^T for I.

The softmax over a single token is 1 whatever the query: F = X w + u, nothing else has a gradient.
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

BLOCK = 24  # examples at a time: what the query brings to all their heads stays in the cache


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
        self.forward_call.restype = self.back_call.restype = None
        sizes, pointer = [ctypes.c_int64] * 6, ctypes.c_void_p
        self.forward_call.argtypes = sizes + [pointer] * 9
        self.back_call.argtypes = [*sizes, *[pointer] * 2, ctypes.c_int64, *[pointer] * 11]
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
        if self.spec.n > 1:
            self._embed(*inputs)
        return self._read(self._attend(keep))

    def forward(self, *inputs: Tensor) -> Tensor:
        with torch.no_grad():
            self._fold()
            return self._outputs(*inputs, keep=True).requires_grad_()

    @torch.no_grad()
    def _fold(self) -> None:
        """What the weights alone decide: A, W = A J, (w_h, u_h)."""
        M, H, d, wide = self.models, self.spec.H, self.spec.d, self.wide
        if self.spec.embed:
            self.J[:, :, :d] = self.w["W_E"].transpose(1, 2)
        self.model = torch.bmm(self.V, self.J)
        if self.spec.embed:
            self.model[:, :, d:] += torch.bmm(self.V, self.w["b_E"][..., None])
        if self.spec.n == 1:  # what meets the query has no part in it
            return
        A = self.buffer("A", M * H, d, d)
        torch.baddbmm(A, self.Q, self.K.transpose(1, 2), beta=0, alpha=self.scale, out=A)
        self.A = A.view(M, H * d, d)
        self.W = torch.bmm(self.A, self.J, out=self.buffer("W", M, H * d, wide))

    def _embed(self, e: Tensor) -> None:
        self.x = self.e = e.contiguous()
        if self.spec.embed:
            self.e = torch.cat([e, torch.ones_like(e[..., :1])], 2)
            added = (self.w["b_E"] + self.pos[0])[:, None]
            self.I = torch.cat([self.w["W_E"], added], 1)
            self.x = torch.bmm(self.e, self.I, out=self.buffer("x", *e.shape))

    def _attend(self, keep: bool) -> Tensor:
        """F (M, B, H); what its gradient needs is kept if asked for."""
        (M, B), d, H, w = self.chosen.shape, self.spec.d, self.spec.H, self.padded
        if self.spec.n == 1:
            count = int(self.chosen.max()) + 1  # `chosen` counts in memory, as C++ does
            self.X = self.contexts.as_strided((count, d), (d, 1))[self.chosen]
            model = self.model.transpose(1, 2)
            return torch.baddbmm(model[:, d : d + 1], self.X, model[:, :d])
        self.mean = self.buffer("F", M, B, H)
        self.work = self.buffer("work", BLOCK * H * self.wide + (d + 2 * H) * (d + w))
        self.a, self.v = self.buffer("a", M, B * keep, H, w), self.buffer("v", M, B * keep, H, w)
        for m in range(M):
            kept = (self.a[m], self.v[m]) if keep else (None, None)
            arrays = self.x[m], self.W[m], self.model[m], *kept, self.mean[m], self.work
            self._call(self.forward_call, m, *arrays)
        return self.mean

    def _call(self, call: Callable[..., None], m: int, *arrays: Tensor | int | None) -> None:
        sizes = self.chosen.shape[1], BLOCK, self.spec.H, self.spec.n, self.spec.d, self.padded
        where = [x.data_ptr() if isinstance(x, Tensor) else x for x in arrays]
        call(*sizes, self.contexts.data_ptr(), self.chosen[m].data_ptr(), *where)

    def _outputs_back(self, d_out: Tensor) -> None:
        self._read_back(d_out)
        self._heads_back(torch.bmm(d_out, self.R.transpose(1, 2)))

    def _heads_back(self, dF: Tensor) -> None:
        """From dF (M, B, H): adds to W_Q, W_K, W_V and the embedding."""
        spec, M, wide, d_model = self.spec, self.models, self.wide, torch.zeros_like(self.model)
        H, d = spec.H, spec.d
        if spec.n == 1:
            torch.bmm(dF.transpose(1, 2), self.X, out=d_model[:, :, :d])
            d_model[:, :, d] = dF.sum(1)
            self._values_back(d_model)
            return
        e, dW = self.e.shape[2], self.W
        Y = self.buffer("Y", M, H * e, wide) if spec.embed else dW
        dI = torch.zeros(M, e, d)
        for m in range(M):
            embedding = (self.I[m], dI[m]) if spec.embed else (None, None)
            kept = self.a[m], self.v[m], self.mean[m], dF[m], self.work
            arrays = e, self.e[m], *embedding, dW[m], Y[m], d_model[m], *kept
            self._call(self.back_call, m, *arrays)
        dA = torch.bmm(dW, self.J.transpose(1, 2), out=self.buffer("dA", M, H * d, d))
        heads = dA.view(M * H, d, d)
        self.gQ.baddbmm_(heads, self.K, alpha=self.scale)
        self.gK.baddbmm_(heads.transpose(1, 2), self.Q, alpha=self.scale)
        if spec.embed:
            self.g["W_E"].add_(dI[:, :d])
            self.g["b_E"].add_(dI[:, d])
            self.g["W_E"].baddbmm_(dW[:, :, :d].transpose(1, 2), self.A)
        self._values_back(d_model)

    def _values_back(self, d_model: Tensor) -> None:
        """From the gradient of (w_h, u_h): adds to W_V and the embedding of the contexts."""
        d = self.spec.d
        self.gV.add_(torch.bmm(d_model, self.J.transpose(1, 2)))
        if self.spec.embed:
            self.g["W_E"].baddbmm_(d_model[:, :, :d].transpose(1, 2), self.V)
            at = d_model[:, :, d:].sum(2, keepdim=True)  # of V b_E
            self.gV.add_(at * self.w["b_E"][:, None])
            self.g["b_E"].add_((at * self.V).sum(1))
