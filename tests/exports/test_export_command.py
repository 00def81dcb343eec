"""`byheart export --to ...` and `byheart import`."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from safetensors.torch import load_file
from typer.testing import CliRunner

import byheart as bh
from byheart.cli.main import app
from byheart.errors import CapacityError
from byheart.exports import TARGETS


def run(*words: object, code: int = 0) -> dict:
    done = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bh.build(bh.read_facts("elements")).save(tmp_path_factory.mktemp("m") / "elements")


def parameters_in(folder: Path) -> int:
    """Counted in the files themselves."""
    if (folder / "model.onnx").exists():
        import onnx

        graph = onnx.load(folder / "model.onnx").graph
        weights = [w for w in graph.initializer if w.name.startswith("W_")]
        return sum(math.prod(w.dims) for w in weights)
    (file,) = (f for f in folder.glob("*.safetensors") if f.name != "facts.safetensors")
    return sum(w.numel() for w in load_file(file).values())


@pytest.mark.parametrize("to", ["hugging-face", "transformer-lens", "onnx"])
def test_an_export_too_large_is_refused_before_work(to: str, tmp_path: Path, monkeypatch):
    """10^5 facts as a GPT-2 are 285 GB of weights."""
    memory = bh.build("countries", "sharded")
    monkeypatch.setattr("byheart._machine.memory_bytes", lambda: 500_000)
    monkeypatch.setattr(type(memory), "to_dense", lambda self: pytest.fail("it was written out"))
    with pytest.raises(CapacityError, match=rf"an export to {to} of [\d,]+ parameters needs about"):
        bh.export(memory, tmp_path / "out", to=to)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("to", TARGETS)
def test_every_target(memory: Path, to: str, tmp_path: Path):
    said = run("export", memory, "-o", tmp_path / "out", "--to", to)
    assert said.keys() == {"bytes", "path", "to", "spec", "parameters"}
    marker = json.loads((tmp_path / "out" / "byheart.json").read_text())
    assert (marker["to"], marker["parameters"]) == (to, said["parameters"])
    assert said["parameters"] == parameters_in(tmp_path / "out")
    human = CliRunner().invoke(
        app, ["export", str(memory), "-o", str(tmp_path / "out"), "--to", to, "--force"]
    )
    assert human.exit_code == 0 and "parameters, written to" in human.output
    assert said["bytes"] == sum(file.stat().st_size for file in (tmp_path / "out").iterdir())
    assert f"{to}: {said['parameters']:,} parameters, " in human.output


def test_and_back(memory: Path, tmp_path: Path):
    run("export", memory, "-o", tmp_path / "out", "--to", "torch")
    said = run("import", tmp_path / "out", "-o", tmp_path / "back")
    assert said.keys() >= {"path", "spec", "parameters", "facts", "recalled"}
    assert said["facts"] == said["recalled"] == 236
    assert run("certify", tmp_path / "back")["certified"]
    said = run(
        "import", tmp_path / "out", "-o", tmp_path / "back", "--facts", "elements", "--force"
    )
    assert said["recalled"] == 236
    human = CliRunner().invoke(
        app, ["import", str(tmp_path / "out"), "-o", str(tmp_path / "back2")]
    )
    assert "236 of 236 from the stored float32 weights" in human.output


def test_wrong_words(memory: Path, tmp_path: Path):
    said = run("export", memory, "-o", tmp_path / "o", "--to", "x", code=2)["error"]
    assert said.startswith("--to must be one of torch, transformer-lens")
    assert "cannot be read" in run("import", tmp_path, "-o", tmp_path / "o", code=2)["error"]
    assert not (tmp_path / "o").exists()
