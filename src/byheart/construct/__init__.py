"""Theorem -> weights: memories made without training. `methods` are the methods with their options,
the other modules the constructions behind them (docs/architecture.md)."""

from typing import TYPE_CHECKING

from byheart._lazy import attach

if TYPE_CHECKING:
    from byheart.construct.frames import coherence, frame
    from byheart.construct.methods import (
        Associative,
        AttentionOnly,
        DistributionAttention,
        MultiHead,
        Sharded,
        SquareRoot,
    )

__all__ = [
    "Associative",
    "AttentionOnly",
    "DistributionAttention",
    "MultiHead",
    "Sharded",
    "SquareRoot",
    "coherence",
    "frame",
]
__getattr__, __dir__ = attach(__name__)
