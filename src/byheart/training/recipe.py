"""How models are trained: a frozen record that prints, compares and round-trips through JSON."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from byheart.errors import ByheartError
from byheart.training.losses import LOSSES
from byheart.training.optimizers import OPTIMIZERS
from byheart.training.schedules import SCHEDULES, Schedule, learning_rate

Sampling = Literal["full", "with-replacement", "without-replacement", "fixed-sample"]
Surrogate = Literal["straight-through", "annealed"]
SURROGATES: tuple[Surrogate, ...] = get_args(Surrogate)
SAMPLINGS: tuple[Sampling, ...] = get_args(Sampling)


@dataclass(frozen=True)
class Recipe:
    """`steps` updates of `optimizer` on `loss`, the learning rate by `schedule`.

    `sampling`: "full" batch; batches of `batch` drawn "with-replacement" or, epoch by epoch,
    "without-replacement"; or "fixed-sample": batch x epoch_steps examples are drawn once, with
    replacement and for all models alike, and reshuffled every epoch (Dana et al.'s code).
    `epoch_steps`: batches an epoch (follows from the data for "without-replacement").
    `stop_at`: a model leaves the stack once this share of its facts is right (None: never), looked
    at every `evaluate_every` steps. `init`: the starting weights, by the name the model gives them
    (None: its own default).
    `tolerance`: values within it count as memorized. `keep_best`: weights of the best evaluation.
    `surrogate` (hardmax attention only): gradients "straight-through" the softmax, or the softmax
    itself, "annealed" by a temperature that falls geometrically from 1 to `temperature_low`;
    evaluations are always of the exact hardmax.
    """

    steps: int = 3000
    loss: str = "cross-entropy"
    optimizer: str = "adam"
    lr: float = 0.02
    lr_low: float = 0.0
    schedule: Schedule = "cosine"
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

    def __post_init__(self) -> None:
        for name, known in (
            ("loss", tuple(LOSSES)),
            ("optimizer", OPTIMIZERS),
            ("schedule", SCHEDULES),
            ("sampling", SAMPLINGS),
            ("surrogate", SURROGATES),
        ):
            if getattr(self, name) not in known:
                found = getattr(self, name)
                raise ByheartError(f"{name} must be one of {', '.join(known)}, found {found!r}")
        for name in ("steps", "batch", "epoch_steps", "evaluate_every"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ByheartError(f"{name} must be a whole number >= 1, found {value!r}")
        if not (self.lr > 0 and math.isfinite(self.lr)):
            raise ByheartError(f"lr must be a positive number, found {self.lr!r}")
        for name in ("lr_low", "weight_decay", "tolerance"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise ByheartError(f"{name} must be a number >= 0, found {value!r}")
        for name in ("warmup", "momentum"):
            if not 0 <= getattr(self, name) < 1:
                raise ByheartError(f"{name} must be in [0, 1), found {getattr(self, name)!r}")
        if not 0 < self.temperature_low <= 1:
            raise ByheartError(f"temperature_low must be in (0, 1], found {self.temperature_low!r}")
        if self.stop_at is not None and not 0 < self.stop_at <= 1:
            raise ByheartError(f"stop_at must be in (0, 1], found {self.stop_at!r}")

    def learning_rate(self, step: int) -> float:
        """The learning rate of one step; see `byheart.training.schedules`."""
        return learning_rate(
            self.schedule,
            step,
            self.steps,
            lr=self.lr,
            lr_low=self.lr_low,
            warmup=self.warmup,
            epoch_steps=self.epoch_steps,
        )

    def temperature(self, step: int) -> float:
        """Of the annealed softmax: temperature_low^(step / last step)."""
        return self.temperature_low ** (step / max(1, self.steps - 1))

    def but(self, **changes: Any) -> Recipe:
        """A copy with some fields changed."""
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def digest(self) -> str:
        """Names this recipe in files: equal recipes have equal digests."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()


def dana2025(
    batch: int = 256,
    batches: int = 64,
    epochs: int = 64,
    *,
    published: bool = False,
    **changes: Any,
) -> Recipe:
    """The training of Dana et al. (2025): a fixed sample of batch x batches facts, Adam.

    As coded: lr .1, lr_low .005 through LinearLR, i.e. .01 -> .0005 in effect. `published`: the
    paper's .1 -> .05. Both run all epochs and measure the last 100 batches.
    """
    name: Schedule = "dana-as-published" if published else "dana-as-coded"
    made = Recipe(
        steps=batches * epochs,
        lr=0.1,
        lr_low=0.05 if published else 0.005,
        schedule=name,
        sampling="fixed-sample",
        batch=batch,
        epoch_steps=batches,
        stop_at=None,
        evaluate_every=batches * epochs,
    )
    return made.but(**changes)


def mahdavi2024(T: int, *, least_steps: int = 50_000, **changes: Any) -> Recipe:
    """The training of Mahdavi et al. (2024): Adam 1e-3, batch 256, max(500 T / 256, 50,000) steps,
    warm-up 5 % from lr/100, cosine to 0, stop at 100 % (looked at every 500 steps)."""
    made = Recipe(
        steps=max(500 * T // 256, least_steps),
        lr=1e-3,
        schedule="cosine",
        warmup=0.05,
        sampling="without-replacement",
        batch=256,
        evaluate_every=500,
        keep_best=True,
    )
    return made.but(**changes)


def kajitsuka2025(**changes: Any) -> Recipe:
    """The training of Kajitsuka and Sato (2025): AdamW, full batch, 1000 epochs; the learning rate
    and warm-up, which they tuned, are ours (3e-3, 10 %)."""
    made = Recipe(steps=1000, optimizer="adamw", lr=3e-3, warmup=0.1, weight_decay=0.01)
    return made.but(**changes)


RECIPES = {"full-batch": Recipe, "dana2025": dana2025, "mahdavi2024": mahdavi2024}
