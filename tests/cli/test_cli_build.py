"""`byheart build` when all is well: what it prints and what it writes."""

import json
import math
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

import byheart as bh

Run = Callable[..., Result]
RunJson = Callable[..., dict[str, Any]]


def test_json_has_the_documented_keys(run_json: RunJson, capitals: Path, tmp_path: Path):
    folder = tmp_path / "m"
    made = run_json("build", capitals, "-o", folder, "--certify")
    assert made["facts"] == made["recalled"] == 12
    assert made["method"] == "attention"
    assert made["dtype"] == "float32"
    assert made["lost"] == []
    assert made["merged"] == 0
    assert made["path"] == str(folder)
    spec = made["spec"]
    assert spec["family"] == "attention-only"
    assert spec["S"] == 2
    assert spec["N"] == 20  # 6 countries, 2 relations, 6 capitals, 6 continents
    assert made["capacity"] == spec["H"] * spec["d_h"] + min(spec["d"], 2)
    assert isinstance(made["parameters"], int)
    assert isinstance(made["margin"], float)
    assert made["margin"] > 0
    assert isinstance(made["seconds"], float)
    assert all(isinstance(reason, str) for reason in made["why"])
    proof = made["certificate"]
    assert proof["certified"] is True
    assert proof["facts"] == 12
    assert proof["failed"] == 0
    assert proof["margin"] > proof["error_bound"] > 0


def test_parameters_are_the_numbers_that_are_stored(run_json: RunJson, capitals: Path, tmp_path):
    made = run_json("build", capitals, "-o", tmp_path / "m")
    memory = bh.load(tmp_path / "m")
    assert isinstance(memory, bh.TokenMemory)
    assert made["parameters"] == memory.spec.parameters
    assert made["parameters"] == sum(w.numel() for w in memory.weights.values())


