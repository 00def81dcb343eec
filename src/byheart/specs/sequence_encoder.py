"""The low-rank sequence encoder of Dana et al. (2025)."""

from __future__ import annotations

from dataclasses import dataclass

from byheart.specs.base import Shapes, Spec


@dataclass(frozen=True)
class SequenceEncoderSpec(Spec):
    """Sizes of f(t) = W E(t): `T` sequences, each with a free vector in R^d, and `N` tokens.

    All logit matrices (N x T) of rank <= d, and so what every Transformer of width d is bounded
    by (Dana et al. 2025, Proposition 1).

    >>> SequenceEncoderSpec(T=100, N=10, d=2).parameters
    220
    """

    T: int
    N: int
    d: int

    family = "sequence-encoder"
    title = "sequence encoder"
    printed = ("T", "N", "d")

    @property
    def parameters(self) -> int:
        """d (T + N)."""
        return self.d * (self.T + self.N)

    def weight_shapes(self) -> Shapes:
        return {"E": (self.T, self.d), "W_U": (self.d, self.N)}

    def row_bytes(self, itemsize: int) -> int:
        return itemsize * (self.d + 2 * self.N)
