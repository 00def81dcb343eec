"""Dana, Pydi, Chevaleyre, "Memorization in Attention-only Transformers" (AISTATS 2025)."""

from byheart.papers.dana2025 import five_layers, head_width, heads, kl_bounds, mlp, tasks
from byheart.papers.declare import words_of

_ORDER = [f"dana2025/{name}" for name in words_of("dana2025")]
_MODULES = (heads, head_width, mlp, tasks, kl_bounds, five_layers)
_ALL = [study for module in _MODULES for study in module.STUDIES]
STUDIES = tuple(sorted(_ALL, key=lambda study: _ORDER.index(study.name)))
