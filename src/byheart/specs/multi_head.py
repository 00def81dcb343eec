"""One multi-head attention layer over a query and a context of vectors (Mahdavi et al. 2024)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from byheart.specs._checks import whole


@dataclass(frozen=True)
class MultiHeadSpec:
    """One multi-head attention layer that reads a query e in R^d and a context of `n` tokens.

    `H` heads, query and key width `d_h`, value width `d_v` (1 is enough for a scalar label),
    `d_out` outputs; `shared`: every example has the same context, or its own, or None, not said
    (Mahdavi et al. 2024).

    >>> MultiHeadSpec(d=64, n=32, d_h=64, H=20).parameters
    165140
    """

    d: int
    n: int
    d_h: int
    H: int
    d_v: int = 1
    d_out: int = 1
    shared: bool | None = None

    family: ClassVar[str] = "multi-head"

    def __post_init__(self) -> None:
        whole(self, "d", "n", "d_h", "H", "d_v", "d_out")

    @property
    def parameters(self) -> int:
        """H (2 d d_h + d d_v) + H d_v d_out: W_Q and W_K, W_V, W_O."""
        return self.H * (2 * self.d * self.d_h + self.d * self.d_v + self.d_v * self.d_out)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        context = "shared context" if self.shared else "context"
        return f"multi-head: d={self.d}, {context} n={self.n}, d_h={self.d_h}, H={self.H}"
