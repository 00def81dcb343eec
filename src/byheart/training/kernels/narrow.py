"""Feed-forward Transformers of small width, in C++ (`native/narrow.cpp`): the width-2 networks of
Kajitsuka and Sato, and others of one softmax or uniform attention layer.

FF_1 has no positions, so it is computed once for every distinct token of a batch; FF_2 is computed
at the read position. Here are the products with E_in, in torch: X = E_in^T V^T for the distinct
vectors V of all models at once, and dE_in = V^T dX; the rest is one call. Data whose tokens are
vectors, not numbers of rows of a table, may be very long: they go through in pieces.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from byheart.specs import FeedForwardTransformerSpec
from byheart.training.data import Data
from byheart.training.learner import Learner, Weights, split
from byheart.training.native import load

Spec = FeedForwardTransformerSpec
GROUP = 64  # columns come in multiples of it
PIECE = 1 << 20  # numbers of X in one piece of data whose tokens are not shared
KEEP_BYTES = 32 * 2**20  # of the blocks' inputs; what needs more is computed again, tile by tile
WIDTHS = (2, 3, 4, 6, 8, 12, 16)  # m of the kernels; others are filled up with features that are 0
SIZES = "m wide q s outputs blocks first n read uniform squares"
CALL = "models rows columns stride keep backward at_step target_step share_step"
BLOCKS = ("W_1", "b_1", "W_2", "b_2", "W_Q", "W_K", "W_V", "W_O", "E_out")
ARRAYS = ("x", "at", "targets", "shares", "work", "losses", "hits")


class Task(ctypes.Structure):
    """The `Task` of narrow.cpp, which says what each field is."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in f"{SIZES} {CALL}".split()),
        ("tolerance", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in (*BLOCKS, *(f"g{name}" for name in BLOCKS), *ARRAYS)),
    ]


@dataclass(frozen=True)
class Examples:
    """Rows of one call. `vectors` (models or 1, columns, d) or, where tokens are numbers of rows of
    E_in, `words` (models or 1, columns): the distinct tokens. `at` (models or 1, rows, n): which of
    them stands where; None: the columns in their order."""

    vectors: Tensor | None
    words: Tensor | None
    at: Tensor | None
    targets: Tensor
    shares: Tensor

    @property
    def columns(self) -> int:
        tokens = self.words if self.vectors is None else self.vectors
        assert tokens is not None
        return tokens.shape[1]


