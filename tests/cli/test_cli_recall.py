"""`byheart recall`: one key, all keys, and what it refuses."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

Run = Callable[..., Result]
RunJson = Callable[..., dict[str, Any]]
Refused = Callable[..., str]


def test_json_has_the_documented_keys(run_json: RunJson, memory: Path):
    said = run_json("recall", memory, "Japan", "capital")
    assert said["answer"] == "Tokyo"
    assert said["key"] == ["Japan", "capital"]
    assert isinstance(said["margin"], float)
    assert isinstance(said["runner_up"], str)
    heads = said["heads"]
    assert sorted(part["head"] for part in heads) == list(range(len(heads)))
    parts = [part["contribution"] for part in heads]
    assert parts == sorted(parts, reverse=True)


@pytest.mark.parametrize("country", ["France", "Kenya", "Fiji"])
@pytest.mark.parametrize("relation", ["capital", "continent"])
def test_margin_is_the_sum_of_its_parts(run_json: RunJson, memory: Path, country, relation):
    said = run_json("recall", memory, country, relation)
    total = said["skip"] + sum(part["contribution"] for part in said["heads"])
    assert total == pytest.approx(said["margin"], abs=1e-3)


def test_human_output_starts_with_the_answer(run: Run, memory: Path):
    said = run("recall", memory, "Peru", "continent")
    lines = said.stdout.splitlines()
    assert lines[0] == "South America"
    assert lines[2].startswith("margin ")
    assert "carried by" in said.stdout
    assert "skip" in said.stdout
    assert "sum" in said.stdout
    assert said.stderr == ""


def test_top_limits_the_heads_shown(run: Run, tmp_path: Path):
    run("build", "elements", "-o", tmp_path / "m")
    told = "no single one means anything"
    assert told in run("recall", tmp_path / "m", "Fe", "name", "--top", 999).stdout  # all shown
    said = run("recall", tmp_path / "m", "Fe", "name", "--top", 2).stdout
    assert told in said
    assert said.splitlines()[0] == "iron"
    assert sum(line.strip().startswith("head ") for line in said.splitlines()) == 2
    assert "other 23 heads" in said
    assert "head" not in run("recall", tmp_path / "m", "Fe", "name", "--top", 0).stdout


def test_all_facts(run: Run, run_json: RunJson, memory: Path):
    said = run_json("recall", memory, "--all")
    assert said["facts"] == said["recalled"] == 12
    assert said["lost"] == []
    assert said["margin"] > 0
    assert run("recall", memory, "--all").stdout.startswith("12 of 12 facts recalled, ")


def test_headless_memory_has_no_heads_to_show(run: Run, run_json: RunJson, capitals, tmp_path):
    run("build", capitals, "-o", tmp_path / "m", "--method", "associative")
    said = run_json("recall", tmp_path / "m", "Fiji", "capital")
    assert (said["answer"], said["heads"], said["skip"]) == ("Suva", [], None)
    assert run("recall", tmp_path / "m", "Fiji", "capital").stdout.splitlines()[0] == "Suva"


def test_unknown_token_suggests_the_nearest(refused: Refused, memory: Path):
    message = refused("recall", memory, "Frence", "capital")
    assert "unknown token 'Frence'" in message
    assert "Did you mean 'France'?" in message
    assert "Did you mean 'Japan'?" in refused("recall", memory, "japan", "capital")
    assert "'qwertz'" in refused("recall", memory, "qwertz", "capital")


@pytest.mark.parametrize("tokens", [("France",), ("France", "capital", "city")])
def test_wrong_number_of_tokens(refused: Refused, memory: Path, tokens: tuple[str, ...]):
    message = refused("recall", memory, *tokens)
    assert f"takes keys of 2 tokens, found {len(tokens)}" in message
    assert "Example: " in message


def test_the_example_is_a_key_of_this_memory(refused: Refused, memory: Path):
    assert "Example: 'France', 'capital'" in refused("recall", memory, "France")


def test_neither_tokens_nor_all(refused: Refused, memory: Path):
    assert "--all" in refused("recall", memory)


def test_both_tokens_and_all(refused: Refused, memory: Path):
    assert "not both" in refused("recall", memory, "France", "capital", "--all")


def test_negative_top(misused: Refused, memory: Path):
    assert "--top" in misused("recall", memory, "France", "capital", "--top", -1)


def test_no_folder_named(misused: Refused):
    assert "DIR" in misused("recall")


def test_memory_without_facts(run_json: RunJson, refused: Refused, memory_without_facts: Path):
    assert run_json("recall", memory_without_facts, "France", "capital")["answer"] == "Paris"
    message = refused("recall", memory_without_facts, "--all")
    assert "without its facts" in message
    assert "one key" in message
    short = refused("recall", memory_without_facts, "France")
    assert "takes keys of 2 tokens, found 1: 'France'." in short
    assert "Example" not in short  # there is no key to show


def test_reserved_tokens_are_not_keys(run: Run, refused: Refused, make_file, tmp_path: Path):
    run("build", make_file("t.csv", "key,answer\na,x\nb,y\n"), "-o", tmp_path / "m")
    assert "<start>" not in refused("recall", tmp_path / "m", "start>")
    refused("recall", tmp_path / "m", "<start>")
