"""A run on disk, in one safetensors file that is replaced whole: nothing in it can run code.

A checkpoint is a record (JSON) and named tensors, together everything that decides what the run
does next; `identity` says what run it belongs to, and a run of anything else refuses it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as dump_tensors
from torch import Tensor

from byheart._folders import write_bytes
from byheart.errors import ByheartError, MemoryFileError
from byheart.training.data import Data

SCHEMA = 1
Named = dict[str, Tensor]
Record = dict[str, Any]


def check_file(file: Path) -> None:
    """Refuse a path that cannot hold a file, before any work is done for it."""
    if file.is_dir() or not file.parent.is_dir():
        found = "a folder" if file.is_dir() else f"no folder {file.parent}"
        raise MemoryFileError(f"the checkpoint {file} must be a file in a folder, found {found}")


def data_digest(data: Data) -> str:
    """Names the examples: any changed bit gives another digest."""
    content = hashlib.sha256()
    for tensor in (data.inputs, data.targets, data.context, data.rows):
        if tensor is not None:
            content.update(str(tuple(tensor.shape)).encode())
            content.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return content.hexdigest()


def digest(named: Named, text: str = "") -> str:
    """Names the content of some tensors and a text: any changed bit gives another digest."""
    content = hashlib.sha256(text.encode())
    for name in sorted(named):
        tensor = named[name].detach().cpu().contiguous()
        content.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        content.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return content.hexdigest()


def save(file: Path, identity: dict[str, object], record: Record, tensors: Named) -> None:
    """Write the checkpoint to a temporary name, then rename."""
    payload = {k: t.detach().cpu().contiguous().clone() for k, t in tensors.items()}
    text = json.dumps({"schema": SCHEMA, "identity": identity, **record})
    try:
        write_bytes(file, dump_tensors(payload, {"byheart": text, "sha256": digest(payload, text)}))
    except OSError as error:
        raise MemoryFileError(f"{file} cannot be written: {error.strerror}.") from error


def load(file: Path, identity: dict[str, object]) -> tuple[Record, Named]:
    """Read a checkpoint and refuse one of another run, naming what differs."""
    try:
        with safe_open(file, framework="pt") as content:
            metadata = content.metadata() or {}
            record = json.loads(metadata.get("byheart", "null"))
            tensors: Named = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise MemoryFileError(
            f"{file}: not a readable checkpoint ({error}). Delete it to start again."
        ) from None
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        raise MemoryFileError(
            f"{file}: not a checkpoint of this version. Delete it to start again."
        )
    if metadata.get("sha256") != digest(tensors, metadata["byheart"]):
        raise MemoryFileError(f"{file}: a damaged checkpoint. Delete it to start again.")
    known = json.loads(json.dumps(identity))
    other = [name for name in known if record["identity"].get(name) != known[name]]
    if other:
        raise ByheartError(
            f"{file}: a checkpoint of another run: {', '.join(other)} differ. Delete it to start "
            "again, or give another file."
        )
    return record, tensors


def part(tensors: Named, prefix: str) -> Named:
    """The tensors whose names begin with `prefix`, without it."""
    return {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}
