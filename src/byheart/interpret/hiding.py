"""Memories whose facts are hidden in known ways: what the benchmark sends its methods into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from byheart.construct import Sharded
from byheart.facts import random_associations

if TYPE_CHECKING:
    from byheart.interpret.evaluation import Truth
    from byheart.models import Memory

N, S = 16, 2  # tokens, and tokens a key
AT_ONCE = 32  # memories that are kept: all methods are sent into the same ones
Option = bool | int | float


@dataclass(frozen=True)
class Hiding:
    """How facts are hidden: in how many `copies` each, and behind a `Disguise` of these `options`,
    if any; `words` say it."""

    words: str
    copies: int = 1
    options: Mapping[str, Option] = field(default_factory=dict)

    @property
    def params(self) -> dict[str, Option]:
        """As parameters of a cell."""
        return {"copies": self.copies, **self.options}


MIXED: dict[str, Option] = {"rotate": True, "permute": True}
DEEP: dict[str, Option] = {**MIXED, "layers": 3, "layer": 1, "distractors": 16}
HIDINGS: dict[str, Hiding] = {
    "plain": Hiding("one layer as it was built: a head a fact, in the order of the shards"),
    "rotated": Hiding(
        "the stream and every head in a random basis, the heads in a random order", options=MIXED
    ),
    "deep": Hiding(
        "rotated; the middle one of three layers, among heads that read the key and write where no "
        "logit reads",
        options=DEEP,
    ),
    "noisy": Hiding(
        "deep; those heads also write onto the logits, at most 0.45 a logit",
        options={**DEEP, "noise": 0.45},
    ),
    "cancelling": Hiding(
        "deep; in every layer 8 pairs of heads that write loud and opposite vectors",
        options={**DEEP, "cancelling": 8},
    ),
    "copies-2": Hiding("rotated; two heads share every fact evenly", 2, MIXED),
    "copies-4": Hiding("rotated; four heads share every fact evenly", 4, MIXED),
    "all": Hiding(
        "deep, noisy, cancelling, and two heads share every fact",
        2,
        {**DEEP, "noise": 0.45, "cancelling": 8},
    ),
}


@lru_cache(AT_ONCE)
def _hidden(facts: int, copies: int, options: tuple[tuple[str, Option], ...], seed: int) -> Memory:
    table = random_associations(N=N, S=S, T=facts, seed=seed)
    memory = Sharded(facts_per_head=1, copies=copies).build(table, seed=seed)
    if not options:
        return memory
    from byheart.construct.disguise import Disguise, disguise

    return disguise(memory, replace(Disguise(seed=seed), **dict(options)))


@lru_cache(AT_ONCE)
def hidden(
    facts: int, copies: int, options: tuple[tuple[str, Option], ...], seed: int
) -> tuple[Memory, Truth]:
    """A memory of random facts, hidden with these options, and where each fact is."""
    from byheart.interpret.evaluation import truth

    memory = _hidden(facts, copies, options, seed)
    return memory, truth(memory)
