"""build, recall, certify, facts, kruskal and heads on vectors, from the command line."""

from pathlib import Path

import numpy as np
import pytest

from byheart.facts import random_vectors

SMALL = "vectors:T=29,n=8,d=16"
FORMATS = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()


@pytest.fixture
def folder(run, tmp_path) -> Path:
    run("build", SMALL, "-o", tmp_path / "m", "--certify")
    return tmp_path / "m"


def documented(command: str) -> set[str]:
    """The keys that docs/formats.md promises for a command."""
    line = next(row for row in FORMATS.splitlines() if row.startswith(f"| {command} "))
    return {word for part in line.split("`")[3::2] for word in part.split(", ")}


def test_build_recall_certify(run, run_json, folder):
    assert {p.name for p in folder.iterdir()} == {
        "memory.json", "weights.safetensors", "facts.safetensors", "certificate.json",
    }  # fmt: skip
    facts = random_vectors(29, 8, 16)
    said = run_json("recall", folder, "3")
    assert said["answer"][0] == pytest.approx(float(facts.label[3]), abs=1e-5)
    assert said["error"] < 1e-5 and len(said["heads"]) == 4
    assert sum(h["contribution"] for h in said["heads"]) == pytest.approx(
        said["answer"][0], abs=1e-5
    )
    assert documented("`recall DIR NUMBER`, vectors") - {"answers"} == said.keys()
    everything = run_json("recall", folder, "--all")
    assert documented("`recall DIR --all`, vectors") == everything.keys()
    assert everything["recalled"] == 29 and everything["error"] < 1e-5
    assert "29 of 29 examples recalled, largest error" in run("recall", folder, "--all").stdout
    assert "carried by" in run("recall", folder, "0").stdout
    made = run_json("certify", folder)
    assert made["certified"] and made["largest_error"] < 1e-5 == made["tolerance"]
    assert run_json("certify", folder, "--interval")["certified"]
    text = run("certify", folder).stdout
    assert "CERTIFIED: all 29" in text and "labels" in text
    assert not run_json("certify", folder, "--tolerance", "1e-9", code=1)["certified"]


def test_certify_given_facts_and_without_any(run, run_json, tmp_path):
    random_vectors(29, 8, 16).write(tmp_path / "v.npz")
    run("build", tmp_path / "v.npz", "-o", tmp_path / "m", "--no-facts")
    assert "saved without its facts" in run("certify", tmp_path / "m", code=2).stderr
    assert run_json("certify", tmp_path / "m", "--facts", tmp_path / "v.npz")["certified"]
    assert "saved without its facts" in run("recall", tmp_path / "m", "--all", code=2).stderr
    assert run_json("recall", tmp_path / "m", tmp_path / "v.npz")["answers"]


def test_build_json_is_documented(run_json, tmp_path):
    made = run_json("build", SMALL, "-o", tmp_path / "m", "--heads", "4", "--d-head", "8")
    assert documented("`build`, vectors") <= made.keys()
    assert made["capacity"] == made["recalled"] == 29 and made["proof"] == "one-hot"


@pytest.mark.parametrize("proof", ["literal", "random", "newton"])
def test_every_proof_is_reached(run_json, tmp_path, proof):
    options = ("--proof", proof, "--dtype", "float64", "--certify", "--tolerance", "1e-6")
    made = run_json("build", SMALL, "-o", tmp_path / "m", *options)
    assert made["proof"] == proof and made["certificate"]["certified"]


def test_classes_with_a_convex_readout(run, run_json, tmp_path):
    source = "vectors:T=60,n=8,d=16,classes=10"
    options = ("--proof", "random", "--readout", "convex", "--heads", "2")
    made = run_json("build", source, "-o", tmp_path / "m", *options)
    assert made["recalled"] == 60 > made["capacity"] == 15
    said = run_json("recall", tmp_path / "m", "7")
    assert said["answer"] == said["label"] and said["margin"] > 0
    assert run("recall", tmp_path / "m", "7").stdout.splitlines()[0] == str(said["label"])
    lost = run_json("build", "vectors:T=200,n=8,d=16,classes=2", "-o", tmp_path / "n", *options,
                    code=1)  # fmt: skip
    assert lost["lost"] and lost["recalled"] + len(lost["lost"]) == 200


