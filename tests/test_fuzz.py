"""A short run of the fuzzer, and that it notices what it looks for."""

import importlib
import os
import random
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
CASES, SEED = 150, 18


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "tools")
        return importlib.import_module("fuzz")


def test_every_case_ends_with_an_answer_or_a_refusal(tool: ModuleType):
    said: list[str] = []
    counts, failed = tool.fuzz(range(CASES), SEED, tell=said.append)
    assert not failed, "\n".join(said)
    outcomes: Counter[str] = sum(counts.values(), start=Counter())
    assert sum(outcomes.values()) == CASES
    assert outcomes["exit 0"] > CASES / 10 and outcomes["exit 2"] > CASES / 10


def test_every_command_has_cases(tool: ModuleType):
    assert tool.ARGUMENTS.keys() == tool.COMMANDS.keys()


def test_a_case_can_be_repeated(tool: ModuleType, tmp_path: Path):
    for number in range(20):
        made = []
        for again in ("a", "b"):
            folder = tmp_path / f"{number}{again}"
            folder.mkdir()
            words = tool.arguments(7, number, None, folder)
            made.append(([w.replace(str(folder), "") for w in words], tool.contents(folder)))
        assert made[0] == made[1]


@pytest.mark.parametrize("kind", ["gpt2", "bert", "llama", "vit"])
def test_models_that_are_not_damaged_are_audited(tool: ModuleType, tmp_path: Path, kind: str):
    x = tool.Inputs(random.Random(3), tmp_path, spoil=0.0)
    shown = ["--images", "digits"] if kind == "vit" else ["--tokens", x.tokens()]
    words = ["audit", x.model(kind), *shown, "--contexts", "20", "--draws", "5", "--no-random"]
    ended = tool.run(words, tmp_path, terminal=False)
    assert (ended.code, ended.fault) == (0, ""), ended.said


def _raise() -> None:
    raise ZeroDivisionError


def _half_a_page() -> None:
    Path("page.html").write_text("<html><body>")


def _refusal_that_writes() -> None:
    Path("scrap").write_text("x")
    raise SystemExit(2)


FAULTS = {
    "traceback": _raise,
    "exit code": lambda: sys.exit(3),
    "printed raw": lambda: print("\x1b[31m"),
    "no JSON": lambda: print("{"),
    "does not end": _half_a_page,
    "refused, but changed": _refusal_that_writes,
    "hang": lambda: Path("pipe").read_text(),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_is_noticed(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
):
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(tool, "main", FAULTS[fault])
    words = ["facts", "--json"] if fault == "no JSON" else ["facts"]
    assert fault in tool.run(words, tmp_path, terminal=False, seconds=0.2).fault
