"""Mahdavi, Liao, Thrampoulidis, "Memorization Capacity of Multi-Head Attention" (ICLR 2024)."""

from byheart.papers.mahdavi2024.figure2 import FIGURES
from byheart.studies.study import Study

STUDIES: tuple[Study, ...] = FIGURES
