"""A sharded memory written out: as a dense memory, as a torch module, through `--full`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import byheart as bh
from byheart.cli.main import app


@pytest.fixture(scope="module")
def memory() -> bh.Memory:
    return bh.build(bh.read_facts("countries"), "sharded", shard_size=60)


def test_the_dense_memory_recalls_everything_and_is_certified(memory: bh.Memory):
    dense = memory.to_dense()
    assert isinstance(dense.spec, bh.AttentionOnlySpec)
    assert dense.spec.parameters == memory.spec.parameters
    assert bh.accuracy(dense) == 1.0
    assert bh.certify(dense).certified


def test_the_module_is_the_memory(memory: bh.Memory):
    module = memory.to_torch()
    dense = memory.to_dense()
    tokens = dense.encode([("France", "capital"), ("Japan", "currency")])
    # Both write every head out, in another order of products: float64, sums of order 1.
    with torch.no_grad():
        found = module.double()(tokens)
    torch.testing.assert_close(found, dense.outputs(tokens, torch.float64), rtol=0, atol=1e-9)
    assert sum(p.numel() for p in module.parameters()) == memory.spec.parameters


def test_the_module_trains(memory: bh.Memory):
    module = memory.to_torch()
    module(memory.to_dense().encode([("France", "capital")])).sum().backward()
    gradients = {name: p.grad for name, p in module.named_parameters()}
    W_O = gradients["layers.0.W_O"]
    assert W_O is not None and bool(W_O.any())


def test_what_does_not_fit_is_refused_with_its_size(
    memory: bh.Memory, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("byheart._machine.os.sysconf", lambda name: 64)
    with pytest.raises(bh.ByheartError, match=f"{memory.spec.parameters:,} parameters"):
        memory.to_dense()


def test_the_associative_memory_is_a_module_too():
    memory = bh.build(bh.read_facts("elements"), "associative")
    inputs = memory.encode([("Fe", "name")])
    assert torch.equal(memory.to_torch()(inputs), memory.outputs(inputs))


def test_export_and_full_recall(memory: bh.Memory, tmp_path: Path):
    memory.save(tmp_path / "m")

    def run(*words: object) -> dict:
        done = CliRunner().invoke(app, [*map(str, words), "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    said = run("export", tmp_path / "m", "-o", tmp_path / "dense")
    assert said["parameters"] == memory.spec.parameters
    own = run("recall", tmp_path / "m", "Peru", "capital")
    full = run("recall", tmp_path / "m", "Peru", "capital", "--full")
    dense = run("recall", tmp_path / "dense", "Peru", "capital")
    assert own["answer"] == full["answer"] == dense["answer"] == "Lima"
    # float32: the literal layer adds up the same parts in another order.
    assert abs(own["margin"] - full["margin"]) < 1e-3
    assert run("recall", tmp_path / "m", "--all", "--full")["recalled"] == memory.construction.facts
    assert run("certify", tmp_path / "dense")["certified"]
