"""How models are trained, and which: a frozen record that prints, compares and is JSON.

Nothing here imports torch: a wrong option is refused before it is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Literal, get_args

from byheart._json import Json
from byheart.errors import OptionError, check_choice
from byheart.specs import AttentionOnlySpec, MLPTransformerSpec, SharedBottleneckSpec

TrainableSpec = AttentionOnlySpec | MLPTransformerSpec | SharedBottleneckSpec
"""The Transformers over token keys that `train`, `capacity` and `smallest` take."""

Sampling = Literal["full", "with-replacement", "without-replacement", "fixed-sample"]
Surrogate = Literal["straight-through", "annealed"]
DEVICES = ("auto", "cpu", "cuda", "mps")  # "auto": the first there is, from behind the CPU on
LOSSES = ("cross-entropy", "cross-entropy-as-coded", "kl", "mse", "total-variation", "hinge")
OPTIMIZERS = ("adam", "adamw", "sgd")
SCHEDULES = ("constant", "linear", "cosine", "dana-as-coded", "dana-as-published")
SAMPLINGS: tuple[Sampling, ...] = get_args(Sampling)
CHOICES: dict[str, tuple[str, ...]] = {
    "loss": LOSSES, "optimizer": OPTIMIZERS, "schedule": SCHEDULES, "sampling": SAMPLINGS,
    "surrogate": get_args(Surrogate), "best_by": ("accuracy", "loss"),
}  # fmt: skip
OPTIONAL = ("stop_at", "clip")
COUNTS = "steps batch epoch_steps evaluate_every"
# What some fields must be (NaN is nothing of it).
LIMITS: tuple[tuple[str, str, Callable[[float], bool]], ...] = (
    (COUNTS, "a whole number >= 1", lambda x: type(x) is int and x >= 1),
    ("lr clip", "a positive number", lambda x: 0 < x < math.inf),
    ("lr_low weight_decay tolerance", "a number >= 0", lambda x: 0 <= x < math.inf),
    ("warmup momentum beta2", "in [0, 1)", lambda x: 0 <= x < 1),
    ("temperature_low stop_at", "in (0, 1]", lambda x: 0 < x <= 1),
)


@dataclass(frozen=True)
class Recipe:
    """`steps` updates of `optimizer` on `loss`, the learning rate by `schedule`.

    `sampling`: "full" batch; batches of `batch` drawn "with-replacement" or, epoch by epoch,
    "without-replacement"; or "fixed-sample": batch x epoch_steps examples are drawn once, with
    replacement and for all models alike, and reshuffled every epoch (Dana et al.'s code).
    `epoch_steps`: batches an epoch (follows from the data for "without-replacement").
    `stop_at`: a model leaves the stack once this share of its facts is right (None: never), looked
    at every `evaluate_every` steps; with `stop_together` the first that does ends the run of all.
    `init`: the starting weights, by the name the model gives them
    (None: its own default).
    `tolerance`: values within it count as memorized. `keep_best`: weights of the best evaluation,
    the one with the highest accuracy and then the lowest loss, or, `best_by` "loss", the lowest.
    `surrogate` (hardmax attention only): gradients "straight-through" the softmax, or the softmax
    itself, "annealed" by a temperature that falls geometrically from 1 to `temperature_low`;
    evaluations are always of the exact hardmax.
    `beta2`: Adam's memory of squared gradients. `clip`: a model's gradient is made this long where
    it is longer (None: never).

    >>> Recipe(steps=100, lr=1.0).learning_rate(50)
    0.5
    """

    steps: int = 3000
    loss: str = "cross-entropy"
    optimizer: str = "adam"
    lr: float = 0.02
    lr_low: float = 0.0
    schedule: str = "cosine"
    warmup: float = 0.0
    sampling: Sampling = "full"
    batch: int = 256
    epoch_steps: int = 64
    stop_at: float | None = 1.0
    evaluate_every: int = 100
    weight_decay: float = 0.0
    momentum: float = 0.0
    tolerance: float = 0.01
    init: str | None = None
    surrogate: Surrogate = "straight-through"
    temperature_low: float = 0.01
    keep_best: bool = False
    best_by: str = "accuracy"
    beta2: float = 0.999
    clip: float | None = None
    stop_together: bool = False

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        for names, expected, holds in LIMITS:
            for name in names.split():
                value = getattr(self, name)
                if (name in OPTIONAL and value is None) or holds(value):
                    continue
                raise OptionError(name, expected, value)

    def learning_rate(self, step: int) -> float:
        """The learning rate of step 0, 1, ..., steps - 1: a pure function, so resuming is exact.

        "constant"; "linear" from `lr` to `lr_low`; "cosine" from `lr` to `lr_low`. These three may
        begin with a linear warm-up from lr/100 over the share `warmup` of all steps (Mahdavi et
        al.: cosine, 5 %).
        "dana-as-coded": lr (lr + (lr_low - lr) e/E) in epoch e of E. The authors' LinearLR
        multiplies the base rate, so their lr = .1, lr_low = .005 trains at .01 -> .0005.
        "dana-as-published": lr + (lr_low - lr) e/E, the paper's .1 -> .05.

        >>> dana2025().learning_rate(0)
        0.010000000000000002
        """
        lr, change = self.lr, self.lr_low - self.lr
        share = (step // self.epoch_steps) / max(1, self.steps // self.epoch_steps)
        if self.schedule == "dana-as-coded":
            return lr * (lr + change * share)
        if self.schedule == "dana-as-published":
            return lr + change * share
        ramp = round(self.warmup * self.steps)
        if step < ramp:
            return lr * (0.01 + 0.99 * step / ramp)
        if self.schedule == "constant":
            return lr
        done = (step - ramp) / max(1, self.steps - ramp)
        if self.schedule == "linear":
            return lr + change * done
        return self.lr_low + (lr - self.lr_low) * 0.5 * (1 + math.cos(math.pi * done))

    def temperature(self, step: int) -> float:
        """Of the annealed softmax: temperature_low^(step / last step)."""
        return self.temperature_low ** (step / max(1, self.steps - 1))

    def but(self, **changes: object) -> Recipe:
        """A copy with some fields changed."""
        return replace(self, **changes)

    def to_json(self) -> dict[str, Json]:
        return asdict(self)


def dana2025(
    batch: int = 256, batches: int = 64, epochs: int = 64, *, published: bool = False,
    **changes: object,
) -> Recipe:  # fmt: skip
    """The training of Dana et al. (2025): a fixed sample of batch x batches facts, Adam, all
    epochs. As coded: .1, .005 through LinearLR, .01 -> .0005 in effect; `published`: .1 -> .05."""
    steps = batches * epochs
    return Recipe(
        steps, lr=0.1, lr_low=0.05 if published else 0.005,
        schedule="dana-as-published" if published else "dana-as-coded", sampling="fixed-sample",
        batch=batch, epoch_steps=batches, stop_at=None, evaluate_every=steps,
    ).but(**changes)  # fmt: skip


def mahdavi2024(T: int, *, least_steps: int = 50_000, **changes: object) -> Recipe:
    """The training of Mahdavi et al. (2024): Adam 1e-3, batch 256, max(500 T / 256, 50,000) steps,
    warm-up 5 % from lr/100, cosine to 0, stop at 100 % (looked at every 500 steps)."""
    return Recipe(
        steps=max(500 * T // 256, least_steps), lr=1e-3, warmup=0.05, evaluate_every=500,
        sampling="without-replacement", batch=256, keep_best=True,
    ).but(**changes)  # fmt: skip


def kajitsuka2025(*, tuned: bool = False, **changes: object) -> Recipe:
    """The training of Kajitsuka and Sato (2025): AdamW, full batch, 1000 epochs; the learning rate
    and warm-up, which they tuned, are ours (3e-3, 10 %). `tuned`: what served best among the
    settings that they do not state: no decay, beta2 .99, gradients clipped at .1, and a start that
    is spread over the data (`byheart.models.feed_forward`); rates are drawn by `best_of`."""
    recipe = Recipe(steps=1000, optimizer="adamw", lr=3e-3, warmup=0.1, weight_decay=0.01)
    if tuned:
        recipe = recipe.but(weight_decay=0.0, beta2=0.99, clip=0.1, init="spread", lr=0.03)
    return recipe.but(**changes)
