"""Which heads hold a fact, and what else depends on them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from byheart._json import Json, plain
from byheart.facts import Facts

SCHEMA = 1  # of `Owners.to_json`


@dataclass(frozen=True, repr=False)
class Owner:
    """The heads of one `layer` that hold a key and the `facts` (rows of the memory's table) that
    they hold; no heads at all where the key is in nobody's charge.

    `others`: what else depends on these heads, in words. Where nothing does it is empty, and
    zeroing the W_O of the heads loses exactly `facts`.

    >>> Owner(("Peru", "capital"), (4, 5, 6), (0, 1), shard=2)
    <Owner of Peru · capital: heads 4 to 6 (shard 2), 2 facts and nothing else>
    >>> Owner(("Peru", "capital"), (4, 9), (0,), layer=3).where
    'heads 4, 9 of layer 3'
    """

    key: tuple[str, ...]
    heads: tuple[int, ...]
    facts: tuple[int, ...]
    shard: int | None = None
    others: str = ""
    layer: int = 0

    @property
    def where(self) -> str:
        """The heads in words; the first layer, the only one of most memories, is not named."""
        if not self.heads:
            return "no head"
        heads = f"head{'s'[: len(self.heads) > 1]} {_numbers(self.heads)}"
        heads += f" of layer {self.layer}" if self.layer else ""
        return heads if self.shard is None else f"{heads} (shard {self.shard})"

    def __repr__(self) -> str:
        key = f" of {' · '.join(self.key)[:60]}" if self.key else ""
        held = f", {len(self.facts):,} facts" if self.heads else ""
        rest = f"; {self.others}" if self.others else " and nothing else" if held else ""
        return f"<Owner{key}: {self.where}{held}{rest}>"


def _numbers(heads: tuple[int, ...]) -> str:
    """A range as its two ends, other numbers one by one."""
    if len(heads) > 1 and all(b == a + 1 for a, b in pairwise(heads)):
        return f"{heads[0]} to {heads[-1]}"
    return ", ".join(map(str, heads))


@dataclass(frozen=True, eq=False)
class Owners:
    """Who holds what in a memory whose facts are owned by known heads, all in one layer.

    `shard` (T,) of each fact, -1 where it is nobody's; `heads` of each shard; `others`: what else
    depends on the heads, in words. Where that is empty, zeroing the W_O of a shard's heads loses
    exactly the facts of the shard, but for those in `survive`: the rest of the stream happens to
    name their answer.

    >>> owners = Owners(0, np.array([0, 1, 1]), ((4,), (2, 7)))
    >>> owners.heads_of(2), owners.facts_of(7), owners.facts_of(3)
    ((2, 7), (1, 2), ())
    """

    layer: int
    shard: np.ndarray
    heads: tuple[tuple[int, ...], ...]
    others: str = ""
    survive: tuple[int, ...] = ()

    def heads_of(self, fact: int) -> tuple[int, ...]:
        """The heads that hold a fact (a row of the memory's table); none where it is nobody's."""
        shard = int(self.shard[fact])
        return self.heads[shard] if shard >= 0 else ()

    def facts_of(self, head: int) -> tuple[int, ...]:
        """The facts that a head holds, alone or with others."""
        return self._facts_of.get(head, ())

    @cached_property
    def _facts_of(self) -> dict[int, tuple[int, ...]]:
        held: dict[int, list[int]] = {}
        for fact, shard in enumerate(self.shard.tolist()):
            for head in self.heads[shard] if shard >= 0 else ():
                held.setdefault(head, []).append(fact)
        return {head: tuple(facts) for head, facts in held.items()}

    def to_json(self, facts: Facts) -> dict[str, Json]:
        """Every fact of the table with its heads, and every head with the rows of its facts; heads
        are named "layer.head".

        >>> import byheart as bh
        >>> memory = bh.build("countries", "sharded")
        >>> record = memory.owners().to_json(memory.facts)
        >>> sorted(record), record["facts"][0]["layer"]
        (['facts', 'heads', 'layer', 'others', 'schema', 'survive'], 0)
        """
        rows = [
            {
                "key": facts.key(i),
                "answer": facts.answer(i),
                "layer": self.layer,
                "heads": self.heads_of(i),
            }
            for i in range(facts.T)
        ]
        held = {f"{self.layer}.{head}": rows for head, rows in sorted(self._facts_of.items())}
        record = {"schema": SCHEMA, "layer": self.layer, "facts": rows, "heads": held}
        record |= {"others": self.others, "survive": self.survive}
        return {name: plain(value) for name, value in record.items()}
