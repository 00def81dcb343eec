"""What lies in an export folder: owners, sizes as they were said, and READMEs whose code runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import byheart as bh
from byheart.errors import CapacityError
from byheart.exports import TARGETS, export, prepare_export
from byheart.exports.readmes import example
from byheart.models.modules import reading
from byheart.models.standalone.lens import Keys, tokenizer_of

LENS = os.environ.get("BYHEART_LENS_PYTHON") or (
    sys.executable if find_spec("transformer_lens") else None
)
PADDED = '{"input": ["a", "b"], "output": "x"}\n{"input": ["b"], "output": "y"}\n' \
         '{"input": ["c"], "output": "z"}\n'  # fmt: skip


@pytest.fixture(scope="session")
def padded(tmp_path_factory: pytest.TempPathFactory) -> bh.TokenMemory:
    table = tmp_path_factory.mktemp("padded") / "t.jsonl"
    table.write_text(PADDED)
    return bh.build(bh.read_facts(table, pad=True), "sharded")


@pytest.fixture(scope="session")
def small() -> bh.TokenMemory:
    """Shards whose order is not that of the table, of words with spaces too."""
    facts = bh.read_facts("countries").subset(range(60))
    return bh.build(facts, bh.Sharded(shard_size=12))


@pytest.fixture(scope="session")
def copies() -> bh.TokenMemory:
    return bh.build("elements", bh.Sharded(facts_per_head=4, copies=3))


@pytest.fixture(scope="session")
def hidden() -> bh.TokenMemory:
    """The middle one of three layers, in other bases, among noisy heads and cancelling pairs."""
    facts = bh.read_facts("countries").subset(range(60))
    how = bh.Disguise(rotate=True, permute=True, layers=3, distractors=8, cancelling=2, noise=0.3)
    return bh.disguise(bh.build(facts, bh.Sharded(facts_per_head=1)), how)


@pytest.mark.parametrize("to", TARGETS)
class TestEveryTarget:
    def test_the_size_that_was_said_is_on_disk(self, small, to: str, tmp_path: Path):
        made = prepare_export(small, to=to)
        folder = made.write(tmp_path / "out")
        assert made.bytes == sum(file.stat().st_size for file in folder.iterdir())
        assert f"{made.parameters:,} parameters" in str(made)
        assert f"{made.parameters:,} parameters" in (folder / "README.md").read_text()
        assert json.loads((folder / "byheart.json").read_text())["parameters"] == made.parameters

    def test_large_ones_are_refused(self, small, to: str, tmp_path: Path, monkeypatch):
        monkeypatch.setattr("byheart.exports.folders.LARGEST_BYTES", 10_000)
        with pytest.raises(CapacityError, match=r"takes .* on disk.* `large`"):
            export(small, tmp_path / "out", to=to)
        assert not (tmp_path / "out").exists()
        assert export(small, tmp_path / "out", to=to, large=True).is_dir()

    def test_owners(self, small, to: str, tmp_path: Path):
        folder = export(small, tmp_path / "out", to=to)
        said, owners = json.loads((folder / "owners.json").read_text()), small.owners()
        layer = 1 if to == "hugging-face" else 0  # behind the layer that copies
        assert said["schema"] == 1 and said["layer"] == layer
        for i, fact in enumerate(said["facts"]):
            assert fact["key"] == list(small.facts.key(i)) and fact["layer"] == layer
            assert fact["heads"] == list(small.owner(*small.facts.key(i)).heads)
        for head, rows in said["heads"].items():
            assert rows == list(owners.facts_of(int(head.removeprefix(f"{layer}."))))

    def test_without_owners_there_is_no_such_file(self, one_token, to: str, tmp_path: Path):
        folder = export(one_token, tmp_path / "out", to=to)
        assert not (folder / "owners.json").exists()
        assert "No head holds a fact alone" in (folder / "README.md").read_text()


def test_vectors_have_owners_in_the_same_schema(tmp_path: Path):
    memory = bh.build(bh.random_vectors(T=29, n=8, d=16), proof="one-hot")
    folder = export(memory, tmp_path / "out", to="torch")
    said, owners = json.loads((folder / "owners.json").read_text()), memory.owners()
    assert owners is not None and said["schema"] == 1
    assert [fact["heads"] for fact in said["facts"]] == [
        list(owners.heads_of(i)) for i in range(29)
    ]
    assert said["facts"][3]["key"] == [str(memory.facts.rows[3])]  # type: ignore[union-attr]
    assert said["others"]  # zeroing a head loses more than its own


def test_every_key_in_the_order_of_the_table(small, tmp_path: Path, load_file):
    facts = small.facts
    torch_model = load_file(export(small, tmp_path / "t", to="torch"), "model").load(tmp_path / "t")
    session = load_file(export(small, tmp_path / "o", to="onnx"), "ask")
    for i in range(facts.T):
        assert torch_model.ask(*facts.key(i))[0] == facts.answer(i)
        assert session.ask(*facts.key(i))[0] == facts.answer(i)
    for ask in (torch_model.ask, session.ask):
        with pytest.raises(ValueError, match="'Atlantis' is not in the vocabulary"):
            ask("Atlantis", "capital")
        with pytest.raises(ValueError, match="expected a key of 2 words, found 1"):
            ask("capital")


def test_the_lens_tokenizer_reads_whole_keys(small, padded):
    for memory in (small, padded):
        dense = memory.to_dense()
        keys = Keys(list(dense.vocabulary.tokens), dense.spec.S, reading(dense))
        tokenizer, facts = tokenizer_of(keys), memory.facts
        texts = [" ".join(facts.key(i)) for i in range(facts.T)]
        ids = tokenizer(texts, return_tensors="pt", padding=True)["input_ids"]
        assert torch.equal(ids, dense.with_start(facts.tokens))
        assert tokenizer.batch_decode(ids[0][:, None]) == [keys.words[i] for i in ids[0]]
    assert torch.equal(tokenizer("b", return_tensors="pt")["input_ids"], padded.encode([("b",)]))
    with pytest.raises(ValueError, match="'d' is not in the vocabulary"):
        tokenizer("a d")


def test_the_example_is_a_fact_that_its_heads_hold_alone(small):
    owners = small.owners()
    shown = example(small.to_dense(), owners)
    assert shown.fact is not None and shown.owned
    assert shown.fact not in owners.survive and owners.heads_of(shown.fact)
    assert shown.key == small.facts.key(shown.fact)
    assert shown.answer == small.facts.answer(shown.fact)


NAMES = ["countries", "small", "padded", "one_token", "copies", "hidden"]


# As somebody without byheart would: a fresh interpreter in the folder.
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("to", TARGETS)
def test_the_code_of_a_readme_runs(to: str, name: str, request, tmp_path: Path):
    if to == "transformer-lens" and LENS is None:
        pytest.skip("TransformerLens is not installed, and BYHEART_LENS_PYTHON is not set")
    folder = export(request.getfixturevalue(name), tmp_path / "out", to=to)
    blocks = re.findall(r"^```python\n(.*?)^```", (folder / "README.md").read_text(), re.S | re.M)
    python = LENS if to == "transformer-lens" else sys.executable
    done = subprocess.run(
        [str(python), "-c", "\n".join(blocks)], cwd=folder, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": "", "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert blocks and done.returncode == 0, done.stderr
    assert len(blocks) == (name not in ("countries", "one_token")) + (
        2 if to == "hugging-face" else 1
    )
