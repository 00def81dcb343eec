"""The linear associative memory."""

from __future__ import annotations

from dataclasses import dataclass

from byheart.specs.base import Shapes, TokenSpec


@dataclass(frozen=True)
class AssociativeSpec(TokenSpec):
    """`N` tokens, keys of `S` tokens, width `d`.

    >>> AssociativeSpec(N=10, S=1, d=64).parameters
    5376
    """

    d: int

    family = "associative"
    printed = ("N", "S", "d")

    @property
    def parameters(self) -> int:
        """d S N signs, the d x d matrix, d N for W_U."""
        return self.d * (self.S * self.N + self.d + self.N)

    def weight_shapes(self) -> Shapes:
        return {
            "W_E": (self.S, self.N, self.d),
            "W": (self.d, self.d),
            "W_U": (self.d, self.N),
        }

    def row_bytes(self, itemsize: int) -> int:
        return itemsize * (self.d * (self.S + 2) + 2 * self.N)
