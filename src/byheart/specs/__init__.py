"""Specs: frozen dataclasses that fix an architecture and know its parameter count, one file each.

Nothing here imports torch: theory answers questions about specs without it.
"""

from byheart.specs.associative import AssociativeSpec
from byheart.specs.attention_only import AttentionOnlySpec
from byheart.specs.exact import ExactSpec
from byheart.specs.feed_forward import FeedForwardTransformerSpec
from byheart.specs.multi_head import MultiHeadSpec
from byheart.specs.sharded import GATES, Gate, ShardedSpec
from byheart.specs.transformer import TransformerSpec

Spec = AttentionOnlySpec | AssociativeSpec | ShardedSpec

__all__ = [
    "GATES",
    "AssociativeSpec",
    "AttentionOnlySpec",
    "ExactSpec",
    "FeedForwardTransformerSpec",
    "Gate",
    "MultiHeadSpec",
    "ShardedSpec",
    "Spec",
    "TransformerSpec",
]
