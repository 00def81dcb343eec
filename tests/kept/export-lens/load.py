"""Open this folder in TransformerLens.

    from load import load
    model = load()
    model(tokens)[:, -1]                # logits of the answer; tokens (batch, n_ctx)
    model.run_with_cache(tokens)        # every head

Both generations are known: HookedTransformer (before 4.0) and the native bridge (since).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file


def load(folder: str | Path = Path(__file__).parent) -> Any:
    """The model whose config.json and state_dict.safetensors lie in `folder`."""
    config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    state = load_file(Path(folder) / "state_dict.safetensors")
    dtype = getattr(torch, config["dtype"])
    fields = {**config, "dtype": dtype, "init_weights": False}
    try:
        from transformer_lens import (  # pyright: ignore
            HookedTransformer,
            HookedTransformerConfig,
        )
    except ImportError:
        return _bridge(fields, state)
    model = HookedTransformer(HookedTransformerConfig(device="cpu", act_fn="relu", **fields))
    missing, unexpected = model.load_state_dict(state, strict=False)
    lost = [name for name in missing if not name.endswith(("mask", "IGNORE"))]  # its own buffers
    if lost or unexpected:
        raise ValueError(f"other weights are wanted: missing {lost}, unknown {unexpected}")
    return model


def _bridge(fields: dict[str, Any], state: dict[str, torch.Tensor]) -> Any:
    from transformer_lens.config import TransformerBridgeConfig  # pyright: ignore
    from transformer_lens.model_bridge import TransformerBridge  # pyright: ignore
    from transformer_lens.utilities.tl_checkpoint_conversion import (  # pyright: ignore
        convert_tl_checkpoint,
    )

    config = TransformerBridgeConfig(**fields)
    model = TransformerBridge.boot_native(config, dtype=fields["dtype"])
    model.load_state_dict(convert_tl_checkpoint(state, config), strict=True)
    return model
