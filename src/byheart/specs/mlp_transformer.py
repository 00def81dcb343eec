"""Attention with few heads, then one hidden layer: the MLP Transformer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from byheart.specs._checks import one_of, whole
from byheart.specs.attention_only import AttentionOnlySpec


@dataclass(frozen=True)
class MLPTransformerSpec:
    """Sizes of a Transformer whose layers are attention, then x + W_out act(W_in x + b_in).

    `N` tokens, `S` positions, width `d`, `H` heads of width `d_h` (rank of W_QK: `qk_rank`,
    default d_h) and `w` hidden units in each of `layers` layers; w = 0 leaves the MLP out.
    `activation`: "gelu" (the exact one, with erf) or "relu". The first linear map has a bias, the
    second none (the model that Dana et al. (2025) compare with has H = 1, d_h = d, positions
    "attention", scale). `positions`, `scale`, `attention`: as in `AttentionOnlySpec`.

    >>> MLPTransformerSpec(N=50, S=2, d=10, d_h=10, H=1, w=40).parameters == (
    ...     10 * (2 + 2 * 50) + 4 * 10**2 + 2 * 10 * 40 + 40
    ... )
    True
    """

    N: int
    S: int
    d: int
    d_h: int
    H: int
    w: int
    layers: int = 1
    qk_rank: int = 0
    activation: Literal["gelu", "relu"] = "gelu"
    positions: Literal["input", "attention", "none"] = "input"
    scale: bool = False
    attention: Literal["softmax", "hardmax"] = "softmax"

    family: ClassVar[str] = "mlp-transformer"

    def __post_init__(self) -> None:
        whole(self, "w", least=0)
        one_of(self, "activation", "gelu", "relu")
        object.__setattr__(self, "qk_rank", self.heads.qk_rank)  # and the other checks

    @property
    def heads(self) -> AttentionOnlySpec:
        """The same Transformer without its MLPs."""
        own = self.to_json()
        return AttentionOnlySpec(**{k: v for k, v in own.items() if k not in ("w", "activation")})

    @property
    def parameters(self) -> int:
        """d (S + 2N) + layers (2 d (r + d_h) H + 2 d w + w)."""
        return self.heads.parameters + self.layers * (2 * self.d + 1) * self.w

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each weight of one model (without the model axis)."""
        shapes = self.heads.weight_shapes()
        if self.w:
            shapes["W_in"] = (self.layers, self.d, self.w)
            shapes["b_in"] = (self.layers, self.w)
            shapes["W_out"] = (self.layers, self.w, self.d)
        return shapes

    def row_bytes(self, itemsize: int) -> int:
        """Bytes of the largest intermediates per input sequence, for choosing a batch size."""
        positions = self.S if self.layers > 1 else 1
        return self.heads.row_bytes(itemsize) + itemsize * 2 * self.w * positions

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        layers = f", {self.layers} layers" if self.layers > 1 else ""
        return (
            f"MLP Transformer: N={self.N}, S={self.S}, d={self.d}, d_h={self.d_h}, H={self.H}, "
            f"w={self.w} ({self.activation}){layers}, rank(W_QK)={self.qk_rank}"
            + (", hardmax" if self.attention == "hardmax" else "")
        )
