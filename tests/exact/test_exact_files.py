"""network.bin: what is written is what is read; damage is found before use."""

import hashlib
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.paper_network import paper_network

from byheart.errors import MemoryFileError
from byheart.exact import evaluate, memorize
from byheart.exact.blocks import Block, Network, Unit
from byheart.exact.files import HEAD, TAIL, dump, dump_network, load, load_network
from byheart.exact.ids import MODES
from byheart.exact.parts import layout

few = settings(deadline=None, max_examples=25)  # a busy machine is slow at times


@pytest.fixture(scope="module")
def built():
    rng = np.random.default_rng(0)
    return memorize(rng.integers(0, 500, (100, 3)), rng.integers(1, 4, 100))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("grouping", ["sorted", "interp"])
@pytest.mark.parametrize("every", [False, True])
def test_round_trip(mode, grouping, every):
    rng = np.random.default_rng(1)
    rows = rng.permutation(900).reshape(300, 3)
    labels = rng.integers(0, 3, (300, 3) if every else 300)
    made = memorize(rows, labels, ff1=mode, grouping=grouping)
    data = dump(made.parts)
    assert load(data) == made.parts
    network, _ = load_network(data)
    assert network == made.network
    assert (evaluate(network, rows, every=every) == labels).all()


weights = st.integers(-(2**300), 2**300).filter(bool)
pairs = st.lists(st.tuples(st.integers(0, 3), weights), max_size=3).map(tuple)
units = st.builds(Unit, pairs, st.integers(-(2**70), 2**70), pairs)
blocks = st.lists(st.builds(Block, st.lists(units, max_size=3).map(tuple), pairs), max_size=4)


@few
@given(ff1=blocks, ff2=blocks, scale=st.integers(1, 10**40))
def test_any_network_can_be_written(ff1, ff2, scale):
    """Networks need not be ours: any reader, any writer."""
    network = Network(
        ("a", "b", "c", "d"), 2, (((0, 3), (1, -5)),), tuple(ff1), 1, 0, scale, tuple(ff2), 3
    )
    assert load_network(dump_network(network)) == (network, None)
    with pytest.raises(MemoryFileError, match="no layout"):
        load(dump_network(network))


def test_the_papers_network_can_be_written():
    rows = np.arange(24).reshape(8, 3)
    made = paper_network(rows, np.arange(8) % 3)
    network, _ = load_network(dump_network(made.network))
    assert (evaluate(network, rows) == made.scale * (np.arange(8) % 3)).all()


def sealed(body: bytes) -> bytes:
    return body + hashlib.sha256(body).digest()


def test_every_single_changed_byte_is_found(built):
    data = dump(built.parts)
    rng = np.random.default_rng(0)
    for at in rng.choice(len(data), 200, replace=False):
        changed = bytearray(data)
        changed[at] ^= 1 << int(rng.integers(8))
        with pytest.raises(MemoryFileError):
            load(bytes(changed))


def test_truncated_or_foreign_files(built):
    data = dump(built.parts)
    for part in (b"", data[:5], data[: HEAD + 3], data[:-1], b"PK" + data[2:]):
        with pytest.raises(MemoryFileError):
            load(part)


def test_a_changed_integer_with_a_new_hash_is_not_the_network_of_its_layout(built):
    """A code changed by hand: the re-hashed file reads, but weights and layout disagree."""
    data = dump(built.parts)
    size = int.from_bytes(data[9:HEAD], "little")
    payload = bytearray(zlib.decompress(data[HEAD:-TAIL]))
    assert len(payload) == size
    refused = read = 0
    rng = np.random.default_rng(3)
    for at in rng.choice(len(payload), 150, replace=False):
        other = bytearray(payload)
        other[at] ^= 1
        body = data[:9] + len(other).to_bytes(8, "little") + zlib.compress(bytes(other))
        try:
            parts = load(sealed(body))
        except MemoryFileError:
            refused += 1
        else:
            read += 1  # a well-formed network, but another one: certify finds out
            assert parts != built.parts
    assert refused > 50


@pytest.mark.parametrize(
    ("name", "value"),
    [("k", 10**9), ("m", -1), ("t", 10**6), ("c", True), ("largest", "0x" + "f" * 20_000),
     ("grouping", "magic"), ("k", 1), ("start", None)],
)  # fmt: skip
def test_layouts_that_lie(built, name, value):
    record = layout(built.parts)
    record["table"] = built.parts.table.layout() | {name: value}
    with pytest.raises(MemoryFileError):
        load(dump_network(built.network, record))


def test_sizes_that_lie(built):
    data = dump(built.parts)
    for size in (0, 10, 2**33, 2**63):
        with pytest.raises(MemoryFileError):
            load(sealed(data[:9] + size.to_bytes(8, "little") + data[HEAD:-TAIL]))
    newer = sealed(data[:8] + bytes([9]) + data[9:-TAIL])
    with pytest.raises(MemoryFileError, match="version 9"):
        load(newer)


@few
@given(junk=st.binary(max_size=300))
def test_junk_with_a_valid_hash_is_refused(junk):
    body = b"BYHEXACT\x01" + len(junk).to_bytes(8, "little") + zlib.compress(junk)
    with pytest.raises(MemoryFileError):
        load_network(sealed(body))
