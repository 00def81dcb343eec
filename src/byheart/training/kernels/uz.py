"""Kernel in the form u = G_h^T c_S, z = a ⊗ δ: widths H d instead of d², best when H < d."""

from __future__ import annotations

import torch

from byheart.specs import AttentionOnlySpec
from byheart.training.kernels.one_layer import OneLayer
from byheart.training.trainable import TrainableSpec

NARROW = 600  # H d from which heads with d_h < d/2 are cheaper in token tables


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
        self.u, self.du = self._empty(M, H, d, B), self._empty(M, H, d, B)
        self.u2, self.du2 = self.u.view(M, H * d, B), self.du.view(M, H * d, B)
        self.z, self.dz = self._empty(M, H, d, K, B), self._empty(M, H, d, K, B)
        self.a, self.da = self._empty(M, H, K, B), self._empty(M, H, K, B)
        self.s = self._empty(M, d, K, B)
        # u_h = scale G_h^T c_S: G as (M, d, H d) is a copy, since heads are contiguous otherwise
        self.Gw, self.dGw = self._empty(M, d, H, d), self._empty(M, d, H, d)
        self.Gw2, self.dGw2 = self.Gw.view(M, d, H * d), self.dGw.view(M, d, H * d)
        self.Gw2t, self.Gview = self.Gw2.transpose(1, 2), self.G.transpose(1, 2)
        self.dGview = self.dG.transpose(1, 2)
        self.W2, self.dW2 = self.W.view(M, H * d, d), self.dW.view(M, H * d, d)
        self.W2t = self.W2.transpose(1, 2)
        self.zsum = self._empty(M, H, d, B) if K > 1 else self.z[:, :, :, 0]
        self.zsum2 = self.zsum.view(M, H * d, B)
        self.dzs = self._empty(M, H, d, B)
        self.dzs2 = self.dzs.view(M, H * d, B)
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
        torch.baddbmm(
            self.dGw2, self.c_S, self.du2.transpose(1, 2), beta=0, alpha=self.scale, out=self.dGw2
        )
        self.dGview.copy_(self.dGw)
        torch.baddbmm(self.d_S, self.Gw2, self.du2, beta=0, alpha=self.scale, out=self.d_S)
