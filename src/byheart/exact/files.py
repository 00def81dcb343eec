"""The file `network.bin`: integers of any length, compact, with a hash; nothing in it can run.

    8 bytes      magic, "BYHEXACT"
    1 byte       version, 1
    8 bytes      length of the payload, little-endian
    ...          the payload, zlib-compressed
    32 bytes     SHA-256 of everything before

The payload is a stream of numbers in base 128 (seven bits a byte, lowest first, the high bit set
on all but the last byte), called n below, and raw bytes:

    n, UTF-8     length and text of a JSON header: dims, d, source, target, out, pooling, layout
    n, numbers   the pool, each different |w| once as n (power of two), n (bytes), bytes of the odd
                 part, little-endian; 0 is the first
    weights      as n = 2 (place in the pool) + (1 if negative)
    n, rows      E_in: for each row n, then (coordinate n, weight) pairs
    weight       the scale of the attention
    n, weights   the embedding + 1, or 0 if there is none
    2 x n, blocks  FF1 and FF2: n units, each n inputs (pairs), bias, n outputs (pairs); n shifts

Everything is checked while it is read, before anything is evaluated.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable

from byheart._files import parse_json
from byheart.errors import MemoryFileError
from byheart.exact.blocks import Block, Entries, Network, Record, Unit, as_count, as_list, as_record
from byheart.exact.parts import Parts, emit, layout, read

MAGIC, VERSION = b"BYHEXACT", 1
HEAD, TAIL = len(MAGIC) + 1 + 8, 32
# What a file may grow to. Measured, payloads are up to twice as long as they are compressed (but an
# embedding layer may be mostly zeros), and all weights together up to 4 times as long as a payload.
MOST_BYTES = 1 << 32  # of a payload: a network for 10^7 facts has less
GROWTH, SMALL = 32, 1 << 20  # times as long, and bytes that are no matter
NAME = "network.bin"
HEADER = ("dims", "d", "source", "target", "out", "pooling")


def dump(parts: Parts) -> bytes:
    """The network of these parts, with its layout."""
    return dump_network(emit(parts), layout(parts))


def dump_network(network: Network, record: Record | None = None) -> bytes:
    """Any network; `record` is the layout that `parts.read` wants, if there is one."""
    pool: dict[int, int] = {0: 0}
    body = bytearray()

    def number(n: int) -> None:
        while n >= 128:
            body.append(n & 127 | 128)
            n >>= 7
        body.append(n)

    def weight(w: int) -> None:
        number(2 * pool.setdefault(abs(w), len(pool)) + (w < 0))

    def pairs(entries: Entries) -> None:
        number(len(entries))
        for i, w in entries:
            number(i)
            weight(w)

    number(len(network.E_in))
    for row in network.E_in:
        pairs(row)
    weight(network.scale)
    number(0 if network.embedding is None else len(network.embedding) + 1)
    for w in network.embedding or ():
        weight(w)
    for stack in (network.ff1, network.ff2):
        number(len(stack))
        for block in stack:
            number(len(block.units))
            for unit in block.units:
                pairs(unit.inputs)
                weight(unit.bias)
                pairs(unit.outputs)
            pairs(block.shift)
    stream, body = body, bytearray()
    header = {name: getattr(network, name) for name in HEADER} | {"layout": record}
    text = json.dumps(header, sort_keys=True).encode()
    number(len(text))
    body += text
    number(len(pool))
    for w in pool:
        power = (w & -w).bit_length() - 1 if w else 0
        odd = w >> power
        size = -(-odd.bit_length() // 8)
        number(power)
        number(size)
        body += odd.to_bytes(size, "little")
    payload = bytes(body + stream)
    data = MAGIC + bytes([VERSION]) + len(payload).to_bytes(8, "little")
    data += zlib.compress(payload, 9)
    return data + hashlib.sha256(data).digest()


def load(data: bytes) -> Parts:
    """The parts of the network in `data`, checked weight for weight."""
    network, record = load_network(data)
    if record is None:
        raise MemoryFileError(f"{NAME} has no layout: it can only be evaluated literally.")
    return read(network, record)


def load_network(data: bytes) -> tuple[Network, Record | None]:
    """Any network, and its layout. A `MemoryFileError` says what is wrong with the bytes."""
    if data[: len(MAGIC)] != MAGIC or len(data) < HEAD + TAIL:
        raise MemoryFileError(f"{NAME}: not a network of byheart, or truncated.")
    version = data[len(MAGIC)]
    if version != VERSION:
        what = f"version {version}, this byheart reads {VERSION}"
        raise MemoryFileError(f"{NAME}: {what}. Install a newer one.")
    if hashlib.sha256(data[:-TAIL]).digest() != data[-TAIL:]:
        raise MemoryFileError(
            f"{NAME}: differs from its SHA-256: a weight was changed, or the file was truncated. "
            "Restore it from a copy or build the memory again."
        )
    size = int.from_bytes(data[len(MAGIC) + 1 : HEAD], "little")
    most = min(MOST_BYTES, SMALL + GROWTH * len(data))
    if size > most:
        raise MemoryFileError(f"{NAME}: claims {size:,} bytes, more than {most:,}.")
    try:
        expand = zlib.decompressobj()
        payload = expand.decompress(data[HEAD:-TAIL], size + 1)
        if len(payload) != size or not expand.eof or expand.unused_data:
            raise ValueError("the payload has another length than it says")
        return _Reader(payload).network()
    except (zlib.error, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise MemoryFileError(f"{NAME}: not a network that can be read ({error}).") from None


class _Reader:
    def __init__(self, payload: bytes) -> None:
        self.payload, self.at = payload, 0
        self.pool: list[int] = []  # w, -w of each: negated once
        self.room = 8 * (SMALL + GROWTH * len(payload))  # bits, of all weights together

    def network(self) -> tuple[Network, Record | None]:
        header = as_record(parse_json(self.bytes(self.number()), "its header", MemoryFileError))
        for _ in self.many():
            w = self.long()
            self.pool += w, -w
        E_in = tuple(self.pairs() for _ in self.many())
        scale = self.weight()
        size = self.number()
        embedding = tuple(self.weight() for _ in self.many(size - 1)) if size else None
        ff1, ff2 = (tuple(self.block() for _ in self.many()) for _ in range(2))
        if self.at != len(self.payload):
            raise ValueError(f"{len(self.payload) - self.at} bytes too many")
        dims = tuple(str(name) for name in as_list(header["dims"]))
        d, pooling = as_count(header["d"], len(self.payload)), str(header["pooling"])
        source, target, out = (as_count(header[name], 64) for name in ("source", "target", "out"))
        network = Network(dims, d, E_in, ff1, source, target, scale, ff2, out, pooling, embedding)
        network.check()
        record = header["layout"]
        return network, None if record is None else as_record(record)

    def bytes(self, size: int) -> bytes:
        if self.at + size > len(self.payload):
            raise ValueError("it ends too early")
        self.at += size
        return self.payload[self.at - size : self.at]

    def number(self) -> int:
        value = shift = 0
        while shift < 70:
            byte = self.payload[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
        raise ValueError("a number of more than ten bytes")

    def many(self, count: int | None = None) -> Iterable[int]:
        """As many things as the next number says, or `count`: each takes at least a byte."""
        count = self.number() if count is None else count
        if count > len(self.payload) - self.at:
            raise ValueError(f"{count:,} entries in {len(self.payload) - self.at:,} bytes")
        return range(count)

    def long(self) -> int:
        power, size = self.number(), self.number()
        self.spend(power + 8 * size)
        return int.from_bytes(self.bytes(size), "little") << power

    def weight(self) -> int:
        value = self.pool[self.number()]
        self.spend(value.bit_length())
        return value

    def spend(self, bits: int) -> None:
        self.room -= bits
        if self.room < 0:
            raise ValueError(f"weights of far more bits than {len(self.payload):,} bytes can mean")

    def pairs(self) -> Entries:
        return tuple((self.number(), self.weight()) for _ in self.many())

    def block(self) -> Block:
        units = tuple(Unit(self.pairs(), self.weight(), self.pairs()) for _ in self.many())
        return Block(units, self.pairs())
