"""byheart: how much a Transformer can memorize, as software.

Facts go in; a memory comes out, built or trained; a certificate proves it.

>>> import byheart as bh
>>> facts = bh.read_facts("countries")
>>> memory = bh.build(facts)
>>> memory.recall("Japan", "currency").answer
'yen'
>>> bh.certify(memory).certified
True

Public names are loaded when first used, so that `import byheart` and `byheart --help` stay fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from byheart._version import __version__

if TYPE_CHECKING:
    from byheart.audits import AuditSettings, audit
    from byheart.certificates import Certificate, certify
    from byheart.construct import build
    from byheart.construct.distribution import build_distribution
    from byheart.construct.exact import build_sqrt
    from byheart.construct.sharded.edit import edit
    from byheart.errors import ByheartError
    from byheart.exports import export_memory, import_memory
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
    from byheart.measure import accuracy, head_split, head_statistics, kruskal_report
    from byheart.models import Memory, VectorMemory, load
    from byheart.papers.reproduction import reproduce
    from byheart.reports.write import explore, report
    from byheart.specs import AssociativeSpec, AttentionOnlySpec, MultiHeadSpec
    from byheart.studies import Study
    from byheart.theory import bounds, size
    from byheart.training import Recipe, capacity, smallest, train, train_stack

_PUBLIC = {
    "AssociativeSpec": "byheart.specs",
    "AttentionOnlySpec": "byheart.specs",
    "AuditSettings": "byheart.audits",
    "ByheartError": "byheart.errors",
    "Certificate": "byheart.certificates",
    "Distributions": "byheart.facts",
    "Facts": "byheart.facts",
    "Memory": "byheart.models",
    "MultiHeadSpec": "byheart.specs",
    "Recipe": "byheart.training",
    "Study": "byheart.studies",
    "VectorFacts": "byheart.facts",
    "VectorMemory": "byheart.models",
    "Vocabulary": "byheart.facts",
    "accuracy": "byheart.measure",
    "as_facts": "byheart.facts",
    "audit": "byheart.audits",
    "bounds": "byheart.theory",
    "build": "byheart.construct",
    "build_distribution": "byheart.construct.distribution",
    "build_sqrt": "byheart.construct.exact",
    "capacity": "byheart.training",
    "certify": "byheart.certificates",
    "digit_vectors": "byheart.facts",
    "edit": "byheart.construct.sharded.edit",
    "explore": "byheart.reports.write",
    "export_memory": "byheart.exports",
    "head_split": "byheart.measure",
    "head_statistics": "byheart.measure",
    "import_memory": "byheart.exports",
    "kruskal_report": "byheart.measure",
    "load": "byheart.models",
    "random_associations": "byheart.facts",
    "random_distributions": "byheart.facts",
    "random_vectors": "byheart.facts",
    "read_distributions": "byheart.facts",
    "read_facts": "byheart.facts",
    "read_vectors": "byheart.facts",
    "report": "byheart.reports.write",
    "reproduce": "byheart.papers.reproduction",
    "size": "byheart.theory",
    "smallest": "byheart.training",
    "train": "byheart.training",
    "train_stack": "byheart.training",
}

__all__ = [
    "AssociativeSpec",
    "AttentionOnlySpec",
    "AuditSettings",
    "ByheartError",
    "Certificate",
    "Distributions",
    "Facts",
    "Memory",
    "MultiHeadSpec",
    "Recipe",
    "Study",
    "VectorFacts",
    "VectorMemory",
    "Vocabulary",
    "__version__",
    "accuracy",
    "as_facts",
    "audit",
    "bounds",
    "build",
    "build_distribution",
    "build_sqrt",
    "capacity",
    "certify",
    "digit_vectors",
    "edit",
    "explore",
    "export_memory",
    "head_split",
    "head_statistics",
    "import_memory",
    "kruskal_report",
    "load",
    "random_associations",
    "random_distributions",
    "random_vectors",
    "read_distributions",
    "read_facts",
    "read_vectors",
    "report",
    "reproduce",
    "size",
    "smallest",
    "train",
    "train_stack",
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        value = getattr(import_module(_PUBLIC[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'byheart' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
