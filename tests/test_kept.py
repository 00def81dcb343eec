"""Folders, stores, checkpoints and audits that an earlier byheart wrote are read (tests/kept)."""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from typer.testing import CliRunner

import byheart as bh
from byheart.cli.main import app

KEPT = Path(__file__).parent / "kept"
Run = Callable[..., str]

# Folder -> the facts it holds.
MEMORIES = {
    "associative": 24,
    "attention": 24,
    "attention-boundary": 16,
    "distribution": 4,
    "multihead-classes": 12,
    "multihead-numbers": 12,
    "sharded": 24,
    "sharded-abstain": 24,
    "sqrt": 24,
    "trained-as-coded": 24,
    "trained-attention": 24,
    "trained-mlp": 24,
    "trained-two-layers": 24,
}
OF_PLACES = [name for name, facts in MEMORIES.items() if facts == 24]

# Study -> which of its cells were computed, and how many of them.
STUDIES = {
    "dana2025/demo": ("H<=1", 1),
    "dana2025/zipf-prior": ("zipf==0", 1),
    "dana2025/multi-answer": ("answers==1", 1),
    "mahdavi2024/fig2a": ("H==1 and T==1000 and n==8", 1),
    "mahdavi2024/saturation": ("T==250 and H==4", 4),
    "mahdavi2024/capacity-vs-P": ("H==2 and n==6 and share==0.8", 1),
    "mahdavi2024/built-vs-trained": ("H==1 and n==6", 3),
    "mahdavi2024/depth": ("layers==1 and T==1000", 1),
    "kajitsuka2025/precision": ("N==100 and max_bits==32", 1),
    "kajitsuka2025/length": ("N==60 and classes==2", 4),
}
CHECKPOINTED = (
    *("--melt", "--d-model", 6, "--heads", 2, "--seeds", 2, "--lr", 0.0005, "--steps", 3000),
    *("--checkpoint", "training.safetensors", "--json"),
)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """`kept("sqrt")`: a copy to work on; commands run in the folder of the copies."""
    monkeypatch.chdir(tmp_path)

    def copy(name: str) -> Path:
        source, target = KEPT / name, tmp_path / name
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy(source, target)
        return target

    return copy


