"""Records that are distributions, as one matrix of probabilities."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from byheart.facts import _checks as check
from byheart.facts.distinct import group_equal_rows

__all__ = ["mixed_by_key", "probability_matrix"]


def probability_matrix(
    answers: np.ndarray, mixtures: Mapping[int, Mapping[int, float]], where: str
) -> tuple[np.ndarray, np.ndarray]:
    """The answers' ids (A,), and π (T, A): a row without a mixture has its answer for sure.

    >>> probability_matrix(np.array([5, -1]), {1: {5: 0.25, 7: 0.75}}, "table")
    (array([5, 7]), array([[1.  , 0.  ],
           [0.25, 0.75]]))
    """
    outputs = [mixtures.get(i) or {int(answer): 1.0} for i, answer in enumerate(answers)]
    support = np.array(sorted({token for output in outputs for token in output}), dtype=np.int64)
    check.room(len(outputs), len(support), where)
    pi = np.zeros((len(outputs), len(support)))
    column = {int(token): j for j, token in enumerate(support)}
    for i, output in enumerate(outputs):
        for token, p in output.items():
            pi[i, column[token]] = p
    return support, pi


def mixed_by_key(
    tokens: np.ndarray, pi: np.ndarray, prior: np.ndarray | None, rows: np.ndarray, N: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Records with one key as one: the mixture of their distributions, weights added up."""
    weights = np.ones(len(pi)) if prior is None else np.asarray(prior)
    order, starts = group_equal_rows(tokens, N)
    total = np.add.reduceat(weights[order], starts)
    mass = np.add.reduceat((weights[:, None] * pi)[order], starts, axis=0)
    first = order[starts]
    # A key whose records all weigh nothing keeps its first distribution and its weight 0.
    empty = total == 0
    mass[empty], safe = pi[first[empty]], np.where(empty, 1.0, total)
    mixed = mass / safe[:, None]
    by_file = np.argsort(first)
    kept = first[by_file]
    return tokens[kept], mixed[by_file], total[by_file], rows[kept]
