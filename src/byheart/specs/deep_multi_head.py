"""Several multi-head attention layers that read one context (after Mahdavi et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass

from byheart.specs.base import Shapes, Spec


@dataclass(frozen=True)
class DeepMultiHeadSpec(Spec):
    """`layers` attention layers in which a query in R^d reads the same context of `n` vectors.

    Each layer adds what its `H` heads of width `d_h` and value width `d_v` read to the query; a map
    with bias reads `d_out` outputs at the end. Nobody attends to the query, so a shared context
    stays the same for all examples, as in the authors' model.

    >>> DeepMultiHeadSpec(d=16, n=8, d_h=16, H=4, layers=2, d_out=10).parameters
    4522
    """

    d: int
    n: int
    d_h: int
    H: int
    layers: int
    d_v: int = 1
    d_out: int = 1
    shared: bool | None = None

    family = "deep multi-head"
    printed = ("d", "n", "d_h", "H")

    @property
    def parameters(self) -> int:
        """L H (2 d d_h + 2 d d_v) + (d + 1) d_out."""
        head = 2 * self.d * (self.d_h + self.d_v)
        return self.layers * self.H * head + (self.d + 1) * self.d_out

    def weight_shapes(self) -> Shapes:
        lead = (self.layers, self.H)
        return {
            "W_Q": (*lead, self.d, self.d_h),
            "W_K": (*lead, self.d, self.d_h),
            "W_V": (*lead, self.d, self.d_v),
            "W_O": (*lead, self.d_v, self.d),
            "W_U": (self.d, self.d_out),
            "b_U": (self.d_out,),
        }

    def row_bytes(self, itemsize: int) -> int:
        heads = self.layers * self.H * (self.d_h + 2 * self.d + 2 * self.n + self.d_v)
        context = 0 if self.shared else 2 * self.n * self.d
        return itemsize * (heads + context + 2 * self.d + 2 * self.d_out)

    def details(self) -> list[str]:
        return [f"{self.layers} layers", f"{self.d_out} outputs"]
