"""How far softmax f is from π, sequence by sequence: KL, total variation, squares, log ratios.

Shapes: `pi` (T, A), logits `f` (T, A); every function returns one number a sequence, (T,).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def log_softmax(f: ArrayLike) -> Array:
    """f_j - log Σ_k exp f_k, row by row."""
    f = np.asarray(f, float)
    shifted = f - f.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def kl(pi: ArrayLike, f: ArrayLike) -> Array:
    """KL(π_t || softmax f_t) = Σ_j π_j log(π_j / q_j), in nats; 0 log 0 = 0.

    >>> kl([[1.0, 0.0]], [[0.0, 0.0]])
    array([0.69314718])
    """
    pi = np.asarray(pi, float)
    logs = np.log(np.where(pi > 0, pi, 1.0))
    return np.sum(pi * (logs - log_softmax(f)), axis=1)


def top_answers(pi: ArrayLike, f: ArrayLike) -> NDArray[np.bool_]:
    """Is argmax f_t among the most probable answers of π_t? Several may be equally probable.

    >>> top_answers([[0.5, 0.5], [0.2, 0.8]], [[0.0, 1.0], [1.0, 0.0]])
    array([ True, False])
    """
    pi = np.asarray(pi, float)
    top = np.take_along_axis(pi, np.asarray(f).argmax(axis=1)[:, None], axis=1)[:, 0]
    return top >= pi.max(axis=1) * (1 - 1e-12)  # probabilities from counts differ in the last bit


def total_variation(pi: ArrayLike, f: ArrayLike) -> Array:
    """½ Σ_j |π_j - q_j|, between 0 and 1."""
    return 0.5 * np.abs(np.asarray(pi, float) - np.exp(log_softmax(f))).sum(axis=1)


def squared_error(pi: ArrayLike, f: ArrayLike) -> Array:
    """Σ_j (π_j - q_j)²."""
    return np.square(np.asarray(pi, float) - np.exp(log_softmax(f))).sum(axis=1)


def log_ratio(pi: ArrayLike, f: ArrayLike) -> Array:
    """max_j |log π_j - log q_j| over the answers with π_j > 0."""
    pi = np.asarray(pi, float)
    off = np.abs(np.log(np.where(pi > 0, pi, 1.0)) - log_softmax(f))
    return np.where(pi > 0, off, 0.0).max(axis=1)
