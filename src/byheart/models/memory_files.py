"""How a memory lies on disk: one folder, written whole or not at all.

    memory.json           schema, spec, vocabulary, construction, versions, SHA-256 of the others
    weights.safetensors   the weights, exactly as evaluated (sharded memories: W_O only)
    index.safetensors     sharded memories: all other weights, and a SHA-256 of each shard's W_O
    network.bin           exact memories: their integers, in place of the weights (exact/files.py)
    facts.safetensors     token ids, answers, prior, rows (absent with `with_facts=False`);
                          support and probabilities where keys have several right answers;
                          vector memories: query, label, rows, and contexts that are not shared
    certificate.json      written by `byheart.certificates`, if a certificate was made

Only safetensors, JSON and the integers of network.bin are read: nothing in a memory folder can run
code.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as load_tensors
from safetensors.torch import save as dump_tensors

from byheart._folders import new_folder, write_text
from byheart._version import __version__
from byheart.errors import ByheartError, MemoryFileError
from byheart.exact import files as exact_files
from byheart.facts import Distributions, Facts, Vocabulary
from byheart.models import vector_parts
from byheart.models.distribution_files import (
    DISTRIBUTION_TENSORS,
    distribution_record,
    distribution_tensors,
    loaded_distribution,
)
from byheart.models.exact import ExactMemory, assemble
from byheart.models.memory import FAMILIES, Memory
from byheart.models.vector_memory import VectorMemory
from byheart.specs import ExactSpec, MultiHeadSpec, ShardedSpec

AnyMemory = Memory | VectorMemory | ExactMemory

SCHEMA = 1
MEMORY, WEIGHTS, FACTS = "memory.json", "weights.safetensors", "facts.safetensors"
INDEX = "index.safetensors"
DIGESTS = "shard_sha256"  # (shards, 32) bytes, in the index


def save(
    memory: AnyMemory,
    folder: str | Path,
    *,
    force: bool = False,
    with_facts: bool = True,
) -> Path:
    """Write `memory` to `folder`, atomically.

    The files are written to a temporary folder beside it, which is then renamed: an interrupted
    save leaves nothing, and `force` swaps an existing memory (never another kind of folder) in
    one step.
    """
    with new_folder(folder, marker=MEMORY, force=force) as target:
        write_files(memory, target, with_facts=with_facts)
    return Path(folder)


def write_files(memory: AnyMemory, target: Path, *, with_facts: bool = True) -> None:
    """The files of `memory` into the existing, empty folder `target`."""
    files = weight_files(memory)
    if isinstance(memory, VectorMemory):
        if memory.facts is not None and with_facts:
            files[FACTS] = dump_tensors(vector_parts.facts_tensors(memory.facts))
        own = vector_parts.record_of(memory)
    else:
        if memory.facts is not None and with_facts:
            files[FACTS] = _facts_file(memory.facts, getattr(memory, "distribution", None))
        own = _own_record(memory)
    record: dict[str, Any] = {
        "kind": "byheart memory",
        "schema": SCHEMA,
        "family": memory.spec.family,
        "spec": memory.spec.to_json(),
        "construction": dict(memory.construction),
        "versions": {
            "byheart": __version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
        **own,
    }
    record["digest"] = _digest(record)
    for name, data in files.items():
        (target / name).write_bytes(data)
    write_text(target / MEMORY, json.dumps(record, ensure_ascii=False, indent=1) + "\n")


def _facts_file(facts: Facts, table: Distributions | None) -> bytes:
    arrays = {"tokens": facts.tokens, "answers": facts.answers, "rows": facts.rows}
    tensors = {k: torch.from_numpy(a.astype(np.int32)) for k, a in arrays.items()}
    tensors["prior"] = torch.from_numpy(facts.prior.copy())
    return dump_tensors(tensors | distribution_tensors(table))


def _own_record(memory: Memory | ExactMemory) -> dict[str, Any]:
    """The fields of `memory.json` that a memory of tokens has of its own."""
    return {
        "start_id": memory.start_id,
        "pad_id": memory.pad_id,
        "order": memory.order,
        "facts": None if memory.facts is None else _facts_record(memory.facts),
        "distribution": distribution_record(getattr(memory, "distribution", None)),
        "vocabulary": list(memory.vocabulary.tokens),
    }


def weight_files(memory: AnyMemory) -> dict[str, bytes]:
    """The files that hold the weights. Sharded memories keep W_O apart, so that recall can map it
    and read its own shard only; each shard has a digest of its own."""
    if isinstance(memory, VectorMemory):
        return {WEIGHTS: dump_tensors(vector_parts.tensors_of(memory))}
    if isinstance(memory, ExactMemory):
        return {exact_files.NAME: exact_files.dump(memory.parts)}
    weights = {k: w.contiguous() for k, w in memory.weights.items()}
    if not isinstance(memory.spec, ShardedSpec):
        return {WEIGHTS: dump_tensors(weights)}
    W_O = weights.pop("W_O")
    weights.pop(DIGESTS, None)
    start = weights["head_start"].tolist()
    sums = [shard_sha256(W_O, a, b) for a, b in pairwise(start)]
    weights[DIGESTS] = torch.frombuffer(bytearray(b"".join(sums)), dtype=torch.uint8).view(-1, 32)
    return {WEIGHTS: dump_tensors({"W_O": W_O}), INDEX: dump_tensors(weights)}


def shard_sha256(W_O: torch.Tensor, a: int, b: int) -> bytes:
    """SHA-256 of the bytes of heads a..b-1."""
    return hashlib.sha256(W_O[a:b].contiguous().view(torch.uint8).numpy().tobytes()).digest()


def weights_sha256(memory: AnyMemory) -> str:
    """SHA-256 of `weights.safetensors` as `save` writes it; of the sums of both files if there
    are two."""
    sums = [hashlib.sha256(data).hexdigest() for data in weight_files(memory).values()]
    return sums[0] if len(sums) == 1 else hashlib.sha256("".join(sums).encode()).hexdigest()


def _facts_record(facts: Facts) -> dict[str, Any]:
    return {
        "count": facts.T,
        "vocabulary": facts.N,
        "digest": facts.digest(),
        "name": facts.name,
        "columns": facts.columns,
        "answer_column": facts.answer_column,
        "merged": facts.merged,
        "skipped": facts.skipped,
    }


def _digest(record: dict[str, Any]) -> str:
    content = {key: value for key, value in record.items() if key != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class LoadedMemory:
    """A memory, what its files say of themselves, and every way in which they disagree."""

    memory: Memory
    record: dict[str, Any]
    damage: tuple[str, ...]


def load(folder: str | Path, *, lazy: bool = False) -> Memory:
    """The memory in `folder`; a `MemoryFileError` if a file is missing, damaged or changed.
    A folder of the multi-head family gives a `VectorMemory`.

    `lazy` (sharded memories): W_O is mapped, not read or hashed, and the facts are left out;
    `check_shard` then checks the shards that are used.

    >>> import byheart as bh, tempfile, pathlib
    >>> place = pathlib.Path(tempfile.mkdtemp()) / "elements"
    >>> _ = bh.build(bh.read_facts("elements")).save(place)
    >>> bh.load(place).recall("Fe", "name").answer
    'iron'
    """
    loaded = inspect(folder, lazy=lazy)
    if loaded.damage:
        raise MemoryFileError(
            f"{folder}: {'; '.join(loaded.damage)}. "
            "The memory is not the one that was built: restore it from a copy or build it again."
        )
    return loaded.memory


def check_shard(memory: Memory, shard: int) -> None:
    """Refuse a lazily loaded memory whose shard is not the one that was written."""
    a, b = memory.weights["head_start"][shard : shard + 2].tolist()
    if (
        shard_sha256(memory.weights["W_O"], a, b)
        != memory.weights[DIGESTS][shard].numpy().tobytes()
    ):
        raise MemoryFileError(
            f"shard {shard} of {WEIGHTS} differs from its SHA-256 in {INDEX}: it was changed. "
            "Restore the memory from a copy or build it again."
        )


def inspect(folder: str | Path, *, lazy: bool = False) -> LoadedMemory:
    """Like `load`, but files that can still be read although they were changed are reported in
    `damage` instead of refused, so that `certify` can say which facts they still hold."""
    place = Path(folder)
    record = _read_record(place)
    damage = [] if record.get("digest") == _digest(record) else [f"{MEMORY} was changed by hand"]
    tensors, sums = {}, record["sha256"]
    for name in sums:
        if lazy and INDEX in sums and name == FACTS:
            continue
        if lazy and INDEX in sums and name == WEIGHTS:
            tensors[name] = _mapped(place, name)
            continue
        data = _read(place, name)
        if hashlib.sha256(data).hexdigest() != sums[name]:
            damage.append(f"{name} differs from the SHA-256 in {MEMORY}")
        if name == exact_files.NAME:
            tensors[name] = exact_files.load(data)
            continue
        try:
            tensors[name] = load_tensors(data)
        except SafetensorError as error:
            raise _incomplete(place / name, error) from None
    try:
        memory = _assemble(record, tensors)
        facts = memory.facts
        if facts is not None and facts.digest() != record["facts"]["digest"]:
            damage.append(f"{FACTS} holds other facts than {MEMORY} says")
        table: Distributions | None = getattr(memory, "distribution", None)
        if table is not None:
            known = record.get("distribution") or {}
            if table.digest() != known.get("digest"):
                damage.append(f"{FACTS} holds other distributions than {MEMORY} says")
    except (KeyError, TypeError, ValueError, IndexError, ByheartError) as error:
        raise MemoryFileError(
            f"{place}: the files do not belong together: {error}. "
            "Restore the folder from a copy or build the memory again."
        ) from None
    return LoadedMemory(memory, record, tuple(damage))


def _mapped(place: Path, name: str) -> dict[str, torch.Tensor]:
    """Tensors backed by the file: only what is used is read."""
    try:
        with safe_open(place / name, "pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise _incomplete(place / name, error) from None
    except OSError as error:
        raise MemoryFileError(f"{place / name}: cannot be read: {error}.") from None


def _incomplete(path: Path, error: Exception) -> MemoryFileError:
    return MemoryFileError(
        f"{path}: not a complete safetensors file ({error}); it was truncated or overwritten. "
        "Restore it from a copy or build the memory again."
    )


def _read(place: Path, name: str) -> bytes:
    try:
        return (place / name).read_bytes()
    except FileNotFoundError:
        raise MemoryFileError(
            f"{place}: {name} is missing. A memory folder holds {MEMORY} and {WEIGHTS}: "
            "give the folder that `byheart build -o DIR` wrote."
        ) from None
    except OSError as error:
        raise MemoryFileError(f"{place / name}: cannot be read: {error.strerror}.") from None


def _read_record(place: Path) -> dict[str, Any]:
    if not place.is_dir():
        raise MemoryFileError(
            f"{place}: no such memory folder. `byheart build FACTS -o DIR` makes one."
        )
    record = None
    # UnicodeDecodeError and JSONDecodeError are ValueErrors.
    with contextlib.suppress(ValueError, RecursionError):
        record = json.loads(_read(place, MEMORY).decode())
    if not isinstance(record, dict) or record.get("kind") != "byheart memory":
        raise MemoryFileError(
            f"{place / MEMORY}: not the description of a byheart memory (truncated or overwritten)."
        )
    schema = record.get("schema")
    if not isinstance(schema, int) or schema > SCHEMA:
        raise MemoryFileError(
            f"{place / MEMORY}: schema version {schema}, this byheart ({__version__}) reads up to "
            f"{SCHEMA}. Install a newer byheart."
        )
    missing = {"family", "spec", "sha256", "vocabulary", "facts"} - record.keys()
    families = {*FAMILIES, ExactSpec.family}
    if missing or not isinstance(record["sha256"], dict) or str(record["family"]) not in families:
        raise MemoryFileError(
            f"{place / MEMORY}: fields missing or not understood: "
            f"{', '.join(sorted(missing)) or 'sha256, family'}. Restore it from a copy."
        )
    return record


def _assemble(record: dict[str, Any], tensors: dict[str, Any]) -> Memory:
    if record["family"] == MultiHeadSpec.family:
        # Typed as the common case, so that token memories need no narrowing everywhere.
        vectors = vector_parts.assemble(record, tensors[WEIGHTS], tensors.get(FACTS))
        return cast(Memory, vectors)
    exact = record["family"] == ExactSpec.family
    family: Any = ExactSpec if exact else FAMILIES[record["family"]][0]
    spec = family(**record["spec"])
    vocabulary = Vocabulary(tuple(record["vocabulary"]))
    if len(vocabulary) != spec.N:
        raise ValueError(f"{len(vocabulary)} tokens in the vocabulary, N = {spec.N} in the spec")
    for name in ("start_id", "pad_id"):
        if record[name] is not None and not 0 <= record[name] < spec.N:
            raise ValueError(f"{name} = {record[name]} is no token of the vocabulary")
    keys = spec.S - (record["start_id"] is not None)
    if record["order"] is not None and sorted(record["order"]) != list(range(keys)):
        raise ValueError(f"order {record['order']} does not permute {keys} key columns")
    facts, distribution = None, None
    if FACTS in tensors:
        arrays = {k: t.numpy() for k, t in tensors[FACTS].items()}
        table = {k: arrays.pop(k) for k in DISTRIBUTION_TENSORS if k in arrays}
        known = record["facts"]
        own_tokens = known["vocabulary"]
        facts = Facts(
            **arrays,
            vocabulary=Vocabulary(vocabulary.tokens[:own_tokens]),
            name=known["name"],
            columns=None if known["columns"] is None else tuple(known["columns"]),
            answer_column=known["answer_column"],
            merged=known["merged"],
            skipped=known["skipped"],
            pad_id=record["pad_id"],
        )
        if facts.tokens.ndim != 2 or not len(facts.tokens) == len(facts.answers) == len(
            facts.prior
        ):
            raise ValueError("facts.safetensors has tables of unequal length")
        if facts.tokens.min() < 0 or facts.answers.min() < 0:
            raise ValueError("facts.safetensors has negative token ids")
        if max(facts.tokens.max(), facts.answers.max()) >= own_tokens:
            raise ValueError("facts.safetensors has token ids outside the vocabulary")
        distribution = loaded_distribution(facts, table, record.get("distribution"))
    if exact:  # asked and saved like any other memory, though its weights are no tensors
        return cast(Memory, assemble(record, tensors[exact_files.NAME], vocabulary, facts))
    return Memory(
        spec=spec,
        weights=tensors[WEIGHTS] | tensors.get(INDEX, {}),
        vocabulary=vocabulary,
        facts=facts,
        start_id=record["start_id"],
        pad_id=record["pad_id"],
        order=None if record["order"] is None else tuple(record["order"]),
        construction=record["construction"],
        distribution=distribution,
    )
