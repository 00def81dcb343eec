"""An attention-only layer whose heads are gated to shards of facts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from byheart.specs.attention_only import AttentionOnlySpec
from byheart.specs.base import Implied, Shapes, TokenSpec

Gate = Literal["query", "key", "subject-sink"]
GATES: tuple[Gate, ...] = ("query", "key", "subject-sink")


@dataclass(frozen=True)
class ShardedSpec(TokenSpec):
    """An attention-only layer whose heads are gated to shards of facts (our own construction).

    `N` tokens with BOS as the last, keys of `S` tokens, `d_g` generic coordinates, heads of width
    `d_h`, `H` of them in `shards` shards of `groups` groups. Codes are lattice points in `k`
    dimensions scaled by `s1`, `s2`; `bits` per token gate sub-shards of hot tokens; gates have
    strength `lam` (λ). `check` extra output coordinates hold fingerprints of the keys.
    `gate`: which token opens a shard, and what closed heads read (`models/sharded.py`): "query"
    (the last), "key" (the first of two) or "subject-sink" (the first of any number).
    `untied`: every shard has u, w and V of its own.
    Width d = d_g + 1 + k + 1 + bits (+ 1 with bits or another gate than "query") + check.

    >>> spec = ShardedSpec(N=51, S=2, d_g=16, d_h=16, H=70, groups=10, shards=10, lam=64.0, s1=0.25)
    >>> spec.d, spec.parameters == 20 * (3 + 2 * 51 + 2 * (2 + 16) * 70)
    (20, True)
    """

    d_g: int
    d_h: int
    H: int
    groups: int
    shards: int
    lam: float
    s1: float
    s2: float = 0.0
    k: int = 2
    bits: int = 0
    check: int = 0
    gate: Gate = "query"
    untied: bool = False

    family = "sharded"
    least: ClassVar = {"bits": 0, "check": 0}

    def implied(self) -> Implied:
        return {"s2": self.s2 or self.s1**2}

    @property
    def marks_last(self) -> bool:
        """Whether pos_S carries a coordinate of its own, p = 1."""
        return self.bits > 0 or self.gate != "query"

    @property
    def d(self) -> int:
        return self.d_g + 1 + self.k + 1 + self.bits + self.marks_last + self.check

    @property
    def cancelling_heads(self) -> int:
        """Heads of the literal layer that no shard owns: 2 ceil(d_g / d_h) with a subject sink."""
        return 2 * -(-self.d_g // self.d_h) if self.gate == "subject-sink" else 0

    def dense(self) -> AttentionOnlySpec:
        """The literal layer: BOS in front, W_QK of rank 2 (3 where bits gate sub-shards)."""
        rank, H = (3 if self.bits else 2), self.H + self.cancelling_heads
        return AttentionOnlySpec(N=self.N, S=self.S + 1, d=self.d, d_h=self.d_h, H=H, qk_rank=rank)

    @property
    def parameters(self) -> int:
        """Of the literal layer, structural zeros included: d (S + 1 + 2N + 2 (r + d_h) H)."""
        return self.dense().parameters

    def weight_shapes(self) -> Shapes:
        """Shapes of the weights whose size the spec fixes (tied heads: as many as a shard has)."""
        shapes: Shapes = {
            "W_E": (self.N, self.d_g),
            "W_pos": (self.S + 1, self.d_g),
            "W_O": (self.H, self.d_h, self.d_g + self.check),
            "W_U": (self.d_g, self.N),
            "group": (self.N,),
            "point": (self.groups, self.k),
            "level": (self.groups,),
            "first": (self.groups,),
            "head_start": (self.shards + 1,),
        }
        if self.bits:
            shapes["bits"] = (self.N, self.bits)
        if self.gate != "query":
            shapes["deciding"] = (1,)
        if self.gate == "subject-sink":
            shapes |= {"subject": (self.N,), "cancel": (2, self.d_g, self.d_g + self.check)}
        if self.untied:
            shapes |= dict.fromkeys(("u", "w"), (self.H, self.d_g))
            shapes["V"] = (self.H, self.d_g, self.d_h)
        return shapes

    def row_bytes(self, itemsize: int) -> int:
        heads = -(-2 * self.H // self.shards)
        return itemsize * (heads * (self.S + self.d_g + self.d_h) + self.S * self.d_g + 2 * self.N)

    def __str__(self) -> str:
        return (
            f"sharded attention: N={self.N}, S={self.S}+1, d={self.d} (d_g={self.d_g}), "
            f"d_h={self.d_h}, H={self.H} in {self.shards} shards, \u03bb={self.lam:g}"
            + (f", {self.gate} gate" if self.gate != "query" else "")
            + (", untied" if self.untied else "")
        )
