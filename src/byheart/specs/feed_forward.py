"""Feed-forward blocks around one attention layer (Kajitsuka and Sato 2025)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from byheart.specs._checks import whole


@dataclass(frozen=True)
class FeedForwardTransformerSpec:
    """E_out o FF_2 o attention o FF_1 o E_in: ReLU blocks around one attention layer.

    Tokens in R^d, `n` of them, width `m`, `q` hidden units in each of `blocks` feed-forward
    blocks, one head of size `s` (Kajitsuka and Sato 2025, eq. 165: m = 2, q = 8).

    >>> FeedForwardTransformerSpec(d=6, n=10, m=2, q=8, blocks=4).parameters
    190
    """

    d: int
    n: int
    m: int
    q: int
    blocks: int
    s: int = 1
    attention: Literal["softmax", "hardmax"] = "softmax"

    family: ClassVar[str] = "feed-forward"

    def __post_init__(self) -> None:
        whole(self, "d", "n", "m", "q", "blocks", "s")
        if self.attention not in ("softmax", "hardmax"):
            raise ValueError(f"attention must be softmax or hardmax, found {self.attention!r}")

    @property
    def width(self) -> int:
        """max(m, s, q), the paper's width."""
        return max(self.m, self.s, self.q)

    @property
    def parameters(self) -> int:
        """m d + m (E_in, E_out), 2 m q + q + m a block, 4 m s for the head; dense."""
        block = 2 * self.m * self.q + self.q + self.m
        return self.m * (self.d + 1) + self.blocks * block + 4 * self.m * self.s

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"feed-forward transformer: d={self.d}, n={self.n}, m={self.m}, q={self.q}, "
            f"{self.blocks} blocks, {self.attention}"
        )