def test_queries_from_a_file(run, run_json, tmp_path):
    run("build", "vectors:T=29,n=8,d=16,context=random", "-o", tmp_path / "m")
    facts = random_vectors(29, 8, 16, "random")
    np.savez(tmp_path / "ask.npz", query=facts.query[:2], context=facts.context[:2])
    answers = run_json("recall", tmp_path / "m", tmp_path / "ask.npz")["answers"]
    assert np.allclose(np.ravel(answers), facts.label[:2], atol=1e-5)
    assert len(run("recall", tmp_path / "m", tmp_path / "ask.npz").stdout.splitlines()) == 2
    np.savez(tmp_path / "bad.npz", query=facts.query[:2, :3])
    assert "expected `query`" in run("recall", tmp_path / "m", tmp_path / "bad.npz", code=2).stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ("build", "elements", "--method", "multihead"),
            "the method multihead takes vectors, found facts: use --method attention",
        ),
        (("build", SMALL, "--method", "attention"), "--method multihead"),
        (("build", SMALL, "--keys", "a"), "expected no --keys for a recipe"),
        (
            ("build", SMALL, "--d-model", "4"),
            "--d-model belongs to attention, sharded, associative",
        ),
        (("build", SMALL, "--proof", "magic"), "--proof must be one of"),
        (("build", SMALL, "--heads", "3", "--d-head", "8"), "H(r-1)+1 = 3·7+1 = 22"),
        (("build", "vectors:T=9,n=9,d=4"), "n <= d is needed"),
        (
            ("build", "elements", "--proof", "random"),
            "--proof belongs to multihead; this is attention.",
        ),
        (("build", "gone.npz"), "found no file"),
        (("recall", "MEMORY", "999"), "no example 999: there are 29"),
        (("recall", "MEMORY", "Fe", "name"), "this memory holds vectors"),
        (("certify", "MEMORY", "--facts", "elements"), "do not belong together"),
        (("kruskal", "gone.npz"), "no such file"),
        (("kruskal", SMALL, "--size", "17"), "expected 1 <= n <= d = 16"),
        (("heads", "gone"), "no such memory folder"),
        (("heads", "MEMORY", "--plot", "x.gif"), "--plot must end in"),
    ],
)
def test_bad_input_is_one_message(run, folder, tmp_path, monkeypatch, args, message):
    monkeypatch.chdir(tmp_path)
    before = sorted(p.name for p in tmp_path.iterdir())
    said = run(*(folder if a == "MEMORY" else a for a in args), code=2)
    assert message in " ".join(said.stderr.split())
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_conflicting_labels_are_listed(run_json, tmp_path):
    facts = random_vectors(6, 4, 5)
    query = np.array(facts.query)
    query[4] = query[1]
    np.savez(tmp_path / "v.npz", query=query, context=facts.context, label=facts.label)
    said = run_json("build", tmp_path / "v.npz", "-o", tmp_path / "m", code=2)
    assert [row for row, _ in said["conflicts"][0][1]] == [1, 4]


def test_a_token_memory_has_no_such_heads(run, tmp_path):
    run("build", "elements", "-o", tmp_path / "m")
    assert "holds tokens" in run("heads", tmp_path / "m", code=2).stderr


def test_facts_describes_and_writes_vectors(run, run_json, tmp_path):
    assert run_json("facts", SMALL)["shared"] is True
    assert "29 examples, one shared context" in run("facts", SMALL).stdout
    run("facts", SMALL, "-o", tmp_path / "v.safetensors")
    assert run_json("facts", tmp_path / "v.safetensors")["facts"] == 29
    assert "exists already" in run("facts", SMALL, "-o", tmp_path / "v.safetensors", code=2).stderr


def test_kruskal_report(run, run_json, tmp_path):
    X = np.random.default_rng(0).integers(-9, 9, (40, 10))
    X[7] = X[3] + X[5]
    np.savez(tmp_path / "x.npz", rows=X)
    options = ("--array", "rows", "--size", "6", "--draws", "50")
    found = run_json("kruskal", tmp_path / "x.npz", *options)
    assert documented("`kruskal`") == found.keys()
    assert found["dependent"]["rows"] == [3, 5, 7] and found["dependent"]["exact"]
    assert found["upper"] == 2 and found["rank_exact"]["rank"] == 10
    text = run("kruskal", tmp_path / "x.npz", *options).stdout
    assert "3 rows: 3, 5, 7 (exact)" in text and "groups" in text
    assert "Choose one with --array" in run("kruskal", tmp_path / "x.npz", code=2).stderr
    np.save(tmp_path / "x.npy", X)
    assert run_json("kruskal", tmp_path / "x.npy", "--size", "6", "--draws", "5")["upper"] == 2


def test_heads_report(run, run_json, folder, tmp_path):
    record = run_json("heads", folder, "--fresh", "40", "--plot", tmp_path / "h.png")
    assert documented("`heads`") == record.keys()
    assert record["owner_from"] == "construction" and len(record["heads"]) == 4
    assert (tmp_path / "h.png").exists()
    assert "saturated heads per example" in run("heads", folder).stdout


def test_export_writes_the_layer(run_json, folder, tmp_path):
    made = run_json("export", folder, "-o", tmp_path / "e")
    assert made["spec"]["family"] == "multi-head"
    assert run_json("recall", tmp_path / "e", "--all")["recalled"] == 29
