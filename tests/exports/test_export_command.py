"""`byheart export --to ...` and `byheart import`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import byheart as bh
from byheart.cli.main import app
from byheart.exports import TARGETS


def run(*words: object, code: int = 0) -> dict:
    done = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bh.build(bh.read_facts("elements")).save(tmp_path_factory.mktemp("m") / "elements")


@pytest.mark.parametrize("to", TARGETS)
def test_every_target(memory: Path, to: str, tmp_path: Path):
    said = run("export", memory, "-o", tmp_path / "out", "--to", to)
    assert said.keys() == {"path", "to", "spec", "parameters"}
    assert json.loads((tmp_path / "out" / "byheart.json").read_text())["to"] == to
    human = CliRunner().invoke(
        app, ["export", str(memory), "-o", str(tmp_path / "out"), "--to", to, "--force"]
    )
    assert human.exit_code == 0 and "parameters, written to" in human.output


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
