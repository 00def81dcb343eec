"""Dana, Pydi, Chevaleyre, "Memorization in Attention-only Transformers" (AISTATS 2025)."""

from byheart.papers.dana2025.heads import FIG1A
from byheart.studies.study import Study

STUDIES: tuple[Study, ...] = (FIG1A,)
