"""What a memory folder is made of: the names of its files, its description, and what its tensors
must be, read and checked before anything large is.

Nothing here loads torch: a wrong path is refused before that.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from byheart._files import JSON_BYTES, open_regular, parse_json, read_regular
from byheart._folders import read_whole
from byheart._json import record as typed_record
from byheart._json import typed
from byheart._version import __version__
from byheart.errors import MemoryFileError, did_you_mean
from byheart.specs import Spec

if TYPE_CHECKING:
    from torch import Tensor

SCHEMA = 1
MEMORY, WEIGHTS, FACTS = "memory.json", "weights.safetensors", "facts.safetensors"
INDEX = "index.safetensors"  # sharded memories: everything but W_O
NETWORK = "network.bin"  # exact memories: their integers
DIGESTS = "shard_sha256"  # (shards, 32) bytes, in the index

MOST_HEADER_BYTES = 1 << 20  # of a safetensors file, whose tensors are at most some dozens
MOST_KEY = 1 << 20  # tokens of a key

Record = Mapping[str, Any]  # memory.json, which a family's `from_files` makes typed objects of
Files = Mapping[str, "dict[str, Tensor] | bytes"]  # safetensors as tensors, other files as bytes

ITEM_BYTES = {"F32": 4, "F64": 8, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1}
FLOATS, WHOLE = ("F32", "F64"), ("I8", "I16", "I32", "I64")
Sizes = tuple[int | range, ...]


@dataclass(frozen=True)
class TensorLayout:
    """The shapes (a range where the spec only bounds a size) and the number formats, as safetensors
    calls them, that one tensor may have."""

    shapes: tuple[Sizes, ...]
    dtypes: tuple[str, ...] = FLOATS

    def fits(self, dtype: str, shape: tuple[int, ...]) -> bool:
        return dtype in self.dtypes and any(_same(shape, sizes) for sizes in self.shapes)


def _same(shape: tuple[int, ...], sizes: Sizes) -> bool:
    pairs = zip(shape, sizes, strict=False)
    inside = (n in size if isinstance(size, range) else n == size for n, size in pairs)
    return len(shape) == len(sizes) and all(inside)


Layout = Mapping[str, TensorLayout]  # of a safetensors file: tensor by name
Layouts = Mapping[str, "Layout | int"]  # of a folder: file by name; others than safetensors: bytes


def tensors(
    shapes: Mapping[str, Sizes], dtypes: tuple[str, ...] = FLOATS
) -> dict[str, TensorLayout]:
    """Tensors of these shapes, all of one of these number formats."""
    return {name: TensorLayout((shape,), dtypes) for name, shape in shapes.items()}


@dataclass(frozen=True)
class _Description:
    """The fields of memory.json that every family has."""

    kind: str
    schema: int
    family: str
    spec: Mapping[str, object]
    sha256: Mapping[str, str]
    vocabulary: tuple[str, ...]
    construction: Mapping[str, object]
    facts: Mapping[str, object] | None = None
    distribution: Mapping[str, object] | None = None
    digest: str = ""


def read_record(folder: str | Path) -> dict[str, Any]:
    """The description of the memory in `folder`; a `MemoryFileError` says what is wrong with it."""
    return read_whole(folder, lambda: _read_record(Path(folder)))


def _read_record(path: Path) -> dict[str, Any]:
    if not os.path.isdir(path):
        near = [p.name for p in path.parent.glob("*") if (p / MEMORY).is_file()]
        hint = did_you_mean(path.name, near) or "`byheart build FACTS -o DIR` makes one."
        raise MemoryFileError(f"{path}: no such memory folder. {hint}")
    file = path / MEMORY
    record, reason = None, "it says so nowhere"
    text = read_file(path, MEMORY, JSON_BYTES)
    try:
        record = parse_json(text, "it", MemoryFileError)
    except MemoryFileError as error:
        reason = str(error).rstrip(".")
    if not isinstance(record, dict) or record.get("kind") != "byheart memory":
        raise MemoryFileError(
            f"{file}: not the description of a byheart memory, truncated or overwritten ({reason})."
        )
    schema = record.get("schema")
    if not isinstance(schema, int) or schema > SCHEMA:
        raise MemoryFileError(
            f"{file}: schema version {schema}, this byheart ({__version__}) reads up to {SCHEMA}. "
            "Install a newer byheart."
        )
    try:
        said = typed_record(record, _Description)
        _check_sums(said.sha256)
    except ValueError as error:
        raise MemoryFileError(f"{file}: {error}. Restore it from a copy.") from None
    return record


def _check_sums(sums: Mapping[str, str]) -> None:
    """Names of files in the folder itself, each with a SHA-256 in hexadecimal digits."""
    for name, digest in sums.items():
        if not re.fullmatch(r"[A-Za-z0-9_]+\.(safetensors|bin)", name, re.ASCII):
            raise ValueError(f"sha256: expected names such as {WEIGHTS}, found {name!r}")
        if not re.fullmatch("[0-9a-f]{64}", digest, re.ASCII):
            raise ValueError(f"sha256.{name}: expected 64 hexadecimal digits, found {digest!r}")


def read_file(folder: Path, name: str, limit: int) -> bytes:
    """The bytes of a file in a memory folder, which has at most `limit`."""
    _check_there(folder, name)
    return read_regular(folder / name, limit, MemoryFileError)


def _check_there(folder: Path, name: str) -> None:
    if not os.path.lexists(folder / name):
        raise MemoryFileError(
            f"{folder}: {name} is missing. A memory folder holds {MEMORY} and {WEIGHTS}: "
            "give the folder that `byheart build -o DIR` wrote."
        )


@dataclass(frozen=True)
class _Entry:
    """What the header of a safetensors file says of one tensor."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def check_tensors(folder: Path, name: str, layout: Layout) -> int:
    """The length of a safetensors file, of which the header alone is read: a `ValueError` unless it
    says exactly the tensors of `layout`, a `MemoryFileError` where it is broken."""
    _check_there(folder, name)
    with open_regular(folder / name, MemoryFileError) as file:
        try:
            header, size = _header(file)
        except (ValueError, MemoryFileError) as error:
            raise MemoryFileError(
                f"{folder / name}: not a complete safetensors file ({error}); it was truncated or "
                "overwritten. Restore it from a copy or build the memory again."
            ) from None
    if odd := sorted(header.keys() ^ layout.keys()):
        what = "is missing" if odd[0] in layout else "does not belong to this memory"
        raise ValueError(f"{name}: the tensor {odd[0]!r} {what}")
    for tensor, wanted in layout.items():
        dtype, shape = header[tensor].dtype, header[tensor].shape
        if not wanted.fits(dtype, shape):
            shapes = " or ".join(map(str, wanted.shapes))
            expected = f"expected {' or '.join(wanted.dtypes)} of shape {shapes}"
            raise ValueError(f"{name}, {tensor}: {expected}, found {dtype} of shape {shape}")
    return size