class Narrow(Learner[Spec]):
    name = "narrow"
    library = "narrow"

    @classmethod
    def covers(cls, spec: Spec, loss: str, data: Data) -> bool:
        """Softmax or uniform attention, m <= 16; cross-entropy of classes or squared error of
        values."""
        known = (loss, data.kind) in (("cross-entropy", "class"), ("mse", "value"))
        soft = spec.uniform or spec.attention == "softmax"
        return known and soft and spec.m <= WIDTHS[-1]

    @classmethod
    def step_bytes(cls, spec: Spec, models: int, rows: int, itemsize: int, full: bool) -> int:
        tokens = min(rows * spec.n, max(spec.n, PIECE // (models * spec.m)))
        attention = 0 if spec.uniform else tokens
        return itemsize * (tokens * (models + 2) * _width(spec) + attention) + KEEP_BYTES

    def bind(self) -> None:
        code = load("narrow")
        assert code is not None  # `missing` was asked
        code.narrow_room.restype = code.narrow_distinct.restype = ctypes.c_int64
        self.code = code
        weights, grads = self._parts(self.theta), self._parts(self.grad)
        rows = self.models * self.spec.m
        self.E, self.gE = (part["E_in"].view(rows, -1) for part in (weights, grads))
        spec = self.spec
        self.task = Task(
            m=spec.m, wide=_width(spec), q=spec.q, s=spec.s, outputs=spec.d_out, n=spec.n,
            blocks=spec.blocks, first=spec.first, read=spec.read % spec.n, uniform=spec.uniform,
            squares=self.recipe.loss == "mse", tolerance=self.recipe.tolerance, models=self.models,
        )  # fmt: skip
        for name in BLOCKS:
            if name in weights:
                setattr(self.task, name, weights[name].data_ptr())
                setattr(self.task, f"g{name}", grads[name].data_ptr())
        self._dense = self.task.wide == spec.m  # then X of all models is one matrix
        self.x = self.work = torch.empty(0)
        self.whole: tuple[Data, list[Examples]] | None = None

    def _parts(self, flat: Tensor) -> Weights:
        """E_in as (models, m, d): all models' rows make one matrix."""
        shapes = {name: (self.models, *shape) for name, shape in self.spec.weight_shapes().items()}
        return split(flat, shapes | {"E_in": (self.models, self.spec.m, self.spec.d)})

    def views(self, flat: Tensor) -> Weights:
        parts = self._parts(flat)
        return parts | {"E_in": parts["E_in"].transpose(1, 2)}

    def gradient(self, i: int, log: bool = False) -> Tensor | None:
        self.grad.zero_()
        pieces = self._whole(self.data) if self.order is None else self._batch(self.order[i])
        hits = torch.zeros(self.models, dtype=torch.long) if log else None
        self.losses = torch.zeros(self.models, dtype=torch.float64) if log else None
        for examples in pieces:
            self._run(examples, hits=hits, losses=self.losses)
        return hits

    def score(self, data: Data) -> tuple[Tensor, Tensor]:
        hits = torch.zeros(self.models, dtype=torch.long)
        losses = torch.zeros(self.models, dtype=torch.float64)
        for examples in self._whole(data):
            self._run(examples, False, hits, losses)
        rows = torch.tensor(float(data.T)) if data.rows is None else data.rows
        return hits.double() / rows, losses

    @torch.no_grad()
    def _run(
        self, examples: Examples, backward: bool = True, hits: Tensor | None = None,
        losses: Tensor | None = None,
    ) -> None:  # fmt: skip
        """Outputs of some examples, and what was asked for of their gradients, hits and losses."""
        spec, task, columns = self.spec, self.task, examples.columns
        stride = -(-columns // GROUP) * GROUP
        if self.x.shape[-1] != stride:  # what lies beyond the columns is read, and weighs nothing
            self.x = torch.zeros(self.models, task.wide, stride)
        x = self.x[:, : spec.m, :columns]
        self._project(examples, x)
        task.rows, task.columns, task.stride = examples.targets.shape[1], columns, stride
        kept = self.dtype.itemsize * -(-columns // 512) * 512 * spec.first * task.wide
        task.keep, task.backward = kept <= KEEP_BYTES, backward
        task.x, task.targets = self.x.data_ptr(), examples.targets.data_ptr()
        task.shares = examples.shares.data_ptr()
        task.at = None if examples.at is None else examples.at.data_ptr()
        task.at_step = 0 if examples.at is None else _step(examples.at)
        task.target_step, task.share_step = _step(examples.targets), _step(examples.shares)
        task.hits = None if hits is None else hits.data_ptr()
        task.losses = None if losses is None else losses.data_ptr()
        room = self.code.narrow_room(ctypes.byref(task))
        if len(self.work) < room:
            self.work = torch.empty(room)
        task.work = self.work.data_ptr()
        self.code.narrow_run(ctypes.byref(task))
        if backward:
            self._project_back(examples, x)

    def _project(self, examples: Examples, x: Tensor) -> None:
        """X = E_in^T V^T, (models, m, columns)."""
        V, words = examples.vectors, examples.words
        E = self.E.view(self.models, self.spec.m, -1)
        if V is None:
            assert words is not None
            x.copy_(E.gather(2, words[:, None].expand(self.models, self.spec.m, -1)))
        elif len(V) == 1 and self._dense:
            torch.mm(self.E, V[0].T, out=_flat(x))
        else:
            torch.bmm(E, V.transpose(1, 2).expand(self.models, -1, -1), out=x)

    def _project_back(self, examples: Examples, dx: Tensor) -> None:
        """Adds V^T dX to the gradient of E_in."""
        V, words = examples.vectors, examples.words
        gE = self.gE.view(self.models, self.spec.m, -1)
        if V is None:
            assert words is not None
            gE.scatter_add_(2, words[:, None].expand(self.models, self.spec.m, -1), dx)
        elif len(V) == 1 and self._dense:
            self.gE.addmm_(_flat(dx), V[0])
        else:
            gE.baddbmm_(dx, V.expand(self.models, -1, -1))

    def _whole(self, data: Data) -> Iterator[Examples]:
        """All examples. Those whose tokens are numbers are looked through once."""
        if self.whole is None or self.whole[0] is not data:
            self.whole = data, []
        kept = self.whole[1]
        if kept:
            yield from kept
            return
        weights = data.row_weights(0, data.T)
        shares = torch.full((1, data.T), 1 / data.T) if weights is None else weights.float()
        for start, stop in self._pieces(data, data.T):
            inputs, targets = data.span(start, stop)
            if not data.own:
                inputs = (*inputs[:-1], inputs[-1][None])
                targets = targets[None]
            examples = self._examples_of(inputs, targets, shares[:, start:stop].contiguous())
            if examples.at is not None:
                kept.append(examples)
            yield examples

    def _batch(self, index: Tensor) -> Iterator[Examples]:
        """Examples `index` (models, B)."""
        B = index.shape[1]
        for start, stop in self._pieces(self.data, B):
            inputs, targets = self.data.batch(index[:, start:stop])
            yield self._examples_of(inputs, targets, torch.full((1, stop - start), 1 / B))

    def _pieces(self, data: Data, rows: int) -> list[tuple[int, int]]:
        """First and last of the rows that are computed together."""
        if not data.inputs.is_floating_point():
            return [(0, rows)]
        step = max(1, PIECE // (self.models * self.spec.m * self.spec.n))
        return [(start, min(start + step, rows)) for start in range(0, rows, step)]

    def _examples_of(self, inputs: tuple[Tensor, ...], targets: Tensor, shares: Tensor) -> Examples:
        """Inputs, a table and numbers of its rows, numbers alone, or vectors, after an axis of
        models or of one."""
        tokens = inputs[-1]  # the kernel reads int64 and float32, side by side
        targets = (targets if targets.is_floating_point() else targets.long()).contiguous()
        if tokens.is_floating_point():
            return Examples(tokens.flatten(1, 2), None, None, targets, shares)
        table = inputs[0] if len(inputs) == 2 else None
        words, at = self._distinct(tokens, self.spec.d if table is None else len(table))
        vectors = None if table is None else table[words]
        return Examples(vectors, words, at, targets, shares)

    def _distinct(self, tokens: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The distinct numbers of each model's tokens (models, rows, n), below `count`; and where
        each token is among them. Models with fewer repeat number 0, which nobody reads."""
        tokens = tokens.long().contiguous()
        words = torch.zeros(len(tokens), min(count, tokens[0].numel()), dtype=torch.long)
        at = torch.empty(tokens.shape, dtype=torch.int32)
        seen = torch.full((count,), -1, dtype=torch.int32)
        most = 0
        for ids, found, places in zip(tokens, words, at, strict=True):
            pointers = [ctypes.c_void_p(x.data_ptr()) for x in (seen, found, places)]
            given = ctypes.c_void_p(ids.data_ptr()), ctypes.c_int64(ids.numel())
            most = max(most, self.code.narrow_distinct(*given, *pointers))
        return words[:, :most].contiguous(), at


def _width(spec: Spec) -> int:
    """The width of the kernel for a model."""
    return next(width for width in WIDTHS if width >= spec.m)


def _flat(x: Tensor) -> Tensor:
    """(models, m, columns) as one matrix, a row for every feature of every model."""
    return x.as_strided((x.shape[0] * x.shape[1], x.shape[2]), (x.stride(1), 1))


def _step(tensor: Tensor) -> int:
    """Numbers from one model to the next; 0 if all read the same."""
    return 0 if len(tensor) == 1 else tensor[0].numel()
