"""Gradients of a whole stack of models: the general path, in ordinary autograd.

All weights of the stack lie in one flat tensor `theta`, all gradients in `grad`; the named weights
are views of them, so that an optimizer moves everything in one call. Kernels for hot shapes
(`byheart.training.kernels`) have the same face and their own order of the flat tensor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from byheart.models.architectures import module_of
from byheart.specs import Spec
from byheart.training.data import Data
from byheart.training.losses import example_losses, right

Weights = dict[str, Tensor]
SpecT = TypeVar("SpecT", bound=Spec)
CHUNK_BYTES = 256 * 2**20  # of intermediates in one backward pass; larger batches are added up


def split(flat: Tensor, shapes: Mapping[str, tuple[int, ...]]) -> Weights:
    """A flat tensor as one view of each shape, in the order of the names.

    >>> split(torch.arange(6), {"b": (2,), "W": (2, 2)})["W"].tolist()
    [[2, 3], [4, 5]]
    """
    parts = flat.split([math.prod(shape) for shape in shapes.values()])
    return {name: part.view(shapes[name]) for name, part in zip(shapes, parts, strict=True)}


@dataclass(frozen=True)
class Goal:
    """What is minimised and what counts as memorized."""

    loss: str = "cross-entropy"
    tolerance: float = 0.01


@dataclass(frozen=True)
class Batch:
    """Loss and number of right answers of one batch, per model: before the update."""

    loss: Tensor
    right: Tensor


class Learner(Generic[SpecT]):
    """M models of one spec: `prepare` examples, then `gradient(i)` fills `grad` for batch i.

    A kernel is a subclass that `covers` some shapes, and is chosen where it `pays`.
    """

    name = "autograd"

    def __init__(
        self,
        spec: SpecT,
        models: int,
        goal: Goal,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.spec, self.models, self.goal = spec, models, goal
        self.options: dict[str, object] = {}  # further arguments of the model's forward
        self.device, self.dtype = torch.device(device), dtype
        size = models * sum(math.prod(shape) for shape in spec.weight_shapes().values())
        self.theta = torch.zeros(size, dtype=dtype, device=device)
        self.grad = torch.zeros_like(self.theta)
        self.bind()

    @classmethod
    def covers(cls, spec: SpecT, goal: Goal, data: Data) -> bool:
        """Everything."""
        return True

    @classmethod
    def pays(cls, spec: SpecT) -> bool:
        """Whether it was measured to be faster than what comes after it in `choose.KERNELS`."""
        return True

    @classmethod
    def step_bytes(cls, spec: SpecT, models: int, rows: int, itemsize: int, full: bool) -> int:
        """About how many bytes the intermediates of one step on `rows` examples take."""
        raise NotImplementedError

    def bind(self) -> None:
        """Make the views of `theta` and `grad` that every step uses."""

    def views(self, flat: Tensor) -> Weights:
        """The named weights (models, ...) as views of a flat tensor of this learner's order."""
        shapes = self.spec.weight_shapes().items()
        return split(flat, {name: (self.models, *shape) for name, shape in shapes})

    def load(self, weights: Weights, flat: Tensor | None = None) -> None:
        """Write named weights into `theta`, or into another tensor of the same order."""
        for name, view in self.views(self.theta if flat is None else flat).items():
            view.copy_(weights[name])

    def weights(self, flat: Tensor | None = None) -> Weights:
        """Copies of the named weights."""
        views = self.views(self.theta if flat is None else flat)
        return {
            name: view.clone(memory_format=torch.contiguous_format) for name, view in views.items()
        }

    def prepare(self, data: Data, order: Tensor | None) -> None:
        """Get ready for batches `order` (batches, models, B) of `data`; None: one full batch."""
        raise NotImplementedError

    def gradient(self, i: int, log: bool = False) -> Batch | None:
        """Fill `grad` with the gradient of each model's mean loss on batch i."""
        raise NotImplementedError


class Autograd(Learner[SpecT]):
    """Any architecture, any loss. A full batch is computed in chunks that fit `CHUNK_BYTES`."""

    def bind(self) -> None:
        # Leaves that share memory with theta, whose .grad shares memory with grad: autograd adds
        # into it in place, and never copies a flat tensor per weight.
        self.leaves: Weights = {}
        grads = self.views(self.grad)
        for name, view in self.views(self.theta).items():
            leaf = view.detach().requires_grad_()
            leaf.grad = grads[name]
            self.leaves[name] = leaf

    @classmethod
    def step_bytes(cls, spec: SpecT, models: int, rows: int, itemsize: int, full: bool) -> int:
        per_row = models * spec.row_bytes(itemsize)
        return min(rows * per_row, max(CHUNK_BYTES, per_row)) if full else rows * per_row

    def forward(self, *inputs: Tensor) -> Tensor:
        """Outputs of every model, (models, B, ...)."""
        return module_of(self.spec).forward(self.spec, self.leaves, *inputs, **self.options)

    def prepare(self, data: Data, order: Tensor | None) -> None:
        self.data, self.order = data, order

    def gradient(self, i: int, log: bool = False) -> Batch | None:
        self.grad.zero_()
        if self.order is not None:
            outputs, targets, losses = self._evaluate(*self._examples(self.order[i]))
            self._backward(outputs, losses.mean(1).sum())
            if not log:
                return None
            return Batch(losses.detach().mean(1), self._right(outputs, targets, None))
        loss = torch.zeros(self.models, dtype=self.dtype, device=self.device)
        hits = torch.zeros(self.models, dtype=torch.long, device=self.device)
        step = max(1, CHUNK_BYTES // max(1, self.models * self.spec.row_bytes(self.dtype.itemsize)))
        for start in range(0, self.data.T, step):
            stop = min(start + step, self.data.T)
            outputs, targets, losses = self._evaluate(*self.data.span(start, stop))
            weights = self.data.row_weights(start, stop)
            if weights is not None:
                weights = weights.to(self.dtype)
            part = losses.sum(1) / self.data.T if weights is None else (losses * weights).sum(1)
            self._backward(outputs, part.sum())
            if log:
                loss += part.detach()
                hits += self._right(outputs, targets, weights)
        return Batch(loss, hits) if log else None

    def _evaluate(
        self, inputs: tuple[Tensor, ...], targets: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs, targets with the model axis (the same for all models if they had none), and
        losses."""
        outputs = self.forward(*inputs)
        lead = outputs.shape[:2]
        if targets.shape[:2] != lead or not (self.data.own or self.order is not None):
            targets = targets.expand(lead[0], *targets.shape)
        losses = example_losses(self.goal.loss, outputs, targets, self.data.kind)
        return outputs, targets, losses

    def _examples(self, index: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Inputs and targets of one batch, examples `index` (models, B)."""
        return self.data.batch(index)

    def _backward(self, outputs: Tensor, total: Tensor) -> None:
        """Add the gradient of `total` to `grad`."""
        total.backward()

    def _right(self, outputs: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        hit = right(outputs.detach(), targets, self.data.kind, self.goal.tolerance)
        return (hit if weights is None else hit & (weights > 0)).sum(1)
