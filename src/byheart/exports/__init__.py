"""Memories in other people's tools: plain PyTorch, TransformerLens, Hugging Face, ONNX; and back.

`export` writes a folder, `import_memory` reads one of the first two, perhaps trained since;
`normal_form` is the one layer that all exports are written from. Another package exports its own
memories with `export_torch.register(ItsMemory)`.
"""

from typing import TYPE_CHECKING

from byheart._lazy import attach

if TYPE_CHECKING:
    from byheart.exports.folders import export_torch
    from byheart.exports.importing import import_memory
    from byheart.exports.normal import normal_form
    from byheart.exports.targets import TARGETS, export
    from byheart.exports.transformer_lens import load_lens

__all__ = ["TARGETS", "export", "export_torch", "import_memory", "load_lens", "normal_form"]
__getattr__, __dir__ = attach(__name__)
