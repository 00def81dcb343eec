"""The architectures, one file each, and `Memory`: an architecture with weights that recalls.

The sizes live in `byheart.specs`. `architectures` finds an architecture's module by its family,
`memory` is the contract, `token_memory`, `sharded_memory`, `vector_memory` and `exact_memory` are
its families, `memory_files` the folder on disk.
"""

from typing import TYPE_CHECKING

from byheart._lazy import attach

if TYPE_CHECKING:
    from byheart.models.architectures import register_architecture
    from byheart.models.construction import Construction
    from byheart.models.description import Description
    from byheart.models.disguised_memory import DisguisedMemory
    from byheart.models.exact_memory import ExactMemory
    from byheart.models.memory import Memory, Recall, Split
    from byheart.models.memory_files import load, register_memory
    from byheart.models.owner import Owner, Owners
    from byheart.models.sharded_memory import ShardedMemory
    from byheart.models.token_memory import DistributionMemory, TokenMemory
    from byheart.models.vector_memory import VectorMemory

__all__ = [
    "Construction",
    "Description",
    "DisguisedMemory",
    "DistributionMemory",
    "ExactMemory",
    "Memory",
    "Owner",
    "Owners",
    "Recall",
    "ShardedMemory",
    "Split",
    "TokenMemory",
    "VectorMemory",
    "load",
    "register_architecture",
    "register_memory",
]
__getattr__, __dir__ = attach(__name__)
