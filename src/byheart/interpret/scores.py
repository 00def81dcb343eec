"""How well scores of heads point at the heads that hold a fact.

`scores` is one number for each head, in any shape; `owners` says of each whether it holds the fact.
Ties have no order: heads of equal score are taken together.
"""

from __future__ import annotations

import numpy as np

from byheart.errors import ByheartError

Array = np.ndarray


def _ranked(scores: Array, owners: Array) -> tuple[Array, Array]:
    """At each different score from the largest on: how many heads reach it, how many owners."""
    flat, own = np.ravel(scores), np.ravel(owners).astype(bool)
    if flat.shape != own.shape or not own.any() or not np.isfinite(flat).all():
        raise ByheartError(
            f"scores of {own.size} heads, finite, and at least one owner are expected; found "
            f"{flat.size} scores, {int(np.isfinite(flat).sum())} of them finite, and "
            f"{int(own.sum())} owners."
        )
    values, at = np.unique(-flat, return_inverse=True)
    heads = np.bincount(at, minlength=len(values)).cumsum()
    held = np.bincount(at, weights=own, minlength=len(values)).cumsum()
    return heads, held


def precision_at_k(scores: Array, owners: Array) -> float:
    """The share of owners among the k heads of largest score, k = number of owners; of heads tied
    across the k-th place the expected share.

    >>> precision_at_k(np.array([3.0, 1.0, 2.0, 0.0]), np.array([1, 1, 0, 0]))
    0.5
    >>> precision_at_k(np.zeros(4), np.array([1, 1, 0, 0]))
    0.5
    """
    heads, held = _ranked(scores, owners)
    k = held[-1]
    places = np.concatenate([[0], heads])
    return float(np.interp(k, places, np.concatenate([[0], held])) / k)


def average_precision(scores: Array, owners: Array) -> float:
    """AP = Σ_n (R_n - R_{n-1}) P_n over the different scores from the largest on, with P_n and R_n
    the precision and the recall of "all heads that reach the n-th score".

    1 if every owner is above all others; k / n if all n heads have the same score.

    >>> average_precision(np.array([3.0, 1.0, 2.0, 0.0]), np.array([1, 1, 0, 0])).__round__(4)
    0.8333
    """
    heads, held = _ranked(scores, owners)
    return float(np.diff(held, prepend=0) @ (held / heads) / held[-1])


def chance_precision(k: int, n: int) -> float:
    """The expected average precision of a random order of n heads, k of them owners:

        1/n (H_n + (k - 1)/(n - 1) (n - H_n)),   H_n = Σ_{i<=n} 1/i

    An owner stands at place i with probability 1/n, and i - 1 places before it hold
    (i - 1)(k - 1)/(n - 1) other owners on average.

    >>> round(chance_precision(1, 2), 3), chance_precision(3, 3)
    (0.75, 1.0)
    """
    harmonic = float((1 / np.arange(1, n + 1)).sum())
    others = (k - 1) / (n - 1) * (n - harmonic) if n > 1 else 0.0
    return (harmonic + others) / n


def misplaced(scores: Array, shares: Array) -> float:
    """Calibration: the share of the score that stands on the wrong heads,

        1/2 Σ_h |p_h - q_h|,   p_h = max(s_h, 0) / Σ max(s, 0)

    between 0 and 1 (total variation). q_h is the share of the head in what all owners add to the
    lead of the answer, 0 for other heads (`true_shares`). Scores of which none is positive are
    spread evenly.

    >>> misplaced(np.array([2.0, 2.0, -1.0]), np.array([1.0, 0.0, 0.0]))
    0.5
    """
    return float(np.abs(_share(np.ravel(scores)) - np.ravel(shares)).sum() / 2)


def true_shares(parts: Array, owners: Array) -> Array:
    """q_h: of what the heads add to the lead of the answer, `parts`, the owners' alone, its
    positive part, as shares; non-owners have 0.

    >>> true_shares(np.array([3.0, 1.0, 5.0]), np.array([True, True, False])).tolist()
    [0.75, 0.25, 0.0]
    """
    own = np.asarray(owners, bool)
    kept = np.where(own, np.maximum(parts, 0), 0.0)
    return kept / kept.sum() if kept.sum() > 0 else own / own.sum()


def _share(scores: Array) -> Array:
    positive = np.maximum(scores, 0)
    total = positive.sum()
    return positive / total if total > 0 else np.full(len(scores), 1 / len(scores))
