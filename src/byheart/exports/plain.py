"""A memory as one readable PyTorch file with its weights: no byheart needed to run it."""

from __future__ import annotations

from functools import singledispatch
from pathlib import Path
from typing import Any

from safetensors.torch import save as dump_tensors
from torch import Tensor, stack

from byheart._json import plain
from byheart.errors import ByheartError
from byheart.exports import folders
from byheart.exports.normal import dense_layer
from byheart.models import standalone
from byheart.models.memory import Memory
from byheart.models.modules import (
    PER_LAYER,
    reading,
    torch_config,
    torch_state,
    vector_config,
    vector_state,
)
from byheart.models.vector_memory import VectorMemory
from byheart.specs import AttentionOnlySpec

# The fields of a spec by their names in a standalone model's config.
FIELDS = {"N": "d_vocab", "S": "n_ctx", "d": "d_model", "d_h": "d_head", "H": "n_heads"}
FIELDS |= {"layers": "n_layers", "qk_rank": "d_query"}
FIELDS |= {name: name for name in ("positions", "scale", "skip", "attention")}
STANDALONE = Path(standalone.__file__).parent


@singledispatch
def export_torch(memory: Memory, folder: str | Path, *, force: bool = False) -> Path:
    """Write `model.py`, `config.json`, `weights.safetensors` (a state dict) and the vocabulary."""
    dense, spec = dense_layer(memory)
    example = folders.example(dense)
    shown = "" if example is None else f"\n    model.ask(*{list(example[0])!r})  # {example[1]!r}"
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


def spec_of(config: dict[str, Any]) -> AttentionOnlySpec:
    """The spec of a standalone model's config.

    >>> spec = AttentionOnlySpec(N=5, S=2, d=3, d_h=2, H=4, layers=2, qk_rank=1, skip=False)
    >>> spec_of(torch_config(spec)) == spec
    True
    """
    try:
        return AttentionOnlySpec(**{field: config[name] for field, name in FIELDS.items()})
    except KeyError as error:
        raise ByheartError(
            f"config.json: the field {error} is missing; an export `to=torch` has "
            f"{', '.join(torch_config(AttentionOnlySpec(2, 1, 1, 1, 1)))}."
        ) from None
    except (TypeError, ValueError) as error:
        raise ByheartError(f"config.json: {error}.") from None


def weights_of(spec: AttentionOnlySpec, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of `torch_state`."""
    layers = range(spec.layers)
    weights = {name: state[name] for name in ("W_E", "W_U")}
    if spec.positions != "none":
        weights["W_pos"] = state["W_pos"]
    for name in PER_LAYER:
        weights[name] = stack([state[f"layers.{layer}.{name}"] for layer in layers])
    return weights
