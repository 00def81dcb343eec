"""Kajitsuka, Sato, "On the Optimal Memorization Capacity of Transformers" (ICLR 2025)."""

from byheart.papers.kajitsuka2025.extras import HARDMAX, PRECISION
from byheart.papers.kajitsuka2025.scaling import DIMENSION, FIG1, FIG2, FIG3, LENGTH
from byheart.studies import Study

STUDIES: tuple[Study, ...] = (FIG1, FIG2, FIG3, LENGTH, PRECISION, HARDMAX, DIMENSION)
