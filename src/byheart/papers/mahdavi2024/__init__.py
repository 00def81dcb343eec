"""Mahdavi, Liao, Thrampoulidis, "Memorization Capacity of Multi-Head Attention" (ICLR 2024)."""

from byheart.papers.mahdavi2024.assumptions import ASSUMPTIONS
from byheart.papers.mahdavi2024.capacity import BUILT, CAPACITY
from byheart.papers.mahdavi2024.kruskal import KRUSKAL
from byheart.papers.mahdavi2024.saturation import SATURATION
from byheart.papers.mahdavi2024.sharing import SHARING
from byheart.papers.mahdavi2024.sweeps import DEPTH, FIGURES

STUDIES = (*FIGURES, SATURATION, ASSUMPTIONS, CAPACITY, SHARING, KRUSKAL, BUILT, DEPTH)
