"""Gradients and updates of a whole stack of models, and how good the models are.

All weights of the stack lie in one flat tensor `theta`, all gradients in `grad`; the named weights
are views of them, so that an optimizer moves everything in one call. Kernels for hot shapes
(`byheart.training.kernels`) have the same face and their own order of the flat tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Generic, TypeVar

import torch
from torch import Tensor

from byheart.models.architectures import module_of
from byheart.specs import Spec
from byheart.training import native
from byheart.training.data import Data
from byheart.training.losses import example_losses, right
from byheart.training.recipe import Recipe

Weights = dict[str, Tensor]
SpecT = TypeVar("SpecT", bound=Spec)
CHUNK_BYTES = 256 * 2**20  # of intermediates in one backward pass; larger batches are added up
BETA1, EPS = 0.9, 1e-8  # of Adam


def split(flat: Tensor, shapes: Mapping[str, tuple[int, ...]]) -> Weights:
    """A flat tensor as one view of each shape, in the order of the names.

    >>> split(torch.arange(6), {"b": (2,), "W": (2, 2)})["W"].tolist()
    [[2, 3], [4, 5]]
    """
    parts = flat.split([math.prod(shape) for shape in shapes.values()])
    return {name: part.view(shapes[name]) for name, part in zip(shapes, parts, strict=True)}


def contiguous(view: Tensor) -> Tensor:
    return view.clone(memory_format=torch.contiguous_format)


def chunk_rows(spec: Spec, models: int, itemsize: int) -> int:
    """How many examples are computed at once, so that intermediates fit `CHUNK_BYTES`."""
    return max(1, CHUNK_BYTES // (models * spec.row_bytes(itemsize)))


class Learner(Generic[SpecT]):
    """M models of one spec: `prepare` examples, then `gradient(i)` fills `grad` for batch i.

    This is the general path, in ordinary autograd: any architecture, any loss. A kernel is a
    subclass that `covers` some shapes, and is chosen where it `pays`.
    """

    name = "autograd"
    library: str | None = None  # in C++, if it has one

    def __init__(
        self, spec: SpecT, models: int, recipe: Recipe, *, device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:  # fmt: skip
        self.spec, self.models, self.recipe = spec, models, recipe
        self.options: dict[str, object] = {}  # further arguments of the model's forward
        self.losses: Tensor | None = None  # of the last batch that was logged, (models,)
        self.device, self.dtype = torch.device(device), dtype
        size = models * sum(math.prod(shape) for shape in spec.weight_shapes().values())
        self.theta = torch.zeros(size, dtype=dtype, device=device)
        self.grad = torch.zeros_like(self.theta)
        self.bind()

    @classmethod
    def covers(cls, spec: SpecT, loss: str, data: Data) -> bool:
        """Everything."""
        return True

    @classmethod
    def pays(cls, spec: SpecT) -> bool:
        """Whether it was measured to be faster than what comes after it in `choose.KERNELS`."""
        return True

    @classmethod
    def missing(cls, device: torch.device | str, dtype: torch.dtype) -> str | None:
        """Why it cannot compute in this format on this machine, in words; None: it can."""
        if cls.library is None:
            return None
        if torch.device(device).type != "cpu" or dtype != torch.float32:
            return "compiled kernels compute in float32 on the CPU"
        return native.missing(cls.library)

    @classmethod
    def step_bytes(cls, spec: SpecT, models: int, rows: int, itemsize: int, full: bool) -> int:
        """About how many bytes the intermediates of one step on `rows` examples take."""
        per_row = models * spec.row_bytes(itemsize)
        return min(rows * per_row, max(CHUNK_BYTES, per_row)) if full else rows * per_row

    def bind(self) -> None:
        """Make the views of `theta` and `grad` that every step uses."""
        # Leaves that share memory with theta, whose .grad shares memory with grad: autograd adds
        # into it in place, and never copies a flat tensor per weight.
        self.leaves: Weights = {}
        grads = self.views(self.grad)
        for name, view in self.views(self.theta).items():
            self.leaves[name] = leaf = view.detach().requires_grad_()
            leaf.grad = grads[name]

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
        return {name: contiguous(view) for name, view in views.items()}

    def owner(self) -> Tensor:
        """Which model every number of `theta` belongs to. What only fills up a row of a kernel is
        zero and stays so: it counts as the first model's."""
        flat, number = torch.zeros_like(self.theta), torch.arange(self.models)
        shapes = self.spec.weight_shapes().items()
        self.load({name: number.view(-1, *[1] * len(shape)) for name, shape in shapes}, flat)
        return flat.long()

    def forward(self, *inputs: Tensor) -> Tensor:
        """Outputs of every model, (models, B, ...)."""
        return module_of(self.spec).forward(self.spec, self.leaves, *inputs, **self.options)

    def prepare(self, data: Data, order: Tensor | None) -> None:
        """Get ready for batches `order` (batches, models, B) of `data`; None: one full batch."""
        self.data, self.order = data, order

    def gradient(self, i: int, log: bool = False) -> Tensor | None:
        """Fill `grad` with the gradient of each model's mean loss on batch i; with `log`, the right
        answers of each model before the update, and `losses`. A full batch is computed in chunks.
        """
        self.grad.zero_()
        if self.order is not None:
            outputs, targets, losses = self._evaluate(*self._examples(self.order[i]))
            each = losses.mean(1)
            self._backward(outputs, each.sum())
            self.losses = each.detach()
            return self._right(outputs, targets, None) if log else None
        self.losses = torch.zeros(self.models, dtype=self.dtype, device=self.device)
        hits = torch.zeros(self.models, dtype=torch.long, device=self.device)
        step = chunk_rows(self.spec, self.models, self.dtype.itemsize)
        for start in range(0, self.data.T, step):
            stop = min(start + step, self.data.T)
            outputs, targets, losses = self._evaluate(*self.data.span(start, stop))
            weights = self.data.row_weights(start, stop)
            if weights is not None:
                weights = weights.to(self.dtype)
            part = losses.sum(1) / self.data.T if weights is None else (losses * weights).sum(1)
            self._backward(outputs, part.sum())
            self.losses += part.detach()
            if log:
                hits += self._right(outputs, targets, weights)
        return hits if log else None

    def score(self, data: Data) -> tuple[Tensor, Tensor]:
        """`evaluate` of the weights as they are."""
        return evaluate(self.spec, self.views(self.theta), data, self.recipe)

    def _evaluate(self, inputs: tuple[Tensor, ...], targets: Tensor) -> tuple[Tensor, ...]:
        """Outputs, targets with the model axis, and losses."""
        outputs = self.forward(*inputs)
        if self.order is None and not self.data.own:
            targets = targets.expand(self.models, *targets.shape)
        losses = example_losses(self.recipe.loss, outputs, targets, self.data.kind)
        return outputs, targets, losses

    def _examples(self, index: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Inputs and targets of one batch, examples `index` (models, B)."""
        return self.data.batch(index)

    def _backward(self, outputs: Tensor, total: Tensor) -> None:
        """Add the gradient of `total` to `grad`."""
        total.backward()

    def _right(self, outputs: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        hit = right(outputs.detach(), targets, self.data.kind, self.recipe.tolerance)
        return (hit if weights is None else hit & (weights > 0)).sum(1)


class MixedPrecision(Learner[SpecT]):
    """The general path with its products in bfloat16 (torch's autocast); weights, gradients, the
    optimizer and all evaluations stay as they are. Never chosen unless it is named."""

    name = "bfloat16"

    def forward(self, *inputs: Tensor) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16):
            return super().forward(*inputs).to(self.dtype)


class FlatOptimizer:
    """The recipe's Adam, AdamW or SGD: `step(lr)` moves `theta` along `grad`. What it keeps is `t`,
    the steps so far, and the tensors that `state` names: to go on from an earlier run, write both.

    Learning rates may be the models' own, and gradients are clipped model by model: then `owner`
    says of every number of `theta` which model it belongs to.

    The fused kernels of torch are called directly where they exist: on small stacks that is three
    times as fast as `torch.optim`. They are private: the formula stands beside them as fall-back.
    """

    def __init__(
        self, recipe: Recipe, theta: Tensor, grad: Tensor, fused: bool = True,
        owner: Tensor | None = None,
    ) -> None:  # fmt: skip
        self.name, self.theta, self.grad = recipe.optimizer, theta, grad
        self.weight_decay, self.momentum = recipe.weight_decay, recipe.momentum
        self.beta2, self.clip, self.owner = recipe.beta2, recipe.clip, owner
        self.models = 1 if owner is None else int(owner.max()) + 1
        self.t = torch.zeros((), dtype=torch.float32, device=theta.device)
        name = self.name
        moments = self.moments(name, self.momentum)
        self.state = {key: torch.zeros_like(theta) for key in moments}
        kernel = {"adam": "_fused_adam_", "adamw": "_fused_adamw_"}.get(name, "")
        self._fused = getattr(torch, kernel, None) if fused else None

    @staticmethod
    def moments(name: str, momentum: float) -> tuple[str, ...]:
        """The names of what is kept from step to step."""
        return ("m", "v") if name != "sgd" else (("m",) if momentum else ())

    def step(self, lr: float | Tensor) -> None:
        """One update; `lr` is everybody's, or (models,) each model's own."""
        self.t += 1
        if self.clip is not None:
            self._clip(self.clip)
        if self._fused is not None and not isinstance(lr, Tensor):
            lists = [[x] for x in (self.theta, self.grad, *self.state.values())]
            rates = {"lr": lr, "beta1": BETA1, "beta2": self.beta2, "eps": EPS}
            how = {"weight_decay": self.weight_decay, "amsgrad": False, "maximize": False}
            try:
                self._fused(*lists, [], [self.t], **rates, **how)
                return
            except (RuntimeError, TypeError):  # not on this device, or another signature
                self._fused = None
        if isinstance(lr, Tensor):
            assert self.owner is not None
            lr = lr[self.owner]
        change = self.grad
        if self.weight_decay and self.name == "adamw":  # decays θ itself, the others the gradient
            self.theta.mul_(1 - lr * self.weight_decay)
        elif self.weight_decay:
            change = change.add(self.theta, alpha=self.weight_decay)
        if self.name == "sgd":
            if self.momentum:
                change = self.state["m"].mul_(self.momentum).add_(change)
            if isinstance(lr, Tensor):
                self.theta.addcmul_(change, lr, value=-1)
            else:
                self.theta.add_(change, alpha=-lr)
        else:
            self._adam(lr, change)

    def _adam(self, lr: float | Tensor, change: Tensor) -> None:
        """θ -= lr (m / (1 - β_1^t)) / (sqrt(v / (1 - β_2^t)) + ε), m and v the running means of
        the gradient and its square."""
        (m, v), t = self.state.values(), float(self.t)
        m.lerp_(change, 1 - BETA1)
        v.mul_(self.beta2).addcmul_(change, change, value=1 - self.beta2)
        spread = (v / (1 - self.beta2**t)).sqrt_().add_(EPS)
        if isinstance(lr, Tensor):
            self.theta.addcdiv_(m * lr, spread, value=-1 / (1 - BETA1**t))
        else:
            self.theta.addcdiv_(m, spread, value=-lr / (1 - BETA1**t))

    def _clip(self, longest: float) -> None:
        """g <- g min(1, longest / |g|) for each model's gradient g."""
        assert self.owner is not None
        squares = self.grad.new_zeros(self.models)
        squares.index_add_(0, self.owner, self.grad.square())
        self.grad.mul_((longest / squares.sqrt_()).clamp_(max=1.0)[self.owner])


@torch.no_grad()
def evaluate(
    spec: Spec, weights: Weights, data: Data, recipe: Recipe,
    forward: Callable[..., Tensor] | None = None, rows: int | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Share of each model's examples that are right, and its mean loss: (models,) each, over all
    facts, whatever the training batches were. `forward`: outputs of the inputs, in place of the
    model's own; `rows` at once."""
    forward = forward or partial(module_of(spec).forward, spec, weights)
    first = next(iter(weights.values()))
    models = len(first)
    step = rows or chunk_rows(spec, models, first.element_size())
    hits, loss = torch.zeros(2, models, dtype=torch.float64)
    for start in range(0, data.T, step):
        inputs, targets = data.span(start, min(start + step, data.T))
        outputs = forward(*inputs)
        if not data.own:
            targets = targets.expand(models, *targets.shape)
        losses = example_losses(recipe.loss, outputs, targets, data.kind)
        hit = right(outputs, targets, data.kind, recipe.tolerance)
        share = data.row_weights(start, start + losses.shape[1])
        if share is not None:
            hit, losses = hit & (share > 0), losses.masked_fill(share == 0, 0)
        hits += hit.sum(1).cpu()
        loss += losses.cpu().sum(1, dtype=torch.float64)  # not every device has float64
    count = torch.tensor(float(data.T)) if data.rows is None else data.rows.cpu()
    return hits / count, loss / count
