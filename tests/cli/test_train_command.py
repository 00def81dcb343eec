"""`byheart train`: what it prints, what it writes, what it refuses, and that it can be resumed."""

import json
import math
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from typer.testing import Result

import byheart as bh

Run = Callable[..., Result]
RunJson = Callable[..., dict[str, Any]]
Refused = Callable[..., str]
Misused = Callable[..., str]
Contents = Callable[[Path], dict[str, str]]

FORMATS = Path(__file__).parents[2] / "docs" / "formats.md"
QUICK = ("--d-model", 6, "--heads", 3, "--seeds", 2, "--steps", 300)
TOO_SMALL = ("--d-model", 2, "--heads", 1, "--seeds", 2)
RANDOM = "random:N=12,S=2,T=60,seed=1"


def documented(command: str) -> set[str]:
    """The keys that docs/formats.md lists for a command."""
    rows = FORMATS.read_text(encoding="utf-8").splitlines()
    cells = next(row for row in rows if row.startswith(f"| `{command}` |")).split("|")
    return {key for part in re.findall(r"`([^`]+)`", cells[2]) for key in part.split(", ")}


# --- all is well ---


def test_human_output_says_what_was_learned_and_where(run: Run, capitals: Path, tmp_path: Path):
    said = run("train", capitals, "-o", tmp_path / "m", *QUICK, "--certify")
    assert said.exit_code == 0
    assert said.stderr == ""
    lines = said.stdout.splitlines()
    assert lines[0].startswith("capitals: 12 facts, keys of 2 tokens (country, relation), 20 tok")
    told = dict(re.split(r"  +", line.strip(), maxsplit=1) for line in lines if "   " in line)
    assert told["architecture"] == "attention-only: N=20, S=2, d=6, d_h=6, H=3, rank(W_QK)=6"
    assert told["parameters"] == "684 (57.0 per fact)"  # 6 (2 + 40 + 4·6·3)
    assert told["promised"] == "24 facts (by construction, Dana et al. 2025, Corollary 1)"
    assert told["recalled"] == "12 of 12 from the stored float32 weights"
    assert re.fullmatch(r"2 of 2 recalled all; the best took \d+ steps", told["starts"])
    bits = 12 * math.log2(12) / 684  # 12 facts of 12 distinct answers
    assert float(told["bits per parameter"]) == pytest.approx(bits, rel=1e-2)
    assert float(told["smallest margin"]) > 0
    assert told["certificate"].startswith("proved in ")
    assert lines[-2] == f"Written to {tmp_path / 'm'}"
    words = shlex.split(lines[-1].split("byheart ")[1])
    assert run(*words).stdout.splitlines()[0] == "Paris"


def test_json_has_the_documented_keys(run_json: RunJson, capitals: Path, tmp_path: Path):
    folder = tmp_path / "m"
    made = run_json("train", capitals, "-o", folder, *QUICK, "--certify")
    assert made.keys() >= documented("train")
    assert made["facts"] == made["recalled"] == 12
    assert made["lost"] == []
    assert made["path"] == str(folder)
    assert made["spec"]["family"] == "attention-only"
    assert made["promised"] == 24
    assert made["parameters"] == 684
    assert made["facts_per_parameter"] == 12 / 684
    assert made["bits_per_parameter"] == pytest.approx(12 * 3.584962500721156 / 684)
    assert made["certificate"]["certified"] is True
    training = made["training"]
    assert training.keys() == {"recipe", "path", "best", "models"}
    assert len(training["models"]) == 2
    for model in training["models"]:
        curve = model["curve"]
        assert curve.keys() == {"steps", "loss", "accuracy"}
        assert len(curve["steps"]) == len(curve["loss"]) == len(curve["accuracy"])
        assert curve["steps"][0] == 0 and curve["loss"][-1] < curve["loss"][0]
    text = " ".join(FORMATS.read_text(encoding="utf-8").split())
    assert f"`{', '.join(training['models'][0])}`" in text
    assert (training["recipe"]["sampling"], training["recipe"]["steps"]) == ("full", 300)