def _header(file: BinaryIO) -> tuple[dict[str, _Entry], int]:
    """What a safetensors file says of its tensors, whose bytes follow each other to its end, and
    its length."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, MOST_HEADER_BYTES):
        raise ValueError(f"a header of {length:,} bytes in {size:,}")
    content = parse_json(file.read(length), "its header", MemoryFileError, depth=4)
    tensors = typed(content, Mapping[str, object], "its header")
    tensors.pop("__metadata__", None)
    header = {name: typed(entry, _Entry, name) for name, entry in tensors.items()}
    at = 0
    for entry in sorted(header.values(), key=lambda entry: entry.data_offsets):
        begin, end = entry.data_offsets
        if begin != at or end - begin != math.prod(entry.shape) * ITEM_BYTES.get(entry.dtype, 0):
            raise ValueError(f"bytes {begin:,} to {end:,} for {entry.dtype} {entry.shape}")
        at = end
    if size != 8 + length + at:
        raise ValueError(f"{at:,} bytes of tensors expected, found {size - 8 - length:,}")
    return header, size


def check_shapes(spec: Spec, shapes: Mapping[str, Sizes], weights: Mapping[str, Tensor]) -> None:
    """Refuse weights that are not those of the spec, all of one number format."""
    for name in sorted(shapes.keys() | weights.keys()):
        found = tuple(weights[name].shape) if name in weights else "nothing"
        if found != shapes.get(name):
            expected = f"shape {shapes[name]}" if name in shapes else "no such tensor"
            raise ValueError(f"{name}: expected {expected} for {spec}, found {found}")
    if len({w.dtype for w in weights.values() if w.is_floating_point()}) != 1:
        raise ValueError("the weights have several number formats, or are no numbers")
