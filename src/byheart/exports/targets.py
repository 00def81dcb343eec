"""The tools that memories are exported to."""

from __future__ import annotations

from pathlib import Path

from byheart.errors import check_choice
from byheart.exports.folders import Export
from byheart.exports.hugging_face import hugging_face_export
from byheart.exports.onnx_graph import onnx_export
from byheart.exports.plain_torch import DEFAULT, export_torch, torch_export
from byheart.exports.transformer_lens import transformer_lens_export
from byheart.models import Memory

TARGETS = {
    "torch": torch_export,
    "transformer-lens": transformer_lens_export,
    "hugging-face": hugging_face_export,
    "onnx": onnx_export,
}


def prepare_export(memory: Memory, *, to: str, large: bool = False) -> Export:
    """The folder that `export` writes, with its true size, before it is written.

    >>> import byheart as bh
    >>> made = prepare_export(bh.build("elements"), to="torch")
    >>> made.parameters, made.bytes == sum(map(len, made.files.values()))
    (12640, True)
    """
    check_choice("to", to, TARGETS)
    return TARGETS[to](memory, large=large)


def writes_itself(memory: Memory, to: str) -> bool:
    """Whether the memory is of another package, which registered an export of its own."""
    return to == "torch" and export_torch.dispatch(type(memory)) is not DEFAULT


def export(
    memory: Memory, folder: str | Path, *, to: str, force: bool = False, large: bool = False
) -> Path:
    """Write `memory` to `folder` for another tool: "torch", "transformer-lens", "hugging-face" or
    "onnx". Whole or not at all; `force` replaces an earlier export; more than 2 GB are refused
    unless they are wanted `large`.

    >>> import byheart as bh, tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp()) / "e"
    >>> sorted(p.name for p in bh.export(bh.build("elements"), folder, to="torch").iterdir())[:3]
    ['README.md', 'byheart.json', 'config.json']
    """
    check_choice("to", to, TARGETS)
    if writes_itself(memory, to):
        return export_torch(memory, folder, force=force)
    return prepare_export(memory, to=to, large=large).write(folder, force=force)
