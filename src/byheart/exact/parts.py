"""A network put together from its parts, and taken apart again.

`emit` writes the blocks; `read` finds the parts in the weights with the help of a few small numbers
(the layout), writes them again and compares: only a network that is, weight for weight, the one of
its parts may be evaluated through them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from byheart.errors import ByheartError, MemoryFileError
from byheart.exact.blocks import Network
from byheart.exact.ids import FF1, L, Y, Z, read_ff1
from byheart.exact.primitives import add, clear, entries, mod, shift
from byheart.exact.record import Record, as_list, as_long, as_record
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
        key = key if self.modulus is None else key % self.modulus
        return key.astype(np.int64 if self.largest < 1 << 62 else object)

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

    @property
    def factor(self) -> int:
        """What S is multiplied by before u is added."""
        return pooled(self.projection.largest, self.most, self.reads)[0]

    @property
    def reach(self) -> int:
        """The largest l before it is reduced."""
        return pooled(self.projection.largest, self.most, self.reads)[1]


def pooled(largest: int, most: int, reads: bool) -> tuple[int, int]:
    """(factor, reach) of l = factor S + u after pooling, for S <= most and, with `reads`, u <=
    largest; otherwise u = 0."""
    return (largest + 1, most * (largest + 1) + largest) if reads else (1, most)


def emit(parts: Parts) -> Network:
    """The network of these parts."""
    project, ids = parts.projection, parts.ff1
    kept = 3 if parts.reads else None
    spare = 3 + parts.reads if ids.needs_spare else None
    ff1 = [shift({L: project.offset})] if project.offset else []
    if project.modulus is not None:
        ff1 += mod(L, project.modulus, project.reach)
    if kept is not None:
        ff1.append(add(L, {kept: 1}))
        if ids.embedding is not None:
            ff1.append(clear(L))
    ff1 += ids.blocks(spare)
    ff2 = [] if kept is None else [add(kept, {L: 1})]
    if parts.modulus is not None:
        ff2 += mod(L, parts.modulus, parts.reach)
    ff2.append(clear(Z))
    ff2 += parts.table.blocks(L, Z, Y)
    unread = ids.embedding is not None and kept is None
    return Network(
        dims=("l", "z", "y", *("u" if parts.reads else ""), *("a" if ids.needs_spare else "")),
        d=len(project.v),
        E_in=() if unread else (entries(dict(enumerate(project.v))),),
        ff1=tuple(ff1),
        source=Z,
        target=L,
        scale=parts.lcm * parts.factor,
        ff2=tuple(ff2),
        out=Z,
        pooling=parts.pooling,
        embedding=ids.embedding,
    )


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
        raise MemoryFileError(
            f"the layout does not describe this network ({type(error).__name__}: {error})."
        ) from None
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
    at = bool(project.offset) + reads
    if project.modulus is not None:
        at += len(mod(0, project.modulus, project.reach))
    ff1 = read_ff1(network.ff1[at:], record, project.largest, network.embedding)
    most = as_long(record["most"])
    at = reads + 1
    if modulus is not None:
        at += len(mod(0, modulus, pooled(project.largest, most, reads)[1]))
    return Parts(
        projection=project,
        ff1=ff1,
        pooling=network.pooling,
        lcm=as_long(record["lcm"]),
        most=most,
        reads=reads,
        modulus=modulus,
        table=Table.read(network.ff2[at:], as_record(record["table"])),
    )
