"""The sizes of whole real models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from byheart.specs.base import Implied, Spec


@dataclass(frozen=True)
class TransformerSpec(Spec):
    """The sizes of a whole real model: `layers` blocks of attention and feed-forward.

    Width `d`, `H` query heads and `kv_heads` key-value heads of width `d_h` (kv_heads < H: grouped
    queries), context `S`, vocabulary `N` (None: the model reads vectors, such as image patches),
    feed-forward width `d_ff` with `gated` units or not. `bias`: linear maps have biases. `norm`:
    "layer" (2 d numbers) or "rms" (d). `other` counts what is not in the blocks or the token and
    position tables (final norm, token types, patches, poolers).

    >>> gpt2 = TransformerSpec(d=768, H=12, d_h=64, S=1024, N=50257, layers=12, d_ff=3072,
    ...                        bias=True, tied=True, other=2 * 768, name="GPT-2 small")
    >>> gpt2.parameters
    124439808
    """

    d: int
    H: int
    d_h: int
    S: int
    N: int | None
    layers: int
    d_ff: int = 0
    kv_heads: int = 0
    gated: bool = False
    bias: bool = False
    norm: Literal["layer", "rms"] = "layer"
    positions: Literal["learned", "rotary", "none"] = "learned"
    activation: str = "gelu"
    tied: bool = False
    other: int = 0
    name: str = ""

    family = "transformer"
    least: ClassVar = {"d_ff": 0, "kv_heads": 0, "other": 0}

    def implied(self) -> Implied:
        return {"kv_heads": self.kv_heads or self.H}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.H % self.kv_heads:
            raise ValueError(f"kv_heads must divide H: {self.kv_heads} does not divide {self.H}")

    @property
    def attention_parameters(self) -> int:
        """2 d d_h (H + kv_heads) a layer: W_Q and W_O for every head, W_K and W_V for every group;
        with `bias` also d_h (H + 2 kv_heads) + d."""
        weights = 2 * self.d * self.d_h * (self.H + self.kv_heads)
        return weights + (self.d_h * (self.H + 2 * self.kv_heads) + self.d) * self.bias

    @property
    def block_parameters(self) -> int:
        """Attention, feed-forward (2 or 3 matrices) and two norms."""
        forward = (3 if self.gated else 2) * self.d * self.d_ff
        forward += (self.d_ff * (2 if self.gated else 1) + self.d) * self.bias * (self.d_ff > 0)
        return self.attention_parameters + forward + 2 * self._norm

    @property
    def _norm(self) -> int:
        return self.d * (2 if self.norm == "layer" else 1)

    @property
    def parameters(self) -> int:
        """Blocks, token table (twice unless `tied`), learned positions and `other`."""
        tokens = 0 if self.N is None else self.N * self.d * (1 if self.tied else 2)
        positions = self.S * self.d if self.positions == "learned" else 0
        return self.layers * self.block_parameters + tokens + positions + self.other

    def __str__(self) -> str:
        groups = f" ({self.kv_heads} key-value heads)" if self.kv_heads < self.H else ""
        tokens = "" if self.N is None else f", N={self.N}"
        return (
            f"{self.name or 'transformer'}: d={self.d}, H={self.H}{groups}, d_h={self.d_h}, "
            f"context {self.S}{tokens}, {self.layers} layers"
        )
