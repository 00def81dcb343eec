"""Specs: frozen dataclasses that fix an architecture and know its parameter count.

Nothing here imports torch: theory answers questions about specs without it.
"""

from byheart.specs.base import Spec, TokenSpec
from byheart.specs.tokens import (
    GATES,
    AssociativeSpec,
    AttentionOnlySpec,
    ExactSpec,
    Gate,
    MLPTransformerSpec,
    SequenceEncoderSpec,
    ShardedSpec,
    SharedBottleneckSpec,
)
from byheart.specs.vectors import (
    DeepMultiHeadSpec,
    FeedForwardTransformerSpec,
    LanguageModelSpec,
    MultiHeadSpec,
    TransformerSpec,
)

DTYPES: tuple[str, ...] = ("float32", "float64")
"""How weights may be stored: the names of torch's types."""

__all__ = [
    "DTYPES",
    "GATES",
    "AssociativeSpec",
    "AttentionOnlySpec",
    "DeepMultiHeadSpec",
    "ExactSpec",
    "FeedForwardTransformerSpec",
    "Gate",
    "LanguageModelSpec",
    "MLPTransformerSpec",
    "MultiHeadSpec",
    "SequenceEncoderSpec",
    "ShardedSpec",
    "SharedBottleneckSpec",
    "Spec",
    "TokenSpec",
    "TransformerSpec",
]
