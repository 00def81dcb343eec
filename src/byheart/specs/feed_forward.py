"""Feed-forward blocks around one attention layer (Kajitsuka and Sato 2025)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from byheart.specs._checks import one_of, whole


@dataclass(frozen=True)
class FeedForwardTransformerSpec:
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

    family: ClassVar[str] = "feed-forward"

    def __post_init__(self) -> None:
        whole(self, "d", "n", "m", "q", "blocks", "s", "d_out")
        one_of(self, "attention", "softmax", "hardmax")
        whole(self, "first", least=-1)
        if self.first == -1:
            object.__setattr__(self, "first", self.blocks // 2)
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

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each weight of one model (without the model axis)."""
        shapes: dict[str, tuple[int, ...]] = {
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
        """Bytes of the largest intermediates per input sequence, for choosing a batch size."""
        tokens = self.n * (self.d + 2 * self.m + 2 * self.q + self.s)
        return itemsize * (tokens + 2 * self.q + self.d_out)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        attention = "uniform attention" if self.uniform else self.attention
        return (
            f"feed-forward transformer: d={self.d}, n={self.n}, m={self.m}, q={self.q}, "
            f"{self.blocks} blocks, {attention}"
        )
