"""Feed-forward blocks around one attention layer (Kajitsuka and Sato 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from byheart.specs.base import Implied, Shapes, Spec


@dataclass(frozen=True)
class FeedForwardTransformerSpec(Spec):
    """E_out o FF_2 o attention o FF_1 o E_in: ReLU blocks around one attention layer.

    Tokens in R^d, `n` of them, width `m`, `q` hidden units in each of `blocks` feed-forward
    blocks, one head of size `s`, `d_out` outputs (Kajitsuka and Sato 2025, eq. 165).
    `first` of the blocks come before the attention (FF_1; default: half of them), the others after
    it (FF_2). `uniform`: attention is the mean of all tokens, without W_Q and W_K. `read`: the
    position whose output is taken, counted from 0, or from the end if negative.

    >>> FeedForwardTransformerSpec(d=6, n=10, m=2, q=8, blocks=4).parameters
    190
    >>> FeedForwardTransformerSpec.experiment(d=6, n=10, blocks=2).parameters  # no W_Q, no W_K
    186
    """

    d: int
    n: int
    m: int
    q: int
    blocks: int
    s: int = 1
    attention: Literal["softmax", "hardmax"] = "softmax"
    d_out: int = 1
    first: int = -1
    uniform: bool = False
    read: int = -1

    family = "feed-forward"
    title = "feed-forward transformer"
    printed = ("d", "n", "m", "q")
    least: ClassVar = {"first": -1, "read": -(10**18)}  # what `read` may be depends on n

    def implied(self) -> Implied:
        return {"first": self.blocks // 2 if self.first == -1 else self.first}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.first > self.blocks:
            raise ValueError(f"first must be at most blocks = {self.blocks}, found {self.first}")
        if not -self.n <= self.read < self.n:
            raise ValueError(f"read must be a position of {self.n}, found {self.read}")

    @classmethod
    def experiment(
        cls, d: int, n: int, blocks: int, *, d_out: int = 1, read: int = -1, m: int = 2
    ) -> FeedForwardTransformerSpec:
        """The model of the paper's experiments: m = 2, q = 4 m, `blocks` blocks before and `blocks`
        after a uniform attention with s = 1; `read` = 0 in those on text."""
        return cls(d=d, n=n, m=m, q=4 * m, blocks=2 * blocks, d_out=d_out, uniform=True, read=read)

    @property
    def width(self) -> int:
        """max(m, s, q), the paper's width."""
        return max(self.m, self.s, self.q)

    @property
    def parameters(self) -> int:
        """m (d + d_out) (E_in, E_out), 2 m q + q + m a block, 4 m s for the head (2 m s if
        uniform); dense."""
        block = 2 * self.m * self.q + self.q + self.m
        head = (2 if self.uniform else 4) * self.m * self.s
        return self.m * (self.d + self.d_out) + self.blocks * block + head

    def weight_shapes(self) -> Shapes:
        shapes: Shapes = {
            "E_in": (self.d, self.m),
            "W_1": (self.blocks, self.m, self.q),
            "b_1": (self.blocks, self.q),
            "W_2": (self.blocks, self.q, self.m),
            "b_2": (self.blocks, self.m),
        }
        if not self.uniform:
            shapes |= dict.fromkeys(("W_Q", "W_K"), (self.m, self.s))
        return shapes | {
            "W_V": (self.m, self.s),
            "W_O": (self.s, self.m),
            "E_out": (self.m, self.d_out),
        }

    def row_bytes(self, itemsize: int) -> int:
        tokens = self.n * (self.d + 2 * self.m + 2 * self.q + self.s)
        return itemsize * (tokens + 2 * self.q + self.d_out)

    def details(self) -> list[str]:
        attention = "uniform attention" if self.uniform else self.attention
        return [f"{self.blocks} blocks", attention]
