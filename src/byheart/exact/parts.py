"""A network put together from its parts, taken apart again, and evaluated through them.

`emit` writes the blocks; `read` finds the parts in the weights with the help of a few small numbers
(the layout), writes them again and compares: only a network that is, weight for weight, the one of
its parts may be evaluated through them. `Structured` does: token -> key (one dot product) -> id
(folds, or a binary search) -> sum -> reduction -> one binary search among the records. That the
blocks compute the same is argued in docs/square-root.md and tested block by block.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from byheart.errors import ByheartError, MemoryFileError
from byheart.exact.blocks import Block, Network, Record, as_list, as_long, as_record
from byheart.exact.data import as_vectors
from byheart.exact.ids import FF1, L, Y, Z, exact, read_ff1
from byheart.exact.literal import registered
from byheart.exact.primitives import add, clear, entries, mod, shift
from byheart.exact.table import Table


@dataclass(frozen=True)
class Projection:
    """key = (v . x + offset) mod M for integer vectors low <= x <= high; M None: no reduction."""

    v: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    modulus: int | None

    @property
    def offset(self) -> int:
        """Makes v . x + offset >= 0, the smallest value being 0; v >= 0."""
        return -sum(v * a for v, a in zip(self.v, self.low, strict=True))

    @property
    def reach(self) -> int:
        """The largest v . x + offset."""
        ends = zip(self.v, self.low, self.high, strict=True)
        return sum(v * (b - a) for v, a, b in ends)

    def keys(self, vectors: np.ndarray) -> np.ndarray:
        """(V, d) integer vectors -> keys (V,); refuses vectors outside low..high."""
        ends = list(zip(self.v, self.low, self.high, strict=True))
        for j, (_, a, b) in enumerate(ends):
            column = vectors[:, j]
            if len(column) and not a <= column.min() <= column.max() <= b:
                raise ByheartError(
                    f"coordinate {j} of the tokens: the network takes {a}..{b}, found "
                    f"{column.min()}..{column.max()}."
                )
        wide = self.reach + sum(v * max(abs(a), abs(b)) for v, a, b in ends)
        columns = vectors if wide < 1 << 62 else vectors.astype(object)
        key = np.full(len(vectors), self.offset, dtype=columns.dtype)
        for j, v in enumerate(self.v):
            key = key + v * columns[:, j]
        return exact(key if self.modulus is None else key % self.modulus, self.largest.bit_length())

    @property
    def largest(self) -> int:
        """The largest key."""
        return self.reach if self.modulus is None else min(self.reach, self.modulus - 1)


@dataclass(frozen=True)
class Parts:
    """Everything that fixes a network.

    `reads`: the output depends on the token it is read at, too (sequence to sequence, or the last
    token). Its key u is then kept, and l = S (largest key + 1) + u after pooling; otherwise l = S.
    `lcm`: the least common multiple of the lengths (1 for sums); `most`: the largest S.
    """

    projection: Projection
    ff1: FF1
    pooling: str
    lcm: int
    most: int
    reads: bool
    modulus: int | None
    table: Table

    def __post_init__(self) -> None:
        if any(
            M is not None and not 1 <= M < 1 << 61 for M in (self.modulus, self.projection.modulus)
        ):
            raise ValueError("a modulus that is not in 1..2^61")  # `times`

    @property
    def pooled(self) -> tuple[int, int]:
        """What S is multiplied by before u is added, and the largest l before it is reduced."""
        return pooled(self.projection.largest, self.most, self.reads)


def premises(parts: Parts, n: int) -> tuple[tuple[str, str], ...]:
    """Why `Structured` computes what the blocks do for every sequence of `n` tokens: (what, how it
    was checked, in exact integers). A `ByheartError` where that is not sure."""
    project, lcm = parts.projection, parts.lcm
    ids = parts.ff1.check(project.largest)
    sums = parts.ff1.bound * (n if parts.pooling == "sum" else lcm)
    reach = parts.pooled[1] if parts.modulus is None else parts.modulus - 1
    good = min(project.v) >= 0 and (parts.pooling == "sum" or lcm % n == 0)
    if not good or parts.most < sums or parts.table.largest < reach:
        raise ByheartError(
            f"sums of up to {sums:,} for sequences of {n} tokens, and a table of keys up to "
            f"{parts.table.largest:,}: the blocks that reduce them do not cover all"
        )
    bits = max(sums, parts.table.largest).bit_length()
    return (
        ("ids", f"{parts.ff1.mode}: {ids}"),
        ("range", f"sums and keys of at most {bits} bits, all of which the blocks reduce"),
        ("records", parts.table.check()),
    )


def pooled(largest: int, most: int, reads: bool) -> tuple[int, int]:
    """(factor, reach) of l = factor S + u after pooling, for S <= most and, with `reads`, u <=
    largest; otherwise u = 0."""
    return (largest + 1, most * (largest + 1) + largest) if reads else (1, most)


def emit(parts: Parts) -> Network:
    """The network of these parts."""
    project, ids, reads = parts.projection, parts.ff1, parts.reads
    kept, spare = 3, 3 + reads  # behind l, z, y, where they are needed
    factor, reach = parts.pooled
    ff1 = [shift({L: project.offset})] if project.offset else []
    ff1 += _reduced(project.modulus, project.reach)
    if reads:
        ff1.append(add(L, {kept: 1}))
        if ids.embedding is not None:
            ff1.append(clear(L))
    ff1 += ids.blocks(spare)
    ff2 = [add(kept, {L: 1})] if reads else []
    ff2 += [*_reduced(parts.modulus, reach), clear(Z), *parts.table.blocks(L, Z, Y)]
    unread = ids.embedding is not None and not reads
    network = Network(
        dims=("l", "z", "y", *("u" if reads else ""), *("a" if ids.needs_spare else "")),
        d=len(project.v),
        E_in=() if unread else (entries(dict(enumerate(project.v))),),
        ff1=tuple(ff1),
        source=Z,
        target=L,
        scale=parts.lcm * factor,
        ff2=tuple(ff2),
        out=Z,
        pooling=parts.pooling,
        embedding=ids.embedding,
    )
    # What a register brings along, whatever the sequence, is taken off again.
    own = registered(network) if parts.pooling == "register" else 0
    return replace(network, ff2=(shift({L: -own}), *ff2)) if own else network


def _reduced(modulus: int | None, largest: int) -> list[Block]:
    return [] if modulus is None else mod(L, modulus, largest)


def layout(parts: Parts) -> dict[str, object]:
    """The small numbers with which `read` finds its way. Plain JSON; long numbers are
    hexadecimal."""
    project = parts.projection
    return {
        "mode": parts.ff1.mode,
        "low": [hex(x) for x in project.low],
        "high": [hex(x) for x in project.high],
        "key_modulus": None if project.modulus is None else hex(project.modulus),
        "lcm": hex(parts.lcm),
        "most": hex(parts.most),
        "reads": parts.reads,
        "modulus": None if parts.modulus is None else hex(parts.modulus),
        "table": parts.table.layout(),
        **parts.ff1.layout(),
    }


def read(network: Network, record: Record) -> Parts:
    """The parts of a network; a `MemoryFileError` if it is not, weight for weight, made of them."""
    try:
        parts = _read(network, record)
        same = emit(parts) == network
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise MemoryFileError(f"the layout does not describe this network ({what}).") from None
    if not same:
        raise MemoryFileError(
            "the weights are not those of the layout: the network can only be evaluated literally."
        )
    return parts


def _read(network: Network, record: Record) -> Parts:
    reads = bool(record["reads"])
    low, high = (tuple(as_long(x) for x in as_list(record[end])) for end in ("low", "high"))
    v = [0 if network.E_in else 1] * network.d  # an embedding layer reads ids as they are
    for j, w in network.E_in[0] if network.E_in else ():
        v[j] = w
    moduli = (record["key_modulus"], record["modulus"])
    key_modulus, modulus = (None if M is None else as_long(M) for M in moduli)
    project = Projection(tuple(v), low, high, key_modulus)
    at = bool(project.offset) + reads + len(_reduced(key_modulus, project.reach))
    ff1 = read_ff1(network.ff1[at:], record, project.largest, network.embedding)
    most, lcm = as_long(record["most"]), as_long(record["lcm"])
    at = reads + 1 + len(_reduced(modulus, pooled(project.largest, most, reads)[1]))
    at += network.pooling == "register" and registered(network) != 0
    table = Table.read(network.ff2[at:], as_record(record["table"]))
    return Parts(project, ff1, network.pooling, lcm, most, reads, modulus, table)


@dataclass(frozen=True)
class Structured:
    """The fast evaluator: the function of the blocks, from their parts.

    >>> from byheart.exact import memorize
    >>> built = memorize([[1, 2], [3, 4]], [1, 2], others=[[1, 3]])
    >>> Structured(built.parts).evaluate(np.array([[2, 1], [4, 3], [1, 3]])).tolist()
    [1, 2, 0]
    """

    parts: Parts

    def evaluate(
        self, tokens: np.ndarray, *, every: bool = False, lengths: np.ndarray | None = None
    ) -> np.ndarray:
        """Outputs (B,), or (B, n) with `every`, as `literal.evaluate`."""
        vectors = as_vectors(tokens, d=len(self.parts.projection.v))
        B, n, d = vectors.shape
        keys = self.keys(vectors.reshape(-1, d)).reshape(B, n)
        return self.outputs(keys, self.ids(keys), every=every, lengths=lengths)

    def keys(self, vectors: np.ndarray) -> np.ndarray:
        """(V, d) integer vectors -> keys (V,): (v . x + offset) mod M."""
        return self.parts.projection.keys(vectors)

    def ids(self, keys: np.ndarray) -> np.ndarray:
        """The number of each key that pooling adds up; mod M, since only the sum mod M is read."""
        z, M = self.parts.ff1.values(keys), self.parts.modulus
        return exact(z, self.parts.most.bit_length()) if M is None else (z % M).astype(np.int64)

    def outputs(
        self,
        keys: np.ndarray,
        ids: np.ndarray,
        *,
        every: bool = False,
        lengths: np.ndarray | None = None,
    ) -> np.ndarray:
        """Outputs of sequences given as keys and ids (B, n) of their tokens."""
        parts, (B, n) = self.parts, ids.shape
        M, lcm = parts.modulus, parts.lcm
        counts = np.full(B, n) if lengths is None else np.asarray(lengths)
        if lengths is not None:
            ids = np.where(np.arange(n) < counts[:, None], ids, 0)
        if M is not None and n * M >= 1 << 62:
            ids = ids.astype(object)
        S = ids.sum(axis=1)
        S = S if M is None else (S % M).astype(np.int64)
        if parts.pooling != "sum":  # lcm / n for each length n makes the mean whole
            other = [k for k in np.unique(counts).tolist() if lcm % k]
            if other:
                raise ByheartError(
                    f"sequences of {other[0]} tokens: this network was built for lengths that "
                    f"divide {lcm}."
                )
            S = times(S, lcm // exact(counts, lcm.bit_length()), M)
        if every:
            S = np.repeat(S, n).reshape(B, n)
        factor, reach = parts.pooled
        if M is None:
            S = exact(S, reach.bit_length())
        if parts.reads:
            u = keys if every else keys[np.arange(B), counts - 1]
            S = times(S, factor, M) + (u if M is None else (u % M).astype(np.int64))
            S = S if M is None else S % M
        return parts.table.look_up(S)


def times(x: np.ndarray, factor: int | np.ndarray, M: int | None) -> np.ndarray:
    """x factor, or x factor mod M for residues x < M < 2^61, in machine integers.

    The factor is taken a few bits at a time, so that no product reaches 2^62.

    >>> times(np.array([2**40 - 1]), 2**40 - 3, 2**40 - 2).tolist() == [2**40 - 3]
    True
    """
    if M is None:
        return x * factor
    f = np.asarray(factor % M)
    bits = 61 - M.bit_length()
    pieces = -(-M.bit_length() // bits)
    result = np.zeros_like(x)
    for i in reversed(range(pieces)):
        piece = ((f >> (bits * i)) & ((1 << bits) - 1)).astype(np.int64)
        result = ((result << bits) % M + x * piece) % M
    return result
