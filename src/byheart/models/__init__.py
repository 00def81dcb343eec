"""The architectures, one file each, and `Memory`: an architecture with weights and a vocabulary.

The sizes live in `byheart.specs`. Every architecture module offers
`forward(spec, weights, tokens)` with a leading model axis, and a slow oracle where the fast path
is not obvious. `memory_files` alone knows how a memory lies on disk.
"""

from byheart.models.memory import Memory, Recall
from byheart.models.memory_files import load
from byheart.models.vector_memory import VectorMemory
from byheart.specs import AssociativeSpec, AttentionOnlySpec

__all__ = ["AssociativeSpec", "AttentionOnlySpec", "Memory", "Recall", "VectorMemory", "load"]
