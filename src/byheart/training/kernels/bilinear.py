"""Kernel in bilinear features: Φ = c_S ⊗ δ_s gives the scores of all heads in one product.

12 B d² H multiplications a step for S = 2, and nothing grows with H d_h: best when H >= d and d² is
at most a few hundred.
"""

from __future__ import annotations

import torch

from byheart.specs import AttentionOnlySpec
from byheart.training.kernels.one_layer import OneLayer
from byheart.training.trainable import TrainableSpec

WIDEST_FEATURES = 625  # d² up to which bilinear features were measured to win


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
        self.phi, self.Y = self._empty(M, d, d, K, B), self._empty(M, d, d, K, B)
        self.work = self._empty(M, d, d, K, B)
        self.phi2, self.Y2, self.work2 = (
            z.view(M, d * d, K * B) for z in (self.phi, self.Y, self.work)
        )
        self.phi2t, self.work2t = self.phi2.transpose(1, 2), self.work2.transpose(1, 2)
        self.a, self.da = self._empty(M, H, K, B), self._empty(M, H, K, B)
        self.a2, self.da2 = self.a.view(M, H, K * B), self.da.view(M, H, K * B)
        self.G2, self.W2 = self.G.view(M, H, d * d), self.W.view(M, H, d * d)
        self.dG2, self.dW2 = self.dG.view(M, H, d * d), self.dW.view(M, H, d * d)
        self.G2t, self.W2t = self.G2.transpose(1, 2), self.W2.transpose(1, 2)
        self.c_i = self.c_S[:, :, None, None]  # c_S[i], over j, s
        self.delta_j, self.delta_i = self.delta[:, None], self.delta[:, :, None]
        self.dr_r = self.dr[:, None, :, None]  # dr[r], over i, s
        self.sum_M, self.sum_s = self._empty(M, d, B), self._empty(M, d, K, B)

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
