"""Certificates of exact memories: every block executed in integers, no tolerance at all."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from byheart.models.exact import ExactMemory

LITERAL = 10_000  # facts up to which all are evaluated block by block


def exact_outputs(
    memory: ExactMemory,
    tokens: np.ndarray,
    literal: int = LITERAL,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[np.ndarray, int]:
    """Classes of keys (B, S), and how many of them were evaluated literally.

    Up to `literal` keys all are. Beyond, a random `literal` of them, and all by the structured
    evaluator, whose equality with the blocks is checked weight for weight (`parts.read`), argued
    (docs/square-root.md) and compared here on every key that both have seen; a difference counts as
    a wrong answer.
    """
    if len(tokens) <= literal:
        return memory.literal_outputs(tokens, progress), len(tokens)
    outputs = memory.outputs(tokens)
    chosen = np.sort(np.random.default_rng(len(tokens)).choice(len(tokens), literal, replace=False))
    seen = memory.literal_outputs(tokens[chosen], progress)
    outputs[chosen] = np.where(outputs[chosen] == seen, seen, -1)
    return outputs, len(chosen)


def arithmetic(facts: int, literally: int) -> str:
    """What the certificate says about how it was made.

    >>> arithmetic(10, 10)
    'exact integers, all 10 facts block by block'
    """
    if literally == facts:
        return f"exact integers, all {facts:,} facts block by block"
    return (
        f"exact integers, {literally:,} facts block by block, all {facts:,} by the structured "
        "evaluator"
    )
