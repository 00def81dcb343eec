"""A run on disk, in one safetensors file that is replaced whole: nothing in it can run code.

A checkpoint is a record (JSON) and named tensors, together everything that decides what the run
does next; `identity` says what run it belongs to, and a run of anything else refuses it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as dump_tensors
from torch import Tensor

from byheart._files import open_regular
from byheart._folders import write_bytes
from byheart._json import typed
from byheart.errors import ByheartError, MemoryFileError
from byheart.models.construction import Curve, Outcome
from byheart.specs.base import Shapes
from byheart.training.data import Data
from byheart.training.recipe import Recipe

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


@dataclass(frozen=True)
class Saved:
    """Where a run of some models is: its step, the models in the stack, outcomes of those that are
    done, best scores (accuracy, loss), the step at which a model diverged, seconds of each, and the
    path that computed it (None: by a version that did not write it down)."""

    step: int
    live: list[int]
    done: dict[int, Outcome]
    best: dict[int, tuple[float, float]]
    diverged: dict[int, int]
    seconds: list[float]
    path: str | None
    curve: list[int]  # the steps of its curve

    @classmethod
    def of(cls, record: Record, models: int, steps: int) -> Saved:
        """What a record says of a run of `models` models and at most `steps` steps; a `ValueError`
        if it cannot be of one."""
        live, done = record["live"], _numbered(record["done"], models)
        _wholes(live, models - 1)
        if len(set(live)) != len(live) or {*live, *done} != set(range(models)):
            raise ValueError(f"models {live} in the stack, {sorted(done)} done, of {models}")
        _wholes([record["step"]], steps)
        best = _numbered(record["best"], models)
        for scores in (record["seconds"], *best.values()):
            _numbers(scores)
        if len(record["seconds"]) != models or any(len(scores) != 2 for scores in best.values()):
            raise ValueError("a list of another length")
        diverged = _numbered(record["diverged"], models)
        _wholes(list(diverged.values()), steps)
        curve = record.get("curve", [])
        _rising(curve, steps)
        outcomes = {m: _outcome(fields, steps) for m, fields in done.items()}
        scores = {m: (accuracy, loss) for m, (accuracy, loss) in best.items()}
        path = record.get("path")
        if path is not None and not isinstance(path, str):
            raise ValueError(f"expected the name of a path, found {path!r}")
        seconds = record["seconds"]
        return cls(record["step"], live, outcomes, scores, diverged, seconds, path, curve)


def _numbered(values: Any, models: int) -> dict[int, Any]:
    """An object whose names are numbers of models."""
    if not isinstance(values, dict) or not values.keys() <= {str(m) for m in range(models)}:
        raise ValueError(f"expected an object by the models 0 to {models - 1}, found {values!r}")
    return {int(m): value for m, value in values.items()}


def _outcome(fields: Any, steps: int) -> Outcome:
    curve = fields.get("curve") if isinstance(fields, dict) else None
    if curve is not None:
        curve = typed(curve, Curve, "curve")
        _rising(list(curve.steps), steps)
    outcome = Outcome(**{**fields, "curve": curve})  # a TypeError for other names
    if type(outcome.seed) is not int:
        raise ValueError(f"expected a seed, found {outcome.seed!r}")
    counts = (outcome.steps, outcome.diverged, outcome.stopped)
    _wholes([count for count in counts if count is not None], steps)
    shares = (outcome.accuracy, outcome.train_accuracy, outcome.loss, outcome.seconds)
    _numbers([share for share in shares if share is not None])
    return outcome


def _wholes(values: Any, most: int) -> None:
    """Refuse what is no list of whole numbers from 0 to `most`."""
    if not isinstance(values, list) or not all(
        type(value) is int and 0 <= value <= most for value in values
    ):
        raise ValueError(f"expected whole numbers from 0 to {most:,}, found {values!r}")


def _rising(values: Any, most: int) -> None:
    """Refuse what is no list of whole numbers that grow."""
    _wholes(values, most)
    if sorted(set(values)) != values:
        raise ValueError(f"expected numbers that grow, found {values!r}")


def _numbers(values: Any) -> None:
    """Refuse what is no list of numbers."""
    if not isinstance(values, list) or not all(type(value) in (int, float) for value in values):
        raise ValueError(f"expected a list of numbers, found {values!r}")


def load(file: Path, identity: dict[str, object], models: int, steps: int) -> tuple[Saved, Named]:
    """Read a checkpoint and refuse one of another run, naming what differs."""
    try:
        with open_regular(file, MemoryFileError), safe_open(file, framework="pt") as content:
            metadata = content.metadata() or {}
            record = json.loads(metadata.get("byheart", "null"))  # a loss may be NaN
            tensors: Named = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError, RecursionError) as error:
        raise MemoryFileError(
            f"{file}: not a readable checkpoint ({error}). Delete it to start again."
        ) from None
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        raise MemoryFileError(
            f"{file}: not a checkpoint of this version. Delete it to start again."
        )
    if metadata.get("sha256") != digest(tensors, metadata["byheart"]):
        raise MemoryFileError(f"{file}: a damaged checkpoint. Delete it to start again.")
    known, given = json.loads(json.dumps(identity)), record.get("identity")
    given = given if isinstance(given, dict) else {}
    if isinstance(given.get("recipe"), dict):  # fields that recipes have gained since: as always
        given["recipe"] = Recipe().to_json() | given["recipe"]
    other = [name for name in known if given.get(name) != known[name]]
    if other:
        raise ByheartError(
            f"{file}: a checkpoint of another run: {', '.join(other)} differ. Delete it to start "
            "again, or give another file."
        )
    with checked(file):
        return Saved.of(record, models, steps), tensors


@contextmanager
def checked(file: Path) -> Iterator[None]:
    """A checkpoint that says what no run can have written is refused: it was made by hand."""
    try:
        yield
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise MemoryFileError(
            f"{file}: a damaged checkpoint ({reason[:200]}). Delete it to start again."
        ) from None


def check_tensors(tensors: Named, shapes: Shapes, dtype: torch.dtype) -> None:
    """Refuse, with a `ValueError`, tensors of other names, shapes or number formats."""
    for name, shape in shapes.items():
        found = tuple(tensors[name].shape), tensors[name].dtype
        if found != (shape, dtype):
            raise ValueError(f"{name}: expected {shape} in {dtype}, found {found[0]} in {found[1]}")


def part(tensors: Named, prefix: str) -> Named:
    """The tensors whose names begin with `prefix`, without it."""
    return {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}
