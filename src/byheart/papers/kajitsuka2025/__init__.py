"""Kajitsuka, Sato, "On the Optimal Memorization Capacity of Transformers" (ICLR 2025)."""

from byheart.papers.kajitsuka2025.curves import FIG1, FIG2
from byheart.papers.kajitsuka2025.extras import DIMENSION, HARDMAX, PRECISION
from byheart.papers.kajitsuka2025.scaling import FIG3, LENGTH
from byheart.studies import Study

STUDIES: tuple[Study, ...] = (FIG1, FIG2, FIG3, LENGTH, PRECISION, HARDMAX, DIMENSION)
