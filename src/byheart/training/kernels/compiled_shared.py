"""One context for all examples, one value a head: head by head in C++ (`native/shared.cpp`).

The logits of a head are n rows as long as the batch. They are made, turned into exponentials and
summed while they lie in the cache, and on the way back made into gradients there; nothing but the
exponentials is kept in between. The products of the weights alone (`scalar_heads`: P_h and the
values) are computed once a step, or once an evaluation.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from byheart.models.multi_head import with_axes
from byheart.specs import MultiHeadSpec
from byheart.training.data import Data
from byheart.training.kernels.scalar_heads import ScalarHeads
from byheart.training.native import load

SIZE, REAL, ARRAY = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
PANEL = 64  # examples that are worked on at once, as in the source


class CompiledShared(ScalarHeads):
    name = "compiled shared"
    library = "shared"

    @classmethod
    def covers(cls, spec: MultiHeadSpec, loss: str, data: Data) -> bool:
        """Multi-head attention with d_v = 1 over one context for all examples, d a multiple of 8;
        any loss."""
        one = data.context is not None and not data.contexts_differ
        return one and spec.d_v == 1 and spec.d % 8 == 0

    def bind(self) -> None:
        super().bind()
        code = load("shared")
        assert code is not None  # `missing` was asked
        self.fold_call, self.forward_call = code.shared_fold, code.shared_forward
        self.back_call = code.shared_back
        self.fold_call.argtypes = [SIZE] * 4 + [REAL] + [ARRAY] * 8
        self.forward_call.argtypes = [SIZE] * 5 + [ARRAY] * 7
        self.back_call.argtypes = [SIZE] * 5 + [REAL] + [ARRAY] * 21
        for call in (self.fold_call, self.forward_call, self.back_call):
            call.restype = None
        code.shared_room.argtypes, code.shared_room.restype = [SIZE] * 3, SIZE
        self.work = torch.empty(code.shared_room(self.spec.n, self.spec.d, self.spec.d_h))

    def score(self, data: Data) -> tuple[Tensor, Tensor]:
        assert data.context is not None
        self._fold(data.context)
        return super().score(data)

    def forward(self, *inputs: Tensor) -> Tensor:
        with torch.no_grad():
            self._fold(inputs[0])
            return self._outputs(*inputs, keep=True).requires_grad_()

    @torch.no_grad()
    def _fold(self, context: Tensor) -> None:
        """What weights and context decide: the embedded context C, keys, P and values."""
        spec, M = self.spec, self.models
        H, n, d, d_h, w = spec.H, spec.n, spec.d, spec.d_h, _up(spec.d_h, 8)
        raw = context.expand(M, n, d)
        self.raw = self.C = raw.contiguous()
        if spec.embed:
            at = self.w["b_E"][:, None] + self.pos[1:]
            self.C = torch.baddbmm(at, self.raw, self.w["W_E"], out=self.buffer("C", M, n, d))
        self.keys, self.P = self.buffer("keys", M, H, n, w), self.buffer("P", M, H, n, d)
        self.v = self.buffer("values", M, H, n)
        weights = (self.w[name] for name in ("W_Q", "W_K", "W_V"))
        arrays = (self.C, *weights, self.keys, self.P, self.v)
        for m in range(M):
            where = (x[m].data_ptr() for x in arrays)
            self.fold_call(H, n, d, d_h, self.scale, *where, self.work.data_ptr())

    def _outputs(self, *inputs: Tensor, keep: bool = False) -> Tensor:
        _, e = with_axes(self.spec, self.w, *inputs)
        self._embed(e.contiguous())
        H, n, (M, B, d) = self.spec.H, self.spec.n, self.x.shape
        self.a = self.buffer("a", M, H * n * _up(B, PANEL) if keep else n * PANEL)
        self.z, self.mean = self.buffer("z", M, H, B), self.buffer("F", M, H, B)
        turned = self.buffer("turned", _up(B, PANEL) * d)
        arrays = (self.x, self.P, self.v, self.a, self.z, self.mean)
        for m in range(M):
            where = (x[m].data_ptr() for x in arrays)
            self.forward_call(B, H, n, d, keep, *where, turned.data_ptr())
        return self._read(self.mean.transpose(1, 2))

    def _outputs_back(self, d_out: Tensor) -> None:
        spec, (M, B, d), g = self.spec, self.x.shape, self.g
        n, d_h = spec.n, spec.d_h
        self._read_back(d_out)
        dF = torch.bmm(self.R, d_out.transpose(1, 2))
        dC = self.buffer("dC", M, n, d).zero_()
        embedding: tuple[Tensor | None, ...] = (None, None)
        embedding_back = embedding
        if spec.embed:
            embedding = (self.w["W_E"], self.w["b_E"] + self.pos[0])
            embedding_back = (g["W_E"], g["b_E"])
        weights = (self.w[name] for name in ("W_Q", "W_K", "W_V"))
        made = (self.keys, self.P, self.v, self.a, self.z, self.mean, dF)
        gradients = (g[name] for name in ("W_Q", "W_K", "W_V"))
        arrays = (self.e, *embedding, self.C, *weights, *made, *gradients, *embedding_back, dC)
        for m in range(M):
            where = (None if x is None else x[m].data_ptr() for x in arrays)
            self.back_call(B, spec.H, n, d, d_h, self.scale, *where, self.work.data_ptr())
        if spec.embed:
            g["W_E"].baddbmm_(self.raw.transpose(1, 2), dC)
            g["b_E"].add_(dC.sum(1))


def _up(numbers: int, step: int) -> int:
    """The next multiple of a step."""
    return -(-numbers // step) * step
