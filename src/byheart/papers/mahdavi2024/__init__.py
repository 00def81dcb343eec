"""Mahdavi, Liao, Thrampoulidis, "Memorization Capacity of Multi-Head Attention" (ICLR 2024)."""

from byheart.papers.mahdavi2024.assumptions import ASSUMPTIONS
from byheart.papers.mahdavi2024.capacity import BUILT, CAPACITY
from byheart.papers.mahdavi2024.depth import DEPTH
from byheart.papers.mahdavi2024.figure2 import FIGURES
from byheart.papers.mahdavi2024.saturation import SATURATION
from byheart.studies import Study

STUDIES: tuple[Study, ...] = (*FIGURES, SATURATION, ASSUMPTIONS, CAPACITY, BUILT, DEPTH)
