"""Tables and options that `byheart` must refuse: exit code 2, one message, nothing written."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

Run = Callable[..., Result]
RunJson = Callable[..., dict[str, Any]]
Refused = Callable[..., str]
MakeFile = Callable[[str, str | bytes], Path]

WEIGHTED = "key,weight,answer\na,1,x\nb,{},y\nc,3,z\n"

# What is wrong: the file, the options, and words that the message must hold: what was found, where
# it is, and what to do next.
TABLES: dict[str, tuple[str | bytes, tuple[str, ...], tuple[str, ...]]] = {
    "empty file": ("", (), ("t.csv", "empty file", "header")),
    "only blank lines": ("\n\n\n", (), ("t.csv", "empty file")),
    "header only": ("key,answer\n", (), ("t.csv", "below the header", "Add rows")),
    "one column": ("key\na\nb\n", (), ("t.csv, row 1", "two columns", "Add a column")),
    "semicolons": ("key;answer\na;x\n", (), ("row 1", "semicolons", "commas")),
    "too few cells": (
        "key,answer\na,x\nb\nc,z\n",
        (),
        ("row 3", "expected 2 cells", "found 1", "Add the missing cells"),
    ),
    "too many cells": (
        "key,answer\na,x\n\nb,y,z\n",
        (),
        ("row 4", "expected 2 cells", "found 3", "Remove"),
    ),
    "empty cell": ("key,answer\na,x\nb,\n", (), ("row 3", "column 'answer'", "empty cell", "skip")),
    "not UTF-8": (
        b"key,answer\na,x\nb,caf\xe9\n",
        (),
        ("line 3", "0xe9", "byte offset 20", "iconv"),
    ),
    "UTF-16": ("key,answer\na,x\n".encode("utf-16"), (), ("byte offset 0", "iconv -f UTF-16")),
    "a million characters": (
        "key,answer\na,x\nb," + "y" * 10**6 + "\n",
        (),
        ("row 3", "column 2", "at most 65,536 characters", "unclosed quote"),
    ),
    "unclosed quote": ('key,answer\na,"x\nb,y\n', (), ("row 2", "column 2", "closing quote")),
    "text after a quote": ('key,answer\na,"x"y\n', (), ("row 2", "quote")),
    "equal columns": ("key,key\na,x\n", (), ("row 1", "distinct column names", "Rename")),
    "unknown key": (
        "key,answer\na,x\n",
        ("--keys", "kee"),
        ("t.csv", "unknown column 'kee'", "'key', 'answer'", "Did you mean 'key'?"),
    ),
    "unknown answer": (
        "key,answer\na,x\n",
        ("--answer", "anwser"),
        ("unknown column 'anwser'", "Did you mean 'answer'?"),
    ),
    "unknown weights": (
        "key,answer\na,x\n",
        ("--weights", "mass"),
        ("unknown column 'mass'", "'key', 'answer'"),
    ),
    "empty key name": ("key,answer\na,x\n", ("--keys", ""), ("unknown column ''",)),
    "answer is a key": (
        "key,answer\na,x\n",
        ("--keys", "key,answer"),
        ("'answer' as both", "another answer column"),
    ),
    "a key twice": ("key,answer\na,x\n", ("--keys", "key,key"), ("'key' twice",)),
    "weights are a key": (
        "key,weight,answer\na,1,x\n",
        ("--weights", "weight", "--keys", "key,weight"),
        ("weights in a column of their own", "'weight'"),
    ),
    "weight NaN": (WEIGHTED.format("nan"), ("--weights", "weight"), ("row 3", "nan", "Correct")),
    "weight infinite": (WEIGHTED.format("inf"), ("--weights", "weight"), ("row 3", "inf")),
    "weight negative": (
        WEIGHTED.format("-1"),
        ("--weights", "weight"),
        ("row 3", "not negative", "-1", "Correct"),
    ),
    "weight is text": (
        WEIGHTED.format("much"),
        ("--weights", "weight"),
        ("row 3", "column 'weight'", "'much'", "Correct it"),
    ),
    "melt and answer": (
        "key,answer\na,x\n",
        ("--melt", "--answer", "answer"),
        ("melt", "both"),
    ),
    "unknown --empty": ("key,answer\na,x\n", ("--empty", "ignore"), ("empty", "skip", "'ignore'")),
}


@pytest.mark.parametrize("command", ["build", "facts"])
@pytest.mark.parametrize("case", TABLES)
def test_tables(refused: Refused, make_file: MakeFile, tmp_path: Path, command: str, case: str):
    content, options, words = TABLES[case]
    output = ("-o", tmp_path / ("m" if command == "build" else "out.csv"))
    message = refused(command, make_file("t.csv", content), *output, *options)
    for word in words:
        assert word in message
    assert len(message) < 500


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gone.csv", ("gone.csv", "Check the path")),
        ("countrys", ("Did you mean 'countries'?",)),
        ("table.xlsx", ("table.xlsx", "'.xlsx'", ".csv")),
        ("random:N=2,S=2,T=5", ("at most", "found T = 5")),
        ("random:N=2,S=2", ("no T",)),
        (".", ("directory",)),
    ],
)
def test_sources(refused: Refused, tmp_path: Path, monkeypatch, name: str, words: tuple[str, ...]):
    (tmp_path / "table.xlsx").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    message = refused("build", name, "-o", "m")
    for word in words:
        assert word in message


@pytest.mark.parametrize("flag", ["--keys", "--answer", "--weights"])
def test_unknown_columns_name_the_flag(refused: Refused, capitals: Path, flag: str):
    assert flag in refused("facts", capitals, flag, "nonsense")


def test_empty_cell_names_the_flag(refused: Refused, make_file: MakeFile):
    assert "--empty skip" in refused("facts", make_file("t.csv", "key,answer\na,\n"))


def test_conflicts_are_all_listed(refused: Refused, run_json: RunJson, make_file, tmp_path: Path):
    path = make_file("t.csv", "key,answer\na,x\nb,y\na,z\nb,y\nb,w\nc,v\n")
    for command in ("build", "facts"):
        message = refused(command, path, "-o", tmp_path / "m.csv")
        assert "'a': 'x' (row 2), 'z' (row 4)" in message
        assert "'b': 'y' (row 3), 'w' (row 6)" in message
        assert "'c'" not in message
        assert "Correct or delete rows" in message
        said = run_json(command, path, "-o", tmp_path / "m.csv", code=2)
        assert said["conflicts"] == [
            [["a"], [[2, "x"], [4, "z"]]],
            [["b"], [[3, "y"], [5, "y"], [6, "w"]]],
        ]


def test_many_conflicts_are_cut_in_the_message_and_not_in_json(
    refused: Refused, run_json: RunJson, make_file, tmp_path: Path
):
    rows = "".join(f"k{i},x\nk{i},y\n" for i in range(100))
    path = make_file("t.csv", "key,answer\n" + rows)
    assert "and 80 more" in refused("build", path, "-o", tmp_path / "m")
    assert len(run_json("build", path, "-o", tmp_path / "m", code=2)["conflicts"]) == 100


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--d-model", 1), ("--d-model 1", "12", "Proposition 3", "--d-model 2")),
        (("--d-model", 4, "--d-head", 6), ("6 > 4", "--d-head 4")),
        (("--method", "magic"), ("method", "auto, attention", "associative", "'magic'")),
        (("--readout", "magic"), ("readout", "exact, convex", "'magic'")),
        (
            ("--dtype", "float16"),
            ("--dtype", "float32, float64", "'float16'", "Did you mean 'float64'"),
        ),
        (("--empty", "magic"), ("--empty", "error, skip, token", "'magic'")),
        (("--heads", 10**12), ("memory", "GB")),
    ],
    ids=lambda value: str(value[0]),
)
def test_sizes_and_choices(
    refused: Refused, capitals: Path, tmp_path: Path, options: tuple[object, ...], words
):
    message = refused("build", capitals, "-o", tmp_path / "m", *options)
    for word in words:
        assert word in message


@pytest.mark.parametrize("option", ["--heads", "--d-model", "--d-head", "--qk-rank"])
@pytest.mark.parametrize("value", ["0", "-3", "1.5", "many"])
def test_numbers_that_are_no_sizes(misused: Refused, capitals, tmp_path, option: str, value: str):
    assert f"'{option}'" in misused("build", capitals, "-o", tmp_path / "m", option, value)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("build",), "FACTS"),
        (("build", "elements", "--seed", -1), "'--seed'"),
        (("build", "elements", "--slack", -1), "'--slack'"),
        (("build", "elements", "--slack", "nan"), "'--slack'"),
        (
            ("build", "elements", "--slack", 99),
            "'--slack': Input should be less than or equal to 10",
        ),
        (("build", "elements", "--magic"), "--magic"),
        (("built", "elements"), "built"),
        (("build", "elements", "countries"), "countries"),
    ],
    ids=lambda value: str(value[-1]),
)
def test_misuse(misused: Refused, tmp_path: Path, monkeypatch, args, words: str):
    monkeypatch.chdir(tmp_path)
    assert words in misused(*args)


def test_more_facts_than_capacity(refused: Refused, run_json: RunJson, tmp_path: Path):
    """The message names the theorem and a number of heads, and that number works."""
    build = ("build", "random:N=20,S=2,T=60", "-o", tmp_path / "m", "--d-model", 6, "--d-head", 4)
    message = refused(*build, "--heads", 3)
    assert "60 facts are more than H·d_h + d = 3·4 + 6 = 18" in message
    assert "Corollary 1" in message
    found = re.search(r"Use --heads (\d+) or more", message)
    assert found
    assert int(found[1]) == 14  # ceil((60 - 6) / 4)
    assert "--heads 14" in refused(*build, "--heads", 13)
    made = run_json(*build, "--heads", 14, "--certify")
    assert made["recalled"] == made["facts"] == 60
    assert made["capacity"] == 62
    assert made["certificate"]["certified"] is True


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--qk-rank", 10**15), id="qk-rank"),
        pytest.param(("--method", "associative", "--d-model", 10**15), id="associative"),
        pytest.param(("--readout", "convex", "--heads", 10**15), id="convex"),
    ],
)
def test_numbers_beyond_the_machine(refused: Refused, capitals: Path, tmp_path: Path, options):
    assert str(options[-2]) in refused("build", capitals, "-o", tmp_path / "m", *options)


def test_seed_beyond_the_machine(run: Run, capitals: Path, tmp_path: Path):
    said = run("build", capitals, "-o", tmp_path / "m", "--seed", 10**23)
    assert said.exit_code == 2
    assert "--seed" in said.stderr


@pytest.mark.parametrize("option", [("--heads", 3), ("--d-head", 2), ("--readout", "convex")])
def test_options_of_another_method(run: Run, capitals: Path, tmp_path: Path, option):
    build = ("build", capitals, "-o", tmp_path / "m", "--method", "associative")
    assert run(*build, *option).exit_code == 2