def test_the_folder_is_like_that_of_build(run: Run, run_json: RunJson, capitals: Path, tmp_path):
    folder = tmp_path / "m"
    assert run("train", capitals, "-o", folder, *QUICK).exit_code == 0
    files = {"memory.json", "weights.safetensors", "facts.safetensors"}
    assert {f.name for f in folder.iterdir()} == files
    assert run("train", capitals, "-o", folder, *QUICK, "--certify", "--force").exit_code == 0
    assert {f.name for f in folder.iterdir()} == files | {"certificate.json"}
    assert run_json("recall", folder, "Peru", "capital")["answer"] == "Lima"
    assert run_json("recall", folder, "--all")["recalled"] == 12
    assert run_json("certify", folder)["certified"] is True
    memory = bh.load(folder)
    assert memory.construction.method == "train"
    assert run("train", capitals, "-o", tmp_path / "bare", *QUICK, "--no-facts").exit_code == 0
    assert bh.load(tmp_path / "bare").facts is None
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"capitals.csv", "m", "bare"}


def test_default_folder(run: Run, capitals: Path, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("train", capitals, *QUICK).exit_code == 0
    assert run("train", "random:N=4,S=2,T=5,seed=1", *QUICK).exit_code == 0
    made = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert made == {"capitals.trained", "random-N=4,S=2,T=5,seed=1.trained"}


@pytest.mark.parametrize(
    ("options", "family", "sizes"),
    [
        (("--model", "mlp", "--width", 9), "mlp-transformer", {"w": 9}),
        (("--model", "as-coded", "--d-head", 4), "shared-bottleneck", {"d_h": 4}),
        (("--layers", 2), "attention-only", {"layers": 2}),
        (("--dtype", "float64", "--d-head", 3), "attention-only", {"d_h": 3}),
        (("--batch", 5, "--schedule", "constant"), "attention-only", {}),
        (("--loss", "hinge", "--optimizer", "adamw"), "attention-only", {}),
        (("--schedule", "linear", "--lr", 0.05, "--threads", 2), "attention-only", {}),
    ],
    ids=str,
)
def test_options_are_obeyed(run_json: RunJson, capitals: Path, tmp_path, options, family, sizes):
    made = run_json("train", capitals, "-o", tmp_path / "m", *QUICK, "--certify", *options)
    assert made["recalled"] == 12
    assert made["certificate"]["certified"] is True
    spec = made["spec"]
    assert spec["family"] == family
    assert {name: spec[name] for name in sizes} == sizes
    assert (spec["d"], spec["H"]) == (6, 3)
    assert (made["promised"] is None) == (family != "attention-only" or spec["layers"] > 1)
    memory = bh.load(tmp_path / "m")
    assert isinstance(memory, bh.TokenMemory)
    given = dict(zip(options[::2], options[1::2], strict=True))
    assert str(memory.dtype) == f"torch.{given.get('--dtype', 'float32')}"
    recipe = made["training"]["recipe"]
    for flag in ("loss", "optimizer", "schedule", "lr", "batch"):
        if f"--{flag}" in given:
            assert recipe[flag] == given[f"--{flag}"]
    assert recipe["sampling"] == ("without-replacement" if "--batch" in given else "full")


def test_tables_are_read_as_build_reads_them(run_json: RunJson, make_file, tmp_path: Path):
    wide = make_file("wide.csv", "country,capital,code\nFrance,Paris,fr\nJapan,Tokyo,jp\n")
    assert run_json("train", wide, "-o", tmp_path / "a", "--melt", *QUICK)["facts"] == 4
    assert run_json("recall", tmp_path / "a", "Japan", "code")["answer"] == "jp"
    double = make_file("double.csv", "key,answer\na,x\nb,y\na,x\n")
    assert run_json("train", double, "-o", tmp_path / "b", *QUICK)["merged"] == 1
    assert run_json("recall", tmp_path / "b", "b")["answer"] == "y"
    lines = [{"input": ["a"], "output": "x"}, {"input": ["b", "a"], "output": "y"}]
    jsonl = make_file("t.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    assert run_json("train", jsonl, "-o", tmp_path / "c", "--pad", *QUICK)["recalled"] == 2
    assert run_json("recall", tmp_path / "c", "a")["answer"] == "x"


def test_same_seed_same_weights(run: Run, capitals: Path, tmp_path: Path):
    def weights(name: str, seed: int) -> bytes:
        done = run("train", capitals, "-o", tmp_path / name, *QUICK, "--seed", seed)
        assert done.exit_code == 0
        return (tmp_path / name / "weights.safetensors").read_bytes()

    assert weights("a", 3) == weights("b", 3) != weights("c", 4)


def test_what_a_small_model_loses_is_listed(run: Run, run_json: RunJson, tmp_path: Path):
    options = (RANDOM, *TOO_SMALL, "--steps", 100, "--certify")
    made = run_json("train", *options, "-o", tmp_path / "m", code=1)
    assert 0 < made["recalled"] < 60
    assert made["recalled"] + len(made["lost"]) == 60
    assert made["certificate"]["facts"] == made["recalled"]
    said = run("train", *options, "-o", tmp_path / "n")
    assert said.exit_code == 1
    assert f"LOST {len(made['lost'])} facts; the memory holds the other" in said.stdout
    first = made["lost"][0]
    assert f"  row {first['row']}: {' · '.join(first['key'])} -> {first['answer']}" in said.stdout
    assert "Use more --heads, a larger --d-model or more --steps to hold" in said.stdout
    assert "0 of 2 recalled all; the best took 100 steps" in said.stdout
    assert run_json("recall", tmp_path / "n", "--all")["facts"] == made["recalled"]


def test_some_starts_diverge(run: Run, capitals: Path, tmp_path: Path, monkeypatch):
    """Said, counted, and no reason to fail."""
    from byheart.training import trainer

    plain = trainer.initial

    def spoiled(spec, seeds, init=None, data=None):
        weights = plain(spec, seeds, init, data)
        weights["W_U"][0] = float("nan")
        return weights

    monkeypatch.setattr(trainer, "initial", spoiled)
    said = run("train", capitals, "-o", tmp_path / "m", *QUICK)
    assert said.exit_code == 0
    assert re.search(r"starts +1 of 2 recalled all", said.stdout)
    assert re.search(r"diverged +1 of 2 starts, at step 100", said.stdout)


def test_progress_in_a_log(run: Run, capitals: Path, tmp_path: Path, monkeypatch):
    """Where there is no terminal: a line now and then, on stderr, with and without --json."""
    monkeypatch.setattr("byheart.cli._show.QUIET_SECONDS", 0.0)
    options = (*TOO_SMALL, "--steps", 300, "-o", tmp_path / "m", "--force")
    for json_too in ((), ("--json",)):
        said = run("train", RANDOM, *options, *json_too)
        lines = said.stderr.splitlines()
        assert len(lines) == 2  # the third evaluation is the end
        form = r"step 200 of 300, 2 models, best loss [\d.]+, accuracy 0\.\d{4}, at most \d+ s left"
        assert re.fullmatch(form, lines[1])
    json.loads(said.stdout)


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys, plain):
    from byheart.cli._show import progress
    from byheart.training import Progress

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    with progress("training") as show:
        show(Progress(100, 300, 2, None, None))
        show(Progress(200, 300, 1, 0.125, 0.25))
    said = capsys.readouterr()
    assert said.out == ""
    shown = plain(said.err)
    assert "training" in shown and "200/300" in shown
    assert "1 model, best loss 0.125, accuracy 0.2500" in shown


# --- where it writes ---


def test_an_existing_folder_is_refused_before_training(refused: Refused, memory: Path, monkeypatch):
    monkeypatch.setattr("byheart.training.method.Train.build", lambda *_: pytest.fail("trained"))
    message = refused("train", "elements", "-o", memory)
    assert "exists already" in message
    assert "--force" in message


def test_force_replaces_a_memory_but_nothing_else(
    run: Run, run_json: RunJson, refused: Refused, memory: Path, tmp_path: Path
):
    options = ("train", "random:N=8,S=2,T=9", *QUICK, "--force")
    assert run(*options, "-o", memory).exit_code == 0
    assert not (memory / "certificate.json").exists()
    assert run_json("recall", memory, "--all")["facts"] == 9
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "summer.txt").write_text("irreplaceable")
    assert "not a byheart memory" in refused(*options, "-o", photos)


