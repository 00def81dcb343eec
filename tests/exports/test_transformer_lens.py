"""In TransformerLens itself, where it is installed: here, or in the interpreter that
BYHEART_LENS_PYTHON names (it needs much that byheart does not)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from byheart.exports import export

PYTHON = os.environ.get("BYHEART_LENS_PYTHON") or (sys.executable if find_spec("transformer_lens")
                                                   else None)  # fmt: skip
PROGRAM = """
import json, sys, torch
from safetensors.torch import load_file
from load import load
keys, wanted = load_file("facts.safetensors"), load_file("wanted.safetensors")
with torch.no_grad():
    model = load()
    logits, cache = model.run_with_cache(keys["tokens"])
    own = logits[:, -1]
    double = model.double()(keys["tokens"])[:, -1]
print(json.dumps({
    "class": type(model).__name__,
    "right": int((own.argmax(1) == keys["answers"]).sum()),
    "own": float((own - wanted["own"]).abs().max()),
    "double": float((double - wanted["double"]).abs().max()),
    "pattern": list(cache["blocks.0.attn.hook_pattern"].shape),
}))
"""


@pytest.mark.skipif(
    PYTHON is None, reason="TransformerLens is not installed: pip install 'byheart[lens]', or set "
    "BYHEART_LENS_PYTHON to an interpreter that has it"
)  # fmt: skip
@pytest.mark.parametrize("name", ["countries", "sharded", "one_token"])
def test_the_same_logits_in_transformer_lens(name: str, request, tmp_path: Path, read_tokens):
    memory = request.getfixturevalue(name).to_dense()
    folder = export(memory, tmp_path / "lens", to="transformer-lens")
    tokens = read_tokens(memory)
    wanted = {"own": memory.outputs(tokens), "double": memory.outputs(tokens, torch.float64)}
    save_file(wanted, folder / "wanted.safetensors")
    assert PYTHON is not None
    done = subprocess.run(
        [PYTHON, "-c", PROGRAM], cwd=folder, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["right"] == memory.facts.T
    assert said["double"] < 1e-9
    # In float32 another order of summation rounds otherwise, but not worse than the memory's own.
    rounding = float((wanted["own"] - wanted["double"]).abs().max())
    assert said["own"] < 10 * rounding + 1e-6
    assert said["pattern"] == [memory.facts.T, memory.spec.H, memory.spec.S, memory.spec.S]
