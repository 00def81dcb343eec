"""Architectures that read tokens: attention-only, its relatives, and what it is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from byheart.specs.base import CountedSpec, Implied, Shapes, TokenSpec

Gate = Literal["query", "key", "subject-sink"]
GATES: tuple[Gate, ...] = ("query", "key", "subject-sink")


@dataclass(frozen=True)
class AttentionOnlySpec(TokenSpec):
    """Sizes and options of the attention-only Transformer of Dana et al. (2025).

    `N` tokens, `S` positions, width `d`, head width `d_h`, `H` heads in each of `layers` layers,
    `qk_rank` = rank r of each W_QK (default d_h). `positions`: added to the input (the paper) or to
    what the heads read but not to the skip (the authors' code); `scale`: scores divided by sqrt(r)
    (their code); `skip`: add x_S; `attention`: hardmax is equal weights on the largest scores.

    >>> spec = AttentionOnlySpec(N=50, S=2, d=10, d_h=10, H=99)
    >>> spec.parameters, spec.parameters == 10 * (2 + 2 * 50 + 4 * 10 * 99)
    (40620, True)
    """

    d: int
    d_h: int
    H: int
    layers: int = 1
    qk_rank: int = 0
    positions: Literal["input", "attention", "none"] = "input"
    scale: bool = False
    skip: bool = True
    attention: Literal["softmax", "hardmax"] = "softmax"

    family = "attention-only"
    printed = ("N", "S", "d", "d_h", "H")
    least: ClassVar = {"qk_rank": 0}

    def implied(self) -> Implied:
        return {"qk_rank": self.qk_rank or self.d_h}

    @property
    def heads(self) -> AttentionOnlySpec:
        """The attention of the Transformer, which here is all of it."""
        return self

    @property
    def parameters(self) -> int:
        """d (S + 2N + 2 (r + d_h) H layers): with r = d_h and one layer, d (S + 2N + 4 d_h H); with
        r = 1, d (S + 2N + 2 (d_h + 1) H) (Remark 2)."""
        S = 0 if self.positions == "none" else self.S
        return self.d * (S + 2 * self.N + 2 * (self.qk_rank + self.d_h) * self.H * self.layers)

    def weight_shapes(self) -> Shapes:
        N, d, heads = self.N, self.d, (self.layers, self.H)
        positions: Shapes = {} if self.positions == "none" else {"W_pos": (self.S, d)}
        scores = dict.fromkeys(("W_Q", "W_K"), (*heads, d, self.qk_rank))
        values = {"W_V": (*heads, d, self.d_h), "W_O": (*heads, self.d_h, d)}
        return {"W_E": (N, d), **positions, **scores, **values, "W_U": (d, N)}

    def row_bytes(self, itemsize: int) -> int:
        positions = self.S if self.layers > 1 else 1
        heads = self.H * (self.S + 2 * self.d + self.d_h + self.qk_rank) * positions
        return itemsize * (heads + self.S * (self.d + self.H * self.qk_rank) + 2 * self.N)

    def details(self) -> list[str]:
        layers = [f"{self.layers} layers"] if self.layers > 1 else []
        hardmax = ["hardmax"] if self.attention == "hardmax" else []
        return [*layers, f"rank(W_QK)={self.qk_rank}", *hardmax]


@dataclass(frozen=True)
class SharedBottleneckSpec(CountedSpec, TokenSpec):
    """Sizes of the `as-coded` model of Dana et al. (2025), whose heads share one bottleneck.

    One map compresses to `d_h` and one decompresses, the same in all of `layers` layers; between
    them a layer has `H` heads of d_h x d_h matrices. For d = d_h there is nothing to compress: it
    is attention-only.

    >>> SharedBottleneckSpec(N=50, S=2, d=10, d_h=5, H=20).parameters  # per head: 4 d_h^2
    3110
    >>> same = SharedBottleneckSpec(N=50, S=2, d=10, d_h=10, H=20)
    >>> same.parameters == same.heads.parameters
    True
    """

    d: int
    d_h: int
    H: int
    layers: int = 1

    family = "shared-bottleneck"
    title = "shared bottleneck (as coded)"
    printed = ("N", "S", "d", "d_h", "H")

    @property
    def compressed(self) -> bool:
        """Whether there is a bottleneck (an expansion where d_h > d): d != d_h."""
        return self.d != self.d_h

    @property
    def heads(self) -> AttentionOnlySpec:
        """The attention inside the bottleneck, of width d_h."""
        sizes = (self.N, self.S, self.d_h, self.d_h, self.H, self.layers)
        return AttentionOnlySpec(*sizes, positions="attention", scale=True)

    def weight_shapes(self) -> Shapes:
        N, d, inside = self.N, self.d, self.heads.weight_shapes()
        maps: Shapes = {"W_C": (1, d, self.d_h), "W_D": (1, self.d_h, d)}  # for all layers
        heads = {name: inside[name] for name in ("W_Q", "W_K", "W_V", "W_O")}
        bottleneck = maps if self.compressed else {}
        return {"W_E": (N, d), "W_pos": inside["W_pos"], **bottleneck, **heads, "W_U": (d, N)}

    def row_bytes(self, itemsize: int) -> int:
        return self.heads.row_bytes(itemsize) + itemsize * self.S * self.d

    def details(self) -> list[str]:
        return [f"{self.layers} layers"] if self.layers > 1 else []


@dataclass(frozen=True)
class MLPTransformerSpec(CountedSpec, TokenSpec):
    """Sizes of a Transformer whose layers are attention, then x + W_out act(W_in x + b_in).

    `w` hidden units in each layer (0 leaves the MLP out), `activation` the exact GELU or ReLU; the
    others as in `AttentionOnlySpec`. Dana et al. (2025) compare with H = 1, d_h = d, positions
    "attention", scale.

    >>> MLPTransformerSpec(N=50, S=2, d=10, d_h=10, H=1, w=40).parameters == (
    ...     10 * (2 + 2 * 50) + 4 * 10**2 + 2 * 10 * 40 + 40
    ... )
    True
    """

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

    family = "mlp-transformer"
    title = "MLP Transformer"
    printed = ("N", "S", "d", "d_h", "H")
    least: ClassVar = {"qk_rank": 0, "w": 0}

    def implied(self) -> Implied:
        return {"qk_rank": self.qk_rank or self.d_h}

    @property
    def heads(self) -> AttentionOnlySpec:
        """The same Transformer without its MLPs."""
        fields = self.to_json()
        del fields["w"], fields["activation"]
        return AttentionOnlySpec.from_json(fields)

    def weight_shapes(self) -> Shapes:
        shapes, layers, d, w = self.heads.weight_shapes(), self.layers, self.d, self.w
        if w:
            shapes |= {"W_in": (layers, d, w), "b_in": (layers, w), "W_out": (layers, w, d)}
        return shapes

    def row_bytes(self, itemsize: int) -> int:
        positions = self.S if self.layers > 1 else 1
        return self.heads.row_bytes(itemsize) + itemsize * 2 * self.w * positions

    def details(self) -> list[str]:
        return [f"w={self.w} ({self.activation})", *self.heads.details()]


@dataclass(frozen=True)
class AssociativeSpec(CountedSpec, TokenSpec):
    """The linear associative memory: `N` tokens, keys of `S` tokens, width `d`.

    >>> AssociativeSpec(N=10, S=1, d=64).parameters
    5376
    """

    d: int

    family = "associative"
    printed = ("N", "S", "d")

    def weight_shapes(self) -> Shapes:
        N, d = self.N, self.d
        return {"W_E": (self.S, N, d), "W": (d, d), "W_U": (d, N)}

    def row_bytes(self, itemsize: int) -> int:
        return itemsize * (self.d * (self.S + 2) + 2 * self.N)


@dataclass(frozen=True)
class SequenceEncoderSpec(CountedSpec):
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

    def weight_shapes(self) -> Shapes:
        return {"E": (self.T, self.d), "W_U": (self.d, self.N)}

    def row_bytes(self, itemsize: int) -> int:
        return itemsize * (self.d + 2 * self.N)


@dataclass(frozen=True)
class ExactSpec(TokenSpec):
    """The square-root Transformer of exact integers (Kajitsuka and Sato 2025): `N` tokens, keys of
    `S` tokens, `classes` answers; what its network counts.

    `ordered`: the position is a coordinate of the token (otherwise keys are multisets). `ff1`: how
    tokens get their ids; `m` coordinates; `parameters` are the non-zero weights, `dense` all
    entries, `distinct` different values; bits are without signs. `register`: two attentions, in
    which all tokens are linked with a register token only (Remark 4.5).

    >>> ExactSpec(N=9, S=2, classes=3, ordered=True, ff1="hash", m=3, parameters=200, dense=600,
    ...           distinct=90, depth=50, width=3, max_bits=30, total_bits=2000).parameters
    200
    """

    classes: int
    ordered: bool
    ff1: str
    m: int
    parameters: int  # pyright: ignore[reportIncompatibleMethodOverride] counted, not computed
    dense: int
    distinct: int
    depth: int
    width: int
    max_bits: int
    total_bits: int
    register: bool = False

    family = "sqrt"

    def to_json(self) -> dict[str, Any]:
        """Every field; `register` only where there is one, as files had it before."""
        record = super().to_json()
        return record if self.register else {k: v for k, v in record.items() if k != "register"}

    def __str__(self) -> str:
        attention = "two attentions by a register" if self.register else "one uniform attention"
        return (
            f"square root: N={self.N}, S={self.S}, width {self.width}, {self.depth:,} blocks, "
            f"{attention}, integers of up to {self.max_bits:,} bits"
        )


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
        N, H, g, out, groups = self.N, self.H, self.d_g, self.d_g + self.check, self.groups
        shapes: Shapes = {"W_E": (N, g), "W_pos": (self.S + 1, g)}
        shapes |= {"W_O": (H, self.d_h, out), "W_U": (g, N), "group": (N,)}
        shapes |= {"point": (groups, self.k), "far": (self.k,)}
        shapes |= {"level": (groups,), "first": (groups,)}
        shapes["head_start"] = (self.shards + 1,)
        if self.bits:
            shapes["bits"] = (N, self.bits)
        if self.gate != "query":
            shapes["deciding"] = (1,)
        if self.gate == "subject-sink":
            shapes |= {"subject": (N,), "cancel": (2, g, out)}
        if self.untied:
            shapes |= {"u": (H, g), "w": (H, g), "V": (H, g, self.d_h)}
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
