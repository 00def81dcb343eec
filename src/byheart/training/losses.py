"""Losses by name: one number a model, from the outputs of a whole stack."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from byheart.errors import ByheartError, check_choice
from byheart.models.memory import answer_margins
from byheart.training.data import Kind

# outputs (models, B, K), targets -> loss of every example (models, B)
Rows = Callable[[Tensor, Tensor, Kind], Tensor]


def example_losses(name: str, outputs: Tensor, targets: Tensor, kind: Kind) -> Tensor:
    """The loss of every example, (models, B).

    >>> logits = torch.tensor([[[0.0, 0.0], [2.0, 0.0]]])
    >>> example_losses("cross-entropy", logits, torch.tensor([[0, 0]]), "class")
    tensor([[0.6931, 0.1269]])
    """
    check_loss(name, kind)
    return LOSSES[name][0](outputs, targets, kind)


def check_loss(name: str, kind: Kind) -> None:
    """Refuse a loss that does not exist or does not fit the targets."""
    check_choice("loss", name, LOSSES)
    if kind not in LOSSES[name][1]:
        fitting = ", ".join(n for n, (_, kinds) in LOSSES.items() if kind in kinds)
        raise ByheartError(
            f"`loss={name}` takes {' or '.join(LOSSES[name][1])} targets, these are of kind "
            f"{kind!r}. For them use {fitting}."
        )


def _probabilities(targets: Tensor, kind: Kind, like: Tensor) -> Tensor:
    if kind == "distribution":
        return targets
    return torch.nn.functional.one_hot(targets, like.shape[-1]).to(like.dtype)


def _cross_entropy(outputs: Tensor, targets: Tensor, kind: Kind) -> Tensor:
    """-Σ_j π_j log softmax_j."""
    log_p = torch.log_softmax(outputs, -1)
    if kind == "class":
        return -log_p.gather(-1, targets[..., None])[..., 0]
    return -(targets * log_p).sum(-1)


def _cross_entropy_as_coded(outputs: Tensor, targets: Tensor, kind: Kind) -> Tensor:
    """-log(softmax + 1e-12), the floor that Dana et al.'s code puts under the logarithm."""
    p = torch.softmax(outputs, -1).gather(-1, targets[..., None])[..., 0]
    return -torch.log(p + 1e-12)


def _kl(outputs: Tensor, targets: Tensor, kind: Kind) -> Tensor:
    """KL(π || softmax) = Σ_j π_j (log π_j - log softmax_j), with 0 log 0 = 0."""
    if kind == "class":
        return _cross_entropy(outputs, targets, kind)
    log_p = torch.log_softmax(outputs, -1)
    return (torch.special.xlogy(targets, targets) - targets * log_p).sum(-1)


def _mse(outputs: Tensor, targets: Tensor, kind: Kind) -> Tensor:
    """|output - y|² / m for values; Σ_j (softmax_j - π_j)² for classes and distributions."""
    if kind == "value":
        return (outputs - targets).square().mean(-1)
    return (torch.softmax(outputs, -1) - _probabilities(targets, kind, outputs)).square().sum(-1)


def _total_variation(outputs: Tensor, targets: Tensor, kind: Kind) -> Tensor:
    """½ Σ_j |softmax_j - π_j|."""
    return 0.5 * (torch.softmax(outputs, -1) - _probabilities(targets, kind, outputs)).abs().sum(-1)


def _hinge(outputs: Tensor, targets: Tensor, kind: Kind) -> Tensor:
    """max(0, 1 - margin), margin = logit of the right answer minus the largest other."""
    margins = answer_margins(outputs.flatten(0, -2), targets.flatten())
    return torch.relu(1 - margins).view(targets.shape)


# The loss of every example, and the kinds of targets that it takes.
LOSSES: dict[str, tuple[Rows, tuple[Kind, ...]]] = {
    "cross-entropy": (_cross_entropy, ("class", "distribution")),
    "cross-entropy-as-coded": (_cross_entropy_as_coded, ("class",)),
    "kl": (_kl, ("class", "distribution")),
    "mse": (_mse, ("class", "distribution", "value")),
    "total-variation": (_total_variation, ("class", "distribution")),
    "hinge": (_hinge, ("class",)),
}


def right(outputs: Tensor, targets: Tensor, kind: Kind, tolerance: float) -> Tensor:
    """Which examples are memorized, (models, B): the arg-max is the class (the likeliest class of
    a distribution), or every value is within `tolerance`."""
    if kind == "value":
        return (outputs - targets).abs().amax(-1) <= tolerance
    wanted = targets if kind == "class" else targets.argmax(-1)
    # NaN wins an arg-max: a model that diverged has nothing right.
    return (outputs.argmax(-1) == wanted) & ~outputs.isnan().any(-1)
