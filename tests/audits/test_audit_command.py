"""`byheart audit`."""

from __future__ import annotations

import json
import re
from pathlib import Path

from typer.testing import CliRunner, Result

from byheart.cli.main import app

SMALL = ["--length", "8", "--contexts", "20", "--draws", "5", "--ranked", "5", "--search", "3"]
FORMATS = Path(__file__).parents[2] / "docs" / "formats.md"


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["audit", *map(str, words)])


def test_table_file_and_figure(models_folder: Path, text: Path, tmp_path: Path):
    said = run(models_folder / "bert", "--text", text, *SMALL, "-o", tmp_path / "a.json",
               "--plot", tmp_path / "a.png")  # fmt: skip
    assert said.exit_code == 0, said.output
    assert "20 contexts of n=8 tokens" in said.stdout and "peak memory" in said.stdout
    assert (tmp_path / "a.png").stat().st_size > 10_000
    record = json.loads((tmp_path / "a.json").read_text())
    assert record["kind"] == "byheart audit" and record["schema"] == 1


def test_json_has_the_documented_keys(models_folder: Path, text: Path):
    said = run(models_folder / "gpt2", "--text", text, *SMALL, "--no-random", "--json")
    assert said.exit_code == 0, said.output
    record = json.loads(said.stdout)
    rows = {
        line.split("`")[1]: set(re.findall(r"`([\w, ]+)`", line.split("|")[2]).pop(0).split(", "))
        for line in FORMATS.read_text().splitlines()
        if line.startswith("| `audit")
    }
    layer = record["layers"][1]
    query = layer["queries"]["last"]
    assert rows["audit"] == record.keys()
    assert rows["audit layers[]"] == layer.keys()
    assert rows["audit queries{}"] == query.keys()
    assert rows["audit settings[]"] == query["settings"][0].keys()
    assert rows["audit contexts[]"] == layer["contexts"][0].keys()
    assert rows["audit promises[]"] == layer["promises"][0].keys()


def test_errors(models_folder: Path, tmp_path: Path):
    said = run(models_folder / "bert", "--text", tmp_path / "gone", "--json")
    assert said.exit_code == 2 and "no such file" in json.loads(said.stdout)["error"]
    said = run(models_folder / "bert", "--text", "x", "--plot", "x.gif")
    assert said.exit_code == 2 and "--plot must end in" in said.stderr
