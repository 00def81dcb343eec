"""What a construction may cost and what it came to: memory, facts held, facts lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch

from byheart._machine import check_room
from byheart.errors import CapacityError
from byheart.facts import Facts
from byheart.models.attention_only import Weights
from byheart.models.construction import Construction, LostFact, finite
from byheart.models.token_memory import TokenMemory
from byheart.specs import AssociativeSpec, AttentionOnlySpec

ROOM = 2.0
DTYPES = {"float32": torch.float32, "float64": torch.float64}
AnyTokenMemory = TypeVar("AnyTokenMemory", bound=TokenMemory)


def as_stored(
    make: Callable[..., AnyTokenMemory],
    spec: AttentionOnlySpec | AssociativeSpec,
    weights: Weights,
    dtype: torch.dtype,
    facts: Facts,
    construction: Construction,
) -> AnyTokenMemory:
    """A memory with the weights as `dtype` stores them. A spec with one position more than the keys
    reads the start token in front of them, the last id of the vocabulary."""
    vocabulary, start_id = facts.vocabulary, None
    if spec.S > facts.S:
        vocabulary, start_id = vocabulary.with_special("<start>")
    return make(
        spec=spec,
        weights={name: w.to(dtype) for name, w in weights.items()},
        vocabulary=vocabulary,
        construction=construction,
        facts=facts,
        start_id=start_id,
        pad_id=facts.pad_id,
    )


def leads(memory: TokenMemory, facts: Facts) -> tuple[np.ndarray, np.ndarray]:
    """Margins from the weights as they are stored, and which of them count: those above `ROOM`
    times what rounding did to any positive one; the order of one batch's sums holds no fact."""
    margins = memory.margins(facts)
    noise = np.abs(margins - memory.margins(facts, torch.float64))
    counted = (margins > 0) & np.isfinite(noise)
    return margins, margins > ROOM * noise[counted].max(initial=0.0)


def held(memory: AnyTokenMemory, facts: Facts) -> AnyTokenMemory:
    """The memory with what it recalls from the weights as they are stored, on record: how many
    facts, the lost ones and the margin of the others."""
    margins, good = leads(memory, facts)
    record = replace(
        memory.construction,
        recalled=int(good.sum()),
        lost=tuple(
            LostFact(int(facts.rows[i]), facts.answer(i), facts.key(i))
            for i in (~good).nonzero()[0].tolist()
        ),
        margin=finite(float(margins[good].min())) if good.any() else None,
    )
    return replace(memory, construction=record)


def holding(memory: AnyTokenMemory, facts: Facts) -> AnyTokenMemory:
    """The memory with only the facts that it recalls; an error if there are none."""
    if not memory.construction.lost:
        return memory
    if not memory.construction.recalled:
        raise CapacityError(
            f"none of the {facts.T:,} facts could be held by {memory.spec}. "
            "Use more heads (`H`) or a larger `d`."
        )
    return replace(memory, facts=facts.subset(leads(memory, facts)[1]))


def check_fits(work: int, parameters: int, what: str) -> None:
    """Refuse before any work what cannot fit into this machine's memory: bytes of work, and weights
    in float64, a rounded copy, and the copy that is stored."""
    advice = "Use smaller `d`, `H`, `d_h` or `qk_rank`, or `method=sharded` for many facts."
    check_room(work + 3 * 8 * parameters, what, advice)
