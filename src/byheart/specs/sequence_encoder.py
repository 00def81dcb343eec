"""The low-rank sequence encoder of Dana et al. (2025)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from byheart.specs._checks import whole


@dataclass(frozen=True)
class SequenceEncoderSpec:
    """Sizes of f(t) = W E(t): `T` sequences, each with a free vector in R^d, and `N` tokens.

    All logit matrices (N x T) of rank <= d, and so what every Transformer of width d is bounded
    by (Dana et al. 2025, Proposition 1).

    >>> SequenceEncoderSpec(T=100, N=10, d=2).parameters
    220
    """

    T: int
    N: int
    d: int

    family: ClassVar[str] = "sequence-encoder"

    def __post_init__(self) -> None:
        whole(self, "T", "N", "d")

    @property
    def parameters(self) -> int:
        """d (T + N)."""
        return self.d * (self.T + self.N)

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each weight of one model (without the model axis)."""
        return {"E": (self.T, self.d), "W_U": (self.d, self.N)}

    def row_bytes(self, itemsize: int) -> int:
        """Bytes of the largest intermediates per sequence, for choosing a batch size."""
        return itemsize * (self.d + 2 * self.N)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return f"sequence encoder: T={self.T}, N={self.N}, d={self.d}"
