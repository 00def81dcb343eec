"""What stands around the attention of a one-layer kernel: nothing, a bottleneck, or an MLP.

A stage turns the embedding E into what the heads read, and what the heads wrote into what W_U
reads; both with their gradients. All tensors are feature-major: (models, features, B or N).
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import singledispatch

import torch
from torch import Tensor

from byheart.specs import AttentionOnlySpec, MLPTransformerSpec, SharedBottleneckSpec
from byheart.training.learner import Weights
from byheart.training.recipe import TrainableSpec


class Stage:
    """No stage: heads read E and write what W_U reads.

    `heads`: the attention as it stands inside the stage. `names`: the stage's own weights.
    `numbers`: what it keeps of every example, besides what the heads write and its gradient.
    """

    names: tuple[str, ...] = ()
    numbers = 0

    def __init__(self, heads: AttentionOnlySpec) -> None:
        self.heads = heads

    def bind(self, theta: Weights, grad: Weights) -> None:
        """Keep views of the stage's weights and gradients, (models, ...), of its one layer."""

    def reserve(self, r: Tensor, dr: Tensor) -> None:
        """Make buffers for what the heads write, r, and its gradient: (models, e, B)."""
        self.r_out, self.dr_out = r, dr

    def source(self, E: Tensor) -> Tensor:
        """What the heads read of every token: (models, e, N)."""
        return E

    def source_back(self, E: Tensor, gZ: Tensor, gE: Tensor) -> None:
        """gE from the gradient of `source`, which may be the same tensor."""

    def read(self, E: Tensor, last: Tensor) -> None:
        """r_out from r; `last` (models, d, B) are the last tokens, expanded over features."""

    def read_back(self) -> None:
        """dr from dr_out, and the gradients of the stage's own weights."""


class Bottleneck(Stage):
    """Z = C E; r_out = D r + e(t_S)."""

    names = ("W_C", "W_D")

    def __init__(self, spec: SharedBottleneckSpec) -> None:
        super().__init__(replace(spec.heads, skip=False))  # the skip goes around the bottleneck
        self.numbers = 3 * spec.d

    def bind(self, theta: Weights, grad: Weights) -> None:
        self.C, self.D = (theta[name][:, 0] for name in self.names)
        self.gC, self.gD = (grad[name][:, 0] for name in self.names)
        self.Ct, self.Dt = self.C.transpose(1, 2), self.D.transpose(1, 2)

    def reserve(self, r: Tensor, dr: Tensor) -> None:
        self.r, self.dr = r, dr
        shape = len(r), self.C.shape[1], r.shape[2]
        self.r_out, self.dr_out, self.skip = (r.new_empty(shape) for _ in range(3))

    def source(self, E: Tensor) -> Tensor:
        return torch.bmm(self.Ct, E)

    def source_back(self, E: Tensor, gZ: Tensor, gE: Tensor) -> None:
        torch.bmm(E, gZ.transpose(1, 2), out=self.gC)
        torch.bmm(self.C, gZ, out=gE)
        gE.scatter_add_(2, self.last, self.dr_out)

    def read(self, E: Tensor, last: Tensor) -> None:
        self.last = last
        torch.gather(E, 2, last, out=self.skip)
        torch.baddbmm(self.skip, self.Dt, self.r, out=self.r_out)

    def read_back(self) -> None:
        torch.bmm(self.r, self.dr_out.transpose(1, 2), out=self.gD)
        torch.bmm(self.D, self.dr_out, out=self.dr)


class Hidden(Stage):
    """r_out = r + W_out act(W_in r + b_in)."""

    names = ("W_in", "b_in", "W_out")

    def __init__(self, spec: MLPTransformerSpec) -> None:
        super().__init__(spec.heads)
        self.gelu, self.w = spec.activation == "gelu", spec.w
        self.numbers = 2 * spec.d + 3 * spec.w

    def bind(self, theta: Weights, grad: Weights) -> None:
        self.W_in, b, self.W_out = (theta[name][:, 0] for name in self.names)
        self.gW_in, gb, self.gW_out = (grad[name][:, 0] for name in self.names)
        self.b, self.gb = b[..., None], gb[..., None]
        self.W_in_t, self.W_out_t = self.W_in.transpose(1, 2), self.W_out.transpose(1, 2)

    def reserve(self, r: Tensor, dr: Tensor) -> None:
        self.r, self.dr = r, dr
        self.r_out, self.dr_out = torch.empty_like(r), torch.empty_like(r)
        self.h, self.act, self.dh = (r.new_empty(len(r), self.w, r.shape[2]) for _ in range(3))

    def read(self, E: Tensor, last: Tensor) -> None:
        torch.baddbmm(self.b, self.W_in_t, self.r, out=self.h)
        if self.gelu:
            torch.ops.aten.gelu.out(self.h, out=self.act)
        else:
            torch.clamp(self.h, min=0, out=self.act)
        torch.baddbmm(self.r, self.W_out_t, self.act, out=self.r_out)

    def read_back(self) -> None:
        torch.bmm(self.act, self.dr_out.transpose(1, 2), out=self.gW_out)
        torch.bmm(self.W_out, self.dr_out, out=self.dh)
        if self.gelu:
            torch.ops.aten.gelu_backward.grad_input(self.dh, self.h, grad_input=self.dh)
        else:
            torch.ops.aten.threshold_backward.grad_input(self.dh, self.h, 0, grad_input=self.dh)
        torch.bmm(self.r, self.dh.transpose(1, 2), out=self.gW_in)
        torch.sum(self.dh, 2, keepdim=True, out=self.gb)
        torch.baddbmm(self.dr_out, self.W_in, self.dh, out=self.dr)


@singledispatch
def stage_of(spec: TrainableSpec) -> Stage:
    """The stage that belongs to a spec."""
    return Stage(spec.heads)


@stage_of.register
def _(spec: SharedBottleneckSpec) -> Stage:
    return Bottleneck(spec) if spec.compressed else Stage(spec.heads)


@stage_of.register
def _(spec: MLPTransformerSpec) -> Stage:
    return Hidden(spec) if spec.w else Stage(spec.heads)


def score_scale(heads: AttentionOnlySpec) -> float:
    """What the scores of every head are multiplied by."""
    return 1 / math.sqrt(heads.qk_rank) if heads.scale else 1.0
