"""Memories compute on the CPU whatever torch's default device is; their torch modules on any."""

from pathlib import Path

import numpy as np
import pytest
import torch
from oracles.other_device import DEVICE, OtherDevice
from torch.func import functional_call

import byheart as bh
from byheart.models import Memory

PAIRS = bh.random_associations(N=12, S=2, T=40, seed=1)
MADE = {
    "attention": lambda: bh.build(PAIRS, "attention"),
    "sharded": lambda: bh.build(PAIRS, "sharded", shard_size=8),
    "sharded, who abstains": lambda: bh.build(PAIRS, "sharded", abstain=True),
    "associative": lambda: bh.build(bh.random_associations(N=12, S=1, T=8), "associative", d=64),
    "trained": lambda: bh.build(PAIRS, bh.Train(steps=60, seeds=1)),
    "mlp": lambda: bh.build(PAIRS, bh.Train(model="mlp", steps=60, seeds=1)),
    "as-coded": lambda: bh.build(PAIRS, bh.Train(model="as-coded", steps=60, seeds=1)),
    "distributions": lambda: bh.build({("a",): {"x": 0.5, "y": 0.5}, ("b",): {"x": 1.0, "y": 0.0}}),
    "numbers": lambda: bh.build("vectors:T=20,n=8,d=16,context=fixed,seed=1"),
    "classes": lambda: bh.build("vectors:T=20,n=4,d=8,context=random,classes=3,seed=1"),
    "sqrt": lambda: bh.build(PAIRS, "sqrt"),
}


@pytest.fixture(scope="module", params=MADE)
def made(request: pytest.FixtureRequest) -> tuple[str, Memory]:
    return request.param, MADE[request.param]()


def test_another_default_device_changes_nothing(made: tuple[str, Memory], tmp_path: Path):
    """Built, asked, proved, saved and loaded with tensors made elsewhere by default."""
    name, memory = made
    with torch.device("meta"):
        again = MADE[name]()
        assert again == memory
        assert np.array_equal(again.margins(), memory.margins())
        loaded = bh.load(again.save(tmp_path / "m"))
        assert loaded == memory
        proof = bh.certify(loaded)
        if memory.no_heads is None and memory.example():
            assert loaded.split(*loaded.key_of(loaded.example())).margin > 0
    assert proof.certified == bh.certify(memory).certified


def test_an_edit_under_another_default_device(tmp_path: Path):
    before = bh.build("elements", "sharded")
    with torch.device("meta"):
        edited = bh.edit(before, set={("Fe", "name"): "ferrum"})
        assert edited.recall("Fe", "name").answer == "ferrum"
    assert edited == bh.edit(before, set={("Fe", "name"): "ferrum"})


def test_a_module_runs_where_its_weights_are(made: tuple[str, Memory]):
    """Nothing inside meets a tensor of the CPU, and the numbers are the same."""
    name, memory = made
    if name == "sqrt":
        pytest.skip("integers, not tensors")
    module, table = memory.to_torch(), memory.own()
    inputs = memory.inputs_of(table)
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    here = module(*inputs)
    with OtherDevice(), torch.no_grad():
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        moved = {k: v.detach().to(DEVICE) for k, v in tensors.items()}
        there = functional_call(module, moved, tuple(x.to(DEVICE) for x in inputs))
        assert there.device == DEVICE
        assert torch.equal(there.cpu(), here)
