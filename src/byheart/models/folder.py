"""What a memory folder is made of: the names of its files, and its description, read and checked.

Nothing here loads torch: a wrong path is refused before that.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from byheart._folders import read_whole
from byheart._version import __version__
from byheart.errors import MemoryFileError, did_you_mean

if TYPE_CHECKING:
    from torch import Tensor

SCHEMA = 1
MEMORY, WEIGHTS, FACTS = "memory.json", "weights.safetensors", "facts.safetensors"
INDEX = "index.safetensors"  # sharded memories: everything but W_O
NETWORK = "network.bin"  # exact memories: their integers
DIGESTS = "shard_sha256"  # (shards, 32) bytes, in the index

Record = Mapping[str, Any]  # memory.json, which a family's `from_files` makes typed objects of
Files = Mapping[str, "dict[str, Tensor] | bytes"]  # safetensors as tensors, other files as bytes


def read_record(folder: str | Path) -> dict[str, Any]:
    """The description of the memory in `folder`; a `MemoryFileError` says what is wrong with it."""
    return read_whole(folder, lambda: _read_record(Path(folder)))


def _read_record(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        near = [p.name for p in path.parent.glob("*") if (p / MEMORY).is_file()]
        hint = did_you_mean(path.name, near) or "`byheart build FACTS -o DIR` makes one."
        raise MemoryFileError(f"{path}: no such memory folder. {hint}")
    record, file = None, path / MEMORY
    # UnicodeDecodeError and JSONDecodeError are ValueErrors.
    with contextlib.suppress(ValueError, RecursionError):
        record = json.loads(read_file(path, MEMORY).decode())
    if not isinstance(record, dict) or record.get("kind") != "byheart memory":
        raise MemoryFileError(
            f"{file}: not the description of a byheart memory (truncated or overwritten)."
        )
    schema = record.get("schema")
    if not isinstance(schema, int) or schema > SCHEMA:
        raise MemoryFileError(
            f"{file}: schema version {schema}, this byheart ({__version__}) reads up to {SCHEMA}. "
            "Install a newer byheart."
        )
    missing = {"family", "spec", "sha256", "vocabulary", "facts", "construction"} - record.keys()
    if missing or not isinstance(record["sha256"], dict):
        what = ", ".join(sorted(missing)) or "sha256"
        raise MemoryFileError(
            f"{file}: fields missing or not understood: {what}. Restore it from a copy."
        )
    return record


def read_file(folder: Path, name: str) -> bytes:
    """The bytes of a file in a memory folder."""
    try:
        return (folder / name).read_bytes()
    except FileNotFoundError:
        raise MemoryFileError(
            f"{folder}: {name} is missing. A memory folder holds {MEMORY} and {WEIGHTS}: "
            "give the folder that `byheart build -o DIR` wrote."
        ) from None
    except OSError as error:
        raise MemoryFileError(f"{folder / name}: cannot be read: {error.strerror}.") from None
