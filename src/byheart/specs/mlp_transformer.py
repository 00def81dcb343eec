"""Attention with few heads, then one hidden layer: the MLP Transformer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from byheart.specs.attention_only import AttentionOnlySpec
from byheart.specs.base import Implied, Shapes, TokenSpec


@dataclass(frozen=True)
class MLPTransformerSpec(TokenSpec):
    """Sizes of a Transformer whose layers are attention, then x + W_out act(W_in x + b_in).

    `N` tokens, `S` positions, width `d`, `H` heads of width `d_h` (rank of W_QK: `qk_rank`,
    default d_h) and `w` hidden units in each of `layers` layers; w = 0 leaves the MLP out.
    `activation`: "gelu" (the exact one, with erf) or "relu". The first linear map has a bias, the
    second none (the model that Dana et al. (2025) compare with has H = 1, d_h = d, positions
    "attention", scale). `positions`, `scale`, `attention`: as in `AttentionOnlySpec`.

    >>> MLPTransformerSpec(N=50, S=2, d=10, d_h=10, H=1, w=40).parameters == (
    ...     10 * (2 + 2 * 50) + 4 * 10**2 + 2 * 10 * 40 + 40
    ... )
    True
    """

    d: int
    d_h: int
    H: int
    w: int
    layers: int = 1
    qk_rank: int = 0
    activation: Literal["gelu", "relu"] = "gelu"
    positions: Literal["input", "attention", "none"] = "input"
    scale: bool = False
    attention: Literal["softmax", "hardmax"] = "softmax"

    family = "mlp-transformer"
    title = "MLP Transformer"
    printed = ("N", "S", "d", "d_h", "H")
    least: ClassVar = {"qk_rank": 0, "w": 0}

    def implied(self) -> Implied:
        return {"qk_rank": self.qk_rank or self.d_h}

    @property
    def heads(self) -> AttentionOnlySpec:
        """The same Transformer without its MLPs."""
        fields = self.to_json().items()
        return AttentionOnlySpec.from_json(
            {name: value for name, value in fields if name not in ("w", "activation")}
        )

    @property
    def parameters(self) -> int:
        """d (S + 2N) + layers (2 d (r + d_h) H + 2 d w + w)."""
        return self.heads.parameters + self.layers * (2 * self.d + 1) * self.w

    def weight_shapes(self) -> Shapes:
        shapes = self.heads.weight_shapes()
        if self.w:
            shapes["W_in"] = (self.layers, self.d, self.w)
            shapes["b_in"] = (self.layers, self.w)
            shapes["W_out"] = (self.layers, self.w, self.d)
        return shapes

    def row_bytes(self, itemsize: int) -> int:
        positions = self.S if self.layers > 1 else 1
        return self.heads.row_bytes(itemsize) + itemsize * 2 * self.w * positions

    def details(self) -> list[str]:
        return [f"w={self.w} ({self.activation})", *self.heads.details()]