def test_interrupt_leaves_nothing(
    run: Run, memory: Path, tmp_path, contents: Contents, monkeypatch
):
    def interrupt(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("byheart.training.method.Train.build", interrupt)
    before = contents(tmp_path)
    for target in (tmp_path / "m", memory):
        said = run("train", "elements", "-o", target, "--force", "--json")
        assert said.exit_code == 130
        assert "interrupted" in json.loads(said.stdout)["error"]
        assert contents(tmp_path) == before


# --- bad input ---


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--model", "magic"), ("attention, mlp, as-coded", "'magic'")),
        (("--width", 8), ("--width", "--model mlp", "attention has no hidden layer")),
        (("--lr", 0), ("lr must be a positive number", "found 0")),
        (("--lr", -1), ("lr must be a positive number", "-1")),
        (("--lr", "nan"), ("lr must be a positive number", "nan")),
        (("--lr", "inf"), ("lr must be a positive number", "inf")),
        (("--batch", 13), ("--batch 13", "larger than the table: 12 facts", "Leave it out")),
        (("--device", "tpu"), ("--device must be auto, cpu, cuda or mps", "'tpu'")),
        (("--loss", "magic"), ("loss must be one of cross-entropy", "'magic'")),
        (("--schedule", "magic"), ("schedule must be one of", "cosine", "'magic'")),
        (("--optimizer", "magic"), ("optimizer must be one of adam, adamw, sgd", "'magic'")),
        (("--dtype", "float16"), ("float32, float64", "'float16'")),
        (("--optimizer", "sgd", "--lr", 1e30), ("all 2 starts diverged", "--lr", "step 100")),
        (("--checkpoint", "gone/run"), ("checkpoint gone/run", "no folder gone")),
        (("--checkpoint", "."), ("checkpoint . must be a file", "a folder")),
        (("--keys", "bogus"), ("unknown column 'bogus'",)),
    ],
    ids=lambda x: " ".join(map(str, x)),
)
def test_wrong_options_are_refused(refused: Refused, capitals: Path, tmp_path, options, words):
    message = refused("train", capitals, "-o", tmp_path / "m", *QUICK, *options)
    for word in words:
        assert word in message


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_no_such_device(refused: Refused, capitals: Path, tmp_path: Path):
    message = refused("train", capitals, "-o", tmp_path / "m", "--device", "cuda")
    assert "--device cuda: torch finds no such device here. Use --device cpu." in message


