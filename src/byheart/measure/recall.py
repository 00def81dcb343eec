"""Accuracy and margins of a memory on facts."""

from __future__ import annotations

import torch

from byheart.facts import Facts, VectorFacts
from byheart.models import Memory, VectorMemory


def accuracy(memory: Memory | VectorMemory, facts: Facts | VectorFacts | None = None) -> float:
    """Σ_t p_t [argmax T(t) = g(t)]: the share of the prior that is recalled (ties count as lost).
    Vector memories: the share of the examples, numbers within the memory's tolerance.

    >>> import byheart as bh
    >>> bh.accuracy(bh.build(bh.read_facts("elements")))
    1.0
    """
    if isinstance(memory, VectorMemory):
        examples = facts if isinstance(facts, VectorFacts) else memory.facts
        if examples is None:
            raise ValueError("this memory was saved without its facts: give facts=")
        return float((memory.margins(examples) > 0).double().mean())
    assert not isinstance(facts, VectorFacts)
    facts = _own_or(memory, facts)
    recalled = (memory.margins(facts) > 0).numpy()
    # Sum what was lost, so that a perfect memory gives exactly 1.
    return float(1.0 - facts.prior[~recalled].sum())


def margin_quantiles(
    memory: Memory, facts: Facts | None = None, levels: tuple[float, ...] = (0.0, 0.01, 0.5, 1.0)
) -> dict[float, float]:
    """Quantiles of logit(right) - max logit(others) over the facts; level 0 is the smallest."""
    margins = memory.margins(_own_or(memory, facts))
    values = torch.quantile(margins, torch.tensor(levels, dtype=margins.dtype))
    return dict(zip(levels, values.tolist(), strict=True))


def _own_or(memory: Memory, facts: Facts | None) -> Facts:
    facts = facts if facts is not None else memory.facts
    if facts is None:
        raise ValueError("this memory was saved without its facts: give facts=")
    return facts
