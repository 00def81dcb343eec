"""What a memory does: accuracy, margins, and which head carries which answer."""

from byheart.measure.distribution import (
    Losses,
    encoder_bounds,
    losses,
    memory_losses,
    recalled_distribution,
)
from byheart.measure.heads import HeadSplit, Owner, head_split, owner
from byheart.measure.recall import accuracy, margin_quantiles

__all__ = [
    "HeadSplit",
    "Losses",
    "Owner",
    "accuracy",
    "encoder_bounds",
    "head_split",
    "losses",
    "margin_quantiles",
    "memory_losses",
    "owner",
    "recalled_distribution",
]
