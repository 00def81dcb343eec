"""Attention weights: softmax, and hardmax with the two softmaxes that stand in for its gradient.

Hardmax gives 1/|I| to the positions I with the largest score, ties sharing, and 0 to the others
(Kajitsuka and Sato 2025). Its gradient is 0, so training takes a surrogate, by name:

- `straight-through`: forward exact, backward that of softmax(scores / temperature);
- `annealed`: forward and backward softmax(scores / temperature), which tends to hardmax as the
  temperature falls to 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

SURROGATES = ("straight-through", "annealed")


@dataclass(frozen=True)
class Hardmax:
    """How hardmax is computed where gradients are asked for: exactly, with the gradient of a
    softmax of this temperature, or by that softmax. Of no consequence to softmax attention."""

    surrogate: str = "straight-through"
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if self.surrogate not in SURROGATES:
            names = ", ".join(SURROGATES)
            raise ValueError(f"surrogate must be one of {names}, found {self.surrogate!r}")
        if not self.temperature > 0:
            raise ValueError(f"temperature must be above 0, found {self.temperature}")


EXACT = Hardmax()


def attention_weights(
    scores: Tensor, attention: str, future: Tensor | None = None, hardmax: Hardmax = EXACT
) -> Tensor:
    """Weights over the last axis of `scores`; `future` (True: not read) masks positions.

    Scores tie when they are equal as computed. (Positions that hold equal vectors may miss a tie
    by a rounding; their weighted sum is then the same vector.)

    >>> attention_weights(torch.tensor([1.0, 3.0, 3.0, 2.0]), "hardmax").tolist()
    [0.0, 0.5, 0.5, 0.0]
    """
    masked = scores if future is None else scores.masked_fill(future, -torch.inf)
    if attention == "softmax":
        return torch.softmax(masked, dim=-1)
    if hardmax.surrogate == "annealed":
        return torch.softmax(masked / hardmax.temperature, dim=-1)
    top = (masked == masked.amax(-1, keepdim=True)).to(scores.dtype)
    hard = top / top.sum(-1, keepdim=True)
    if not (torch.is_grad_enabled() and scores.requires_grad):
        return hard
    soft = torch.softmax(masked / hardmax.temperature, dim=-1)
    return hard + (soft - soft.detach())  # adds exactly 0
