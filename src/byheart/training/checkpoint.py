"""A run on disk, in one safetensors file that is replaced whole: nothing in it can run code."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as dump_tensors
from torch import Tensor

from byheart._folders import write_bytes
from byheart.errors import ByheartError, MemoryFileError
from byheart.specs import Spec
from byheart.training.data import Data
from byheart.training.recipe import Recipe

SCHEMA = 1
Named = dict[str, Tensor]


@dataclass(frozen=True)
class State:
    """Everything that decides what the run does next."""

    step: int
    live: list[int]
    weights: Named
    moments: dict[str, Named]
    generators: list[Tensor]
    done: dict[int, tuple[Named, dict[str, Any]]]
    best: dict[int, tuple[float, float, Named]]
    diverged: dict[int, int]
    seconds: list[float]
    hits: list[Tensor]


def identity(
    spec: Spec, data: Data, recipe: Recipe, seeds: list[int], sample_seed: int, dtype: str
) -> dict[str, object]:
    """What a checkpoint belongs to: a run of anything else refuses it."""
    content = hashlib.sha256()
    for tensor in (data.inputs, data.targets, data.context, data.rows):
        if tensor is not None:
            content.update(str(tuple(tensor.shape)).encode())
            content.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return {
        "spec": {"family": spec.family, **spec.to_json()},
        "recipe": recipe.to_json(),
        "seeds": list(seeds),
        "sample_seed": sample_seed,
        "data": content.hexdigest(),
        "dtype": dtype,
    }


def save(file: Path, identity: dict[str, object], state: State) -> None:
    """Write the checkpoint to a temporary name, then rename."""
    tensors: Named = {f"weight.{k}": w for k, w in state.weights.items()}
    for key, named in state.moments.items():
        tensors |= {f"moment.{key}.{k}": w for k, w in named.items()}
    for m, source in enumerate(state.generators):
        tensors[f"generator.{m}"] = source
    for m, (named, _) in state.done.items():
        tensors |= {f"done.{m}.{k}": w for k, w in named.items()}
    for m, (_, _, named) in state.best.items():
        tensors |= {f"best.{m}.{k}": w for k, w in named.items()}
    if state.hits:
        tensors["hits"] = torch.stack(state.hits)
    record = {
        "schema": SCHEMA,
        "identity": identity,
        "step": state.step,
        "live": state.live,
        "done": {m: outcome for m, (_, outcome) in state.done.items()},
        "best": {m: score[:2] for m, score in state.best.items()},
        "diverged": state.diverged,
        "seconds": state.seconds,
    }
    payload = {k: t.detach().cpu().contiguous().clone() for k, t in tensors.items()}
    text = json.dumps(record)
    data = dump_tensors(payload, {"byheart": text, "sha256": digest(payload, text)})
    try:
        write_bytes(file, data)
    except OSError as error:
        raise MemoryFileError(f"{file} cannot be written: {error.strerror}.") from error


def check_file(file: Path) -> None:
    """Refuse a path that cannot hold a file, before any work is done for it."""
    if file.is_dir() or not file.parent.is_dir():
        found = "a folder" if file.is_dir() else f"no folder {file.parent}"
        raise MemoryFileError(f"the checkpoint {file} must be a file in a folder, found {found}")


def digest(named: Named, text: str = "") -> str:
    """Names the content of some tensors and a text: any changed bit gives another digest."""
    content = hashlib.sha256(text.encode())
    for name in sorted(named):
        tensor = named[name].detach().cpu().contiguous()
        content.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        content.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return content.hexdigest()


def load(file: Path, identity: dict[str, object]) -> State:
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
    moments: dict[str, Named] = {}
    for name in tensors:
        if name.startswith("moment."):
            _, key, weight = name.split(".", 2)
            moments.setdefault(key, {})[weight] = tensors[name]
    done = {int(m): (_part(tensors, f"done.{m}."), o) for m, o in record["done"].items()}
    best = {
        int(m): (float(a), float(loss), _part(tensors, f"best.{m}."))
        for m, (a, loss) in record["best"].items()
    }
    return State(
        step=record["step"],
        live=record["live"],
        weights=_part(tensors, "weight."),
        moments=moments,
        generators=[tensors[f"generator.{m}"] for m in range(len(known["seeds"]))],
        done=done,
        best=best,
        diverged={int(m): step for m, step in record["diverged"].items()},
        seconds=record["seconds"],
        hits=list(tensors["hits"]) if "hits" in tensors else [],
    )


def _part(tensors: Named, prefix: str) -> Named:
    return {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}
