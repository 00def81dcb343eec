"""Theorem -> weights: memories made without training.

`methods` are the methods with their options; `dense`,
`sharded/`, `associative`, `square_root`, `multi_head/` and `distribution` the constructions behind
them, `frames` the unembeddings, `solve` the linear algebra, `choose` the sizes.
"""

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
