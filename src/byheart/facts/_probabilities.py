"""Checks at the door of `Distributions.make`, and entropy."""

from __future__ import annotations

import numpy as np

from byheart._machine import memory_bytes
from byheart.errors import FactsError

__all__ = ["check_probabilities", "check_room", "check_support", "shannon_entropy"]

# How far a row may be from 1 without --normalise: decimals in a file.
SUM_TOLERANCE = 1e-5


def check_probabilities(pi: np.ndarray, rows: np.ndarray, normalise: bool, name: str) -> np.ndarray:
    """Rows scaled to sum to 1; refused, with row and number, where they are no distributions."""
    wrong = np.argwhere(~(np.isfinite(pi) & (pi >= 0)))
    if len(wrong):
        t, j = (int(i) for i in wrong[0])
        raise FactsError(
            f"{name}, row {rows[t]}: expected finite probabilities that are not negative, found "
            f"{pi[t, j]:g}. Correct the row."
        )
    sums = pi.sum(axis=1)
    empty = np.flatnonzero(sums == 0)
    if len(empty):
        raise FactsError(
            f"{name}, row {rows[empty[0]]}: expected a positive probability, found zeros only. "
            "A key without any answer is no fact: correct or delete the row."
        )
    off = np.flatnonzero(~(np.abs(sums - 1) <= SUM_TOLERANCE))
    if len(off) and not normalise:
        t = int(off[0])
        more = f" ({len(off) - 1:,} rows more are off)" if len(off) > 1 else ""
        raise FactsError(
            f"{name}, row {rows[t]}: expected probabilities that sum to 1, found the sum "
            f"{sums[t]:.9g}{more}. Correct the row, or scale it (--normalise)."
        )
    # Divided by the largest first: a sum of very large or very small numbers stays finite.
    scaled = pi / pi.max(axis=1, keepdims=True)
    return scaled / scaled.sum(axis=1, keepdims=True)


def check_support(support: np.ndarray, columns: int, N: int, name: str) -> None:
    """Refuse answers that are no tokens, appear twice, or do not fit the columns."""
    if support.shape != (columns,):
        raise FactsError(
            f"{name}: expected {columns} answers, one for each column of the probabilities, found "
            f"shape {support.shape}."
        )
    if len(support) and (support.min() < 0 or support.max() >= N):
        raise FactsError(
            f"{name}: expected answers from 0 to {N - 1}, found {support.min()} to {support.max()}."
        )
    if len(np.unique(support)) < columns:
        raise FactsError(f"{name}: expected distinct answers, found one of them twice.")


def check_room(T: int, A: int, name: str) -> None:
    """Refuse tables whose T x A probabilities would not leave room to work with them."""
    needed, present = 4 * 8 * T * A, memory_bytes()
    if needed > 0.9 * present:
        raise FactsError(
            f"{name}: {T:,} sequences times {A:,} answers need about {needed / 1e9:,.0f} GB, this "
            f"machine has {present / 1e9:.0f} GB. Keep fewer sequences or answers."
        )


def shannon_entropy(pi: np.ndarray) -> np.ndarray:
    """H_t = -Σ_j π_j log π_j >= 0, in nats; 0 log 0 = 0.

    Example:
        >>> shannon_entropy(np.array([[0.5, 0.5], [1.0, 0.0]]))
        array([0.69314718, 0.        ])
    """
    logs = np.log(np.where(pi > 0, pi, 1.0))
    return np.abs(np.sum(pi * logs, axis=1))
