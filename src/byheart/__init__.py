"""byheart: how much a Transformer can memorize, as software.

Facts go in; a memory comes out, built or trained; a certificate proves it.

>>> import byheart as bh
>>> memory = bh.build({("France", "capital"): "Paris", ("Japan", "currency"): "yen"})
>>> memory.recall("Japan", "currency").answer
'yen'
>>> bh.certify(memory).certified
True

Public names are loaded when first used, so that `import byheart` and `byheart --help` stay fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from byheart._lazy import attach
from byheart._version import __version__

if TYPE_CHECKING:
    from byheart._folders import locked
    from byheart.audits import AuditSettings, audit
    from byheart.certificates import Certificate, certify, check_memory
    from byheart.construct import (
        Associative,
        AttentionOnly,
        DistributionAttention,
        MultiHead,
        Sharded,
        SquareRoot,
    )
    from byheart.construct.disguise import Disguise, disguise
    from byheart.construct.sharded.edit import edit
    from byheart.errors import ByheartError
    from byheart.exports import export, import_memory
    from byheart.facts import (
        Distributions,
        Facts,
        VectorFacts,
        Vocabulary,
        as_facts,
        digit_vectors,
        random_associations,
        random_distributions,
        random_vectors,
        read_distributions,
        read_facts,
        read_vectors,
    )
    from byheart.interpret.benchmark import localise
    from byheart.interpret.edits import edit_benchmark
    from byheart.measure import accuracy, head_statistics, kruskal_report
    from byheart.methods import Method, build
    from byheart.models import (
        DisguisedMemory,
        DistributionMemory,
        ExactMemory,
        Memory,
        ShardedMemory,
        TokenMemory,
        VectorMemory,
        load,
    )
    from byheart.models.memory import owner
    from byheart.papers.registry import reproduce
    from byheart.reports.write import explore, report
    from byheart.specs import AssociativeSpec, AttentionOnlySpec, MultiHeadSpec, Spec
    from byheart.studies import Study
    from byheart.theory import bounds, size
    from byheart.training import Recipe, Train, capacity, smallest, train, train_stack

__all__ = [
    "Associative", "AssociativeSpec", "AttentionOnly", "AttentionOnlySpec", "AuditSettings",
    "ByheartError", "Certificate", "Disguise", "DisguisedMemory", "DistributionAttention",
    "DistributionMemory", "Distributions", "ExactMemory", "Facts", "Memory", "Method", "MultiHead",
    "MultiHeadSpec", "Recipe", "Sharded", "ShardedMemory", "Spec", "SquareRoot", "Study",
    "TokenMemory", "Train", "VectorFacts", "VectorMemory", "Vocabulary", "__version__", "accuracy",
    "as_facts", "audit", "bounds", "build", "capacity", "certify", "check_memory", "digit_vectors",
    "disguise", "edit", "edit_benchmark", "explore", "export", "head_statistics", "import_memory",
    "kruskal_report", "load", "localise", "locked", "owner", "random_associations",
    "random_distributions", "random_vectors", "read_distributions", "read_facts", "read_vectors",
    "report", "reproduce", "size", "smallest", "train", "train_stack",
]  # fmt: skip
__getattr__, __dir__ = attach(__name__)
