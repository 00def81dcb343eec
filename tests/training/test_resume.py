"""A run that was cut off goes on to the same bits; a file that is not its checkpoint is refused."""

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from byheart import random_associations
from byheart.errors import ByheartError, MemoryFileError
from byheart.specs import AttentionOnlySpec, MultiHeadSpec, SharedBottleneckSpec
from byheart.training import Data, Recipe, checkpoint, token_data, train_stack
from byheart.training.trainer import initial

SAMPLINGS = ("full", "with-replacement", "without-replacement", "fixed-sample")
SPEC = AttentionOnlySpec(N=8, S=2, d=3, d_h=3, H=3, positions="attention", scale=True)
SEEDS = [0, 1, 2, 3, 4, 5]
# Models 1, 3 and 4 have four facts and stop early, model 2 starts from NaN, 0 and 5 have 60.
TABLES = [random_associations(N=8, S=2, T=T, seed=T) for T in (60, 4, 60, 4, 4, 60)]


class Cut(Exception):
    """The power goes out."""


def four_kinds(sampling):
    """Data and recipe of a stack in which models stop, diverge and go on to the end."""
    data = token_data(TABLES)
    # Epochs take tables of one length: the short ones repeat their facts.
    if sampling in ("fixed-sample", "without-replacement"):
        inputs, targets = data.inputs.clone(), data.targets.clone()
        for m in (1, 3, 4):
            repeat = torch.arange(60) % 4
            inputs[m], targets[m] = inputs[m, repeat], targets[m, repeat]
        data = Data(inputs, targets, own=True)
    recipe = Recipe(
        steps=75, sampling=sampling, batch=4, epoch_steps=8, evaluate_every=10, lr=0.03, warmup=0.1
    )
    return data, recipe


def bad_start():
    start = initial(SPEC, SEEDS)
    start["W_V"][2] = torch.nan
    return start


def train(sampling, place=None, cut_at=None, **options):
    data, recipe = four_kinds(sampling)

    def progress(p):
        if cut_at is not None and p.done >= cut_at:
            raise Cut

    return train_stack(
        SPEC,
        data,
        recipe.but(**options.pop("changes", {})),
        SEEDS,
        start=bad_start(),
        checkpoint=place,
        checkpoint_seconds=0,
        progress=progress,
        **options,
    )


def same(a, b):
    """Weights bit for bit (NaN included), and everything in the outcomes but the time."""
    assert a.weights.keys() == b.weights.keys()
    for name, w in a.weights.items():
        assert torch.equal(w.view(torch.int32), b.weights[name].view(torch.int32)), name
    for one, two in zip(a.outcomes, b.outcomes, strict=True):
        one, two = (dataclasses.asdict(o) | {"seconds": 0} for o in (one, two))
        assert repr(one) == repr(two)  # NaN equals itself as text
    return True


@pytest.mark.parametrize(
    ("sampling", "optimizer", "path"),
    [
        ("full", "adam", "u/z"),
        ("full", "sgd", "token tables"),
        ("with-replacement", "adamw", "bilinear"),
        ("without-replacement", "sgd", "autograd"),
        ("without-replacement", "adam", "bilinear"),
        ("fixed-sample", "adam", "u/z"),
    ],
)
def test_a_run_that_was_cut_goes_on_to_the_same_bits(tmp_path, sampling, optimizer, path):
    changes = {"optimizer": optimizer, "weight_decay": 0.01}
    changes |= {"momentum": 0.9, "lr": 0.1} if optimizer == "sgd" else {}
    options = {"path": path, "changes": changes}
    whole = train(sampling, **options)
    fates = [(o.stopped is not None, o.diverged is not None) for o in whole.outcomes]
    assert fates[2] == (False, True) and fates[0] == fates[5] == (False, False)
    assert [fates[m] for m in (1, 3, 4)] == [(True, False)] * 3
    place = tmp_path / "run.safetensors"
    for cut_at in (20, 21, 70):  # cut three times, while models are leaving and after
        with pytest.raises(Cut):
            train(sampling, place, cut_at, **options)
    assert place.exists()
    assert same(whole, train(sampling, place, **options))
    # A finished run answers from its file, without a step.
    assert same(whole, train(sampling, place, cut_at=0, **options))
    assert os.listdir(tmp_path) == [place.name]


def test_checkpoints_are_written_when_asked_and_at_the_end(tmp_path):
    """In between, `checkpoint_seconds` decides; the time of a finished run is in its file."""
    place, seen = tmp_path / "run", []
    data, recipe = four_kinds("full")
    options = {"checkpoint": place, "checkpoint_seconds": 1e9}
    done = train_stack(
        SPEC, data, recipe, SEEDS, progress=lambda _: seen.append(place.exists()), **options
    )
    assert place.exists() and len(seen) > 5 and not any(seen)
    again = train_stack(SPEC, data, recipe, SEEDS, **options)
    assert same(done, again) and again.outcomes == done.outcomes


