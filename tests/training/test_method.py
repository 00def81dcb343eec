"""`Train`, the method: its options, what it refuses before any work, and what it reports."""

import dataclasses
import subprocess
import sys

import pytest
import torch

import byheart as bh
from byheart import _machine
from byheart.errors import ByheartError, CapacityError, OptionError
from byheart.models.token_memory import TokenMemory
from byheart.specs import AttentionOnlySpec, MLPTransformerSpec, SharedBottleneckSpec
from byheart.training import Recipe, Train, choose, token_data, train_stack, training_spec
from byheart.training.kernels.one_layer import OneLayer
from byheart.training.losses import LOSSES
from byheart.training.recipe import LOSSES as LOSS_NAMES

FACTS = bh.random_associations(N=12, S=2, T=30, seed=1)
SPEC = AttentionOnlySpec(N=12, S=2, d=4, d_h=4, H=3, scale=True)
QUICK = Recipe(steps=40, evaluate_every=20)


def same(one: TokenMemory, two: TokenMemory) -> bool:
    return all(torch.equal(w, two.weights[name]) for name, w in one.weights.items())


@pytest.mark.parametrize("model", ["attention", "mlp", "as-coded"])
def test_the_method_and_the_function_train_the_same_memory(model):
    method = Train(model=model, d=4, H=2, seeds=2, steps=60, lr=0.05, batch=10)
    recipe = Recipe(steps=60, lr=0.05, keep_best=True, sampling="without-replacement", batch=10)
    spec = training_spec(FACTS, model, d=4, H=2)
    one, two = method.build(FACTS, seed=3), bh.train(FACTS, spec, recipe=recipe, seeds=2, seed=3)
    assert same(one, two)
    assert one.spec == two.spec == method.architecture(FACTS)
    assert Train(spec=spec, recipe=recipe, seeds=2).training() == method.training() == recipe


def test_every_option_of_the_command_is_described():
    python_only = {"spec", "recipe", "path"}
    for field in dataclasses.fields(Train):
        assert field.default is not dataclasses.MISSING
        if field.name in python_only:
            assert not field.metadata
            continue
        assert field.metadata.keys() == {"help", "choices", "min", "max", "metavar", "panel"}
        assert field.metadata["help"].endswith(".")
    assert set(LOSS_NAMES) == LOSSES.keys()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "mpl"}, "`model` must be one of attention, mlp, as-coded, found 'mpl'. Did you"),
        ({"loss": "magic"}, "`loss` must be one of cross-entropy"),
        ({"dtype": "float16"}, "`dtype` must be one of float32, float64"),
        ({"seeds": 0}, "`seeds` must be at least 1, found 0"),
        ({"width": -1}, "`width` must be at least 0, found -1"),
        ({"threads": 0}, "`threads` must be at least 1"),
        ({"lr": 0.0}, "`lr` must be a positive number, found 0.0"),
        ({"spec": SPEC, "d": 4, "layers": 2}, "`spec` and `d`, `layers` say the same thing twice"),
        ({"recipe": QUICK, "lr": 0.1}, "`recipe` and `lr` say the same thing twice"),
    ],
    ids=str,
)
def test_options_that_cannot_be_meant_are_refused(options, words):
    with pytest.raises(ByheartError) as refusal:
        Train(**options)
    assert words in str(refusal.value)


def test_what_does_not_fit_the_facts_is_refused():
    with pytest.raises(ByheartError, match="`batch=31` is larger than the table: 30 facts"):
        Train(batch=31).build(FACTS)
    with pytest.raises(ByheartError, match="`width` belongs to `model=mlp`"):
        Train(width=3).build(FACTS)


def test_the_method_is_known_without_torch():
    program = "import sys\nfrom byheart.training import Recipe, Train\nTrain(); Recipe()\n"
    program += "assert 'torch' not in sys.modules and 'scipy' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("device", ["tpu", "cuda:0", "mps"])
def test_devices_that_are_not_there_are_refused(device):
    kind = device.split(":")[0]
    if {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}.get(
        kind, lambda: False
    )():
        pytest.skip("this machine has one")
    for call in (
        lambda: train_stack(SPEC, token_data(FACTS), QUICK, [0], device=device),
        lambda: bh.train(FACTS, device=device),
        lambda: bh.capacity(SPEC, device=device, recipe=QUICK),
        lambda: bh.smallest(FACTS, SPEC, device=device, recipe=QUICK),
    ):
        with pytest.raises(ByheartError) as refusal:
            call()
        if device == "tpu":
            assert isinstance(refusal.value, OptionError)
            assert "`device` must be auto, cpu, cuda or mps, found 'tpu'" in str(refusal.value)
        else:
            assert f"`device={device}`: torch finds no such device here" in str(refusal.value)


