"""The attention-only Transformer of Dana et al. (2025)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from byheart.specs.base import Implied, Shapes, TokenSpec


@dataclass(frozen=True)
class AttentionOnlySpec(TokenSpec):
    """Sizes and options of an attention-only Transformer; knows its exact parameter count.

    `N` tokens, `S` positions, width `d`, head width `d_h`, `H` heads in each of `layers` layers,
    `qk_rank` = rank r of each W_QK (default d_h).
    `positions`: "input" adds pos once, to the input (the paper); "attention" adds it to what the
    heads read in every layer but not to the skip (the authors' code); "none" has no positions.
    `scale`: divide scores by sqrt(r) (the authors' code; the paper has none). `skip`: add x_S.
    `attention`: "softmax", or "hardmax": equal weights on the largest scores, 0 on the others.

    >>> spec = AttentionOnlySpec(N=50, S=2, d=10, d_h=10, H=99)
    >>> spec.parameters, spec.parameters == 10 * (2 + 2 * 50 + 4 * 10 * 99)
    (40620, True)
    """

    d: int
    d_h: int
    H: int
    layers: int = 1
    qk_rank: int = 0
    positions: Literal["input", "attention", "none"] = "input"
    scale: bool = False
    skip: bool = True
    attention: Literal["softmax", "hardmax"] = "softmax"

    family = "attention-only"
    printed = ("N", "S", "d", "d_h", "H")
    least: ClassVar = {"qk_rank": 0}

    def implied(self) -> Implied:
        return {"qk_rank": self.qk_rank or self.d_h}

    @property
    def heads(self) -> AttentionOnlySpec:
        """The attention of the Transformer, which here is all of it."""
        return self

    @property
    def parameters(self) -> int:
        """d (S + 2N + 2 (r + d_h) H layers): with r = d_h and one layer, d (S + 2N + 4 d_h H); with
        r = 1, d (S + 2N + 2 (d_h + 1) H) (Remark 2)."""
        S = 0 if self.positions == "none" else self.S
        return self.d * (S + 2 * self.N + 2 * (self.qk_rank + self.d_h) * self.H * self.layers)

    def weight_shapes(self) -> Shapes:
        heads = (self.layers, self.H)
        shapes = {
            "W_E": (self.N, self.d),
            "W_pos": (self.S, self.d),
            "W_Q": (*heads, self.d, self.qk_rank),
            "W_K": (*heads, self.d, self.qk_rank),
            "W_V": (*heads, self.d, self.d_h),
            "W_O": (*heads, self.d_h, self.d),
            "W_U": (self.d, self.N),
        }
        if self.positions == "none":
            del shapes["W_pos"]
        return shapes

    def row_bytes(self, itemsize: int) -> int:
        positions = self.S if self.layers > 1 else 1
        heads = self.H * (self.S + 2 * self.d + self.d_h + self.qk_rank) * positions
        return itemsize * (heads + self.S * (self.d + self.H * self.qk_rank) + 2 * self.N)

    def details(self) -> list[str]:
        layers = [f"{self.layers} layers"] if self.layers > 1 else []
        hardmax = ["hardmax"] if self.attention == "hardmax" else []
        return [*layers, f"rank(W_QK)={self.qk_rank}", *hardmax]
