"""What a shell offers: the protocols of bash, zsh and fish, spoken as their scripts speak them."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Started = Callable[..., Any]
Offer = Callable[..., list[str]]


@pytest.fixture
def offered(started: Started, monkeypatch: pytest.MonkeyPatch) -> Offer:
    """The words that bash is offered for a line whose last word is unfinished. Nothing that takes
    long to load is loaded for it."""

    def offer(*line: str) -> list[str]:
        monkeypatch.setenv("_BYHEART_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", "\n".join(("byheart", *line)))
        monkeypatch.setenv("COMP_CWORD", str(len(line)))
        done = started()
        assert (done.code, done.stderr) == (0, "")
        assert not done.libraries & {"torch", "scipy", "matplotlib", "pandas", "flint"}
        return done.stdout.split()

    return offer


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (("re",), {"recall", "reproduce", "report"}),
        (("reproduce", "dana2025/fig1"), {f"dana2025/fig1{x}" for x in ("a", "b", "0")}),
        (("reproduce", "slides/q"), {"slides/quality"}),
        (("build", "countries", "--method", "s"), {"sharded", "sqrt"}),
        (("train", "countries", "--optimizer", "ad"), {"adam", "adamw"}),
        (("reproduce", "--profile", "pa"), {"part", "paper"}),
        (("facts", "e"), {"elements"}),
        (("build", "--read"), {"--readout"}),
        (("build", "gone/x"), set()),  # the shell's own files
    ],
    ids=lambda value: str(sorted(value) if isinstance(value, set) else value),
)
def test_words_of_byheart(offered: Offer, line: tuple[str, ...], expected: set[str]):
    assert set(offered(*line)) == expected


def test_tables_of_the_folder(offered: Offer, tmp_path: Path):
    """Only where a built-in table would hide them: else the shell's own files are better."""
    for name in ("cities.csv", "cat.png", "animals.csv"):
        (tmp_path / name).touch()
    assert offered("build", "c") == ["countries", "cities.csv"]
    assert offered("build", "a") == []


def test_memory_folders(offered: Offer, memory: Path, tmp_path: Path):
    (tmp_path / "capitals.csv").touch()
    (tmp_path / "other").mkdir()
    assert offered("recall", "") == [memory.name]
    assert offered("certify", "./cap") == [f"./{memory.name}"]
    assert offered("recall", str(tmp_path / "c")) == [str(memory)]
    assert offered("build", "countries", "-o", "") == []  # a new one


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells(started: Started, monkeypatch: pytest.MonkeyPatch, shell: str):
    monkeypatch.setenv("_BYHEART_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "byheart reproduce kajitsuka2025/fig")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    done = started()
    assert done.code == 0 and "torch" not in done.libraries
    assert [f"kajitsuka2025/fig{i}" in done.stdout for i in (1, 2, 3, 4)] == [True] * 3 + [False]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell(started: Started, monkeypatch: pytest.MonkeyPatch, shell: str):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")  # the tests' own
    done = started("--show-completion", shell)
    assert done.code == 0 and f"complete_{shell}" in done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_a_line(installed_script: Path, tmp_path: Path):
    """The script that `--show-completion` prints, sourced by bash, whose parent it finds."""
    program = f"""
    PATH="{Path(sys.executable).parent}:$PATH"
    eval "$(byheart --show-completion)"
    COMP_WORDS=(byheart build el) COMP_CWORD=2
    _byheart_completion byheart
    echo "${{COMPREPLY[@]}}"
    complete -p byheart
    """
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.splitlines()[0] == "elements", done.stderr
    assert "-F _byheart_completion byheart" in done.stdout
