"""How a memory lies on disk: one folder, written whole or not at all (docs/formats.md).

What the files hold is up to the family; that they belong together is checked here. Only
safetensors, JSON and the integers of network.bin are read: nothing in a folder can run code.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as load_tensors

from byheart._folders import read_whole, write_text
from byheart._plugins import load_plugin, points
from byheart._version import __version__
from byheart.errors import ByheartError, FactsError, MemoryFileError
from byheart.models.devices import on_cpu
from byheart.models.folder import (
    FACTS,
    INDEX,
    MEMORY,
    SCHEMA,
    WEIGHTS,
    Layouts,
    Record,
    check_tensors,
    read_file,
    read_record,
)
from byheart.models.memory import Memory

# Family -> where its memories are: "module:class". A name after a slash is a kind of construction
# with memories of its own.
FAMILIES = {
    "attention-only": "byheart.models.token_memory:TokenMemory",
    "attention-only/distribution": "byheart.models.token_memory:DistributionMemory",
    "attention-only/disguise": "byheart.models.disguised_memory:DisguisedMemory",
    "associative": "byheart.models.token_memory:TokenMemory",
    "mlp-transformer": "byheart.models.token_memory:TokenMemory",
    "shared-bottleneck": "byheart.models.token_memory:TokenMemory",
    "sharded": "byheart.models.sharded_memory:ShardedMemory",
    "multi-head": "byheart.models.vector_memory:VectorMemory",
    "sqrt": "byheart.models.exact_memory:ExactMemory",
}


def register_memory(memory: type[Memory]) -> None:
    """Let folders of another package's families be opened: those of the specs of `memory`."""
    for spec in memory.specs:
        FAMILIES[spec.family] = f"{memory.__module__}:{memory.__qualname__}"


def memory_class(record: Record) -> type[Memory]:
    """The class of the memory that a description is of; other packages name theirs by the entry
    points `byheart.memories`: family -> class."""
    family, made = str(record["family"]), record.get("construction")
    kind = made.get("kind") if isinstance(made, dict) else None
    if path := FAMILIES.get(f"{family}/{kind}") or FAMILIES.get(family):
        module, name = path.split(":")
        return getattr(import_module(module), name)
    for point in points("byheart.memories"):
        memory = load_plugin(point) if point.name == family else None
        if isinstance(memory, type) and issubclass(memory, Memory):
            return memory
    raise MemoryFileError(
        f"a memory of the unknown family {family!r}: known are {', '.join(FAMILIES)}. Install "
        "the package that wrote it, or a newer byheart."
    )


def write_files(memory: Memory, target: Path, *, with_facts: bool = True) -> None:
    """The files of `memory` into the existing, empty folder `target`."""
    files = memory.weight_files()
    facts = memory.facts_file() if with_facts else None
    if facts is not None:
        files[FACTS] = facts
    versions = {"byheart": __version__, "torch": torch.__version__, "numpy": np.__version__}
    record = {
        "kind": "byheart memory",
        "schema": SCHEMA,
        "family": memory.spec.family,
        "spec": memory.spec.to_json(),
        "construction": memory.construction.to_json(),
        "versions": versions | {"python": platform.python_version()},
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
        **memory.record(),
    }
    record["digest"] = _digest(record)
    for name, data in files.items():
        (target / name).write_bytes(data)
    write_text(target / MEMORY, json.dumps(record, ensure_ascii=False, indent=1) + "\n")


