"""Memories in other people's tools: plain PyTorch, TransformerLens, Hugging Face, ONNX; and back.

`export_memory` writes a folder, `import_memory` reads one of the first two, perhaps trained since;
`normal_form` is the one layer that all exports are written from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from byheart.errors import ByheartError
from byheart.exports.hugging_face import export_hugging_face
from byheart.exports.importing import import_memory
from byheart.exports.normal_form import NormalForm, normal_form
from byheart.exports.onnx_graph import export_onnx
from byheart.exports.plain import export_torch
from byheart.exports.transformer_lens import export_transformer_lens, load_lens

TARGETS = {
    "torch": export_torch,
    "transformer-lens": export_transformer_lens,
    "hugging-face": export_hugging_face,
    "onnx": export_onnx,
}

__all__ = [
    "TARGETS",
    "NormalForm",
    "export_memory",
    "import_memory",
    "load_lens",
    "normal_form",
]


def export_memory(memory: Any, folder: str | Path, *, to: str, force: bool = False) -> Path:
    """Write `memory` to `folder` for another tool: "torch", "transformer-lens", "hugging-face" or
    "onnx". Whole or not at all; `force` replaces an earlier export."""
    if to not in TARGETS:
        raise ByheartError(f"expected `to={', '.join(TARGETS)}`, found {to!r}.")
    if to != "torch" and getattr(memory.spec, "family", "") == "multi-head":
        raise ByheartError(
            f"a memory of vectors reads no tokens, which `to={to}` needs: export it `to=torch`."
        )
    return TARGETS[to](memory, folder, force=force)
