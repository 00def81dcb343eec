"""A memory in TransformerLens: weights under its names, and loaders for both of its generations.

It divides scores by sqrt(d_head), which is multiplied into W_Q: exactly, d_head being padded with
zeros to a power of 4.
"""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as dump_tensors
from torch import Tensor

from byheart._install import install
from byheart.errors import ByheartError
from byheart.exports import folders
from byheart.exports.normal import (
    check_export,
    dense_layer,
    dense_spec,
    normal_form,
    normal_spec,
)
from byheart.models.memory import Memory
from byheart.models.standalone import lens
from byheart.specs import AttentionOnlySpec

STATE, CONFIG = "state_dict.safetensors", "config.json"


def export_transformer_lens(memory: Memory, folder: str | Path, *, force: bool = False) -> Path:
    """Write `state_dict.safetensors` (HookedTransformer names), `config.json`, the vocabulary and
    `load.py`, which opens them in whichever TransformerLens is installed."""
    given = dense_spec(memory)
    check_export(normal_spec(given, padded_width(given)).parameters, "transformer-lens")
    dense, _ = dense_layer(memory)
    config, state = lens_weights(dense)
    files = {
        CONFIG: config,
        STATE: dump_tensors(state),
        "load.py": Path(lens.__file__).read_text(encoding="utf-8"),
        "README.md": "# A memory of byheart in TransformerLens\n\n    from load import load\n"
        "    model = load()\n" + folders.rounding_note(memory),
    }
    return folders.write_layer(
        dense, folder, "transformer-lens", files, force, folders.count(state)
    )


def padded_width(spec: AttentionOnlySpec) -> int:
    """The smallest power of 4 that both widths fit into."""
    return 4 ** -(-(max(spec.d_h, spec.qk_rank) - 1).bit_length() // 2)


def lens_weights(memory: Memory) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """TransformerLens config and state dict of an attention-only memory.

    >>> import byheart as bh
    >>> config, state = lens_weights(bh.build("elements"))
    >>> config["d_head"], tuple(state["blocks.0.attn.W_Q"].shape)
    (16, (25, 10, 16))
    """
    d_head = padded_width(dense_spec(memory))
    form, spec = normal_form(memory, d_head)
    w, dtype = form.weights, form.dtype
    config = {
        "n_layers": spec.layers,
        "d_model": spec.d,
        "n_ctx": spec.S,
        "n_heads": spec.H,
        "d_head": d_head,
        "d_vocab": spec.N,
        "attn_only": True,
        "normalization_type": None,
        "positional_embedding_type": "standard",
        "attention_dir": "causal",
        "dtype": str(dtype).removeprefix("torch."),
    }
    state = {
        "embed.W_E": w["W_E"],
        "pos_embed.W_pos": w["W_pos"],
        "unembed.W_U": w["W_U"],
        "unembed.b_U": torch.zeros(spec.N, dtype=dtype),
    }
    for layer in range(spec.layers):
        prefix = f"blocks.{layer}.attn."
        state[prefix + "W_Q"] = w["W_Q"][layer] * math.isqrt(d_head)
        for name in ("W_K", "W_V", "W_O"):
            state[prefix + name] = w[name][layer]
        for name in ("b_Q", "b_K", "b_V"):
            state[prefix + name] = torch.zeros(spec.H, d_head, dtype=dtype)
        state[prefix + "b_O"] = torch.zeros(spec.d, dtype=dtype)
    return config, {name: tensor.contiguous() for name, tensor in state.items()}


def load_lens(folder: str | Path) -> Any:
    """The export in `folder` as TransformerLens's native bridge (4.x), or as HookedTransformer
    (before 4): whichever is installed."""
    path = Path(folder)
    if not (path / STATE).is_file():
        raise ByheartError(
            f"{folder}: no {STATE}. Give a folder that was exported `to=transformer-lens`."
        )
    if find_spec("transformer_lens") is None:
        raise ByheartError(
            f"TransformerLens is not installed: {install('lens')}. The weights are read "
            f"without it: safetensors.torch.load_file({str(path / STATE)!r})."
        )
    return lens.load(path)
