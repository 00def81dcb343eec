"""Architectures that read vectors, and the sizes of whole real models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from byheart.specs.base import LARGEST, CountedSpec, Implied, Shapes, Spec


@dataclass(frozen=True)
class MultiHeadSpec(Spec):
    """One multi-head attention layer that reads a query e in R^d and a context of `n` tokens.

    `H` heads, query and key width `d_h`, value width `d_v` (1 is enough for a scalar label),
    `d_out` outputs; `shared`: every example has the same context, or its own, or None, not said
    (Mahdavi et al. 2024).

    The theorem's layer has nothing else. The authors' code adds three things, each off here:
    `embed`: a d x d map with bias on all n+1 tokens, then sinusoidal positions, the query being
    position 0; `scale`: logits divided by sqrt(d) (not sqrt(d_h)); `decoder`: heads write into R^d
    and a map with bias reads d_out outputs from there. Nobody attends to the query in either.

    >>> MultiHeadSpec(d=64, n=32, d_h=64, H=20).parameters
    165140
    >>> MultiHeadSpec.reference(n=32, H=20).parameters
    177060
    """

    d: int
    n: int
    d_h: int
    H: int
    d_v: int = 1
    d_out: int = 1
    shared: bool | None = None
    embed: bool = False
    scale: bool = False
    decoder: bool = False

    family = "multi-head"

    @classmethod
    def reference(
        cls,
        n: int = 32,
        H: int = 20,
        d_out: int = 100,
        d_h: int = 64,
        *,
        shared: bool | None = None,
    ) -> MultiHeadSpec:
        """The model of the authors' experiments: d = 64, d_v = 1, embedding, scale, decoder."""
        return cls(64, n, d_h, H, 1, d_out, shared, embed=True, scale=True, decoder=True)

    @property
    def parameters(self) -> int:
        """H (2 d d_h + d d_v) + H d_v d_out: W_Q and W_K, W_V, W_O; and, where the spec has them,
        d² + d of the embedding, H d_v d + (d + 1) d_out of W_O and the decoder."""
        written = self.d if self.decoder else self.d_out
        heads = self.H * (2 * self.d * self.d_h + self.d * self.d_v + self.d_v * written)
        embedding = self.d * (self.d + 1) if self.embed else 0
        return heads + embedding + ((self.d + 1) * self.d_out if self.decoder else 0)

    def weight_shapes(self) -> Shapes:
        d, H, written = self.d, self.H, self.d if self.decoder else self.d_out
        shapes: Shapes = dict.fromkeys(("W_Q", "W_K"), (H, d, self.d_h))
        shapes |= {"W_V": (H, d, self.d_v), "W_O": (H, self.d_v, written)}
        if self.embed:
            shapes |= {"W_E": (d, d), "b_E": (d,)}
        if self.decoder:
            shapes |= {"W_U": (d, self.d_out), "b_U": (self.d_out,)}
        return shapes

    def row_bytes(self, itemsize: int) -> int:
        heads = self.H * (self.d_h + 2 * self.d + 2 * self.n + self.d_v)
        context = 0 if self.shared else 2 * self.n * self.d
        return itemsize * (heads + context + 2 * self.d + 2 * self.d_out)

    def __str__(self) -> str:
        context = "shared context" if self.shared else "context"
        parts = [f"d={self.d}", f"{context} n={self.n}", f"d_h={self.d_h}", f"H={self.H}"]
        parts += [f"d_v={self.d_v}"] if self.d_v > 1 else []
        parts += [f"{self.d_out} outputs"] if self.d_out > 1 else []
        parts += [name for name in ("embed", "scale", "decoder") if getattr(self, name)]
        return "multi-head: " + ", ".join(parts)


