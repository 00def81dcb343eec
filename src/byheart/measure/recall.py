"""Accuracy and margins of a memory on facts."""

from __future__ import annotations

import numpy as np

from byheart.facts import VectorFacts, as_facts
from byheart.models.memory import FactTable, Memory


def accuracy(memory: Memory, facts: object = None) -> float:
    """Σ_t p_t [argmax T(t) = g(t)]: the share of the prior that is recalled (ties count as lost).
    Vector memories: the share of the examples, numbers within the memory's tolerance. `facts`: the
    memory's own by default, or anything that `as_facts` reads.

    >>> import byheart as bh
    >>> bh.accuracy(bh.build("elements")), bh.accuracy(bh.build("elements", "sqrt"))
    (1.0, 1.0)
    """
    table = _table(memory, facts)
    recalled = memory.margins(table) > 0
    if isinstance(table, VectorFacts):
        return float(recalled.mean())
    # Sum what was lost, so that a perfect memory gives exactly 1.
    return float(1.0 - table.prior[~recalled].sum())


def margin_quantiles(
    memory: Memory, facts: object = None, levels: tuple[float, ...] = (0.0, 0.01, 0.5, 1.0)
) -> dict[float, float]:
    """Quantiles of the margins over the facts; level 0 is the smallest."""
    with np.errstate(invalid="ignore"):  # between margins without a competitor, which are infinite
        values = np.quantile(memory.margins(_table(memory, facts)), levels)
    return dict(zip(levels, values.tolist(), strict=True))


def _table(memory: Memory, facts: object) -> FactTable:
    return memory.own(None if facts is None else as_facts(facts))
