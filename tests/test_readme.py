"""What the README, the docs and the examples say is run, not believed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from byheart.cli.main import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


@pytest.fixture
def in_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The README's commands read examples/ and write folders."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.S)


FRESH = "reproduce dana2025/demo --profile paper --fresh"  # half a minute of training


def commands() -> list[str]:
    """What the README has typed after `byheart`."""
    lines = [line for block in blocks("console") for line in block.splitlines()]
    return [line[len("$ byheart ") :] for line in lines if line.startswith("$ byheart ")]


def test_readme_commands_run(in_temporary_folder: Path):
    assert len(commands()) >= 6 and FRESH in commands()
    for command in commands():
        part = ["--only", "H <= 2"] if command == FRESH else []
        done = CliRunner().invoke(app, [*shlex.split(command), *part])
        assert done.exit_code == 0, f"{command}\n{done.output}"
    assert (in_temporary_folder / "countries.memory" / "certificate.json").exists()


@pytest.mark.slow
def test_the_readme_trains_a_whole_study(in_temporary_folder: Path):
    done = CliRunner().invoke(app, shlex.split(FRESH))
    assert done.exit_code == 0 and "35 rows" in done.output, done.output


def test_tutorial_commands_run(in_temporary_folder: Path):
    text = (ROOT / "docs" / "tutorial.md").read_text()
    commands = re.findall(r"^\$ (byheart|python) (.*)$", text, flags=re.M)
    assert len(commands) >= 10
    for program, arguments in commands:
        if program == "python":  # the examples' own test runs them
            assert (ROOT / arguments.split()[0]).exists()
        else:
            done = CliRunner().invoke(app, shlex.split(arguments))
            assert done.exit_code == 0, f"{arguments}\n{done.output}"


def test_findings_are_those_of_the_recorded_rows():
    """A number of the README's findings stands on the page that the sentence links to."""
    part = README[README.index("What came out so far") : README.index("## In other tools")]
    text = " ".join(part.split())
    quoted = re.findall(r"\[([^]]*)\]\((docs/studies/[\w-]+\.md)\)([^[]*)", text)
    assert len(quoted) >= 6
    for label, page, after in quoted:
        on_page = (ROOT / page).read_text()
        for number in re.findall(r"[+-]?\d\.\d{2,}", f"{label} {after.split(';')[0]}"):
            assert number in on_page, f"{page} has no {number}"


def test_a_word_has_one_definition():
    words = re.findall(r"^\| (\*\*.+?) \|", (ROOT / "docs" / "glossary.md").read_text(), flags=re.M)
    names = [name for line in words for name in re.findall(r"\*\*(.+?)\*\*", line)]
    assert len(names) > 40 and len(names) == len(set(names))


def test_readme_answers_are_right(in_temporary_folder: Path):
    CliRunner().invoke(app, ["build", "examples/capitals.csv", "-o", "capitals.memory"])
    done = CliRunner().invoke(app, ["recall", "capitals.memory", "Peru"])
    assert done.output.splitlines()[0] == "Lima"


def test_readme_python_runs(in_temporary_folder: Path, capsys: pytest.CaptureFixture[str]):
    (code,) = blocks("python")
    exec(compile(code, "README.md", "exec"), {})
    assert "answer='yen'" in capsys.readouterr().out


def test_readme_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"make ([a-z-]+)", " ".join(blocks("console")))
    assert {"demo", "test", "bench"} <= set(targets)
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.M), target


def test_ci_calls_the_readme_test_command():
    assert "make test" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize(
    "document", ["README.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
)
def test_links_lead_somewhere(document: str):
    path = ROOT / document
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
        assert (path.parent / target).exists(), f"{document} links to {target}"


def test_cli_reference_is_up_to_date():
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "write_cli_docs.py", "--check"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


LONG = {
    "audit_minilm",
    "how_attention_remembers",
    "known_heads",
    "more_than_the_theorem",
    "own_study",
    "trained_against_built",
}
EXAMPLES = [
    pytest.param(path.name, marks=pytest.mark.slow) if path.stem in LONG else path.name
    for path in sorted((ROOT / "examples").glob("*.py"))
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_run(example: str, tmp_path: Path):
    part = ["H <= 2"] if example == "demo.py" else []  # of the half minute of training
    done = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "examples" / example, *part],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_documented_json_keys_are_printed(in_temporary_folder: Path):
    """docs/formats.md lists the stable keys of each command."""
    import json

    text = (ROOT / "docs" / "formats.md").read_text()

    def documented(row: str) -> set[str]:
        cells = next(line for line in text.splitlines() if line.startswith(f"| `{row}"))
        return {
            key
            for part in re.findall(r"`([a-zA-Z0-9_, ]+)`", cells.split("|")[2])
            for key in part.split(", ")
        }

    def printed(*arguments: str) -> set[str]:
        done = CliRunner().invoke(app, [*arguments, "--json"])
        assert done.exit_code == 0, done.output
        return set(json.loads(done.stdout))

    assert documented("build`") <= printed("build", "elements", "-o", "e.memory")
    keys = documented("recall DIR TOKEN...`") - {"head", "contribution"}
    assert keys - {"head, contribution"} == printed("recall", "e.memory", "Fe", "name")
    assert documented("recall DIR --all`") == printed("recall", "e.memory", "--all")
    assert documented("certify`") == printed("certify", "e.memory")
    assert documented("facts`") <= printed("facts", "elements")
