"""Dana, slides of June 2024, "Memorization in Attention-only Transformers"."""

from byheart.papers.slides import associative, quality, sparse

STUDIES = (associative.STUDY, sparse.STUDY, quality.STUDY)
