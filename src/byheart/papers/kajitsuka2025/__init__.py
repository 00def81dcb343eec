"""Kajitsuka, Sato, "On the Optimal Memorization Capacity of Transformers" (ICLR 2025)."""

from byheart.papers.kajitsuka2025 import questions as q
from byheart.papers.kajitsuka2025 import scaling as s

STUDIES = (
    s.FIG1, s.FIG2, s.FIG3, s.LENGTH, s.PRECISION, s.HARDMAX, s.DIMENSION,
    q.SEQUENCES, q.TOKENS, q.TRADE,
)  # fmt: skip
