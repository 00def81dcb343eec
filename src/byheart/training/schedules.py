"""Learning-rate schedules by name: a pure function of the step, so that resuming is exact."""

from __future__ import annotations

import math
from typing import Literal, get_args

Schedule = Literal["constant", "linear", "cosine", "dana-as-coded", "dana-as-published"]
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)


def learning_rate(
    schedule: Schedule,
    step: int,
    steps: int,
    *,
    lr: float,
    lr_low: float = 0.0,
    warmup: float = 0.0,
    epoch_steps: int = 1,
) -> float:
    """The learning rate of step 0, 1, ..., steps - 1.

    "constant"; "linear" from `lr` to `lr_low`; "cosine" from `lr` to `lr_low`. These three may
    begin with a linear warm-up from lr/100 over the share `warmup` of all steps (Mahdavi et al.:
    cosine, 5 %).
    "dana-as-coded": lr (lr + (lr_low - lr) e/E) in epoch e of E. The authors' LinearLR multiplies
    the base rate, so their lr = .1, lr_low = .005 trains at .01 -> .0005.
    "dana-as-published": lr + (lr_low - lr) e/E, the paper's .1 -> .05.

    >>> learning_rate("dana-as-coded", 0, 4096, lr=0.1, lr_low=0.005, epoch_steps=64)
    0.010000000000000002
    >>> learning_rate("cosine", 50, 100, lr=1.0)
    0.5
    """
    epochs = max(1, steps // epoch_steps)
    share = (step // epoch_steps) / epochs
    if schedule == "dana-as-coded":
        return lr * (lr + (lr_low - lr) * share)
    if schedule == "dana-as-published":
        return lr + (lr_low - lr) * share
    ramp = round(warmup * steps)
    if step < ramp:
        return lr * (0.01 + 0.99 * step / ramp)
    if schedule == "constant":
        return lr
    done = (step - ramp) / max(1, steps - ramp)
    if schedule == "linear":
        return lr + (lr_low - lr) * done
    return lr_low + (lr - lr_low) * 0.5 * (1 + math.cos(math.pi * done))
