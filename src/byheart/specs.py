"""Specs: frozen dataclasses that fix an architecture and know its parameter count.

Nothing here imports torch: theory answers questions about specs without it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal


@dataclass(frozen=True)
class AttentionOnlySpec:
    """Sizes and options of an attention-only Transformer; knows its exact parameter count.

    `N` tokens, `S` positions, width `d`, head width `d_h`, `H` heads in each of `layers` layers,
    `qk_rank` = rank r of each W_QK (default d_h).
    `positions`: "input" adds pos once, to the input (the paper); "attention" adds it to what the
    heads read in every layer but not to the skip (the authors' code); "none" has no positions.
    `scale`: divide scores by sqrt(r) (the authors' code; the paper has none). `skip`: add x_S.

    >>> spec = AttentionOnlySpec(N=50, S=2, d=10, d_h=10, H=99)
    >>> spec.parameters, spec.parameters == 10 * (2 + 2 * 50 + 4 * 10 * 99)
    (40620, True)
    """

    N: int
    S: int
    d: int
    d_h: int
    H: int
    layers: int = 1
    qk_rank: int = 0
    positions: Literal["input", "attention", "none"] = "input"
    scale: bool = False
    skip: bool = True

    family: ClassVar[str] = "attention-only"

    def __post_init__(self) -> None:
        if self.qk_rank == 0:
            object.__setattr__(self, "qk_rank", self.d_h)
        for name in ("N", "S", "d", "d_h", "H", "layers", "qk_rank"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be a whole number >= 1, found {value!r}")
        if self.positions not in ("input", "attention", "none"):
            raise ValueError(
                f"positions must be input, attention or none, found {self.positions!r}"
            )

    @property
    def parameters(self) -> int:
        """d (S + 2N + 2 (r + d_h) H layers): with r = d_h and one layer, d (S + 2N + 4 d_h H)."""
        S = 0 if self.positions == "none" else self.S
        return self.d * (S + 2 * self.N + 2 * (self.qk_rank + self.d_h) * self.H * self.layers)

    @property
    def rank1_parameters(self) -> int:
        """The count with rank-1 W_QK, d (S + 2N + 2 (d_h + 1) H layers) (Remark 2)."""
        return AttentionOnlySpec(**{**self.to_json(), "qk_rank": 1}).parameters

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each weight of one model (without the model axis)."""
        heads = (self.layers, self.H)
        shapes = {
            "W_E": (self.N, self.d),
            "W_pos": (self.S, self.d),
            "W_Q": (*heads, self.d, self.qk_rank),
            "W_K": (*heads, self.d, self.qk_rank),
            "W_V": (*heads, self.d, self.d_h),
            "W_O": (*heads, self.d_h, self.d),
            "W_U": (self.d, self.N),
        }
        if self.positions == "none":
            del shapes["W_pos"]
        return shapes

    def row_bytes(self, itemsize: int) -> int:
        """Bytes of the largest intermediates per input sequence, for choosing a batch size."""
        positions = self.S if self.layers > 1 else 1
        heads = self.H * (self.S + 2 * self.d + self.d_h + self.qk_rank) * positions
        return itemsize * (heads + self.S * (self.d + self.H * self.qk_rank) + 2 * self.N)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        layers = f", {self.layers} layers" if self.layers > 1 else ""
        return (
            f"attention-only: N={self.N}, S={self.S}, d={self.d}, d_h={self.d_h}, H={self.H}"
            f"{layers}, rank(W_QK)={self.qk_rank}"
        )


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


Gate = Literal["query", "key", "subject-sink"]
GATES: tuple[Gate, ...] = ("query", "key", "subject-sink")


@dataclass(frozen=True)
class ShardedSpec:
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

    N: int
    S: int
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

    family: ClassVar[str] = "sharded"

    def __post_init__(self) -> None:
        for name in ("N", "S", "d_g", "d_h", "H", "groups", "shards"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, found {getattr(self, name)}")
        if self.gate not in GATES:
            raise ValueError(f"gate must be one of {', '.join(GATES)}, found {self.gate!r}")
        if self.s2 == 0.0:
            object.__setattr__(self, "s2", self.s1**2)

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

    @property
    def stored_numbers(self) -> int:
        """Distinct numbers: tied heads count once, gates are k + 1 integers a group."""
        drawn = 2 * self.d_g + self.d_g * self.d_h
        per_head = self.d_h * (self.d_g + self.check)
        heads = self.H if self.untied else -(-self.H // self.shards)
        tokens = self.N * (2 * self.d_g + 1 + self.bits)
        cancel = 2 * self.d_g * (self.d_g + self.check) if self.cancelling_heads else 0
        return self.H * per_head + heads * drawn + tokens + self.groups * (self.k + 2) + cancel

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the weights whose size the spec fixes (tied heads: as many as a shard has)."""
        shapes: dict[str, tuple[int, ...]] = {
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
        """Bytes of the largest intermediates per key, for choosing a batch size."""
        heads = -(-2 * self.H // self.shards)
        return itemsize * (heads * (self.S + self.d_g + self.d_h) + self.S * self.d_g + 2 * self.N)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"sharded attention: N={self.N}, S={self.S}+1, d={self.d} (d_g={self.d_g}), "
            f"d_h={self.d_h}, H={self.H} in {self.shards} shards, \u03bb={self.lam:g}"
            + (f", {self.gate} gate" if self.gate != "query" else "")
            + (", untied" if self.untied else "")
        )


Spec = AttentionOnlySpec | AssociativeSpec | ShardedSpec


def _whole(owner: object, *names: str, least: int = 1) -> None:
    """Refuse what is not a whole number >= `least`, naming the field."""
    for name in names:
        value = getattr(owner, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name} must be a whole number >= {least}, found {value!r}")


@dataclass(frozen=True)
class MultiHeadSpec:
    """One multi-head attention layer that reads a query e in R^d and a context of `n` tokens.

    `H` heads, query and key width `d_h`, value width `d_v` (1 is enough for a scalar label),
    `d_out` outputs; `shared`: every example has the same context, or its own, or None, not said
    (Mahdavi et al. 2024).

    >>> MultiHeadSpec(d=64, n=32, d_h=64, H=20).parameters
    165140
    """

    d: int
    n: int
    d_h: int
    H: int
    d_v: int = 1
    d_out: int = 1
    shared: bool | None = None

    family: ClassVar[str] = "multi-head"

    def __post_init__(self) -> None:
        _whole(self, "d", "n", "d_h", "H", "d_v", "d_out")

    @property
    def parameters(self) -> int:
        """H (2 d d_h + d d_v) + H d_v d_out: W_Q and W_K, W_V, W_O."""
        return self.H * (2 * self.d * self.d_h + self.d * self.d_v + self.d_v * self.d_out)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        context = "shared context" if self.shared else "context"
        return f"multi-head: d={self.d}, {context} n={self.n}, d_h={self.d_h}, H={self.H}"


@dataclass(frozen=True)
class FeedForwardTransformerSpec:
    """E_out o FF_2 o attention o FF_1 o E_in: ReLU blocks around one attention layer.

    Tokens in R^d, `n` of them, width `m`, `q` hidden units in each of `blocks` feed-forward
    blocks, one head of size `s` (Kajitsuka and Sato 2025, eq. 165: m = 2, q = 8).

    >>> FeedForwardTransformerSpec(d=6, n=10, m=2, q=8, blocks=4).parameters
    190
    """

    d: int
    n: int
    m: int
    q: int
    blocks: int
    s: int = 1
    attention: Literal["softmax", "hardmax"] = "softmax"

    family: ClassVar[str] = "feed-forward"

    def __post_init__(self) -> None:
        _whole(self, "d", "n", "m", "q", "blocks", "s")
        if self.attention not in ("softmax", "hardmax"):
            raise ValueError(f"attention must be softmax or hardmax, found {self.attention!r}")

    @property
    def width(self) -> int:
        """max(m, s, q), the paper's width."""
        return max(self.m, self.s, self.q)

    @property
    def parameters(self) -> int:
        """m d + m (E_in, E_out), 2 m q + q + m a block, 4 m s for the head; dense."""
        block = 2 * self.m * self.q + self.q + self.m
        return self.m * (self.d + 1) + self.blocks * block + 4 * self.m * self.s

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"feed-forward transformer: d={self.d}, n={self.n}, m={self.m}, q={self.q}, "
            f"{self.blocks} blocks, {self.attention}"
        )


@dataclass(frozen=True)
class TransformerSpec:
    """The sizes of a whole real model: `layers` blocks of attention and feed-forward.

    Width `d`, `H` query heads and `kv_heads` key-value heads of width `d_h` (kv_heads < H: grouped
    queries), context `S`, vocabulary `N` (None: the model reads vectors, such as image patches),
    feed-forward width `d_ff` with `gated` units or not. `bias`: linear maps have biases. `norm`:
    "layer" (2 d numbers) or "rms" (d). `other` counts what is not in the blocks or the token and
    position tables (final norm, token types, patches, poolers).

    >>> gpt2 = TransformerSpec(d=768, H=12, d_h=64, S=1024, N=50257, layers=12, d_ff=3072,
    ...                        bias=True, tied=True, other=2 * 768, name="GPT-2 small")
    >>> gpt2.parameters
    124439808
    """

    d: int
    H: int
    d_h: int
    S: int
    N: int | None
    layers: int
    d_ff: int = 0
    kv_heads: int = 0
    gated: bool = False
    bias: bool = False
    norm: Literal["layer", "rms"] = "layer"
    positions: Literal["learned", "rotary", "none"] = "learned"
    activation: str = "gelu"
    tied: bool = False
    other: int = 0
    name: str = ""

    family: ClassVar[str] = "transformer"

    def __post_init__(self) -> None:
        if self.kv_heads == 0:
            object.__setattr__(self, "kv_heads", self.H)
        _whole(self, "d", "H", "d_h", "S", "layers", "kv_heads")
        _whole(self, "d_ff", "other", least=0)
        if self.N is not None:
            _whole(self, "N")
        if self.H % self.kv_heads:
            raise ValueError(f"kv_heads must divide H: {self.kv_heads} does not divide {self.H}")

    @property
    def attention_parameters(self) -> int:
        """2 d d_h (H + kv_heads) a layer: W_Q and W_O for every head, W_K and W_V for every group;
        with `bias` also d_h (H + 2 kv_heads) + d."""
        weights = 2 * self.d * self.d_h * (self.H + self.kv_heads)
        return weights + (self.d_h * (self.H + 2 * self.kv_heads) + self.d) * self.bias

    @property
    def block_parameters(self) -> int:
        """Attention, feed-forward (2 or 3 matrices) and two norms."""
        forward = (3 if self.gated else 2) * self.d * self.d_ff
        forward += (self.d_ff * (2 if self.gated else 1) + self.d) * self.bias * (self.d_ff > 0)
        return self.attention_parameters + forward + 2 * self._norm

    @property
    def _norm(self) -> int:
        return self.d * (2 if self.norm == "layer" else 1)

    @property
    def parameters(self) -> int:
        """Blocks, token table (twice unless `tied`), learned positions and `other`."""
        tokens = 0 if self.N is None else self.N * self.d * (1 if self.tied else 2)
        positions = self.S * self.d if self.positions == "learned" else 0
        return self.layers * self.block_parameters + tokens + positions + self.other

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        groups = f" ({self.kv_heads} key-value heads)" if self.kv_heads < self.H else ""
        tokens = "" if self.N is None else f", N={self.N}"
        return (
            f"{self.name or 'transformer'}: d={self.d}, H={self.H}{groups}, d_h={self.d_h}, "
            f"context {self.S}{tokens}, {self.layers} layers"
        )
