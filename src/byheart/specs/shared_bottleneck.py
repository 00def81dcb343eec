"""The attention-only Transformer as its authors coded it: one bottleneck for all heads."""

from __future__ import annotations

from dataclasses import dataclass

from byheart.specs.attention_only import AttentionOnlySpec
from byheart.specs.base import Shapes, TokenSpec


@dataclass(frozen=True)
class SharedBottleneckSpec(TokenSpec):
    """Sizes of the `as-coded` model of Dana et al. (2025), whose heads share one bottleneck.

    `N` tokens, `S` positions, width `d`; each of `layers` layers compresses to `d_h` once, has `H`
    heads of d_h x d_h matrices there, and decompresses their sum once. For d = d_h there is
    nothing to compress, and the model is attention-only with positions="attention", scale=True.

    >>> SharedBottleneckSpec(N=50, S=2, d=10, d_h=5, H=20).parameters  # per head: 4 d_h^2
    3110
    >>> same = SharedBottleneckSpec(N=50, S=2, d=10, d_h=10, H=20)
    >>> same.parameters == same.heads.parameters
    True
    """

    d: int
    d_h: int
    H: int
    layers: int = 1

    family = "shared-bottleneck"
    title = "shared bottleneck (as coded)"
    printed = ("N", "S", "d", "d_h", "H")

    @property
    def compressed(self) -> bool:
        """Whether there is a bottleneck (an expansion where d_h > d): d != d_h."""
        return self.d != self.d_h

    @property
    def heads(self) -> AttentionOnlySpec:
        """The attention inside the bottleneck, of width d_h."""
        return AttentionOnlySpec(
            N=self.N,
            S=self.S,
            d=self.d_h,
            d_h=self.d_h,
            H=self.H,
            layers=self.layers,
            positions="attention",
            scale=True,
        )

    @property
    def parameters(self) -> int:
        """2 N d + S d_h + layers (4 d_h^2 H + 2 d d_h), the last term only for d != d_h."""
        layer = 4 * self.d_h**2 * self.H + (2 * self.d * self.d_h if self.compressed else 0)
        return 2 * self.N * self.d + self.S * self.d_h + self.layers * layer

    def weight_shapes(self) -> Shapes:
        head = (self.layers, self.H, self.d_h, self.d_h)
        shapes: Shapes = {
            "W_E": (self.N, self.d),
            "W_pos": (self.S, self.d_h),
        }
        if self.compressed:
            shapes["W_C"] = (self.layers, self.d, self.d_h)
            shapes["W_D"] = (self.layers, self.d_h, self.d)
        shapes |= dict.fromkeys(("W_Q", "W_K", "W_V", "W_O"), head)
        return shapes | {"W_U": (self.d, self.N)}

    def row_bytes(self, itemsize: int) -> int:
        return self.heads.row_bytes(itemsize) + itemsize * self.S * self.d

    def details(self) -> list[str]:
        return [f"{self.layers} layers"] if self.layers > 1 else []
