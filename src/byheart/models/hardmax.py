"""Attention weights: softmax, and hardmax with the two softmaxes that stand in for its gradient.

Hardmax gives 1/|I| to the positions I with the largest score, ties sharing, and 0 to the others
(Kajitsuka and Sato 2025). Its gradient is 0, so training takes a surrogate, by name:

- `straight-through`: forward exact, backward that of softmax(scores / temperature);
- `annealed`: forward and backward softmax(scores / temperature), which tends to hardmax as the
  temperature falls to 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

SURROGATES = ("straight-through", "annealed")


def attention_weights(
    scores: Tensor,
    attention: str,
    future: Tensor | None = None,
    *,
    surrogate: str = "straight-through",
    temperature: float = 1.0,
) -> Tensor:
    """Weights over the last axis of `scores`; `future` (True: not read) masks positions.

    Scores tie when they are equal as computed. (Positions that hold equal vectors may miss a tie
    by a rounding; their weighted sum is then the same vector.) `surrogate` and `temperature`
    matter to hardmax only.

    >>> attention_weights(torch.tensor([1.0, 3.0, 3.0, 2.0]), "hardmax").tolist()
    [0.0, 0.5, 0.5, 0.0]
    """
    check_surrogate(surrogate, temperature)
    masked = scores if future is None else scores.masked_fill(future, -torch.inf)
    if attention == "softmax":
        return torch.softmax(masked, dim=-1)
    if surrogate == "annealed":
        return torch.softmax(masked / temperature, dim=-1)
    top = (masked == masked.amax(-1, keepdim=True)).to(scores.dtype)
    hard = top / top.sum(-1, keepdim=True)
    if not (torch.is_grad_enabled() and scores.requires_grad):
        return hard
    soft = torch.softmax(masked / temperature, dim=-1)
    return hard + (soft - soft.detach())  # adds exactly 0


def literal_weights(
    scores: Tensor, attention: str, surrogate: str = "straight-through", temperature: float = 1.0
) -> Tensor:
    """The definition, for one query: scores (S,) -> weights (S,). The oracle."""
    if attention == "softmax":
        return torch.softmax(scores, dim=0)
    soft = torch.softmax(scores / temperature, dim=0)
    if surrogate == "annealed":
        return soft
    values = scores.tolist()
    largest = [s for s, value in enumerate(values) if value == max(values)]
    hard = [1 / len(largest) if s in largest else 0.0 for s in range(len(values))]
    return torch.tensor(hard, dtype=scores.dtype) + (soft - soft.detach())


def check_surrogate(surrogate: str, temperature: float) -> None:
    if surrogate not in SURROGATES:
        raise ValueError(f"surrogate must be one of {', '.join(SURROGATES)}, found {surrogate!r}")
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, found {temperature}")
