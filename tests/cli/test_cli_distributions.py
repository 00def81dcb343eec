"""Distributions on the command line: build, recall, certify, facts, encoder; bad input refused."""

import json
import re
from pathlib import Path

import pytest

LINES = [
    {"input": ["to", "be"], "output": {"or": 0.75, ",": 0.25}, "weight": 3},
    {"input": ["or", "not"], "output": {"to": 0.9, "be": 0.1}},
    {"input": ["not", "to"], "output": {"be": 0.6, "or": 0.4}},
    {"input": ["be", "or"], "output": {"not": 0.5, "to": 0.5}},
]
COUNTS = "who,drink\nann,tea\nann,tea\nann,milk\nbob,milk\nbob,rum\n"


@pytest.fixture
def table(make_file):
    return make_file("next.jsonl", "".join(json.dumps(line) + "\n" for line in LINES))


@pytest.fixture
def built(run, table, tmp_path):
    folder = tmp_path / "next.memory"
    said = run("build", table, "--method", "distribution", "--distribution", "--smooth", "0.001",
               "-o", folder, "--certify")  # fmt: skip
    assert said.exit_code == 0, said.output
    assert "d_KL of the memory" in said.stdout and "proved" in said.stdout
    return folder


def test_build_recall_certify(run_json, run, built):
    said = run_json("recall", built, "to", "be")
    assert said["answer"] == "or" and said["known"]
    first = said["answers"][0]
    assert first["stored"] == pytest.approx(0.751 / 1.005)
    assert first["recalled"] == pytest.approx(first["stored"], abs=1e-4)
    lines = run("recall", built, "to", "be", "--top", "2").stdout
    assert lines.splitlines()[0] == "or"
    assert "recalled" in lines and "stored" in lines and "0.7473" in lines
    everything = run_json("recall", built, "--all")
    assert everything["facts"] == 4 and everything["recalled"] >= 3
    assert everything["kl"] < 1e-6
    proof = run_json("certify", built)
    assert proof["certified"] and proof["distribution"]["kl"] < 1e-6
    assert "CERTIFIED: the stored weights follow 4 distributions" in run("certify", built).stdout


def test_build_as_json_has_the_documented_keys(run_json, table, tmp_path):
    made = run_json("build", table, "--distribution", "--smooth", "0.001", "-o", tmp_path / "m",
                    "--certify", "--heads", "1", "--d-model", "2", "--d-head", "2")  # fmt: skip
    for key in ("facts", "method", "kind", "spec", "parameters", "kl", "kl_encoder", "eps",
                "total_variation", "max_log_ratio", "entropy", "encoder", "readout", "capacity",
                "recalled", "dtype", "seconds", "why", "path", "certificate"):  # fmt: skip
        assert key in made, key
    assert made["kind"] == "distribution" and made["certificate"]["certified"]
    assert made["certificate"]["distribution"]["kl"] >= made["kl"]


def test_a_key_that_is_not_stored(run, run_json, built):
    said = run_json("recall", built, "be", "be", code=1)
    assert said["known"] is False and said["answer"] is None and said["answers"] == []
    assert run("recall", built, "be", "be").stdout.startswith("not stored: be · be\n")
    raw = run("recall", built, "be", "be", "--raw")
    assert raw.exit_code == 1 and "not among the stored" in raw.stdout
    assert run_json("recall", built, "be", "be", "--raw", code=1)["answers"]


def test_counts_of_conflicting_rows(run_json, refused, make_file, tmp_path):
    path = make_file("drinks.csv", COUNTS)
    assert "--on-conflict distribution" in refused("build", path, "-o", tmp_path / "m")
    made = run_json("build", path, "--on-conflict", "distribution", "--smooth", "0.01",
                    "-o", tmp_path / "m")  # fmt: skip
    assert made["facts"] == 2
    said = run_json("recall", tmp_path / "m", "ann")
    assert said["answers"][0]["answer"] == "tea"
    assert said["answers"][0]["recalled"] == pytest.approx((2 / 3 + 0.01) / 1.03, abs=1e-4)


def test_facts_describes_entropy_and_writes(run, run_json, table, tmp_path):
    known = run_json("facts", table, "--distribution")
    assert known["sequences"] == 4 and known["answers"] == 5
    assert 0 < known["entropy"] < 1 and known["T_eps"]["0.1"] == 4
    assert not known["full_support"] and known["theory"]["d"] == 4
    shown = run("facts", table, "--distribution", "-o", tmp_path / "again.jsonl").stdout
    assert "nats" in shown and "Proposition 2" in shown
    assert run_json("facts", tmp_path / "again.jsonl", "--distribution")["entropy"] == (
        pytest.approx(known["entropy"])
    )


def test_encoder_compares_all(run, run_json):
    recipe = "random:kind=lut,N=8,eta=0.03,seed=1"
    made = run_json("encoder", recipe, "--rank", "3")
    names = [row["name"] for row in made["rows"]]
    assert names == ["svd", "centred", "weighted", "theorem2", "theorem2*", "optimised"]
    assert made["best"] == "optimised" and made["exact_rank"] == 7
    for row in made["rows"]:
        assert row["kl"] <= row["bounds"]["bennett"]
    assert "exact (Proposition 2)" in run("encoder", recipe, "--rank", "7").stdout
    shown = run("encoder", recipe, "--rank", "3").stdout
    assert "theorem2*" in shown and "bennett" in shown and "smallest" in shown


