"""A memory as one readable PyTorch file with its weights: no byheart needed to run it."""

from __future__ import annotations

from functools import singledispatch
from pathlib import Path

from safetensors.torch import save as dump_tensors

from byheart._json import plain
from byheart.exports import folders
from byheart.exports.normal import dense_layer
from byheart.models import Memory, standalone
from byheart.models.modules import reading, torch_config, torch_state, vector_config, vector_state
from byheart.models.vector_memory import VectorMemory

STANDALONE = Path(standalone.__file__).parent


@singledispatch
def export_torch(memory: Memory, folder: str | Path, *, force: bool = False) -> Path:
    """Write `model.py`, `config.json`, `weights.safetensors` (a state dict) and the vocabulary."""
    dense, spec = dense_layer(memory)
    shown = ""
    if dense.facts is not None:
        key, answer = list(dense.facts.key(0)), dense.facts.answer(0)
        shown = f"\n    model.ask(*{key!r})  # {answer!r}"
    files = {
        "model.py": (STANDALONE / "attention_only.py").read_text(encoding="utf-8"),
        "config.json": torch_config(spec) | reading(dense),
        "weights.safetensors": dump_tensors(torch_state(spec, dense.weights)),
        **folders.token_files(dense),
        "README.md": f"# {spec}\n\n    from model import load\n    model = load(){shown}\n",
    }
    return folders.write_folder(folder, "torch", files, {"family": spec.family}, force=force)


@export_torch.register
def _(memory: VectorMemory, folder: str | Path, *, force: bool = False) -> Path:
    spec = memory.spec
    files: dict[str, object] = {
        "model.py": (STANDALONE / "multi_head.py").read_text(encoding="utf-8"),
        "config.json": vector_config(memory),
        "weights.safetensors": dump_tensors(vector_state(memory)),
        "README.md": f"# {spec}\n\n    from model import load\n    model = load()\n",
    }
    groups = getattr(memory.construction, "groups", None)
    if groups:  # which examples each head owns, by construction: ground truth for instruments
        files["owners.json"] = plain(groups)
    return folders.write_folder(folder, "torch", files, {"family": spec.family}, force=force)
