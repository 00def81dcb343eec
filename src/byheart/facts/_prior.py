"""What a prior says about how many sequences matter."""

from __future__ import annotations

import numpy as np

__all__ = ["effective_size"]


def effective_size(prior: np.ndarray, eps: float) -> int:
    """T_eps: the smallest number of sequences whose prior sums to at least 1 - eps.

    Example:
        >>> effective_size(np.array([0.9, 0.09, 0.01]), 0.1)
        1
    """
    T = len(prior)
    mass = np.cumsum(np.sort(prior)[::-1])
    # A sum of T rounded terms is off by at most T units in the last place.
    rounding = T * np.finfo(np.float64).eps
    return min(T, int(np.searchsorted(mass, 1 - eps - rounding)) + 1)
