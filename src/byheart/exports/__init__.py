"""Memories in other people's tools: plain PyTorch, TransformerLens, Hugging Face, ONNX; and back.

`export` writes a folder, `prepare_export` says how large it will be, `import_memory` reads one of
the first two, perhaps trained since; `normal_form` is the one layer that all exports are written
from. Another package exports its own memories with `export_torch.register(ItsMemory)`.
"""

from typing import TYPE_CHECKING

from byheart._lazy import attach

if TYPE_CHECKING:
    from byheart.exports.importing import import_memory
    from byheart.exports.normal import normal_form
    from byheart.exports.plain_torch import export_torch
    from byheart.exports.targets import TARGETS, export, prepare_export
    from byheart.exports.transformer_lens import load_lens

__all__ = ["TARGETS", "export", "export_torch", "import_memory", "load_lens", "normal_form",
           "prepare_export"]  # fmt: skip
__getattr__, __dir__ = attach(__name__)