def test_wrong_tables_are_refused(refused: Refused, make_file, tmp_path: Path):
    target = ("-o", tmp_path / "m")
    assert "gone.csv" in refused("train", tmp_path / "gone.csv", *target)
    table = make_file("t.csv", "key,answer\na,x\nb,y\na,z\n")
    message = refused("train", table, *target)
    assert "'a'" in message and "2" in message and "4" in message


def test_conflicts_are_listed_in_json(run: Run, make_file, tmp_path: Path):
    table = make_file("t.csv", "key,answer\na,x\nb,y\na,z\n")
    said = run("train", table, "-o", tmp_path / "m", "--json")
    assert said.exit_code == 2
    assert json.loads(said.stdout)["conflicts"] == [[["a"], [[2, "x"], [4, "z"]]]]


@pytest.mark.parametrize(
    "options",
    [
        ("--heads", 0), ("--d-model", 0), ("--d-head", -1), ("--layers", 0), ("--width", -1),
        ("--seeds", 0), ("--steps", 0), ("--batch", 0), ("--threads", 0), ("--lr", "fast"),
        ("--seed", -1), ("--bogus",),
    ],
    ids=lambda x: " ".join(map(str, x)),
)  # fmt: skip
def test_misuse(misused: Misused, capitals: Path, tmp_path: Path, options):
    assert options[0] in misused("train", capitals, "-o", tmp_path / "m", *options)


# --- resume ---

# The command, with a checkpoint after every block of batches and not every 30 s, in a process that
# is killed in the middle of a block: before the step of the given number.
KILLED = """
import functools, importlib, os, signal, sys
from byheart.training.learner import FlatOptimizer
last, step = int(sys.argv[1]), FlatOptimizer.step
train = importlib.import_module("byheart.training.trainer")
train.train_stack = functools.partial(train.train_stack, checkpoint_seconds=0.0)
def until(self, lr):
    if int(self.t) == last:
        os.kill(os.getpid(), signal.SIGKILL)
    step(self, lr)
FlatOptimizer.step = until
sys.argv[1:] = sys.argv[2:]
from byheart.cli.main import main
main()
"""


@pytest.mark.parametrize(
    "batch",
    [pytest.param((), marks=pytest.mark.slow, id="full batch"),
     pytest.param(("--batch", 20), id="mini-batches")],
)  # fmt: skip
def test_a_killed_run_goes_on_to_the_same_weights(
    run: Run, run_json: RunJson, refused: Refused, tmp_path: Path, batch
):
    place = tmp_path / "run.checkpoint"
    command = ("train", RANDOM, *TOO_SMALL, "--steps", 400, *batch)
    kept = (*command, "--checkpoint", place)
    program = [sys.executable, "-c", KILLED, "250", *map(str, kept), "-o", str(tmp_path / "m")]
    killed = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (tmp_path / "m").exists()
    with safe_open(place, "pt") as file:
        record = json.loads(file.metadata()["byheart"])
    assert record["step"] == (249 if batch else 200)  # blocks of 3 and of 100
    for scrap in tmp_path.glob(".*byheart-*"):  # of the killed run: the next writer removes them
        shutil.rmtree(scrap) if scrap.is_dir() else scrap.unlink()
    # Another run does not take it for its own.
    message = refused(*kept, "-o", tmp_path / "m", "--seed", 1)
    assert "a checkpoint of another run: seeds" in message
    resumed = run_json(*kept, "-o", tmp_path / "m", code=1)
    assert run(*command, "-o", tmp_path / "whole").exit_code == 1
    one, two = ((tmp_path / name / "weights.safetensors") for name in ("m", "whole"))
    assert one.read_bytes() == two.read_bytes()
    assert {m["steps"] for m in resumed["training"]["models"]} == {400}


