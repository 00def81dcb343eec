"""The folder of a sharded memory: bit for bit, lazily, and with every changed bit found."""

from typing import Any

import pytest
import torch

import byheart as bh
from byheart.errors import MemoryFileError
from byheart.models import memory_files
from byheart.models.memory_files import FACTS, WEIGHTS, load
from byheart.specs import ShardedSpec

VARIANTS = [
    {},
    {"untied": True},
    {"code": "lat1"},
    {"dtype": "float64"},
    {"gate": "key"},
    {"gate": "subject-sink"},
]


@pytest.fixture(scope="module")
def facts(make_relations):
    return make_relations(subjects=60, R=4)


@pytest.fixture
def folder(facts, tmp_path):
    return bh.build(facts, "sharded", shard_size=30).save(tmp_path / "memory")


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_round_trip(facts, tmp_path, options):
    memory = bh.build(facts, "sharded", shard_size=30, **options)
    memory.save(tmp_path / "memory")
    for lazy in (False, True):
        again: Any = load(tmp_path / "memory", lazy=lazy)
        assert again.spec == memory.spec and again.order == memory.order
        for name, w in memory.weights.items():
            assert torch.equal(again.weights[name], w) and again.weights[name].dtype == w.dtype
        key = facts.key(17)
        assert again.recall(*key) == memory.recall(*key)
        assert again.recall(*key).answer == facts.answer(17)
    assert bh.certify(load(tmp_path / "memory")).certified


def test_folders_from_before_the_gates_load(facts):
    """Specs without the newer fields mean the query gate and tied heads."""
    memory = bh.build(facts, "sharded")
    record = memory.spec.to_json()
    assert record.pop("gate") == "query" and record.pop("untied") is False
    assert ShardedSpec(**record) == memory.spec


def test_lazy_loading_reads_neither_shards_nor_facts(folder, monkeypatch):
    read = []
    original = memory_files.read_file

    def recording(path, name, limit):
        read.append(name)
        return original(path, name, limit)

    monkeypatch.setattr(memory_files, "read_file", recording)
    assert load(folder, lazy=True).facts is not None  # mapped, so that keys are known
    assert WEIGHTS not in read and FACTS not in read
    load(folder)
    assert WEIGHTS in read and FACTS in read


def test_one_flipped_bit_is_found_in_its_shard_only(folder, facts):
    memory: Any = load(folder)
    path = folder / WEIGHTS
    data = bytearray(path.read_bytes())
    W_O = memory.weights["W_O"]
    header = len(data) - W_O.numel() * W_O.element_size()
    start = memory.weights["head_start"].tolist()
    hit = 3
    per_head = W_O[0].numel() * W_O.element_size()
    data[header + start[hit] * per_head + 5] ^= 1
    path.write_bytes(data)
    with pytest.raises(MemoryFileError, match=r"weights\.safetensors differs from the SHA-256"):
        load(folder)
    lazy: Any = load(folder, lazy=True)  # W_O is not looked at
    assert isinstance(lazy.spec, ShardedSpec)
    for g in range(lazy.spec.shards):
        if g != hit:
            lazy.check_shard(g)
    with pytest.raises(MemoryFileError, match=f"shard {hit} of weights.safetensors differs"):
        lazy.check_shard(hit)
    # Facts of other shards are still what they were.
    others = facts.tokens[lazy.shards_of(facts) != hit]
    asked = lazy.with_start(others)
    assert torch.equal(lazy.outputs(asked), memory.outputs(asked))


def test_a_truncated_file_of_shards_is_refused_even_lazily(folder):
    path = folder / WEIGHTS
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(MemoryFileError, match="not a complete safetensors file"):
        load(folder, lazy=True)
