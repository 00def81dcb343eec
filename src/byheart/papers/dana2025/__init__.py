"""Dana, Pydi, Chevaleyre, "Memorization in Attention-only Transformers" (AISTATS 2025)."""

from byheart.papers.dana2025 import head_width, heads, mlp, tasks
from byheart.studies import Study

_ORDER = (
    *("fig1a", "fig1b", "fig2a", "fig2b", "fig3", "fig4", "fig5", "fig6", "fig7", "fig8", "fig9"),
    *("fig10", "dh-law", "dof-law", "zipf-prior", "multi-answer", "depth", "losses"),
    *("aot-vs-mlp-trained-out", "demo"),
)
STUDIES: tuple[Study, ...] = tuple(
    sorted(
        (study for module in (heads, head_width, mlp, tasks) for study in module.STUDIES),
        key=lambda study: _ORDER.index(study.name.partition("/")[2]),
    )
)