def test_a_damaged_checkpoint_is_refused(run: Run, refused: Refused, tmp_path: Path):
    place = tmp_path / "run.checkpoint"
    command = ("train", RANDOM, *TOO_SMALL, "--steps", 100, "--checkpoint", place, "-o")
    assert run(*command, tmp_path / "m").exit_code == 1
    whole = place.read_bytes()
    flipped = whole[:-1] + bytes([whole[-1] ^ 1])
    for damage in (whole[:-50], b"", b"not a checkpoint", flipped):
        place.write_bytes(damage)
        assert "Delete it to start again" in refused(*command, tmp_path / "n")
    place.write_bytes(whole)
    assert run(*command, tmp_path / "n").exit_code == 1


def test_the_checkpoint_is_as_documented(run: Run, tmp_path: Path):
    place = tmp_path / "run.checkpoint"
    options = (*TOO_SMALL, "--steps", 100, "--batch", 10, "--checkpoint", place)
    assert run("train", RANDOM, *options, "-o", tmp_path / "m").exit_code == 1
    text = " ".join(FORMATS.read_text(encoding="utf-8").split())
    with safe_open(place, "pt") as file:
        metadata, names = file.metadata(), list(file.keys())
    assert metadata.keys() == {"byheart", "sha256"}
    assert f"`{', '.join(json.loads(metadata['byheart']))}`" in text
    kinds = {re.sub(r"\d+", "i", re.sub(r"W_.*|b_.*", "NAME", name)) for name in names}
    expected = {"weight.NAME", "moment.m.NAME", "moment.v.NAME", "generator.i", "hits"}
    expected |= {"curve"}
    assert kinds == expected | {"done.i.NAME", "best.i.NAME"}
    assert all(f"`{kind}`" in text for kind in kinds)


def test_the_search_prints_its_documented_keys(run_json: RunJson):
    """Of `byheart capacity`, both ways; here, where the documentation is read."""
    options = ("--d-model", 2, "--steps", 100, "--seeds", 1)
    found = run_json("capacity", "--vocab", 4, "--heads", 1, "--resolution", 1, *options)
    assert found.keys() == documented("capacity")
    text = " ".join(FORMATS.read_text(encoding="utf-8").split())
    for part in ("seeds", "trials", "bounds"):
        assert f"`{', '.join(found[part][0])}`" in text
    smallest = run_json("capacity", "--facts", "random:N=8,S=2,T=8", *options)
    assert smallest.keys() == documented("capacity --facts FACTS")
    assert f"`{', '.join(smallest['tried'][0])}`" in text


def test_help_does_not_load_torch():
    for command in ("train", "capacity"):
        code = (
            "import sys\nfrom byheart.cli.main import app\n"
            f"try:\n    app([{command!r}, '--help'])\nexcept SystemExit:\n    pass\n"
            "print('LOADED', 'torch' in sys.modules, 'numpy' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stdout.splitlines()[-1] == "LOADED False False"


def test_a_trained_memory_can_be_moved(run_json: RunJson, run: Run, capitals: Path, tmp_path: Path):
    assert run("train", capitals, "-o", tmp_path / "m", *QUICK, "--certify").exit_code == 0
    shutil.move(tmp_path / "m", tmp_path / "elsewhere")
    assert run_json("certify", tmp_path / "elsewhere", "--facts", capitals)["certified"] is True


def test_curves_are_drawn_where_asked_and_nowhere_else(run: Run, refused: Refused, tmp_path: Path):
    done = run("train", RANDOM, *QUICK, "-o", tmp_path / "m", "--plot", tmp_path / "a.png")
    assert done.exit_code in (0, 1) and (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    for place in ("b.txt", "gone/b.png"):
        said = refused("train", RANDOM, *QUICK, "-o", tmp_path / "n", "--plot", tmp_path / place)
        assert "b." in said and not (tmp_path / "n").exists()
