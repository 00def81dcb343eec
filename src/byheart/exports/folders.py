"""What every export folder has: a marker that says what it is, the vocabulary, the facts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save as dump_tensors

from byheart._folders import new_folder, write_text
from byheart._version import __version__
from byheart.models.modules import reading
from byheart.models.token_memory import TokenMemory

MARKER = "byheart.json"
VOCABULARY, KEYS = "vocabulary.json", "facts.safetensors"


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


def write_layer(
    memory: TokenMemory, folder: str | Path, kind: str, files: Mapping[str, object], force: bool
) -> Path:
    """Write an attention-only layer with its vocabulary, its facts and how it reads a key."""
    record = {"family": "attention-only", **reading(memory)}
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
