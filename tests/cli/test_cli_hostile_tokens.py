"""Tokens are any text: built, asked, proved and printed without harm."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

Run = Callable[..., Result]
RunJson = Callable[..., dict[str, Any]]

TOKENS = {
    "comma": "Washington, D.C.",
    "quotes": 'say "hello"',
    "apostrophe": "l'Haÿ-les-Roses",
    "newline": "first line\nsecond line",
    "carriage return": "over\rwritten",
    "emoji": "🇫🇷👩‍💻",
    "right to left": "القاهرة",
    "override": "abc\u202edef",
    "markup": "[bold]x[/bold]",
    "broken markup": "[/nothing",
    "link": "[link=file:///etc/passwd]click[/link]",
    "escape sequence": "\x1b[31mred\x1b[0m",
    "bell and null": "\x07\x00",
    "delete and C1": "\x7f\x9b31m",
    "tab": "a\tb",
    "spaces": "  padded  ",
    "no-break space": "1\u00a0000",
    "long": "x" * 60_000,
    "backslash": "C:\\new",
    "shell": "$(rm -rf /); `x` | y",
    "percent": "100 %s %d {x}",
    "combining": "e\u0301",
    "line separator": "a\u2028b",
    "option": "--all",
    "null text": "null",
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each token once as a key and once as an answer."""
    path = tmp_path_factory.mktemp("hostile") / "t.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["key", "answer"])
        for name, token in TOKENS.items():
            writer.writerow([f"to {name}", token])
            writer.writerow([token, f"from {name}"])
    return path


@pytest.fixture(scope="module")
def hostile(table: Path) -> Path:
    from typer.testing import CliRunner

    from byheart.cli.main import app

    folder = table.parent / "m"
    made = CliRunner().invoke(
        app, ["build", str(table), "--no-trim", "-o", str(folder), "--certify"]
    )
    assert made.exit_code == 0, made.output
    return folder


def is_harmless(text: str) -> bool:
    """No control character but the end of a line reaches the terminal."""
    return not any((ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 for c in text)


def test_all_are_recalled_and_proved(run: Run, run_json: RunJson, hostile: Path, table: Path):
    assert run_json("recall", hostile, "--all")["recalled"] == 2 * len(TOKENS)
    assert run_json("certify", hostile, "--facts", table, "--no-trim")["certified"] is True
    assert run("certify", hostile, "--interval").stdout.startswith("CERTIFIED")


@pytest.mark.parametrize("name", TOKENS)
def test_each_as_answer_and_as_key(run: Run, run_json: RunJson, hostile: Path, name: str):
    token = TOKENS[name]
    assert run_json("recall", hostile, f"to {name}")["answer"] == token
    shown = run("recall", hostile, f"to {name}")
    assert shown.exit_code == 0
    assert is_harmless(shown.stdout)
    # `--` because a token may look like an option
    assert run_json("recall", hostile, "--", token)["answer"] == f"from {name}"


@pytest.mark.parametrize("name", ["comma", "quotes", "right to left", "markup", "broken markup"])
def test_printable_tokens_are_printed_as_they_are(run: Run, hostile: Path, name: str):
    assert run("recall", hostile, f"to {name}").stdout.splitlines()[0] == TOKENS[name]


@pytest.mark.parametrize("name", ["emoji", "no-break space", "newline"])
def test_the_first_line_is_the_answer(run: Run, hostile: Path, name: str):
    shown = TOKENS[name].replace("\n", "\\n")
    assert run("recall", hostile, f"to {name}").stdout.splitlines()[0] == shown


@pytest.mark.parametrize("name", TOKENS)
def test_each_in_the_tables_that_people_read(run: Run, make_file, hostile: Path, tmp_path, name):
    """`facts` lists the first facts, `build` suggests a key, `certify` lists what fails."""
    token = TOKENS[name]
    path = tmp_path / "t.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([["key", token], [token, "to comma"], ["to comma", token]])
    for said in (run("facts", path), run("build", path, "-o", tmp_path / "m")):
        assert said.exit_code == 0, said.output
        assert is_harmless(said.output)
    failed = run("certify", hostile, "--facts", path)
    assert failed.exit_code == 1
    assert is_harmless(failed.output)


@pytest.mark.parametrize("name", TOKENS)
def test_unknown_tokens_and_columns_in_messages(run: Run, hostile: Path, table: Path, name: str):
    word = TOKENS[name] + "?"
    for said in (run("recall", hostile, "--", word), run("facts", table, "--answer", word)):
        assert said.exit_code == 2
        assert is_harmless(said.output)


@pytest.mark.parametrize("name", ["bell and null", "delete and C1"])
def test_control_characters_in_file_names(run: Run, tmp_path: Path, name: str):
    odd = tmp_path / TOKENS[name].replace("\0", "")
    odd.mkdir()
    said = run("recall", odd, "a")
    assert said.exit_code == 2
    assert is_harmless(said.output)
