"""The square-root Transformer: exact integers, one uniform attention (Kajitsuka and Sato 2025)."""

from __future__ import annotations

from dataclasses import dataclass

from byheart.specs.base import TokenSpec


@dataclass(frozen=True)
class ExactSpec(TokenSpec):
    """`N` tokens, keys of `S` tokens, `classes` answers; what its network counts.

    `ordered`: the position is a coordinate of the token (otherwise keys are multisets). `ff1`: how
    tokens get their ids; `m` coordinates; `parameters` are the non-zero weights, `dense` all
    entries, `distinct` different values; `max_bits` and `total_bits` without signs. The counts are
    checked against the network when it is loaded.

    >>> ExactSpec(N=9, S=2, classes=3, ordered=True, ff1="hash", m=3, parameters=200, dense=600,
    ...           distinct=90, depth=50, width=3, max_bits=30, total_bits=2000).parameters
    200
    """

    classes: int
    ordered: bool
    ff1: str
    m: int
    parameters: int  # pyright: ignore[reportIncompatibleMethodOverride] counted, not computed
    dense: int
    distinct: int
    depth: int
    width: int
    max_bits: int
    total_bits: int

    family = "sqrt"

    def __str__(self) -> str:
        return (
            f"square root: N={self.N}, S={self.S}, width {self.width}, {self.depth:,} blocks, one "
            f"uniform attention, integers of up to {self.max_bits:,} bits"
        )
