"""The linear associative memory W = Σ_i w_U(g(i)) w_e(i)^T (slides of 2024, after Bietti et al.).

    logits(t) = W_U^T W w_e(t),     w_e(t) = d^{-1/2} r_1(t_1) ⊙ ... ⊙ r_S(t_S)

The slides have one token per key (S = 1, a random embedding per token). For longer keys the
position embeddings r_s(t_s) in {-1, +1}^d are multiplied entry by entry, which gives every
sequence its own nearly orthogonal vector. The baseline that attention is measured against.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

Weights = dict[str, Tensor]


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


def keys(spec: AssociativeSpec, weights: Weights, tokens: Tensor) -> Tensor:
    """w_e(t), unit vectors: (models, B, d)."""
    W_E = weights["W_E"]
    product = W_E[:, 0][:, tokens[:, 0]]
    for s in range(1, spec.S):
        product = product * W_E[:, s][:, tokens[:, s]]
    return product / math.sqrt(spec.d)


def forward(spec: AssociativeSpec, weights: Weights, tokens: Tensor) -> Tensor:
    """Logits of every model: (models, B, N)."""
    return torch.bmm(keys(spec, weights, tokens), weights["W"]) @ weights["W_U"]
