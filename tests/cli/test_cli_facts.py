"""`byheart facts`: a table in numbers, and what Corollary 1 asks of a model for it."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

import byheart as bh

Run = Callable[..., Result]
RunJson = Callable[..., dict[str, Any]]
Refused = Callable[..., str]


def test_json(run_json: RunJson, capitals: Path):
    said = run_json("facts", capitals)
    assert said["name"] == "capitals"
    assert said["facts"] == 12
    assert said["length"] == 2
    assert said["vocabulary"] == 20
    assert said["answers"] == 12
    assert said["last_tokens"] == 2
    assert said["commonest_last_token"] == {"token": "capital", "count": 6}
    assert said["merged"] == said["skipped"] == 0
    assert said["uniform_prior"] is True


def test_theory_is_corollary_1_inverted(run_json: RunJson):
    """The fewest heads H with H d_h + min(d, last tokens) >= T."""
    said = run_json("facts", "countries")
    asked = said["theory"]
    skip = min(asked["d"], said["last_tokens"])
    assert asked["heads"] == math.ceil((said["facts"] - skip) / asked["d_h"])
    assert asked["heads"] <= asked["heads_with_slack"]
    assert asked["capacity"] == asked["heads_with_slack"] * asked["d_h"] + skip >= said["facts"]
    assert isinstance(asked["parameters"], int)


def test_theory_says_what_build_takes(run_json: RunJson, tmp_path: Path):
    asked = run_json("facts", "elements")["theory"]
    made = run_json("build", "elements", "-o", tmp_path / "m")
    assert asked["parameters"] == made["parameters"]
    assert asked["capacity"] == made["capacity"]
    assert asked["heads_with_slack"] == made["spec"]["H"]


def test_human_output(run: Run, capitals: Path):
    said = run("facts", capitals)
    assert said.exit_code == 0
    lines = [" ".join(line.split()) for line in said.stdout.splitlines()]
    assert "facts 12" in lines
    assert "keys 2 tokens: country, relation" in lines
    assert "vocabulary 20 tokens, 12 of them answers" in lines
    assert "duplicates merged 0" in lines
    assert "France · capital -> Paris" in lines
    assert "(Dana et al. 2025, Corollary 1): H·d_h + d >= 12 facts." in said.stdout
    assert "heads are enough" in said.stdout


def test_duplicates_are_merged_counted_and_said(run: Run, run_json: RunJson, make_file):
    path = make_file("t.csv", "key,answer\na,x\nb,y\na,x\n")
    assert run_json("facts", path)["merged"] == 1
    assert run_json("facts", path)["facts"] == 2
    assert "duplicates merged  1" in run("facts", path).stdout


def test_weights(run: Run, run_json: RunJson, make_file):
    rows = "".join(f"k{i},{1000 if i == 0 else 1},x\n" for i in range(10))
    path = make_file("t.csv", "key,weight,answer\n" + rows)
    said = run_json("facts", path, "--weights", "weight")
    assert said["uniform_prior"] is False
    assert said["T_eps"]["0.1"] == 1
    assert "1 facts hold 90% of it" in run("facts", path, "--weights", "weight").stdout


def test_write_and_read_back(run: Run, run_json: RunJson, make_file, tmp_path: Path):
    path = make_file("wide.csv", "country,capital,code\nFrance,Paris,fr\nJapan,Tokyo,jp\n")
    for name in ("out.csv", "out.tsv", "out.jsonl"):
        said = run("facts", path, "--melt", "-o", tmp_path / name)
        assert f"Written to {tmp_path / name}" in said.stdout
        back = bh.read_facts(tmp_path / name)
        assert [(back.key(i), back.answer(i)) for i in range(back.T)] == [
            (("France", "capital"), "Paris"),
            (("France", "code"), "fr"),
            (("Japan", "capital"), "Tokyo"),
            (("Japan", "code"), "jp"),
        ]
    assert run_json("facts", path, "--melt", "-o", tmp_path / "json.csv")["facts"] == 4
    assert (tmp_path / "json.csv").exists()


@pytest.mark.parametrize(
    ("name", "words"),
    [("out.xlsx", ".csv"), ("out", "no suffix"), ("gone/out.csv", "cannot be written")],
)
def test_output_that_cannot_be_written(
    refused: Refused, capitals: Path, tmp_path: Path, name: str, words: str
):
    message = refused("facts", capitals, "-o", tmp_path / name)
    assert name in message
    assert words in message


def test_existing_file_is_not_replaced_unasked(refused: Refused, capitals: Path, make_file):
    mine = make_file("mine.csv", "a,b\nprecious,text\n")
    assert "exists" in refused("facts", capitals, "-o", mine)


def test_large_tables_show_the_shards(run, run_json):
    said = run("facts", "random:N=100,S=2,T=3000").stdout
    assert "Sharded attention" in said
    assert "12 shards of" in said
    assert run_json("facts", "random:N=100,S=2,T=3000")["theory"]["sharded"]
    assert run_json("facts", "countries")["theory"]["sharded"] is None


def test_a_table_without_a_header(run: Run, run_json: RunJson, make_file):
    path = make_file("t.csv", "Paris,France\nLyon,France\nLima,Peru\n")
    said = run("facts", path)
    assert said.stderr.startswith("note: t: row 1 was read as column names, but 'France'")
    assert "--no-header" in said.stderr and "header=" not in said.stderr
    assert "Paris, France (row 1; --no-header if it is a fact)" in said.stdout
    assert run_json("facts", path)["facts"] == 2
    assert len(run_json("facts", path)["notes"]) == 1
    whole = run("facts", path, "--no-header")
    assert whole.stderr == "" and "Paris -> France" in whole.stdout
    assert run_json("facts", path, "--no-header")["facts"] == 3


def test_blanks_are_counted_and_kept_on_request(run: Run, run_json: RunJson, make_file):
    path = make_file("t.csv", "country,capital\nFrance, Paris\n")
    assert "1 cell was read without the blanks" in run("facts", path).stderr
    assert "--no-trim" in run("facts", path).stderr
    assert run_json("facts", path)["trimmed"] == 1
    assert run_json("facts", path, "--no-trim")["commonest_answer"]["token"] == " Paris"


def test_a_wrong_path_is_refused_without_torch(make_file, script, tmp_path: Path):
    make_file("capitals.csv", "country,capital\nFrance,Paris\n")
    said = script("facts", tmp_path / "capitls.csv")
    assert said.returncode == 2 and "Did you mean 'capitals.csv'?" in said.stderr
