"""`byheart capacity`: the largest random table, the smallest model, and what is refused."""

import importlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from typer.testing import Result

from byheart.theory import bounds
from byheart.training.search import START_STRIDE
from byheart.training.trainer import Outcome

Run = Callable[..., Result]
RunJson = Callable[..., dict[str, Any]]
Refused = Callable[..., str]
Misused = Callable[..., str]

SIZES = ("--vocab", 6, "--d-model", 2, "--heads", 1)
QUICK = ("--steps", 150, "--seeds", 2)


def outcome(seed: int, passed: bool | None) -> Outcome:
    accuracy = {True: 1.0, False: 0.5, None: 0.0}[passed]
    return Outcome(seed, 10, accuracy, accuracy, 1.0, diverged=7 if passed is None else None)


@contextmanager
def planted(rule: Callable[[int, int, int], bool | None]) -> Iterator[None]:
    """Outcomes by rule(table, T, attempt) in place of training."""

    def run(spec, tables, recipe, starts, device, progress):
        found = []
        for facts, start in zip(tables, starts, strict=True):
            seed = int(facts.name.rpartition("=")[2])
            found.append(outcome(start, rule(seed, facts.T, (start - seed) // START_STRIDE)))
        return tuple(found)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.import_module("byheart.training.search"), "_run", run)
        yield


def rows(text: str) -> dict[str, str]:
    """The two-column table of a command, by its first column."""
    lines = [re.split(r"  +", line.strip(), maxsplit=1) for line in text.splitlines()]
    return {line[0]: line[1] for line in lines if len(line) == 2}


# --- the largest table ---


def test_human_output(run: Run):
    with planted(lambda table, T, attempt: T <= (70, 80, 90)[table]):
        said = run("capacity", "--vocab", 10, "--d-model", 4, "--heads", 2, "--resolution", 0.001)
    assert (said.exit_code, said.stderr) == (0, "")
    told = rows(said.stdout)
    assert told["architecture"] == "attention-only: N=10, S=2, d=4, d_h=4, H=2, rank(W_QK)=4"
    assert told["parameters"] == "216"  # 4 (2 + 20 + 4·4·2)
    assert told["facts learned"] == "80 (median of 3 tables)"
    assert told["interval"] == "70 to 91: every table learned 70, none 91"
    assert told["facts per parameter"] == "0.37"
    assert told["bits per parameter"] == "1.23 (log2 10 a fact)"
    assert "  table 1: 70 learned, 71 not\n  table 2: 80 learned, 81 not\n" in said.stdout
    assert re.search(r"dana2025.corollary1 +>= 12 +lower bound", said.stdout)
    assert "without training" in said.stdout
    for word in ("undecided", "monotone", "crashed", "diverge"):
        assert word not in said.stdout


def test_json(run_json: RunJson):
    with planted(lambda table, T, attempt: T <= (70, 80, 90)[table]):
        found = run_json("capacity", "--vocab", 10, "--d-model", 4, "--heads", 2)
    assert found["all_facts"] == 100
    assert [seed["seed"] for seed in found["seeds"]] == [0, 1, 2]
    for planted_at, seed in zip((70, 80, 90), found["seeds"], strict=True):
        assert seed["lower"] <= planted_at < seed["upper"]
    assert found["facts_per_parameter"] == found["facts"] / found["parameters"]
    assert found["undecided"] == 0
    assert {trial["passed"] for trial in found["trials"]} == {True, False}
    from byheart.specs import AttentionOnlySpec

    spec = dict(found["spec"])
    assert spec.pop("family") == "attention-only"
    known = {a.id: a.capacity for a in bounds(AttentionOnlySpec(**spec))}
    assert found["bounds"]
    assert all(known[bound["id"]] == bound["facts"] for bound in found["bounds"])


def test_all_facts_were_learned(run: Run):
    with planted(lambda table, T, attempt: True):
        said = run("capacity", *SIZES, "--seeds", 1)
    told = rows(said.stdout)
    assert told["facts learned"] == "36 (median of 1 table)"
    assert told["interval"] == "every table learned all 36 facts there are"
    assert "  table 1: 36 learned, all there are\n" in said.stdout
    with planted(lambda table, T, attempt: table > 0 or T <= 20):
        said = run("capacity", *SIZES, "--seeds", 2)
    told = rows(said.stdout)
    assert told["interval"] == (
        "from 20, which every table learned; no upper end: 1 learned all 36 there are"
    )


def test_inversions_and_undecided_sizes_are_said(run: Run):
    with planted(lambda table, T, attempt: T not in (5, 6) if T < 15 else None):
        said = run("capacity", *SIZES, "--seeds", 1, "--heads", 3)
    assert said.exit_code == 0
    assert "undecided: at 16 facts every run diverged or crashed" in said.stdout
    assert "smaller --lr" in said.stdout
    with planted(lambda table, T, attempt: T <= 30 and T != 17):
        said = run("capacity", *SIZES, "--seeds", 1, "--d-head", 15)
    assert "not monotone: 17 failed, yet 19 was learned" in said.stdout


def test_nothing_was_decided(run: Run, run_json: RunJson):
    options = ("capacity", *SIZES, *QUICK, "--optimizer", "sgd", "--lr", 1e30)
    said = run(*options)
    assert said.exit_code == 1
    assert rows(said.stdout)["interval"] == "none: a table was undecided from the start"
    found = run_json(*options, code=1)
    assert (found["facts"], found["undecided"], found["interval"]) == (0, 2, [0, None])


def test_options_reach_the_search(run_json: RunJson):
    with planted(lambda table, T, attempt: T <= 20):
        found = run_json(
            "capacity", "--vocab", 4, "--length", 3, "--model", "mlp", "--width", 5, "--d-head", 3,
            "--heads", 2, "--layers", 2, "--d-model", 4, "--seeds", 4, "--threshold", 0.5,
            "--seed", 7, "--restarts", 2,
        )  # fmt: skip
    spec = found["spec"]
    assert spec["family"] == "mlp-transformer"
    names = ("N", "S", "w", "d_h", "H", "layers", "d")
    assert tuple(spec[name] for name in names) == (4, 3, 5, 3, 2, 2, 4)
    assert found["threshold"] == 0.5
    assert [seed["seed"] for seed in found["seeds"]] == [70049, 70050, 70051, 70052]
    assert found["facts"] == found["all_facts"] == 64  # the planted failures have accuracy 1/2


@pytest.mark.parametrize(
    "options",
    [
        ("--model", "as-coded", "--d-head", 1),
        ("--batch", 8, "--schedule", "constant"),
        ("--threshold", 0.8, "--optimizer", "adamw"),
    ],
    ids=str,
)
def test_for_real(run: Run, options):
    """Small models of six tokens: they learn some facts, and not all 36."""
    said = run("capacity", *SIZES, *QUICK, "--resolution", 0.3, *options)
    assert said.exit_code == 0
    told = rows(said.stdout)
    low, high = (int(n) for n in re.findall(r"\d+", told["interval"])[:2])
    assert 0 < low < high <= 36
    if "--threshold" in options:
        assert told["bits per parameter"].endswith("(mutual information, 0.8 of the facts right)")


def test_progress_in_a_log(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("byheart.cli._show.QUIET_SECONDS", 0.0)
    with planted(lambda table, T, attempt: T <= 12):
        said = run("capacity", *SIZES, "--seeds", 2)
    lines = said.stderr.splitlines()
    assert lines[0] == "training 2 models on 4 facts; brackets so far: 0-?, 0-? ..."
    assert any("brackets so far: 8-16, 8-16" in line for line in lines)


# --- the smallest model ---


def plant_sizes(patch: pytest.MonkeyPatch, rule: Callable[[int], bool | None]) -> None:
    def train_stack(spec, data, recipe, seeds, device):
        return SimpleNamespace(outcomes=tuple(outcome(seed, rule(spec.H)) for seed in seeds))

    patch.setattr(importlib.import_module("byheart.training.search"), "train_stack", train_stack)


def test_human_output_of_the_smallest(run: Run, capitals: Path, monkeypatch: pytest.MonkeyPatch):
    plant_sizes(monkeypatch, lambda H: H >= 5)
    said = run("capacity", "--facts", capitals, "--d-model", 4)
    assert (said.exit_code, said.stderr) == (0, "")
    assert said.stdout.startswith("capitals: 12 facts, keys of 2 tokens (country, relation), 20 to")
    assert re.search(r" 6 +552 +3 of 3 +1\.0000 +0 *\n", said.stdout)
    assert re.search(r" 4 +424 +0 of 3 +0\.5000 +0 *\n", said.stdout)
    told = rows(said.stdout)
    assert told["smallest heads"] == (
        "5: learned 12 facts; at 4 no start did; at 5 every start did"
    )
    assert told["parameters"] == "488"  # 4 (2 + 40 + 4·4·5)
    assert told["facts per parameter"] == f"{12 / 488:.3g}"
    assert told["bits per parameter"] == f"{12 * 3.584962500721156 / 488:.3g} (12 distinct answers)"


def test_no_size_is_enough(run: Run, run_json: RunJson, capitals: Path, monkeypatch):
    plant_sizes(monkeypatch, lambda H: False)
    said = run("capacity", "--facts", capitals, "--threshold", 0.75)
    assert said.exit_code == 1
    assert "None of these sizes learned 0.75 of the 12 facts." in said.stdout
    found = run_json("capacity", "--facts", capitals, code=1)
    assert found["size"] is found["spec"] is found["bits_per_parameter"] is None
    assert found["tried"][-1]["size"] == 4096


@pytest.mark.parametrize(
    ("model", "vary", "name"),
    [
        ("attention", "heads", "H"),
        ("attention", "d-head", "d_h"),
        ("as-coded", "d-model", "d"),
        ("mlp", "width", "w"),
    ],
)
def test_the_smallest_for_real(run_json: RunJson, make_file, model, vary, name):
    """A table with keys of one token, read with the options of the command."""
    lines = "".join(f"{c}{i},{i % 3},{c}\n" for i in range(6) for c in "ab")
    table = make_file("t.csv", "key,answer,note\n" + lines)
    found = run_json(
        "capacity", "--facts", table, "--keys", "key", "--answer", "answer", "--model", model,
        "--vary", vary, "--d-model", 4, *QUICK,
    )  # fmt: skip
    assert found["facts"] == 12
    assert found["vary"] == name
    assert found["spec"][name] == found["size"] >= 1
    assert (found["spec"]["S"], found["spec"]["N"]) == (2, 16)  # 12 keys, 3 answers, start
    sizes = [row["size"] for row in found["tried"]]
    assert found["size"] in sizes
    assert found["facts_per_parameter"] == 12 / found["parameters"]
    if name == "d_h":
        assert found["spec"]["qk_rank"] == found["size"]


# --- bad input ---


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--model", "magic"), ("attention, mlp, as-coded", "'magic'")),
        (("--width", 8), ("--width", "--model mlp", "attention has no hidden layer")),
        (("--lr", 0), ("lr must be a positive number",)),
        (("--lr", "nan"), ("lr must be a positive number", "nan")),
        (("--threshold", 0), ("threshold", "(0, 1]", "found 0")),
        (("--threshold", 1.1), ("threshold", "(0, 1]", "1.1")),
        (("--threshold", "nan"), ("threshold", "nan")),
        (("--resolution", 0), ("resolution", "(0, 1]")),
        (("--resolution", 2), ("resolution", "(0, 1]", "2")),
        (("--schedule", "magic"), ("schedule must be one of", "'magic'")),
        (("--optimizer", "magic"), ("optimizer must be one of", "'magic'")),
        (("--device", "tpu"), ("--device must be auto, cpu, cuda or mps", "'tpu'")),
        (("--workers", "many"), ("--workers", "'many'")),
        (("--keys", "key"), ("--keys", "--facts", "not given")),
        (("--answer", "key"), ("--answer", "--facts")),
        (("--facts", "elements", "--vocab", 8), ("--vocab", "--facts has its own")),
        (("--facts", "elements", "--length", 3), ("--length", "--facts has its own")),
        (("--facts", "elements", "--restarts", 2), ("--restarts", "--seeds starts")),
        (
            ("--facts", "elements", "--workers", 2, "--resolution", 0.1),
            ("--resolution, --workers",),
        ),
        (("--facts", "elements", "--vary", "magic"), ("--vary", "heads, d-head", "'magic'")),
        (("--facts", "elements", "--vary", "width"), ("--vary width", "--model mlp")),
        (("--facts", "elements", "--threshold", 0), ("(0, 1]",)),
        (("--facts", "gone.csv"), ("gone.csv",)),
    ],
    ids=lambda x: " ".join(map(str, x)),
)
def test_wrong_options_are_refused(refused: Refused, options, words):
    message = refused("capacity", *options)
    for word in words:
        assert word in message


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
@pytest.mark.parametrize("size", [("--vocab", 10**7, "--seeds", 20), ("--length", 10**9)])
def test_sizes_are_refused_before_anything_is_made(
    refused: Refused, monkeypatch: pytest.MonkeyPatch, size
):
    made = importlib.import_module("byheart.facts.tasks")
    vocabulary = made.Vocabulary

    def small(tokens: tuple[str, ...]) -> object:
        assert len(tokens) == 2
        return vocabulary(tokens)

    monkeypatch.setattr(made, "Vocabulary", small)
    monkeypatch.setattr("byheart._machine.memory_bytes", lambda: 10**9)
    assert "GB of memory" in refused("capacity", *size)


def test_no_such_device(refused: Refused):
    assert "no such device here" in refused("capacity", "--device", "cuda")


def test_conflicting_facts(refused: Refused, run: Run, make_file):
    table = make_file("t.csv", "key,answer\na,x\nb,y\na,z\n")
    assert "'a'" in refused("capacity", "--facts", table)
    said = run("capacity", "--facts", table, "--json")
    assert json.loads(said.stdout)["conflicts"] == [[["a"], [[2, "x"], [4, "z"]]]]


@pytest.mark.parametrize(
    "options",
    [
        ("--vocab", 1), ("--length", 1), ("--heads", 0), ("--seeds", 0), ("--restarts", 0),
        ("--steps", 0), ("--batch", 0), ("--threshold", "all"), ("--seed", -1), ("--bogus",),
    ],
    ids=lambda x: " ".join(map(str, x)),
)  # fmt: skip
def test_misuse(misused: Misused, options):
    assert options[0] in misused("capacity", *options)


def test_interrupt(run: Run, monkeypatch: pytest.MonkeyPatch):
    def interrupt(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("byheart.training.capacity", interrupt)
    said = run("capacity", "--json")
    assert said.exit_code == 130
    assert "interrupted" in json.loads(said.stdout)["error"]