def test_the_best_weights_so_far_survive(tmp_path):
    """`keep_best` with a rate too high: what is returned is older than the cut."""
    changes = {"keep_best": True, "lr": 0.8, "schedule": "constant", "stop_at": None}
    whole = train("full", changes=changes)
    place = tmp_path / "run"
    with pytest.raises(Cut):
        train("full", place, 60, changes=changes)
    with safe_open(place, framework="pt") as file:
        assert any(name.startswith("best.") for name in file.keys())  # noqa: SIM118
    assert same(whole, train("full", place, changes=changes))


@pytest.mark.parametrize("shared", [True, False])
def test_multi_head_runs_resume(tmp_path, shared):
    spec = MultiHeadSpec(d=4, n=3, d_h=2, H=3, shared=shared)
    made = torch.Generator().manual_seed(0)
    data = Data(
        torch.rand(20, 4, generator=made),
        torch.rand(20, 1, generator=made),
        kind="value",
        context=torch.rand(*(() if shared else (20,)), 3, 4, generator=made),
        contexts_differ=not shared,
    )
    recipe = Recipe(steps=40, sampling="without-replacement", batch=6, loss="mse", stop_at=None)
    options = {"checkpoint": tmp_path / "run", "checkpoint_seconds": 0}

    def progress(p):
        if p.done > 20:
            raise Cut

    whole = train_stack(spec, data, recipe, [0, 1])
    with pytest.raises(Cut):
        train_stack(spec, data, recipe, [0, 1], progress=progress, **options)
    assert same(whole, train_stack(spec, data, recipe, [0, 1], **options))


KILLED = """
import sys
sys.path.insert(0, sys.argv[1])
import test_resume
from byheart.training import train_stack

data, recipe = test_resume.four_kinds(sys.argv[3])
print("ready", flush=True)
trained = train_stack(
    test_resume.SPEC, data, recipe.but(steps=1500, epoch_steps=4, stop_at=None), test_resume.SEEDS,
    start=test_resume.bad_start(), checkpoint=sys.argv[2], checkpoint_seconds=0,
)
print("done", flush=True)
"""


def killed(place, sampling, after):
    """Run in a process of its own; SIGKILL `after` seconds into the training. Its output."""
    program = [sys.executable, "-c", KILLED, str(Path(__file__).parent), str(place), sampling]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        if after is not None:
            time.sleep(after)
            process.send_signal(signal.SIGKILL)
        return process.stdout.read()


def steps_in(place):
    with safe_open(place, framework="pt") as file:
        return json.loads(file.metadata()["byheart"])["step"]


@pytest.mark.slow
def test_a_killed_process_goes_on_to_the_same_bits(tmp_path):
    """SIGKILL at random moments, in the middle of steps and of writing: nobody can clean up."""
    place, rng, at = tmp_path / "run", random.Random(0), []
    for _ in range(2):
        assert killed(place, "with-replacement", rng.uniform(0.05, 0.5)) == ""
        at.append(steps_in(place) if place.exists() else 0)
    assert at == sorted(at) and 0 < at[-1] < 1500
    data, recipe = four_kinds("with-replacement")
    recipe = recipe.but(steps=1500, epoch_steps=4, stop_at=None)
    resumed = train_stack(
        SPEC, data, recipe, SEEDS, start=bad_start(), checkpoint=place, checkpoint_seconds=1e9
    )
    assert same(train_stack(SPEC, data, recipe, SEEDS, start=bad_start()), resumed)


