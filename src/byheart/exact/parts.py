"""A network put together from its parts, and taken apart again.

`emit` writes the blocks; `read` finds the parts in the weights with the help of a few small numbers
(the layout), writes them again and compares: only a network that is, weight for weight, the one of
its parts may be evaluated through them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from byheart.errors import ByheartError, MemoryFileError
from byheart.exact.blocks import Block, Network
from byheart.exact.ids import FF1, Embedding, Hash, L, Paper, Product, Y, Z
from byheart.exact.primitives import add, clear, entries, mod, shift
from byheart.exact.table import Table

MOST_DIGITS = 10_000  # of a number in the layout


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
        return self.projection.largest + 1 if self.reads else 1

    @property
    def reach(self) -> int:
        """The largest l before it is reduced."""
        return self.most * self.factor + (self.projection.largest if self.reads else 0)


def emit(parts: Parts) -> Network:
    """The network of these parts."""
    dims, kept, spare = ["l", "z", "y"], None, None
    if parts.reads:
        kept = len(dims)
        dims.append("u")
    if isinstance(parts.ff1, Product):
        spare = len(dims)
        dims.append("a")
    project = parts.projection
    ff1: list[Block] = []
    embedded = isinstance(parts.ff1, Embedding)
    if project.offset:
        ff1.append(shift({L: project.offset}))
    if project.modulus is not None:
        ff1 += mod(L, project.modulus, project.reach)
    if kept is not None:
        ff1.append(add(L, {kept: 1}))
    if embedded and kept is not None:
        ff1.append(clear(L))
    ff1 += parts.ff1.blocks(spare)
    ff2: list[Block] = []
    if kept is not None:
        ff2.append(add(kept, {L: 1}))
    if parts.modulus is not None:
        ff2 += mod(L, parts.modulus, parts.reach)
    ff2.append(clear(Z))
    ff2 += parts.table.blocks(L, Z, Y)
    unread = embedded and kept is None
    return Network(
        dims=tuple(dims),
        d=len(project.v),
        E_in=() if unread else (entries(dict(enumerate(project.v))),),
        ff1=tuple(ff1),
        source=Z,
        target=L,
        scale=parts.lcm * parts.factor,
        ff2=tuple(ff2),
        out=Z,
        pooling=parts.pooling,
        embedding=parts.ff1.ids if isinstance(parts.ff1, Embedding) else None,
    )


def layout(parts: Parts) -> dict[str, Any]:
    """The small numbers with which `read` finds its way. Plain JSON; long numbers
    are hexadecimal."""
    project, ff1 = parts.projection, parts.ff1
    record: dict[str, Any] = {
        "mode": ff1.mode,
        "low": [hex(x) for x in project.low],
        "high": [hex(x) for x in project.high],
        "key_modulus": _text(project.modulus),
        "lcm": hex(parts.lcm),
        "most": hex(parts.most),
        "reads": parts.reads,
        "modulus": _text(parts.modulus),
        "table": _table_layout(parts.table),
    }
    if isinstance(ff1, Hash):
        record["folds"] = len(ff1.folds)
    elif isinstance(ff1, Product):
        record |= {"g": ff1.g, "digits": len(ff1.factors)}
    elif isinstance(ff1, Paper):
        record["ids"] = _table_layout(ff1.table)
    return record


def read(network: Network, record: Mapping[str, Any]) -> Parts:
    """The parts of a network; a `MemoryFileError` if it is not, weight for weight, made of them."""
    try:
        parts = _read(network, record)
        same = emit(parts) == network
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise MemoryFileError(
            f"the layout does not describe this network ({type(error).__name__}: {error})."
        ) from None
    if not same:
        raise MemoryFileError(
            "the weights are not those of the layout: the network can only be evaluated literally."
        )
    return parts


def _read(network: Network, record: Mapping[str, Any]) -> Parts:
    mode, reads = str(record["mode"]), bool(record["reads"])
    low = tuple(_long(x) for x in record["low"])
    high = tuple(_long(x) for x in record["high"])
    v = [0 if network.E_in else 1] * network.d  # an embedding layer reads ids as they are
    for j, w in network.E_in[0] if network.E_in else ():
        v[j] = w
    project = Projection(tuple(v), low, high, _number(record["key_modulus"]))
    at = bool(project.offset) + reads
    if project.modulus is not None:
        at += len(mod(0, project.modulus, project.reach))
    blocks = network.ff1[at:]
    ff1: FF1
    if mode == "hash":
        folds = tuple(
            (-block.units[0].bias, dict(block.units[0].outputs)[Z])
            for block in blocks[1 : 1 + _count(record["folds"], len(blocks))]
        )
        ff1 = Hash(project.largest, dict(blocks[0].units[0].outputs)[Z], folds)
    elif mode == "product":
        ff1 = _read_product(
            blocks, project.largest, _count(record["g"], 8), _count(record["digits"], len(blocks))
        )
    elif mode == "paper":
        ff1 = Paper(_read_table(blocks, record["ids"]))
    elif mode == "embedding" and network.embedding is not None:
        ff1 = Embedding(network.embedding)
    else:
        raise ValueError(f"mode {mode!r}")
    modulus, most = _number(record["modulus"]), _long(record["most"])
    factor = project.largest + 1 if reads else 1
    reach = most * factor + (project.largest if reads else 0)
    at = reads + 1 + (0 if modulus is None else len(mod(0, modulus, reach)))
    table = _read_table(network.ff2[at:], record["table"])
    return Parts(
        projection=project,
        ff1=ff1,
        pooling=network.pooling,
        lcm=_long(record["lcm"]),
        most=most,
        reads=reads,
        modulus=modulus,
        table=table,
    )


def _read_product(blocks: tuple[Block, ...], largest: int, g: int, digits: int) -> Product:
    factors, at, left = [], 1, largest
    for j in range(digits):
        place = g * (digits - 1 - j)
        at += len(mod(0, 1 << place, left)) + 1
        left = min(left, (1 << place) - 1)
        X, x = [], 1
        for block in blocks[at : at + (1 << g) - 1]:
            # Equal neighbours leave no weight behind.
            x += block.units[0].outputs[0][1] if block.units[0].outputs else 0
            X.append(x)
        factors.append(tuple(X))
        at += (1 << g) - 1 + 1
    return Product(largest, g, tuple(factors))


def _table_layout(table: Table) -> dict[str, Any]:
    return {
        "grouping": table.grouping,
        "t": table.t,
        "c": table.c,
        "k": table.k,
        "m": table.m,
        "largest": hex(table.largest),
        "start": hex(table.starts[0]) if table.starts else None,
    }


def _read_table(blocks: tuple[Block, ...], record: Mapping[str, Any]) -> Table:
    """The codes Z_j and starts a_j, from the first blocks of a table."""
    grouping, t, c = record["grouping"], _count(record["t"], 64), _count(record["c"], 64)
    # Every group and every record has a block of its own.
    m, k = (_count(record[name], len(blocks)) for name in ("m", "k"))
    largest = _long(record["largest"])
    at, starts = 0, []
    if grouping == "interp":
        Q = m << t
        at = len(mod(0, Q, largest)) + len(mod(0, 1 << t, min(largest, Q - 1)))
    else:
        starts.append(_long(record["start"]))
    codes, slope = [blocks[at].shift[0][1]], 0
    for block in blocks[at + 1 : at + m]:
        outputs = block.units[0].outputs
        change = outputs[0][1] if outputs else 0
        if grouping == "interp":
            slope += change
            codes.append(codes[-1] + slope)
        else:
            starts.append(-block.units[1].bias)
            codes.append(codes[-1] + change)
    return Table(grouping, t, c, k, largest, tuple(starts), tuple(codes))


def _text(number: int | None) -> str | None:
    return None if number is None else hex(number)


def _number(text: str | None) -> int | None:
    return None if text is None else _long(text)


def _long(text: str) -> int:
    """A hexadecimal number of a length that a network can have."""
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number of {len(text):,} digits")
    return int(text, 16)


def _count(value: object, most: int) -> int:
    """A whole number 0..most: what a file says is not believed."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError(f"expected a whole number 0..{most}, found {value!r}")
    return value
