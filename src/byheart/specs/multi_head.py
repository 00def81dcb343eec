"""One multi-head attention layer over a query and a context of vectors (Mahdavi et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass

from byheart.specs.base import Shapes, Spec


@dataclass(frozen=True)
class MultiHeadSpec(Spec):
    """One multi-head attention layer that reads a query e in R^d and a context of `n` tokens.

    `H` heads, query and key width `d_h`, value width `d_v` (1 is enough for a scalar label),
    `d_out` outputs; `shared`: every example has the same context, or its own, or None, not said
    (Mahdavi et al. 2024).

    The theorem's layer has nothing else. The authors' code adds three things, each off here:
    `embed`: a d x d map with bias on all n+1 tokens, then sinusoidal positions, the query being
    position 0; `scale`: logits divided by sqrt(d) (not sqrt(d_h)); `decoder`: heads write into R^d
    and a map with bias reads d_out outputs from there. Nobody attends to the query in either.

    >>> MultiHeadSpec(d=64, n=32, d_h=64, H=20).parameters
    165140
    >>> MultiHeadSpec.reference(n=32, H=20).parameters
    177060
    """

    d: int
    n: int
    d_h: int
    H: int
    d_v: int = 1
    d_out: int = 1
    shared: bool | None = None
    embed: bool = False
    scale: bool = False
    decoder: bool = False

    family = "multi-head"

    @classmethod
    def reference(
        cls,
        n: int = 32,
        H: int = 20,
        d_out: int = 100,
        d_h: int = 64,
        *,
        shared: bool | None = None,
    ) -> MultiHeadSpec:
        """The model of the authors' experiments: d = 64, d_v = 1, embedding, scale, decoder."""
        return cls(64, n, d_h, H, 1, d_out, shared, embed=True, scale=True, decoder=True)

    @property
    def parameters(self) -> int:
        """H (2 d d_h + d d_v) + H d_v d_out: W_Q and W_K, W_V, W_O; and, where the spec has them,
        d² + d of the embedding, H d_v d + (d + 1) d_out of W_O and the decoder."""
        heads = self.H * (2 * self.d * self.d_h + self.d * self.d_v + self.d_v * self._written)
        embedding = self.d * (self.d + 1) if self.embed else 0
        return heads + embedding + ((self.d + 1) * self.d_out if self.decoder else 0)

    @property
    def _written(self) -> int:
        """What a head writes: outputs, or a vector for the decoder."""
        return self.d if self.decoder else self.d_out

    def weight_shapes(self) -> Shapes:
        d, H = self.d, self.H
        shapes: Shapes = {
            "W_Q": (H, d, self.d_h),
            "W_K": (H, d, self.d_h),
            "W_V": (H, d, self.d_v),
            "W_O": (H, self.d_v, self._written),
        }
        if self.embed:
            shapes |= {"W_E": (d, d), "b_E": (d,)}
        if self.decoder:
            shapes |= {"W_U": (d, self.d_out), "b_U": (self.d_out,)}
        return shapes

    def row_bytes(self, itemsize: int) -> int:
        heads = self.H * (self.d_h + 2 * self.d + 2 * self.n + self.d_v)
        context = 0 if self.shared else 2 * self.n * self.d
        return itemsize * (heads + context + 2 * self.d + 2 * self.d_out)

    def __str__(self) -> str:
        context = "shared context" if self.shared else "context"
        parts = [f"d={self.d}", f"{context} n={self.n}", f"d_h={self.d_h}", f"H={self.H}"]
        parts += [f"d_v={self.d_v}"] if self.d_v > 1 else []
        parts += [f"{self.d_out} outputs"] if self.d_out > 1 else []
        parts += [name for name in ("embed", "scale", "decoder") if getattr(self, name)]
        return "multi-head: " + ", ".join(parts)