def _digest(record: Record) -> str:
    content = {key: value for key, value in record.items() if key != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class LoadedMemory:
    """A memory, what its files say of themselves, and every way in which they disagree."""

    memory: Memory
    record: Record
    damage: tuple[str, ...]


@on_cpu
def load(folder: str | Path, *, lazy: bool = False) -> Memory:
    """The memory in `folder`; a `MemoryFileError` if a file is missing, damaged or changed.

    `lazy` (sharded memories): W_O and the facts are mapped, not read or hashed;
    `ShardedMemory.check_shard` then checks the shards that are used.

    >>> import byheart as bh, tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp()) / "elements"
    >>> _ = bh.build("elements").save(folder)
    >>> bh.load(folder).recall("Fe", "name").answer
    'iron'
    """
    loaded = inspect(folder, lazy=lazy)
    if loaded.damage:
        raise MemoryFileError(
            f"{folder}: {'; '.join(loaded.damage)}. "
            "The memory is not the one that was built: restore it from a copy or build it again."
        )
    return loaded.memory


def inspect(folder: str | Path, *, lazy: bool = False) -> LoadedMemory:
    """Like `load`, but files that can still be read although they were changed are reported in
    `damage` instead of refused, so that `certify` can say which facts they still hold."""
    return read_whole(folder, lambda: _inspect(Path(folder), lazy))


def _inspect(path: Path, lazy: bool) -> LoadedMemory:
    record = read_record(path)
    damage = [] if record.get("digest") == _digest(record) else [f"{MEMORY} was changed by hand"]
    try:
        kind = memory_class(record)
    except ByheartError as error:
        raise MemoryFileError(f"{path}: {error}") from None
    try:
        layouts = kind.layouts(record)
        files, others = _read(path, record["sha256"], layouts, lazy)
        memory = kind.from_files(record, files)
        damage += others
        damage += [] if lazy and INDEX in files else _other_facts(memory, record)
    except MISFITS as error:
        raise MemoryFileError(
            f"{path}: the files do not belong together: {error}. "
            "Restore the folder from a copy or build the memory again."
        ) from None
    return LoadedMemory(memory, record, tuple(damage))


# What contradictions between files come out as, in the families of other packages too.
MISFITS = (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError, FactsError)


def _read(
    folder: Path, sums: Mapping[str, str], layouts: Layouts, lazy: bool
) -> tuple[dict[str, dict[str, torch.Tensor] | bytes], list[str]]:
    """The files that the family knows, no others, and which of them differ from their sums. What a
    file says of its size is compared with the spec before it is read."""
    odd = sorted((sums.keys() - layouts.keys()) | (layouts.keys() - sums.keys() - {FACTS}))
    if odd:
        known = ", ".join(sorted(layouts))
        raise ValueError(f"expected the SHA-256 of {known} in {MEMORY}, found {', '.join(sums)}")
    mapped = {WEIGHTS, FACTS} if lazy and INDEX in sums else set()
    files, damage = {}, []
    for name, digest in sums.items():
        layout = layouts[name]
        size = layout if isinstance(layout, int) else check_tensors(folder, name, layout)
        data = None if name in mapped else read_file(folder, name, size)
        if data is not None and hashlib.sha256(data).hexdigest() != digest:
            damage.append(f"{name} differs from the SHA-256 in {MEMORY}")
        raw = isinstance(layout, int) and data is not None
        files[name] = data if raw else _tensors(folder / name, data)
    return files, damage


def _other_facts(memory: Memory, record: Record) -> list[str]:
    """Facts that are not those which the description names."""
    facts, table, damage = memory.facts, memory.table, []
    if facts is not None and facts.digest() != record["facts"]["digest"]:
        damage.append(f"{FACTS} holds other facts than {MEMORY} says")
    digest = (record.get("distribution") or {}).get("digest")
    if table is not None and table is not facts and table.digest() != digest:
        damage.append(f"{FACTS} holds other distributions than {MEMORY} says")
    return damage


def _tensors(file: Path, data: bytes | None) -> dict[str, torch.Tensor]:
    """Tensors in the bytes of a file; without them, backed by the file: only what is used is
    read."""
    try:
        if data is not None:
            return load_tensors(data)
        with safe_open(file, "pt") as opened:
            return {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise MemoryFileError(
            f"{file}: not a complete safetensors file ({error}); it was truncated or overwritten. "
            "Restore it from a copy or build the memory again."
        ) from None
    except OSError as error:
        raise MemoryFileError(f"{file}: cannot be read: {error}.") from None