@pytest.fixture
def run() -> Run:
    def invoke(*args: object, code: int | None = 0) -> str:
        """What a command prints; `code=None` takes any exit code."""
        result = CliRunner().invoke(app, [str(arg) for arg in args])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert code is None or result.exit_code == code, result.output
        return result.stderr if code == 2 else result.stdout

    return invoke


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def places() -> dict[tuple[str, str], str]:
    """(country, relation) -> answer, of places.csv."""
    with (KEPT / "places.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {(r["country"], name): r[name] for r in rows for name in r if name != "country"}


def stored(folder: Path) -> dict[str, Any]:
    """Every tensor of a folder by file and name, as type, shape and hash; other weights hashed."""
    found: dict[str, Any] = {}
    for path in sorted(folder.glob("*.safetensors")):
        for name, tensor in load_file(path).items():
            content = hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()
            found[f"{path.name} {name}"] = (str(tensor.dtype), tuple(tensor.shape), content)
    for path in folder.glob("*.bin"):
        found[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def test_the_table_names_what_is_kept():
    text = (KEPT / "README.md").read_text(encoding="utf-8")
    named = {line.split("`")[1].rstrip("/") for line in text.splitlines() if line[:3] == "| `"}
    there = {path.name for path in KEPT.iterdir()} - {"README.md", "conftest.py", "__pycache__"}
    assert named == there
    folders = {path.parent.name for path in KEPT.glob("*/memory.json")}
    assert folders == MEMORIES.keys()


@pytest.mark.parametrize("name", MEMORIES)
def test_a_memory_recalls_all_its_facts(name: str, kept, run: Run):
    folder = kept(name)
    told = json.loads(run("recall", folder, "--all", "--json"))
    assert told["recalled"] == told["facts"] == MEMORIES[name]


@pytest.mark.parametrize("name", OF_PLACES)
def test_a_memory_answers_in_python(name: str):
    memory = bh.load(KEPT / name)
    for key, answer in places().items():
        assert memory.recall(*key).answer == answer


@pytest.mark.parametrize("name", MEMORIES)
def test_a_memory_is_saved_again_as_it_was(name: str, tmp_path: Path):
    bh.load(KEPT / name).save(tmp_path / "again")
    assert stored(tmp_path / "again") == stored(KEPT / name)


@pytest.mark.parametrize("name", MEMORIES)
def test_a_memory_is_proved_again(name: str, kept, run: Run):
    folder = kept(name)
    before = read(folder / "certificate.json")
    run("certify", folder)
    after = read(folder / "certificate.json")
    assert before["certified"] is after["certified"] is True
    assert after["facts"] == before["facts"] == MEMORIES[name]
    # What the old certificate is about is still what lies in the folder.
    for digest in ("weights_sha256", "facts_digest"):
        assert after[digest] == before[digest]
    for number in ("margin", "largest_error"):
        if before[number] is not None:
            assert after[number] == pytest.approx(before[number], rel=1e-3)


@pytest.mark.parametrize("name", ["attention", "sqrt", "multihead-numbers", "distribution"])
def test_the_old_certificate_is_shown(name: str, kept, run: Run):
    folder = kept(name)
    run("report", folder, "-o", "page.html")
    page = Path("page.html").read_text(encoding="utf-8")
    assert read(folder / "certificate.json")["weights_sha256"][:12] in page


@pytest.mark.parametrize("name", ["sharded", "sharded-abstain"])
def test_a_sharded_memory_is_edited(name: str, kept, run: Run):
    folder = kept(name)
    run("edit", folder, "--set", "Peru,currency=inti", "--delete", "Fiji,capital")
    memory = bh.load(folder)
    assert memory.recall("Peru", "currency").answer == "inti"
    told = json.loads(run("recall", folder, "--all", "--json"))
    assert told["recalled"] == told["facts"] == 23
    # It had a certificate, so that it has a new one: shards that were not touched keep their proof.
    assert read(folder / "certificate.json")["certified"] is True
    run("certify", folder, "--no-write")


def test_an_unknown_key_is_still_unknown(kept, run: Run):
    folder = kept("sharded-abstain")
    told = json.loads(run("recall", folder, "capital", "Peru", "--abstain", "--json", code=None))
    assert told["known"] is False
    told = json.loads(run("recall", folder, "Peru", "capital", "--abstain", "--json"))
    assert (told["answer"], told["known"]) == ("Lima", True)


@pytest.mark.parametrize(
    ("export", "source"), [("export-torch", "attention"), ("export-lens", "attention-boundary")]
)
def test_an_export_is_imported(export: str, source: str, kept, run: Run):
    kept(export)
    told = json.loads(run("import", export, "-o", "imported", "--json"))
    assert told["recalled"] == told["facts"] == MEMORIES[source]
    run("certify", "imported")
    if export == "export-torch":  # the other form folds positions and biases into other tensors
        weights = load_file("imported/weights.safetensors")
        expected = load_file(KEPT / source / "weights.safetensors")
        assert weights.keys() == expected.keys()
        assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_an_export_runs_without_byheart():
    spec = importlib.util.spec_from_file_location("kept_export", KEPT / "export-torch" / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.load(KEPT / "export-torch")
    facts = load_file(KEPT / "export-torch" / "facts.safetensors")
    assert (model(facts["tokens"].long()).argmax(-1) == facts["answers"]).all()


@pytest.mark.parametrize("study", STUDIES)
def test_a_store_is_read_and_nothing_is_computed_again(study: str, kept, run: Run):
    kept("studies.db")
    only, number = STUDIES[study]
    chosen = (study, "--only", only, "--seeds", 1, "--store", "studies.db", "-o", "out")
    status = json.loads(run("reproduce", *chosen, "--status", "--json"))
    assert (status["studies"][0]["done"], status["studies"][0]["failed"]) == (number, 0)
    run("reproduce", *chosen, "--export", "rows.csv")
    with Path("rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == number
    assert {row["study"] for row in rows} == {study}
    drawn = json.loads(run("reproduce", *chosen, "--json"))
    assert (drawn["computed"], drawn["before"]) == (0, number)


def test_a_store_has_a_page(kept, run: Run):
    kept("studies.db")
    run("report", "studies.db", "-o", "page.html")
    page = Path("page.html").read_text(encoding="utf-8")
    assert all(study in page for study in STUDIES)


def test_a_checkpoint_is_resumed(kept, run: Run):
    path = kept("training.safetensors")
    with safe_open(path, "pt") as file:
        assert json.loads(file.metadata()["byheart"])["step"] == 100
    kept("places.csv")
    before = path.read_bytes()
    # Another run does not take it, and leaves it alone.
    said = run("train", "places.csv", *CHECKPOINTED, "--seed", 1, "-o", "other", code=2)
    assert "training.safetensors" in said
    assert path.read_bytes() == before
    told = json.loads(run("train", "places.csv", *CHECKPOINTED, "-o", "resumed"))
    assert told["recalled"] == told["facts"] == 24
    assert path.read_bytes() != before
    memory = bh.load("resumed")
    for key, answer in places().items():
        assert memory.recall(*key).answer == answer


def test_an_audit_has_a_page(kept, run: Run):
    kept("audit.json")
    run("report", "audit.json", "-o", "page.html")
    assert "tinymodel" in Path("page.html").read_text(encoding="utf-8")
