"""Which heads hold a fact, and what else depends on them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, repr=False)
class Owner:
    """The heads that hold a key and the `facts` (rows of the memory's table) that they hold; no
    heads at all where the key is in nobody's charge.

    `others`: what else depends on these heads, in words. Where nothing does it is empty, and
    zeroing the W_O of the heads loses exactly `facts`.

    >>> Owner(("Peru", "capital"), (4, 5, 6), (0, 1), shard=2)
    <Owner of Peru · capital: heads 4 to 6 (shard 2), 2 facts and nothing else>
    """

    key: tuple[str, ...]
    heads: tuple[int, ...]
    facts: tuple[int, ...]
    shard: int | None = None
    others: str = ""

    @property
    def where(self) -> str:
        """The heads in words."""
        if not self.heads:
            return "no head"
        ends = f"{self.heads[0]}", f"{self.heads[-1]}"
        heads = f"head {ends[0]}" if len(self.heads) == 1 else f"heads {' to '.join(ends)}"
        return heads if self.shard is None else f"{heads} (shard {self.shard})"

    def __repr__(self) -> str:
        key = f" of {' · '.join(self.key)[:60]}" if self.key else ""
        held = f", {len(self.facts):,} facts" if self.heads else ""
        rest = f"; {self.others}" if self.others else " and nothing else" if held else ""
        return f"<Owner{key}: {self.where}{held}{rest}>"
