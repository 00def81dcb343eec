"""The tools that memories are exported to."""

from __future__ import annotations

from pathlib import Path

from byheart.errors import check_choice
from byheart.exports.folders import export_torch
from byheart.exports.hugging_face import export_hugging_face
from byheart.exports.onnx_graph import export_onnx
from byheart.exports.transformer_lens import export_transformer_lens
from byheart.models import Memory

TARGETS = {
    "torch": export_torch,
    "transformer-lens": export_transformer_lens,
    "hugging-face": export_hugging_face,
    "onnx": export_onnx,
}


def export(memory: Memory, folder: str | Path, *, to: str, force: bool = False) -> Path:
    """Write `memory` to `folder` for another tool: "torch", "transformer-lens", "hugging-face" or
    "onnx". Whole or not at all; `force` replaces an earlier export.

    >>> import byheart as bh, tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp()) / "e"
    >>> sorted(p.name for p in bh.export(bh.build("elements"), folder, to="torch").iterdir())[:3]
    ['README.md', 'byheart.json', 'config.json']
    """
    check_choice("to", to, TARGETS)
    return TARGETS[to](memory, folder, force=force)
