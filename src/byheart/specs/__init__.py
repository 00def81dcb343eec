"""Specs: frozen dataclasses that fix an architecture and know its parameter count, one file each.

Nothing here imports torch: theory answers questions about specs without it.
"""

from byheart.specs.associative import AssociativeSpec
from byheart.specs.attention_only import AttentionOnlySpec
from byheart.specs.base import Spec, TokenSpec
from byheart.specs.deep_multi_head import DeepMultiHeadSpec
from byheart.specs.exact import ExactSpec
from byheart.specs.feed_forward import FeedForwardTransformerSpec
from byheart.specs.mlp_transformer import MLPTransformerSpec
from byheart.specs.multi_head import MultiHeadSpec
from byheart.specs.sequence_encoder import SequenceEncoderSpec
from byheart.specs.sharded import GATES, Gate, ShardedSpec
from byheart.specs.shared_bottleneck import SharedBottleneckSpec
from byheart.specs.transformer import TransformerSpec

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
    "MLPTransformerSpec",
    "MultiHeadSpec",
    "SequenceEncoderSpec",
    "ShardedSpec",
    "SharedBottleneckSpec",
    "Spec",
    "TokenSpec",
    "TransformerSpec",
]