@pytest.mark.slow
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_many_kills_in_a_row_go_on_to_the_same_bits(tmp_path, sampling):
    """Killed until it is through: every piece is short, every sampling."""
    place, rng = tmp_path / "run", random.Random(1)
    kills = 0
    while "done" not in killed(place, sampling, rng.uniform(0.2, 0.8) if kills < 20 else None):
        kills += 1
    data, recipe = four_kinds(sampling)
    recipe = recipe.but(steps=1500, epoch_steps=4, stop_at=None)
    options = {"start": bad_start(), "checkpoint": place}
    resumed = train_stack(SPEC, data, recipe, SEEDS, **options)
    assert kills > 1
    assert same(train_stack(SPEC, data, recipe, SEEDS, start=bad_start()), resumed)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A checkpoint in the middle of a run, as bytes."""
    place = tmp_path_factory.mktemp("saved") / "run"
    with pytest.raises(Cut):
        train("full", place, 50)
    return place.read_bytes()


def other_data(change):
    data, _ = four_kinds("full")
    if change == "rows":
        assert data.rows is not None
        return dataclasses.replace(data, rows=data.rows - 1)
    changed = getattr(data, change).clone()
    changed[0, 0] = (changed[0, 0] + 1) % 8
    return dataclasses.replace(data, **{change: changed})


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"recipe": {"lr": 0.01}}, "recipe"),
        ({"recipe": {"steps": 76}}, "recipe"),
        ({"spec": dataclasses.replace(SPEC, H=4)}, "spec"),
        ({"spec": dataclasses.replace(SPEC, scale=False)}, "spec"),
        ({"spec": SharedBottleneckSpec(N=8, S=2, d=3, d_h=3, H=3)}, "spec"),
        ({"seeds": [0, 1, 2, 3, 4, 6]}, "seeds"),
        ({"seeds": [1, 0, 2, 3, 4, 5]}, "seeds"),
        ({"data": other_data("inputs")}, "data"),
        ({"data": other_data("targets")}, "data"),
        ({"data": other_data("rows")}, "data"),
        ({"sample_seed": 1}, "sample_seed"),
        ({"dtype": torch.float64}, "dtype"),
        ({"seeds": [7, 1, 2, 3, 4, 5], "recipe": {"lr": 0.01}}, "recipe, seeds"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_by_name_and_kept(tmp_path, saved, change, differs):
    place = tmp_path / "run"
    place.write_bytes(saved)
    data, recipe = four_kinds("full")
    options = {"spec": SPEC, "data": data, "seeds": SEEDS, "start": bad_start()} | change
    if "spec" in change:
        options["start"] = initial(change["spec"], SEEDS)
        differs += ", start"
    options["recipe"] = recipe.but(**change.get("recipe", {}))
    with pytest.raises(ByheartError, match=f"a checkpoint of another run: {differs} differ"):
        train_stack(**options, checkpoint=place, checkpoint_seconds=0)
    assert place.read_bytes() == saved


def test_a_checkpoint_of_another_start_is_refused(tmp_path, saved):
    place = tmp_path / "run"
    place.write_bytes(saved)
    data, recipe = four_kinds("full")
    with pytest.raises(ByheartError, match="a checkpoint of another run: start differ"):
        train_stack(SPEC, data, recipe, SEEDS, checkpoint=place)
    assert place.read_bytes() == saved


def foreign(tmp_path):
    """A safetensors file that is no checkpoint."""
    save_file({"W": torch.zeros(2)}, tmp_path / "other")
    return (tmp_path / "other").read_bytes()


def rewritten(saved, tmp_path, change):
    """The checkpoint with another record or other tensors."""
    (tmp_path / "old").write_bytes(saved)
    with safe_open(tmp_path / "old", framework="pt") as file:
        record = json.loads(file.metadata()["byheart"])
    tensors = load_file(tmp_path / "old")
    change(record, tensors)
    save_file(tensors, tmp_path / "new", {"byheart": json.dumps(record)})
    return (tmp_path / "new").read_bytes()


DAMAGE = {
    "empty": lambda saved, _: b"",
    "half": lambda saved, _: saved[: len(saved) // 2],
    "header only": lambda saved, _: saved[:7],
    "last byte": lambda saved, _: saved[:-1],
    "text": lambda saved, _: b"seed,steps\n1,2\n" * 20,
    "foreign": lambda saved, tmp_path: foreign(tmp_path),
    "another version": lambda saved, tmp_path: rewritten(
        saved, tmp_path, lambda record, _: record.update(schema=2)
    ),
    "no identity": lambda saved, tmp_path: rewritten(
        saved, tmp_path, lambda record, _: record.pop("identity")
    ),
    "no step": lambda saved, tmp_path: rewritten(
        saved, tmp_path, lambda record, _: record.pop("step")
    ),
    "no generator": lambda saved, tmp_path: rewritten(
        saved, tmp_path, lambda _, tensors: tensors.pop("generator.0")
    ),
    "no weight": lambda saved, tmp_path: rewritten(
        saved, tmp_path, lambda _, tensors: tensors.pop("weight.W_E")
    ),
    "a flipped bit": lambda saved, _: saved[:-9] + bytes([saved[-9] ^ 1]) + saved[-8:],
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_and_foreign_files_are_refused_and_kept(tmp_path, saved, name):
    damaged = DAMAGE[name](saved, tmp_path)
    place = tmp_path / "run"
    place.write_bytes(damaged)
    with pytest.raises(MemoryFileError, match="Delete it to start again"):
        train("full", place)
    assert place.read_bytes() == damaged


def test_a_folder_in_the_place_of_a_checkpoint_is_refused(tmp_path):
    with pytest.raises(MemoryFileError):
        train("full", tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_place_that_cannot_be_written_is_refused_before_any_work(tmp_path):
    blocks = []
    data, recipe = four_kinds("full")
    with pytest.raises(MemoryFileError, match="nowhere"):
        train_stack(
            SPEC,
            data,
            recipe,
            SEEDS,
            checkpoint=tmp_path / "nowhere" / "run",
            progress=blocks.append,
        )
    assert not blocks


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_checkpoint(tmp_path, monkeypatch, saved, broken):
    place = tmp_path / "run"
    place.write_bytes(saved)

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, broken, full)
        with pytest.raises((OSError, MemoryFileError), match="No space left"):
            train("full", place)
    assert place.read_bytes() == saved
    assert os.listdir(tmp_path) == ["run"]
    assert same(train("full"), train("full", place))


def test_a_failure_while_the_file_is_put_together_leaves_the_old_checkpoint(
    tmp_path, monkeypatch, saved
):
    place = tmp_path / "run"
    place.write_bytes(saved)

    def fail(*_):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(checkpoint, "dump_tensors", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        train("full", place)
    assert place.read_bytes() == saved
    assert os.listdir(tmp_path) == ["run"]


def test_nothing_in_a_checkpoint_can_run_code(saved):
    """A safetensors file: eight bytes, a JSON header of that length, numbers."""
    length = int.from_bytes(saved[:8], "little")
    header = json.loads(saved[8 : 8 + length])
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    assert len(saved) == 8 + length + max(ends)


# --- checkpoints that were changed and signed again ---

HOSTILE = (None, True, -1, 2**70, 1.5, "x", [], [0, 0], [99], ["x"], [[1]], {}, {"0": 1},
           {"99": [1, 2]}, {"0": ["a", "b"]}, {"0": [1]}, {"0": {"seed": 1}}, {"x": 1})  # fmt: skip
BREAKS = {
    "gone": lambda w: None,
    "other shape": lambda w: w[1:],
    "a scalar": lambda w: w.reshape(-1)[0],
    "another format": lambda w: w.double(),
}


@pytest.fixture(scope="module")
def signed(tmp_path_factory):
    """A run that was cut with some models done: its file, its record, its tensors."""
    place = tmp_path_factory.mktemp("signed") / "run"
    with pytest.raises(Cut):
        train("with-replacement", place, 70, changes={"keep_best": True})
    with safe_open(place, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        record = json.loads(file.metadata()["byheart"])
    assert record["done"] and record["best"] and record["diverged"] and "hits" in tensors
    return place, record, tensors


def resumed(place, record, tensors) -> str:
    """What a run says of the checkpoint, signed as if byheart had written it; "" if it goes on."""
    identity = record.get("identity")
    rest = {k: v for k, v in record.items() if k not in ("identity", "schema")}
    checkpoint.save(place, identity, rest, tensors)
    try:
        train("with-replacement", place, 0, changes={"keep_best": True})
    except ByheartError as error:
        return str(error)
    except Cut:
        return ""
    return ""


@pytest.mark.parametrize(
    "field", ["step", "live", "done", "best", "diverged", "seconds", "curve", "identity"]
)
def test_hostile_records_are_refused(signed, tmp_path, field):
    _, record, tensors = signed
    place = tmp_path / "run"
    assert resumed(place, record, tensors) == ""
    for value in HOSTILE:
        said = resumed(place, {**record, field: value}, tensors)
        possible = field == "diverged" and value in ({}, {"0": 1})
        assert possible or said.startswith(f"{place}: a "), value
    without = {k: v for k, v in record.items() if k != field}
    assert resumed(place, without, tensors).startswith(f"{place}: a ")


def test_hostile_outcomes_are_refused(signed, tmp_path):
    _, record, tensors = signed
    place, (m, outcome) = tmp_path / "run", next(iter(record["done"].items()))
    for name in outcome:
        for value in ("x", [], {}, True):
            done = {**record["done"], m: {**outcome, name: value}}
            assert "damaged" in resumed(place, {**record, "done": done}, tensors), (name, value)


@pytest.mark.parametrize("how", BREAKS)
def test_hostile_tensors_are_refused(signed, tmp_path, how):
    _, record, tensors = signed
    names = [name for name in tensors if name.endswith((".W_Q", ".W_U", ".2", "hits", "curve"))]
    assert len(names) > 10
    for name in names:
        w = tensors[name]
        changed = {**tensors, name: BREAKS[how](w)}
        kept = {k: v for k, v in changed.items() if v is not None}
        said = resumed(tmp_path / "run", record, kept)
        harmless = name == "hits" and how in ("gone", "other shape")  # fewer batches were logged
        assert harmless or "damaged checkpoint" in said, name
    more = {**tensors, "stray": torch.zeros(1)}
    assert "tensors of no such run: stray" in resumed(tmp_path / "run", record, more)
