"""What every export folder has: a marker that says what it is, the vocabulary, the facts; and the
plainest of them, one readable PyTorch file with its weights, which needs no byheart to run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import singledispatch
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save as dump_tensors
from torch import Tensor

from byheart._folders import new_folder, write_text
from byheart._json import plain
from byheart._version import __version__
from byheart.exports.normal import dense_layer
from byheart.models import Memory, TokenMemory, VectorMemory, standalone
from byheart.models.modules import reading, torch_config, torch_state, vector_config, vector_state

MARKER = "byheart.json"
VOCABULARY, KEYS = "vocabulary.json", "facts.safetensors"
STANDALONE = Path(standalone.__file__).parent


def write_folder(
    folder: str | Path,
    kind: str,
    files: Mapping[str, object],
    record: Mapping[str, object],
    *,
    force: bool,
) -> Path:
    """Write the files whole or not at all; neither text nor bytes: JSON. `record`: the marker."""
    with new_folder(folder, marker=MARKER, force=force) as target:
        for name, content in files.items():
            if isinstance(content, bytes):
                (target / name).write_bytes(content)
            else:
                write_text(target / name, content if isinstance(content, str) else as_json(content))
        marker = {"kind": "byheart export", "to": kind, "schema": 1, "byheart": __version__}
        write_text(target / MARKER, as_json(marker | dict(record)))
    return Path(folder)


def count(state: Mapping[str, Tensor]) -> int:
    """The parameters in a state dict."""
    return sum(w.numel() for w in state.values())


def write_layer(
    memory: TokenMemory,
    folder: str | Path,
    kind: str,
    files: Mapping[str, object],
    force: bool,
    parameters: int,
) -> Path:
    """Write an attention-only layer with its vocabulary, its facts, how it reads a key, and how
    many parameters the files have (zeros that another tool needs included)."""
    record = {"family": "attention-only", "parameters": parameters, **reading(memory)}
    return write_folder(folder, kind, {**files, **token_files(memory)}, record, force=force)


def as_json(content: object) -> str:
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def token_files(memory: TokenMemory) -> dict[str, object]:
    """The vocabulary, and the keys (as the model reads them) and answers of the facts it holds."""
    files: dict[str, object] = {VOCABULARY: list(memory.vocabulary.tokens)}
    if memory.facts is not None:
        tokens = memory.with_start(memory.facts.tokens).to(torch.int64).contiguous()
        answers = torch.from_numpy(memory.facts.answers.astype(np.int64))
        files[KEYS] = dump_tensors({"tokens": tokens, "answers": answers})
    return files


def rounding_note(memory: Memory) -> str:
    """What a README says of the second statement of a certificate, about the layer as it runs."""
    if getattr(memory.spec, "gate", None) == "subject-sink":
        return (
            "\nWhat the certificate says of float32 evaluations is about the own heads of a key, "
            "not about\nthis layer of all heads.\n"
        )
    return (
        "\nThese are the weights of the memory: what its certificate says of every float32 (or "
        "float64)\nevaluation (`evaluation` in certificate.json) holds of this model too.\n"
    )


@singledispatch
def export_torch(memory: Memory, folder: str | Path, *, force: bool = False) -> Path:
    """Write `model.py`, `config.json`, `weights.safetensors` (a state dict) and the vocabulary."""
    dense, spec = dense_layer(memory)
    shown = ""
    if dense.facts is not None:
        key, answer = list(dense.facts.key(0)), dense.facts.answer(0)
        shown = f"\n    model.ask(*{key!r})  # {answer!r}"
    state = torch_state(spec, dense.weights)
    files = {
        "model.py": (STANDALONE / "attention_only.py").read_text(encoding="utf-8"),
        "config.json": torch_config(spec) | reading(dense),
        "weights.safetensors": dump_tensors(state),
        **token_files(dense),
        "README.md": f"# {spec}\n\n    from model import load\n    model = load(){shown}\n"
        + rounding_note(memory),
    }
    record = {"family": spec.family, "parameters": count(state)}
    return write_folder(folder, "torch", files, record, force=force)


@export_torch.register
def _(memory: VectorMemory, folder: str | Path, *, force: bool = False) -> Path:
    spec, state = memory.spec, vector_state(memory)
    files: dict[str, object] = {
        "model.py": (STANDALONE / "multi_head.py").read_text(encoding="utf-8"),
        "config.json": vector_config(memory),
        "weights.safetensors": dump_tensors(state),
        "README.md": f"# {spec}\n\n    from model import load\n    model = load()\n"
        + rounding_note(memory),
    }
    groups = getattr(memory.construction, "groups", None)
    if groups:  # which examples each head owns, by construction: ground truth for instruments
        files["owners.json"] = plain(groups)
    record = {"family": spec.family, "parameters": count(state)}
    return write_folder(folder, "torch", files, record, force=force)
