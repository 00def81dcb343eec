"""The architectures, one file each, and `Memory`: an architecture with weights and a vocabulary.

Every architecture module offers a frozen spec (with `parameters`, `weight_shapes`, `row_bytes`),
`forward(spec, weights, tokens)` with a leading model axis, and a slow oracle where the fast path
is not obvious. `memory_files` alone knows how a memory lies on disk.
"""

from byheart.models.associative import AssociativeSpec
from byheart.models.attention_only import AttentionOnlySpec
from byheart.models.memory import Memory, Recall
from byheart.models.memory_files import load

__all__ = ["AssociativeSpec", "AttentionOnlySpec", "Memory", "Recall", "load"]
