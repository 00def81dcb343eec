"""Several multi-head attention layers that read one context (after Mahdavi et al. 2024)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from byheart.specs._checks import whole


@dataclass(frozen=True)
class DeepMultiHeadSpec:
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

    family: ClassVar[str] = "deep multi-head"

    def __post_init__(self) -> None:
        whole(self, "d", "n", "d_h", "H", "layers", "d_v", "d_out")

    @property
    def parameters(self) -> int:
        """L H (2 d d_h + 2 d d_v) + (d + 1) d_out."""
        head = 2 * self.d * (self.d_h + self.d_v)
        return self.layers * self.H * head + (self.d + 1) * self.d_out

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each weight of one model (without the model axis)."""
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
        """Bytes of the largest intermediates per example, for choosing a batch size."""
        heads = self.layers * self.H * (self.d_h + 2 * self.d + 2 * self.n + self.d_v)
        own = 0 if self.shared else 2 * self.n * self.d
        return itemsize * (heads + own + 2 * self.d + 2 * self.d_out)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"deep multi-head: d={self.d}, n={self.n}, d_h={self.d_h}, H={self.H}, "
            f"{self.layers} layers, {self.d_out} outputs"
        )
