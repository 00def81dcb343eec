"""The network as data: residual ReLU blocks, one uniform attention, integer weights.

    H <- H + W2 relu(W1 H + b1) + b2        a block, applied to every token (FF with skip)
    H <- H + W_O W_V (1/n) sum_k H_k        uniform attention: W_Q = W_K = 0, softmax is 1/n

Network = E_out o FF2 o attention o FF1 o E_in (Kajitsuka and Sato 2025, Theorem 4.1). Matrices are
sparse: a unit lists its non-zero weights. Weights are Python integers of any length.

With a register (Remark 4.5) there are two attentions and one more token, whose state starts at 0.
The only links are between it and the others: it reads the n tokens, and each of them reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

Entries = tuple[tuple[int, int], ...]
"""Non-zero entries of a row or column: (coordinate, weight), ..."""
Record = Mapping[str, object]

POOLINGS = ("attention", "sum", "register")
MOST_DIGITS = 1_000  # of a number in a layout, in base 16


class Unit(NamedTuple):
    """One hidden unit r = relu(sum_i w_i H_i + bias), added to H_o times w_o for every output."""

    inputs: Entries
    bias: int
    outputs: Entries


class Block(NamedTuple):
    """H <- H + W2 relu(W1 H + b1) + b2: `units` are the rows of W1 and columns of W2."""

    units: tuple[Unit, ...]
    shift: Entries = ()
    """b2"""

    def weights(self) -> Iterator[int]:
        """The non-zero entries of W1, b1, W2, b2."""
        for unit in self.units:
            yield from (w for _, w in unit.inputs)
            if unit.bias:
                yield unit.bias
            yield from (w for _, w in unit.outputs)
        yield from (w for _, w in self.shift)


@dataclass(frozen=True)
class Counts:
    """What a network costs. `parameters` are the non-zero weights; never mix it with `dense`.

    `dense`: all entries of all matrices, zeros too; `distinct`: different values among the
    non-zero weights (what tying all equal weights would leave); `max_bits`, `total_bits`: bits of
    |w|, the sign not counted, of the largest weight and of all non-zero ones together.
    """

    parameters: int
    dense: int
    distinct: int
    depth: int
    width: int
    max_bits: int
    total_bits: int

    def to_json(self) -> dict[str, int]:
        return dict(vars(self))


@dataclass(frozen=True)
class Network:
    """All weights of E_out o FF2 o pooling o FF1 o E_in.

    `dims` names the m coordinates of the state. `E_in[i]` are the non-zero entries of row i of the
    m x d input projection, or `embedding[x]` is the coordinate `source` of token id x (Theorem E.1:
    an embedding layer in place of projection and FF1). Pooling reads coordinate `source` of every
    token and adds `scale` times the mean ("attention", W_V = e_source, W_O = scale e_target) or the
    sum ("sum", a deep set, Theorem D.1, scale 1) to `target`. E_out reads coordinate `out`. With
    "register" the attention is followed by one that copies, W_V = e_target, W_O = e_target.

    >>> copy = Block((Unit(((0, 1),), 0, ((1, 1),)),))
    >>> net = Network(("l", "z"), 1, (((0, 1),),), (copy,), 1, 0, 2, (), 1)
    >>> net.counts().parameters
    6
    """

    dims: tuple[str, ...]
    d: int
    E_in: tuple[Entries, ...]
    ff1: tuple[Block, ...]
    source: int
    target: int
    scale: int
    ff2: tuple[Block, ...]
    out: int
    pooling: str = "attention"
    embedding: tuple[int, ...] | None = None

    @property
    def m(self) -> int:
        """Coordinates of the state."""
        return len(self.dims)

    @property
    def attentions(self) -> int:
        """Attention layers."""
        return {"attention": 1, "sum": 0, "register": 2}[self.pooling]

    def links(self, n: int) -> int:
        """Pairs (reader, read) of n tokens in all attention layers: n^2 where every token reads
        every one, 4 n where a register is between them (Remark 4.5)."""
        return 4 * n if self.pooling == "register" else n * n * self.attentions

    def weights(self) -> Iterator[int]:
        """Every non-zero weight, part by part."""
        for row in self.E_in:
            yield from (w for _, w in row)
        if self.embedding is not None:
            yield from (w for w in self.embedding if w)
        for block in (*self.ff1, *self.ff2):
            yield from block.weights()
        if self.attentions:
            yield from (1, self.scale)  # W_V, W_O
        if self.pooling == "register":
            yield from (1, 1)  # W_V, W_O of the second attention; the register starts at 0
        yield 1  # E_out

    def counts(self) -> Counts:
        """Parameters (non-zero, dense, distinct), depth, width, bits.

        Dense: a block of q units has 2mq + q + m entries, E_in m d (an embedding m for every token
        id), attention 4m (one head of size 1: W_Q = W_K = 0, W_V, W_O), a register m, E_out m.
        """
        m, weights = self.m, list(self.weights())
        bits = [w.bit_length() for w in weights]
        units = [len(block.units) for block in (*self.ff1, *self.ff2)]
        dense = m * (self.d if self.embedding is None else len(self.embedding)) + m
        dense += 4 * m * self.attentions + (m if self.pooling == "register" else 0)
        dense += sum(2 * m * q + q + m for q in units)
        width, distinct = max([m, *units]), len(set(weights))
        return Counts(len(weights), dense, distinct, len(units), width, max(bits), sum(bits))

    def check(self) -> None:
        """ValueError unless every coordinate exists and everything is a whole number."""
        if not 1 <= self.m <= 64 or not 1 <= self.d <= 2**20 or len(self.E_in) > self.m:
            raise ValueError(f"{self.m} coordinates, {len(self.E_in)} rows in E_in, d = {self.d}")
        if self.pooling not in POOLINGS:
            raise ValueError(f"pooling must be one of {POOLINGS}, found {self.pooling!r}")
        places = [self.source, self.target, self.out]
        for block in (*self.ff1, *self.ff2):
            for unit in block.units:
                places += [i for i, _ in (*unit.inputs, *unit.outputs)]
            places += [i for i, _ in block.shift]
        if min(places) < 0 or max(places) >= self.m:
            raise ValueError(f"a coordinate outside 0..{self.m - 1}")
        if any(not 0 <= j < self.d for row in self.E_in for j, _ in row):
            raise ValueError(f"an input coordinate outside 0..{self.d - 1}")
        if self.scale < 1:
            raise ValueError(f"the attention's scale must be at least 1, found {self.scale}")


# What a file says of a network: numbers as JSON has them, checked, never believed.


def as_count(value: object, most: int) -> int:
    """A whole number 0..most."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError(f"expected a whole number 0..{most}, found {value!r}")
    return value


def as_long(text: object) -> int:
    """A hexadecimal number of a length that a network can have."""
    if not isinstance(text, str) or len(text) > MOST_DIGITS:
        raise ValueError(f"expected at most {MOST_DIGITS:,} digits, found {str(text)[:20]!r}")
    return int(text, 16)


def as_list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ValueError(f"expected a list, found {value!r}")
    return value


def as_record(value: object) -> Record:
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, found {value!r}")
    return value