def test_the_folder_holds_what_the_documentation_says(run: Run, capitals: Path, tmp_path: Path):
    folder = tmp_path / "m"
    assert run("build", capitals, "-o", folder).exit_code == 0
    files = {"memory.json", "weights.safetensors", "facts.safetensors"}
    assert {f.name for f in folder.iterdir()} == files
    assert run("build", capitals, "-o", folder, "--certify", "--force").exit_code == 0
    assert {f.name for f in folder.iterdir()} == files | {"certificate.json"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["capitals.csv", "m"]


def test_human_output_says_what_was_made_and_where(run: Run, capitals: Path, tmp_path: Path):
    said = run("build", capitals, "-o", tmp_path / "m", "--certify").stdout
    assert said.startswith("capitals: 12 facts, keys of 2 tokens (country, relation), 20 tokens, ")
    assert "12 of 12 from the stored float32 weights" in said
    assert "Corollary 1" in said
    assert re.search(r"smallest margin +0\.\d", said)
    assert re.search(r"certificate +proved in ", said)
    assert f"Written to {tmp_path / 'm'}" in said
    assert "byheart recall " in said
    assert "France capital" in said


def test_default_folder_is_the_name_of_the_facts(
    run: Run, capitals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert run("build", capitals).exit_code == 0
    assert (tmp_path / "capitals.memory" / "memory.json").is_file()
    assert run("build", "random:N=4,S=2,T=5,seed=1").exit_code == 0
    assert (tmp_path / "random-N=4,S=2,T=5,seed=1.memory").is_dir()


def test_same_seed_same_weights(run: Run, capitals: Path, tmp_path: Path):
    def weights(name: str, seed: int) -> bytes:
        assert run("build", capitals, "-o", tmp_path / name, "--seed", seed).exit_code == 0
        return (tmp_path / name / "weights.safetensors").read_bytes()

    assert weights("a", 3) == weights("b", 3) != weights("c", 4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "options",
    [
        ("--method", "attention", "--d-model", 5, "--d-head", 3, "--heads", 5),
        ("--qk-rank", 2, "--slack", 0.5),
        ("--readout", "convex"),
        ("--method", "associative"),
    ],
    ids=lambda options: str(options[0]),
)
def test_options_are_obeyed(
    run_json: RunJson, capitals: Path, tmp_path: Path, options: tuple[object, ...], dtype: str
):
    made = run_json("build", capitals, "-o", tmp_path / "m", "--dtype", dtype, *options)
    assert made["recalled"] == 12
    assert made["dtype"] == dtype
    given = dict(zip(options[::2], options[1::2], strict=True))
    names = {"--d-model": "d", "--d-head": "d_h", "--heads": "H", "--qk-rank": "qk_rank"}
    for flag, name in names.items():
        if flag in given:
            assert made["spec"][name] == given[flag]
    memory = bh.load(tmp_path / "m")
    assert isinstance(memory, bh.TokenMemory) and str(memory.dtype) == f"torch.{dtype}"


def test_keys_answer_and_weights(run_json: RunJson, make_file, tmp_path: Path):
    path = make_file("t.csv", "answer,weight,key,note\nx,3,a,one\ny,1,b,two\n")
    chosen = ("--keys", "key", "--answer", "answer", "--weights", "weight")
    assert run_json("build", path, "-o", tmp_path / "m", *chosen)["facts"] == 2
    assert run_json("recall", tmp_path / "m", "b")["answer"] == "y"
    facts = bh.load(tmp_path / "m").facts
    assert isinstance(facts, bh.Facts)
    assert facts.prior.tolist() == [0.75, 0.25]


def test_melt_reads_a_wide_table(run_json: RunJson, make_file, tmp_path: Path):
    path = make_file("t.csv", "country,capital,code\nFrance,Paris,fr\nJapan,Tokyo,jp\n")
    assert run_json("build", path, "-o", tmp_path / "m", "--melt")["facts"] == 4
    assert run_json("recall", tmp_path / "m", "Japan", "code")["answer"] == "jp"


@pytest.mark.parametrize(("empty", "facts"), [("skip", 2), ("token", 3)])
def test_empty_cells(run_json: RunJson, make_file, tmp_path: Path, empty: str, facts: int):
    path = make_file("t.csv", "key,answer\na,x\nb,\nc,y\n")
    made = run_json("build", path, "-o", tmp_path / "m", "--empty", empty)
    assert made["facts"] == facts
    if empty == "token":
        assert run_json("recall", tmp_path / "m", "b")["answer"] == ""


def test_json_lines_of_unequal_length(run_json: RunJson, make_file, tmp_path: Path):
    lines = [{"input": ["a"], "output": "x"}, {"input": ["b", "a"], "output": "y"}]
    path = make_file("t.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    assert run_json("build", path, "-o", tmp_path / "m", "--pad", "--certify")["recalled"] == 2
    assert run_json("recall", tmp_path / "m", "a")["answer"] == "x"
    assert run_json("recall", tmp_path / "m", "b", "a")["answer"] == "y"


def test_duplicate_rows_are_merged_counted_and_said(run, run_json: RunJson, make_file, tmp_path):
    path = make_file("t.csv", "key,answer\na,x\nb,y\na,x\na,x\n")
    made = run_json("build", path, "-o", tmp_path / "m")
    assert made["facts"] == made["recalled"] == 2
    assert made["merged"] == 2
    assert "2 duplicate rows merged" in run("build", path, "-o", tmp_path / "n").stdout


def test_one_fact(run_json: RunJson, make_file, tmp_path: Path):
    path = make_file("t.csv", "key,answer\na,x\n")
    assert run_json("build", path, "-o", tmp_path / "m", "--certify")["recalled"] == 1
    assert run_json("recall", tmp_path / "m", "a")["answer"] == "x"


def test_one_token_has_no_competitor(run, run_json: RunJson, make_file, tmp_path: Path):
    """An infinite margin is null in JSON, which has no infinity."""
    path = make_file("t.csv", "first,second,answer\na,a,a\n")
    made = run_json("build", path, "-o", tmp_path / "m", "--certify")
    assert made["recalled"] == 1
    assert made["margin"] is None
    assert made["certificate"]["certified"] is True
    recalled = run_json("recall", tmp_path / "m", "a", "a")
    assert (recalled["answer"], recalled["margin"], recalled["heads"]) == ("a", None, [])
    assert run("recall", tmp_path / "m", "a", "a").stdout == "a\n"
    assert run_json("recall", tmp_path / "m", "--all")["recalled"] == 1


def test_convex_says_what_it_lost(run, run_json: RunJson, tmp_path: Path):
    """The convex read-out promises nothing: what is lost is listed, with exit code 1."""
    sizes = ("--readout", "convex", "--heads", 1, "--d-model", 4, "--certify")
    made = run_json("build", "elements", "-o", tmp_path / "m", *sizes, code=1)
    lost = made["lost"]
    assert len(lost) > 20
    assert made["recalled"] + len(lost) == made["facts"] == 236
    assert lost[0].keys() == {"row", "key", "answer"}
    assert made["certificate"]["facts"] == made["recalled"]
    said = run("build", "elements", "-o", tmp_path / "n", *sizes)
    assert said.exit_code == 1
    assert f"LOST {len(lost)} facts" in said.stdout
    assert f"... and {len(lost) - 20} more (--json lists all)" in said.stdout
    assert run_json("recall", tmp_path / "n", "--all")["facts"] == made["recalled"]


def test_margin_is_the_smallest_of_all_facts(run_json: RunJson, capitals: Path, tmp_path: Path):
    made = run_json("build", capitals, "-o", tmp_path / "m")
    memory = bh.load(tmp_path / "m")
    assert memory.facts is not None
    assert math.isclose(made["margin"], float(memory.margins(memory.facts).min()))


def test_file_name_with_spaces_and_unicode(run, run_json: RunJson, make_file, tmp_path: Path):
    path = make_file("köln & zürich 🏔 $HOME.csv", "key,answer\na,x\nb,y\n")
    folder = tmp_path / "mémoire à moi 🧠"
    assert run_json("build", path, "-o", folder, "--certify")["path"] == str(folder)
    assert run_json("certify", folder, "--facts", path)["certified"] is True
    assert run("recall", folder, "a").stdout.splitlines()[0] == "x"
    said = run("build", path, "-o", folder, "--force").stdout
    assert f"byheart recall '{folder}' a" in said  # quoted, so that it can be pasted


def test_the_suggested_command_can_be_pasted(run: Run, make_file, tmp_path: Path):
    path = make_file("t.csv", "temperature,state\n-5,ice\n5,water\n")
    said = run("build", path, "-o", tmp_path / "m").stdout
    words = shlex.split(said.splitlines()[-1].split("byheart ")[1])
    assert run(*words).stdout.startswith("ice\n")


def test_tokens_that_look_like_options_after_two_dashes(run: Run, make_file, tmp_path: Path):
    path = make_file("t.csv", "temperature,state\n-5,ice\n5,water\n")
    assert run("build", path, "-o", tmp_path / "m").exit_code == 0
    assert run("recall", tmp_path / "m", "--", "-5").stdout.splitlines()[0] == "ice"
