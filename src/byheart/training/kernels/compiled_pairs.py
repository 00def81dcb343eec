"""Pairs of tokens (S = 2) in one compiled call a step: attention-only layers, MLPs and shared
bottlenecks of any depth. The formulas are in `native/stack.cpp`; here is how its weights lie.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from byheart.specs import AttentionOnlySpec, MLPTransformerSpec
from byheart.training import native
from byheart.training.data import Data
from byheart.training.kernels.one_layer import NARROW
from byheart.training.kernels.stages import score_scale
from byheart.training.learner import Learner, Weights
from byheart.training.recipe import TrainableSpec

# In the order of stack.cpp's enums.
NAMES = ("W_E", "W_pos", "W_U", "W_C", "W_D", "W_Q", "W_K", "W_V", "W_O", "W_in", "W_out")
POSITIONS = ("none", "input", "attention")
# The gradient of these on classes is that of cross-entropy times a number of each example.
LOSSES = {"cross-entropy": 0, "kl": 0, "cross-entropy-as-coded": 1, "total-variation": 2}
ONCE, HEADS = NAMES[:5], NAMES[5:9]  # one for all layers; of every head
SIZES = ("N", "d", "e", "H", "qk_rank", "d_h", "w", "layers")
OPTIONS = ("positions", "skip", "compressed", "gelu", "heads_last", "loss")
LINE, VECTOR = 16, 8  # numbers of a cache line, where weights begin, and of a vector
WIDEST, DEEPEST = 512, 64  # heads or features; layers
CHUNK = 256  # examples that go forward and back together, in the cache


class Shape(ctypes.Structure):
    """The struct of the same name in stack.cpp."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in (*SIZES, *OPTIONS, "batch", "chunk", "numbers")),
        *((name, ctypes.c_int64 * len(NAMES)) for name in ("at", "stride")),
        ("scale", ctypes.c_double),
    )