# --- memory ---


@pytest.mark.parametrize("path", ["bilinear", "u/z"])
@pytest.mark.parametrize(
    "spec",
    [
        SPEC,
        AttentionOnlySpec(N=12, S=4, d=5, d_h=3, H=6),
        SharedBottleneckSpec(N=12, S=2, d=6, d_h=4, H=3),
        MLPTransformerSpec(N=12, S=2, d=4, d_h=4, H=2, w=30),
    ],
    ids=str,
)
def test_the_bytes_of_a_step_are_those_of_the_buffers(spec, path):
    """What a batch adds to the learner's tensors, counted from the tensors themselves."""
    tokens = torch.randint(12, (1, 400, spec.S))

    def held(rows: int) -> int:
        data = token_data(bh.random_associations(N=12, S=spec.S, T=2, seed=0))
        data = dataclasses.replace(data, inputs=tokens[0, :rows], targets=tokens[0, :rows, 0])
        learner = choose.choose(spec, "cross-entropy", data, path)(spec, 3, QUICK)
        assert isinstance(learner, OneLayer)
        learner.prepare(data, None)
        learner.gradient(0)
        parts = {**vars(learner), **vars(learner.stage)}
        tensors = [x for x in parts.values() if isinstance(x, torch.Tensor)]
        storages = {x.untyped_storage().data_ptr(): x.untyped_storage() for x in tensors}
        return sum(s.nbytes() for s in storages.values() if s.nbytes() > 8)

    kernel = choose.choose(spec, "cross-entropy", token_data(FACTS), path)
    added = held(400) - held(200)
    integers = 3 * 200 * 8 * (spec.S + 2)  # tokens and answers, counted by `check_work`
    assert kernel.step_bytes(spec, 3, 200, 4, True) == added - integers


def test_a_run_that_memory_cannot_hold_is_refused_before_any_work(monkeypatch):
    """10^5 facts over 2,000 tokens, whose step would have taken some 60 GB (keys of three tokens,
    which no compiled kernel takes in pieces)."""
    large = bh.random_associations(N=2000, S=3, T=100_000, seed=0)
    monkeypatch.setattr(_machine, "memory_bytes", lambda: 16 * 10**9)
    with pytest.raises(CapacityError) as refusal:
        bh.train(large)
    words = str(refusal.value)
    assert "training 4 models on 100,000 facts needs about" in words
    assert "This process may use 16 GB" in words and "give a `batch`" in words
    data, spec = token_data(large), training_spec(large)
    batches = Recipe(steps=10, sampling="without-replacement", batch=256)
    kernel = choose.choose(spec, "cross-entropy", data)
    choose.check_work(kernel, spec, data, batches, 4, 4)  # this one is possible
    with pytest.raises(
        CapacityError, match=r"takes about .* days of one core\. Give fewer `steps`"
    ):
        choose.check_work(kernel, spec, data, batches.but(steps=10**9), 4, 4)
    with pytest.raises(CapacityError, match="give a smaller `batch`"):
        choose.check_work(kernel, spec, data, batches.but(batch=90_000), 4, 4)


# --- progress ---


def test_progress_is_told_a_text_everywhere(capsys):
    tiny = AttentionOnlySpec(N=4, S=2, d=2, d_h=2, H=1, scale=True)
    bh.train(FACTS, SPEC, recipe=QUICK, seeds=2, progress=print)
    train_stack(SPEC, token_data(FACTS), QUICK, [0], progress=print)
    bh.capacity(tiny, seeds=1, restarts=1, resolution=1, recipe=QUICK, progress=print)
    bh.smallest(FACTS, SPEC, seeds=1, limit=3, recipe=QUICK, progress=print)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("step 20 of 40, 2 models, best loss ")
    assert any(line.startswith("step 20 of 40, 1 model, best") for line in lines)
    assert any(line.startswith("training 1 model on ") for line in lines)
    assert "H = 3: training 1 models on 30 facts" in lines