def test_encoder_without_full_support_says_what_smoothing_does(run, run_json, table):
    rows = run_json("encoder", table, "--rank", "2")["rows"]
    assert rows[0]["kl"] is None and "--smooth" in rows[0]["why"]
    assert rows[-1]["kl"] is not None
    assert run("encoder", table, "--rank", "2").exit_code == 0


def test_a_text(run_json, make_file, tmp_path):
    path = make_file("text.txt", "the cat and the dog and the cat sat on the mat and the dog ran")
    made = run_json("build", path, "--ngram", "2", "-o", tmp_path / "m", "--certify")
    assert made["certificate"]["certified"] and made["kl"] < 1e-6
    said = run_json("recall", tmp_path / "m", "the")
    assert said["answers"][0]["answer"] in ("cat", "dog")


@pytest.mark.parametrize(
    ("line", "options", "words"),
    [
        ('{"input": "x", "output": {"y": 0.5, "z": 0.6}}', [], "row 1 sum 1.1 --normalise"),
        ('{"input": "x", "output": {"y": 1.5, "z": -0.5}}', [], "row 1 not negative -0.5"),
        ('{"input": "x", "output": {"y": 0, "z": 0}}', [], "row 1 zeros only"),
        ('{"input": "x", "output": {"y": 0.5, "z": 0.5}, "weight": 0}', [], "positive weight"),
        ('{"input": "x", "output": {"y": 0.5, "z": 0.5}}', ["--method", "sharded"], "--method"),
        (
            '{"input": "x", "output": {"y": 0.5, "z": 0.5}}',
            ["--method", "attention"],
            "--method distribution",
        ),
        ('{"input": "x", "output": {"y": 0.5, "z": 0.5}}', ["--abstain"], "--abstain"),
        ('{"input": "x", "output": {"y": 0.5, "z": 0.5}}', ["--encoder", "x"], "best, svd"),
        ('{"input": "x", "output": {"y": 0.5, "z": 0.5}}', ["--readout", "x"], "readout auto"),
        ('{"input": "x", "output": {"y": 0.5, "z": 0.5}}', ["--on-conflict", "x"], "error or"),
        ('{"input": "x", "output": {"y": 0.5, "z": 0.5}}', ["--melt"], "--melt"),
    ],
)
def test_bad_distributions_are_refused(refused, make_file, tmp_path, line, options, words):
    path = make_file("bad.jsonl", line + "\n")
    said = refused("build", path, "--distribution", "-o", tmp_path / "m", *options)
    for word in words.split():
        assert word in said


def test_zeros_need_smoothing_only_where_logarithms_do(refused, run, table, tmp_path):
    said = refused("build", table, "--distribution", "--encoder", "centred", "-o", tmp_path / "m")
    assert "full support" in said and "--smooth" in said
    assert run("build", table, "--distribution", "-o", tmp_path / "n").exit_code == 0


def test_objects_need_no_flag(run_json, refused, table, tmp_path):
    made = run_json("build", table, "-o", tmp_path / "m")
    assert made["kl"] is not None
    assert "distribution" in refused("train", table, "-o", tmp_path / "t")


def test_certify_reads_another_table(run, run_json, built, make_file):
    lines = [{**line, "output": {"or": 0.5, ",": 0.5}} for line in LINES]
    other = make_file("other.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    said = run("certify", built, "--facts", other, "--distribution")
    assert said.exit_code == 1 and "NOT CERTIFIED" in said.stdout


def test_abstaining_is_refused(refused, built):
    assert "--abstain" in refused("recall", built, "to", "be", "--abstain")


def test_a_memory_without_its_facts_still_recalls(run_json, refused, table, tmp_path):
    run_json("build", table, "--distribution", "--no-facts", "-o", tmp_path / "m")
    said = run_json("recall", tmp_path / "m", "to", "be")
    assert said["answers"][0]["stored"] is None
    assert "without its facts" in refused("recall", tmp_path / "m", "--all")


def test_documented_keys_are_printed(run_json, table, tmp_path):
    """docs/formats.md lists the stable keys of each command for distributions."""
    text = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()

    def documented(row):
        cells = next(line for line in text.splitlines() if line.startswith(f"| `{row}"))
        names = re.findall(r"`([a-zA-Z0-9_, ]+)`", cells.split("|")[2])
        return {key for part in names for key in part.split(", ") if key.strip()}

    folder = tmp_path / "m"
    made = run_json("build", table, "--distribution", "-o", folder, "--heads", "1", "--certify",
                    "--d-model", "2", "--d-head", "1")  # fmt: skip
    assert documented("build` of distributions") - {"distribution"} <= set(made)
    said = run_json("recall", folder, "to", "be")
    everything = run_json("recall", folder, "--all")
    keys = set(said) | set(said["answers"][0]) | set(everything) | {"--all"}
    assert documented("recall` of distributions") <= keys
    proof = run_json("certify", folder)
    assert set(proof["distribution"]) <= documented("certify` of distributions")
    ranked = run_json("encoder", table, "--rank", "2")
    assert documented("encoder`") - {"facts"} <= set(ranked) | set(ranked["rows"][0])
    assert documented("facts` of distributions") == set(run_json("facts", table, "--distribution"))
