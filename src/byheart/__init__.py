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
    from byheart.certificates import Certificate, certify
    from byheart.construct import build
    from byheart.construct.exact import build_sqrt
    from byheart.construct.sharded.edit import edit
    from byheart.errors import ByheartError
    from byheart.facts import Facts, Vocabulary, random_associations, read_facts
    from byheart.measure import accuracy, head_split
    from byheart.models import Memory, load
    from byheart.specs import AssociativeSpec, AttentionOnlySpec
    from byheart.theory import bounds, size

_PUBLIC = {
    "AssociativeSpec": "byheart.specs",
    "AttentionOnlySpec": "byheart.specs",
    "ByheartError": "byheart.errors",
    "Certificate": "byheart.certificates",
    "Facts": "byheart.facts",
    "Memory": "byheart.models",
    "Vocabulary": "byheart.facts",
    "accuracy": "byheart.measure",
    "bounds": "byheart.theory",
    "build": "byheart.construct",
    "build_sqrt": "byheart.construct.exact",
    "certify": "byheart.certificates",
    "edit": "byheart.construct.sharded.edit",
    "head_split": "byheart.measure",
    "load": "byheart.models",
    "random_associations": "byheart.facts",
    "read_facts": "byheart.facts",
    "size": "byheart.theory",
}

__all__ = [
    "AssociativeSpec",
    "AttentionOnlySpec",
    "ByheartError",
    "Certificate",
    "Facts",
    "Memory",
    "Vocabulary",
    "__version__",
    "accuracy",
    "bounds",
    "build",
    "build_sqrt",
    "certify",
    "edit",
    "head_split",
    "load",
    "random_associations",
    "read_facts",
    "size",
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        value = getattr(import_module(_PUBLIC[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'byheart' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
