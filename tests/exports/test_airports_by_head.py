"""3,000 real facts, one head each: zeroing a head loses its fact and no other, in plain torch for
every head and in TransformerLens for a hundred."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import airportsdata
import pytest
import torch

import byheart as bh
from byheart.exports import export
from byheart.measure import lost_with_each

PYTHON = os.environ.get("BYHEART_LENS_PYTHON") or (sys.executable if find_spec("transformer_lens")
                                                   else None)  # fmt: skip
FIELDS = {"city": "city", "country": "country", "time zone": "tz"}
HEADS = 100  # zeroed one after the other in TransformerLens
PROGRAM = """
import json, torch
from safetensors.torch import load_file
from load import load
facts, owners = load_file("facts.safetensors"), json.load(open("owners.json"))
model, layer = load(), owners["layer"]
def lost(head):
    def zero(z, hook):
        z[:, :, head] = 0
        return z
    hooks = [] if head is None else [(f"blocks.{layer}.attn.hook_z", zero)]
    with torch.no_grad():
        logits = model.run_with_hooks(facts["tokens"], fwd_hooks=hooks)[:, -1]
    return (logits.argmax(1) != facts["answers"]).nonzero()[:, 0].tolist()
names = list(owners["heads"])[:: max(1, len(owners["heads"]) // HEADS)][:HEADS]
wrong = [name for name in names if lost(int(name.split(".")[1])) != owners["heads"][name]]
print(json.dumps({"before": lost(None), "asked": len(names), "wrong": wrong}))
"""


@pytest.fixture(scope="module")
def memory() -> bh.ShardedMemory:
    airports = airportsdata.load("IATA")
    rows = {
        (code, relation): str(airports[code][field])
        for code in sorted(airports)
        for relation, field in FIELDS.items()
        if airports[code][field]
    }
    facts = bh.as_facts(dict(list(rows.items())[:3000]))
    return bh.build(facts, bh.Sharded(facts_per_head=1))


@pytest.mark.slow
def test_every_head_holds_one_fact_in_plain_torch(memory: bh.ShardedMemory):
    owners, facts = memory.owners(), memory.facts
    assert owners is not None and facts is not None
    assert bh.certify(memory).certified and memory.spec.H == facts.T == 3000
    module: Any = memory.to_torch()
    right = torch.tensor(facts.answers)
    seen: dict[str, torch.Tensor] = {}
    layer = module.layers[0]
    layer.hook_heads.register_forward_hook(lambda _, __, out: seen.update(heads=out[:, -1]))
    layer.hook_resid_post.register_forward_hook(lambda _, __, out: seen.update(post=out[:, -1]))
    held = [owners.facts_of(head) for head in range(memory.spec.H)]
    assert all(len(mine) == 1 for mine in held) and owners.survive == ()
    inputs = memory.to_dense().inputs_of(facts)
    with torch.no_grad():
        lost = [set() for _ in held]
        for rows in torch.arange(facts.T).split(100):
            assert (module(inputs[rows]).argmax(1) == right[rows]).all()
            for head in range(memory.spec.H):  # the stream is a sum: what is left without the head
                left = (seen["post"] - seen["heads"][:, head]) @ module.W_U
                wrong = left.argmax(1) != right[rows]
                lost[head] |= set(rows[wrong].tolist())
    assert [tuple(some) for some in lost] == held == lost_with_each(memory)


@pytest.mark.slow
@pytest.mark.skipif(PYTHON is None, reason="TransformerLens is not installed")
def test_a_hundred_heads_in_transformer_lens(memory: bh.ShardedMemory, tmp_path: Path):
    folder = export(memory, tmp_path / "lens", to="transformer-lens")
    assert PYTHON is not None
    program = PROGRAM.replace("HEADS", str(HEADS))
    done = subprocess.run(
        [PYTHON, "-c", program], cwd=folder, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said == {"before": [], "asked": HEADS, "wrong": []}