def whole(count: int, of: int) -> int:
    """`count` rounded up to a multiple.

    >>> whole(9, 8)
    16
    """
    return -(-count // of) * of


@dataclass(frozen=True)
class Layout:
    """How the weights of one model lie in `numbers` numbers: each begins at `at`, `stride` from
    layer to layer, in the shape `stored` (heads that only fill a vector are zeros)."""

    numbers: int
    at: dict[str, int]
    stride: dict[str, int]
    stored: dict[str, tuple[int, ...]]

    @classmethod
    def of(cls, spec: TrainableSpec) -> Layout:
        heads, d, w = spec.heads, spec.d, getattr(spec, "w", 0)
        H, e = heads.H, heads.d
        stored: dict[str, tuple[int, ...]] = {"W_E": (d, heads.N), "W_U": (d, heads.N)}
        if heads.positions != "none":
            stored["W_pos"] = (2, e)
        for name in HEADS:  # W_O transposed
            rank = heads.qk_rank if name in ("W_Q", "W_K") else heads.d_h
            stored[name] = (e, rank, whole(H, VECTOR)) if heads_last(heads) else (H, e, rank)
        if "W_C" in spec.weight_shapes():
            stored |= {"W_C": (1, d, e), "W_D": (1, e, d)}
        if w:  # b_in is the last row of W_in; W_out transposed
            stored |= {"W_in": (d + 1, w), "W_out": (d, w)}
        at, stride, numbers = {}, {}, 0
        for name, shape in stored.items():
            at[name], stride[name] = numbers, whole(math.prod(shape), LINE)
            numbers += stride[name] * (1 if name in ONCE else heads.layers)
        return cls(numbers, at, stride, stored)

    def views(self, flat: Tensor, layers: int) -> Weights:
        """(models, layers, *stored) of every weight; without layers where there is only one."""
        views = {}
        for name, shape in self.stored.items():
            start, stride, count = self.at[name], self.stride[name], 1 if name in ONCE else layers
            part = flat.view(-1, self.numbers)[:, start : start + count * stride]
            part = part.unflatten(1, (count, stride))[..., : math.prod(shape)].unflatten(2, shape)
            views[name] = part[:, 0] if name in ONCE else part
        return views


def heads_last(heads: AttentionOnlySpec) -> bool:
    """Whether heads are the innermost axis of the weights, or features."""
    return heads.H >= heads.d


def shape_of(spec: TrainableSpec, loss: str, batch: int) -> Shape:
    """What the compiled code is told, for steps of at most `batch` examples."""
    heads, layout = spec.heads, Layout.of(spec)
    return Shape(
        N=heads.N, d=spec.d, e=heads.d, H=heads.H, qk_rank=heads.qk_rank, d_h=heads.d_h,
        w=getattr(spec, "w", 0), layers=heads.layers, positions=POSITIONS.index(heads.positions),
        skip=heads.skip, compressed="W_C" in layout.stored, heads_last=heads_last(heads),
        gelu=isinstance(spec, MLPTransformerSpec) and spec.activation == "gelu", loss=LOSSES[loss],
        batch=batch, chunk=whole(min(batch, CHUNK), LINE), numbers=layout.numbers,
        at=tuple(layout.at.get(name, 0) for name in NAMES),
        stride=tuple(layout.stride.get(name, 0) for name in NAMES), scale=score_scale(heads),
    )  # fmt: skip


def compiled() -> ctypes.CDLL:
    code = native.load("stack")
    assert code is not None  # `missing` was asked
    pointer, number, shape = ctypes.c_void_p, ctypes.c_int64, ctypes.POINTER(Shape)
    code.room.argtypes, code.room.restype = [shape], number
    code.gradients.argtypes = [shape, number, *[pointer] * 3, number, *[pointer] * 5]
    code.gradients.restype = None
    return code


class CompiledPairs(Learner[TrainableSpec]):
    name = "compiled pairs"
    library = "stack"

    @classmethod
    def covers(cls, spec: TrainableSpec, loss: str, data: Data) -> bool:
        """At most 64 softmax layers over pairs of tokens, at most 512 heads and features a head;
        cross-entropy (plain or as coded), KL or total variation on classes."""
        heads = spec.heads
        sizes = heads.S == 2 and max(heads.H, heads.d) <= WIDEST and heads.layers <= DEEPEST
        return sizes and heads.attention == "softmax" and loss in LOSSES and data.kind == "class"

    @classmethod
    def pays(cls, spec: TrainableSpec) -> bool:
        # G_h and W_h are made whole: of narrow heads in one wide layer, token tables are cheaper
        heads = spec.heads
        alone = isinstance(spec, AttentionOnlySpec) and heads.layers == 1
        narrow = 2 * (heads.qk_rank + heads.d_h) < heads.d and heads.d > 32
        return not (alone and narrow and heads.H * heads.d > NARROW)

    @classmethod
    def step_bytes(
        cls, spec: TrainableSpec, models: int, rows: int, itemsize: int, full: bool
    ) -> int:
        return itemsize * compiled().room(shape_of(spec, "cross-entropy", rows))

    def bind(self) -> None:
        self.layout, self.code = Layout.of(self.spec), compiled()
        self.theta = torch.zeros(self.models * self.layout.numbers)
        self.grad = torch.zeros_like(self.theta)
        self.batch, self.examples = 0, torch.empty(0)

    def views(self, flat: Tensor) -> Weights:
        heads = self.spec.heads
        named = self.layout.views(flat, heads.layers)
        if heads_last(heads):
            named |= {k: named[k][..., : heads.H].permute(0, 1, 4, 2, 3) for k in HEADS}
        if "W_in" in named:
            named["b_in"], named["W_in"] = named["W_in"][:, :, -1], named["W_in"][:, :, :-1]
            named["W_out"] = named["W_out"].transpose(-1, -2)
        named |= {k: named[k].transpose(-1, -2) for k in ("W_E", "W_O")}
        return {name: named[name] for name in self.spec.weight_shapes()}

    def prepare(self, data: Data, order: Tensor | None) -> None:
        if not len(self.examples) or data is not self.data:  # (x_0, x_1, y) of each
            examples = torch.cat([data.inputs, data.targets[..., None]], -1)
            self.examples = examples.to(torch.int32).contiguous()
        self.data, self.order = data, None if order is None else order.contiguous()
        batch = data.T if order is None else order.shape[-1]
        self.counts = torch.full((self.models,), batch)
        if order is None and data.rows is not None:
            self.counts = data.rows.to(torch.long).contiguous()  # what follows is padding
        if batch != self.batch:
            self.batch, self.shape = batch, shape_of(self.spec, self.recipe.loss, batch)
            self.room = torch.empty(self.code.room(self.shape))

    def gradient(self, i: int, log: bool = False) -> Tensor | None:
        right = torch.zeros(self.models, dtype=torch.long) if log else None
        self.losses = torch.zeros(self.models, dtype=torch.float64) if log else None
        self.code.gradients(
            self.shape, self.models, self.theta.data_ptr(), self.grad.data_ptr(),
            self.examples.data_ptr(), 3 * self.data.T if self.data.own else 0,
            None if self.order is None else self.order[i].data_ptr(), self.counts.data_ptr(),
            self.room.data_ptr(), None if right is None else right.data_ptr(),
            None if self.losses is None else self.losses.data_ptr(),
        )  # fmt: skip
        return right
