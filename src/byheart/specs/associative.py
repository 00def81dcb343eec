"""The linear associative memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class AssociativeSpec:
    """`N` tokens, keys of `S` tokens, width `d`.

    >>> AssociativeSpec(N=10, S=1, d=64).parameters
    5376
    """

    N: int
    S: int
    d: int

    family: ClassVar[str] = "associative"

    def __post_init__(self) -> None:
        for name in ("N", "S", "d"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, found {getattr(self, name)}")

    @property
    def parameters(self) -> int:
        """d S N signs, the d x d matrix, d N for W_U."""
        return self.d * (self.S * self.N + self.d + self.N)

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        return {
            "W_E": (self.S, self.N, self.d),
            "W": (self.d, self.d),
            "W_U": (self.d, self.N),
        }

    def row_bytes(self, itemsize: int) -> int:
        return itemsize * (self.d * (self.S + 2) + 2 * self.N)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return f"associative: N={self.N}, S={self.S}, d={self.d}"
