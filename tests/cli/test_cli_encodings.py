"""Terminals that cannot show every character, and file names that are not text."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from byheart.cli.main import app, main

KEPT = Path(__file__).parents[1] / "kept"
STUDY = """from byheart.studies import Finding, Procedure, Study

def measure(params, seed):
    return {"y": params["x"]}

STUDY = Study("mine/line", Procedure(measure).grid(x=(1, 2)), lambda rows: Finding("confirmed", ""))
"""
Run = Callable[..., Result]


@pytest.fixture
def smileys(run: Run, make_file: Callable[[str, str], Path], tmp_path: Path) -> Path:
    path = make_file("t.csv", "key,answer\na,😀\nb,العربية\n")
    assert run("build", path, "-o", tmp_path / "m").exit_code == 0
    return tmp_path / "m"


@pytest.mark.parametrize(
    "charset",
    [
        "ascii",
        "utf-8",
        "cp1252",
    ],
)
def test_any_encoding_of_the_terminal(smileys: Path, charset: str):
    """cp1252 is what Python gives to a pipe or a file on Windows."""
    for args in (["recall", str(smileys), "a"], ["recall", str(smileys), "b", "--json"]):
        said = CliRunner(charset=charset).invoke(app, args)
        assert said.exception is None
        assert said.exit_code == 0


@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes on Linux only")
@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("facts", "FILE"), 0),
        (("facts", "FILE", "--json"), 0),
        (("facts", "gone FILE", "--json"), 2),
        (("recall", "FILE", "a", "--json"), 2),
        (("build", "FILE", "-o", "new"), 0),
        (("report", "m", "m", "-o", "FILE.html", "--json"), 0),
        (("report", "FILE.json", "-o", "page.html", "--json"), 0),
        (("reproduce", "FILE.py", "--seeds", "1", "--store", "FILE.db", "--json"), 0),
        (("reproduce", "FILE.py", "--seeds", "1", "--set", "x=FILE", "--json"), 2),
        (("reproduce", "FILE.py", "--seeds", "1", "--set", "FILE=1"), 2),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_file_name_that_is_not_utf8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], code: int
):
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(b"caf\xe9.csv")
    Path(name).write_text("key,answer\na,x\n")
    shutil.copytree(KEPT / "attention", "m")
    shutil.copy(KEPT / "audit.json", f"{name}.json")
    Path(f"{name}.py").write_text(STUDY)
    said = CliRunner().invoke(app, [arg.replace("FILE", name) for arg in args])
    if said.exception is not None and not isinstance(said.exception, SystemExit):
        # A traceback would show the name, which pytest-xdist cannot send.
        pytest.fail(f"{type(said.exception).__name__} escapes", pytrace=False)
    assert said.exit_code == code
    if "--json" in args:
        json.loads(said.stdout)
    if Path(f"{name}.db").exists():
        assert CliRunner().invoke(app, ["report", f"{name}.db", "-o", "page.html"]).exit_code == 0
    for page in Path().glob("*.html"):
        page.read_bytes().decode()


def test_words_of_the_parser_are_shown_without_controls(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys, "argv", ["byheart", "facts", "--\u202e\x1b[1m"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "--\\u202e\\x1b[1m" in capsys.readouterr().err


def test_half_of_a_surrogate_pair_is_no_name_of_a_file():
    """No terminal sends it, but another program may."""
    said = CliRunner().invoke(app, ["owner", "\ud83d", "France", "capital"])
    assert said.exit_code == 2 and "half of a surrogate pair" in said.stderr