@dataclass(frozen=True)
class DeepMultiHeadSpec(CountedSpec):
    """`layers` attention layers in which a query in R^d reads the same context of `n` vectors.

    Each layer adds what its `H` heads of width `d_h` and value width `d_v` read to the query; a map
    with bias reads `d_out` outputs at the end (after Mahdavi et al. 2024).

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

    family = "deep multi-head"
    printed = ("d", "n", "d_h", "H")

    def weight_shapes(self) -> Shapes:
        d, heads = self.d, (self.layers, self.H)
        shapes: Shapes = dict.fromkeys(("W_Q", "W_K"), (*heads, d, self.d_h))
        shapes |= {"W_V": (*heads, d, self.d_v), "W_O": (*heads, self.d_v, d)}
        return shapes | {"W_U": (d, self.d_out), "b_U": (self.d_out,)}

    def row_bytes(self, itemsize: int) -> int:
        heads = self.layers * self.H * (self.d_h + 2 * self.d + 2 * self.n + self.d_v)
        context = 0 if self.shared else 2 * self.n * self.d
        return itemsize * (heads + context + 2 * self.d + 2 * self.d_out)

    def details(self) -> list[str]:
        return [f"{self.layers} layers", f"{self.d_out} outputs"]


@dataclass(frozen=True)
class FeedForwardTransformerSpec(CountedSpec):
    """E_out o FF_2 o attention o FF_1 o E_in: ReLU blocks around one attention layer.

    `n` tokens in R^d, width `m`, `q` hidden units in each of `blocks` feed-forward blocks, of which
    `first` (default: half) come before the attention, one head of size `s`, `d_out` outputs
    (Kajitsuka and Sato 2025, eq. 165). `uniform`: attention is the mean of all tokens, without W_Q
    and W_K. `read`: the position whose output is taken, from the end if negative.

    >>> FeedForwardTransformerSpec(d=6, n=10, m=2, q=8, blocks=4).parameters
    190
    >>> FeedForwardTransformerSpec.experiment(d=6, n=10, blocks=2).parameters  # no W_Q, no W_K
    186
    """

    d: int
    n: int
    m: int
    q: int
    blocks: int
    s: int = 1
    attention: Literal["softmax", "hardmax"] = "softmax"
    d_out: int = 1
    first: int = -1
    uniform: bool = False
    read: int = -1

    family = "feed-forward"
    title = "feed-forward transformer"
    printed = ("d", "n", "m", "q")
    least: ClassVar = {"first": -1, "read": -(10**18)}  # what `read` may be depends on n

    def implied(self) -> Implied:
        return {"first": self.blocks // 2 if self.first == -1 else self.first}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.first > self.blocks:
            raise ValueError(f"first must be at most blocks = {self.blocks}, found {self.first}")
        if not -self.n <= self.read < self.n:
            raise ValueError(f"read must be a position of {self.n}, found {self.read}")

    @classmethod
    def experiment(
        cls, d: int, n: int, blocks: int, *, d_out: int = 1, read: int = -1, m: int = 2
    ) -> FeedForwardTransformerSpec:
        """The model of the paper's experiments: m = 2, q = 4 m, `blocks` blocks before and `blocks`
        after a uniform attention with s = 1; `read` = 0 in those on text."""
        return cls(d=d, n=n, m=m, q=4 * m, blocks=2 * blocks, d_out=d_out, uniform=True, read=read)

    @property
    def width(self) -> int:
        """max(m, s, q), the paper's width."""
        return max(self.m, self.s, self.q)

    def weight_shapes(self) -> Shapes:
        m, q, s, blocks = self.m, self.q, self.s, self.blocks
        shapes: Shapes = {"E_in": (self.d, m), "W_1": (blocks, m, q), "b_1": (blocks, q)}
        shapes |= {"W_2": (blocks, q, m), "b_2": (blocks, m)}
        if not self.uniform:
            shapes |= {"W_Q": (m, s), "W_K": (m, s)}
        return shapes | {"W_V": (m, s), "W_O": (s, m), "E_out": (m, self.d_out)}

    def row_bytes(self, itemsize: int) -> int:
        tokens = self.n * (self.d + 2 * self.m + 2 * self.q + self.s)
        return itemsize * (tokens + 2 * self.q + self.d_out)

    def details(self) -> list[str]:
        return [f"{self.blocks} blocks", "uniform attention" if self.uniform else self.attention]


@dataclass(frozen=True)
class TransformerSpec(Spec):
    """The sizes of a whole real model: `layers` blocks of attention and feed-forward.

    Width `d`, `H` query heads and `kv_heads` key-value heads of width `d_h` (kv_heads < H: grouped
    queries), context `S`, vocabulary `N` (None: the model reads vectors, such as image patches),
    feed-forward width `d_ff` with `gated` units or not. `bias`: linear maps have biases. `norm`:
    "layer" (2 d numbers) or "rms" (d). `positions`: "relative" ones are added to the scores (ALiBi,
    T5). `other` counts what is not in the blocks or the token and position tables (final norm,
    token types, patches, poolers, experts); it is negative where blocks have less than this count
    (ALBERT's layers are one block, Falcon's have one norm).

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
    positions: Literal["learned", "rotary", "relative", "none"] = "learned"
    activation: str = "gelu"
    tied: bool = False
    other: int = 0
    name: str = ""

    family = "transformer"
    least: ClassVar = {"d_ff": 0, "kv_heads": 0, "other": -LARGEST}

    def implied(self) -> Implied:
        return {"kv_heads": self.kv_heads or self.H}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.H % self.kv_heads:
            raise ValueError(f"kv_heads must divide H: {self.kv_heads} does not divide {self.H}")

    @property
    def parameters(self) -> int:
        """Blocks (2 d d_h (H + kv_heads) of attention, 2 or 3 matrices of feed-forward, two norms;
        biases), token table (twice unless `tied`), learned positions and `other`."""
        d, heads, kv, matrices = self.d, self.H, self.kv_heads, 3 if self.gated else 2
        attention = 2 * d * self.d_h * (heads + kv) + (self.d_h * (heads + 2 * kv) + d) * self.bias
        biases = (self.d_ff * (matrices - 1) + d) * self.bias * (self.d_ff > 0)
        norms = 2 * d * (2 if self.norm == "layer" else 1)
        tokens = 0 if self.N is None else self.N * d * (1 if self.tied else 2)
        positions = self.S * d if self.positions == "learned" else 0
        block = attention + matrices * d * self.d_ff + biases + norms
        return self.layers * block + tokens + positions + self.other

    def __str__(self) -> str:
        groups = f" ({self.kv_heads} key-value heads)" if self.kv_heads < self.H else ""
        tokens = "" if self.N is None else f", N={self.N}"
        return (
            f"{self.name or 'transformer'}: d={self.d}, H={self.H}{groups}, d_h={self.d_h}, "
            f"context {self.S}{tokens}, {self.layers} layers"
        )


@dataclass(frozen=True)
class LanguageModelSpec(Spec):
    """A language model of which only the number of `parameters` is known, and its `N` tokens.

    >>> print(LanguageModelSpec(N=50257, parameters=10**9))
    language model: N=50257, 1,000,000,000 parameters
    """

    N: int
    parameters: int  # pyright: ignore[reportIncompatibleMethodOverride] given, not computed

    family = "language model"
    printed: ClassVar = ("N",)

    def details(self) -> list[str]:
        return [f"{self.parameters:,} parameters"]
