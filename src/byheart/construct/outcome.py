"""What a construction may cost and what it came to: memory, facts held, facts lost."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from byheart._machine import memory_bytes
from byheart.errors import CapacityError
from byheart.facts import Facts
from byheart.models.memory import Memory

Progress = Callable[[str], None]


def held(memory: Memory, facts: Facts) -> dict[str, Any]:
    """What a memory without a guarantee recalls: counts, lost rows, margin of the held ones."""
    margins = memory.margins(facts)
    good = margins > 0
    return {
        "recalled": int(good.sum()),
        "lost": [
            {"row": int(facts.rows[i]), "key": list(facts.key(i)), "answer": facts.answer(i)}
            for i in (~good).nonzero()[:, 0].tolist()
        ],
        "margin": finite(float(margins[good].min())) if bool(good.any()) else None,
    }


def holding(memory: Memory, facts: Facts) -> Memory:
    """The memory with only the facts that it recalls; an error if there are none."""
    if not memory.construction["lost"]:
        return memory
    if not memory.construction["recalled"]:
        raise CapacityError(
            f"none of the {facts.T:,} facts could be held by {memory.spec}. "
            "Use more heads (--heads) or a larger --d-model."
        )
    return replace(memory, facts=facts.subset((memory.margins(facts) > 0).numpy()))


def finite(value: float) -> float | None:
    """JSON has no infinity: a margin without competitors is null."""
    return value if math.isfinite(value) else None


def weight_bytes(parameters: int) -> int:
    """Weights in float64, a rounded copy, and the copy that is stored."""
    return 3 * 8 * parameters


def check_fits(needed: int, what: str) -> None:
    """Refuse before any work what cannot fit into this machine's memory."""
    present = memory_bytes()
    if needed > 0.9 * present:
        raise CapacityError(
            f"{what} needs about {needed / 1e9:,.0f} GB of memory, this machine has "
            f"{present / 1e9:.0f} GB. Use smaller --d-model, --heads, --d-head or --qk-rank, "
            "or --method sharded for many facts."
        )
