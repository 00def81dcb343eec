"""A memory as one readable PyTorch file with its weights: no byheart needed to run it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as dump_tensors

from byheart.errors import ByheartError
from byheart.exports import folders
from byheart.exports.normal_form import dense_spec
from byheart.models.memory import Memory
from byheart.models.vector_memory import VectorMemory
from byheart.specs import AttentionOnlySpec

STANDALONE = Path(__file__).parent / "standalone"
PER_LAYER = ("W_Q", "W_K", "W_V", "W_O")


def export_torch(memory: Memory | VectorMemory, folder: str | Path, *, force: bool = False) -> Path:
    """Write `model.py`, `config.json`, `weights.safetensors` (a state dict) and the vocabulary."""
    if isinstance(memory, VectorMemory):
        return _vectors(memory, folder, force)
    memory, spec = dense_spec(memory)
    example = folders.example(memory)
    shown = "" if example is None else f"\n    model.ask(*{list(example[0])!r})  # {example[1]!r}"
    files = {
        "model.py": (STANDALONE / "attention_only.py").read_text(encoding="utf-8"),
        "config.json": torch_config(spec) | folders.reading(memory),
        "weights.safetensors": dump_tensors(torch_state(spec, dict(memory.weights))),
        **folders.token_files(memory),
        "README.md": f"# {spec}\n\n    from model import load\n    model = load(){shown}\n",
    }
    return folders.write_folder(folder, "torch", files, {"family": spec.family}, force=force)


def torch_config(spec: AttentionOnlySpec) -> dict[str, Any]:
    """The fields that the standalone model reads; see `spec_of`, its inverse."""
    return {
        "d_vocab": spec.N,
        "n_ctx": spec.S,
        "d_model": spec.d,
        "d_head": spec.d_h,
        "d_query": spec.qk_rank,
        "n_heads": spec.H,
        "n_layers": spec.layers,
        "positions": spec.positions,
        "scale": spec.scale,
        "skip": spec.skip,
        "attention": spec.attention,
    }


def spec_of(config: dict[str, Any]) -> AttentionOnlySpec:
    """The spec of a standalone model's config.

    >>> spec = AttentionOnlySpec(N=5, S=2, d=3, d_h=2, H=4, layers=2, qk_rank=1, skip=False)
    >>> spec_of(torch_config(spec)) == spec
    True
    """
    try:
        return AttentionOnlySpec(
            N=config["d_vocab"],
            S=config["n_ctx"],
            d=config["d_model"],
            d_h=config["d_head"],
            H=config["n_heads"],
            layers=config["n_layers"],
            qk_rank=config["d_query"],
            positions=config["positions"],
            scale=config["scale"],
            skip=config["skip"],
            attention=config["attention"],
        )
    except KeyError as error:
        raise ByheartError(
            f"config.json: the field {error} is missing; `byheart export --to torch` writes "
            f"{', '.join(torch_config(AttentionOnlySpec(2, 1, 1, 1, 1)))}."
        ) from None
    except (TypeError, ValueError) as error:
        raise ByheartError(f"config.json: {error}.") from None


def torch_state(
    spec: AttentionOnlySpec, weights: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The state dict of the standalone model: heads layer by layer, W_pos always there."""
    state = {name: weights[name].contiguous() for name in ("W_E", "W_U")}
    state["W_pos"] = weights.get("W_pos", torch.zeros(spec.S, spec.d, dtype=state["W_U"].dtype))
    for layer in range(spec.layers):
        for name in PER_LAYER:
            state[f"layers.{layer}.{name}"] = weights[name][layer].contiguous()
    return state


def weights_of(spec: AttentionOnlySpec, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The inverse of `torch_state`."""
    layers = range(spec.layers)
    weights = {name: state[name] for name in ("W_E", "W_U")}
    if spec.positions != "none":
        weights["W_pos"] = state["W_pos"]
    for name in PER_LAYER:
        weights[name] = torch.stack([state[f"layers.{layer}.{name}"] for layer in layers])
    return weights


def _vectors(memory: VectorMemory, folder: str | Path, force: bool) -> Path:
    spec = memory.spec
    if spec.embed or spec.decoder or spec.scale:
        raise ByheartError(
            f"{spec}: the standalone file has the theorem's layer only, without embedding, scale "
            "and decoder of the reference model. In Python: memory.to_torch()."
        )
    config = {
        "d_model": spec.d,
        "n_ctx": spec.n,
        "d_query": spec.d_h,
        "d_head": spec.d_v,
        "n_heads": spec.H,
        "d_out": spec.d_out,
        "shared": memory.context is not None,
        "classes": memory.classes,
    }
    state = {name: w.contiguous() for name, w in memory.weights.items()}
    if memory.context is not None:
        state["context"] = torch.tensor(memory.context).to(memory.dtype)
    files: dict[str, Any] = {
        "model.py": (STANDALONE / "multi_head.py").read_text(encoding="utf-8"),
        "config.json": config,
        "weights.safetensors": dump_tensors(state),
        "README.md": f"# {spec}\n\n    from model import load\n    model = load()\n",
    }
    groups = memory.construction.get("groups")
    if groups:  # which examples each head owns, by construction: ground truth for instruments
        files["owners.json"] = json.loads(json.dumps(groups))
    return folders.write_folder(folder, "torch", files, {"family": spec.family}, force=force)
