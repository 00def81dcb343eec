"""Nothing in the trainer assumes the CPU: on a second device, which refuses to meet the first,
every path trains to the same bits (`oracles.other_device`; no machine of ours has a real one)."""

import pytest
import torch
from oracles.other_device import DEVICE, Elsewhere, MixedDevices, OtherDevice

from byheart import random_associations
from byheart.errors import ByheartError, OptionError
from byheart.specs import (
    AttentionOnlySpec,
    MLPTransformerSpec,
    MultiHeadSpec,
    SharedBottleneckSpec,
)
from byheart.training import Data, Recipe, choose, devices, token_data, train_stack, trainer

FACTS = random_associations(N=8, S=2, T=30, seed=1)
TABLES = [random_associations(N=8, S=2, T=T, seed=T) for T in (30, 2, 9)]
ONE = AttentionOnlySpec(N=8, S=2, d=4, d_h=4, H=6, positions="attention", scale=True)
TOKENS = [
    (ONE, "autograd"),
    (ONE, "bilinear"),
    (ONE, "u/z"),
    (ONE, "token tables"),
    (AttentionOnlySpec(N=8, S=2, d=4, d_h=4, H=3, attention="hardmax"), "autograd"),
    (AttentionOnlySpec(N=8, S=2, d=4, d_h=2, H=3, layers=2), "deep pairs"),
    (SharedBottleneckSpec(N=8, S=2, d=5, d_h=3, H=4), "u/z"),
    (MLPTransformerSpec(N=8, S=2, d=4, d_h=4, H=1, w=9), "bilinear"),
]
VECTORS = [
    (MultiHeadSpec(d=8, n=3, d_h=3, H=3, d_out=5, shared=True, embed=True), "scalar heads"),
    (MultiHeadSpec(d=8, n=3, d_h=3, H=3, d_out=5, shared=False, embed=True), "scalar heads"),
    (MultiHeadSpec(d=8, n=3, d_h=3, H=3, d_v=2, d_out=5, shared=False, decoder=True), "autograd"),
]
SHORT = Recipe(steps=6, batch=6, epoch_steps=3, evaluate_every=3, stop_at=None)


@pytest.fixture(autouse=True)
def found(monkeypatch):
    """The trainer takes the other device for one that torch finds here."""
    monkeypatch.setattr(trainer, "training_device", lambda device, _: device or "cpu")


def both(spec, data, recipe, seeds, **options):
    options = {"path": "torch", **options}  # compiled kernels are for the CPU alone
    here = train_stack(spec, data, recipe, seeds, **options)
    with OtherDevice():
        there = train_stack(spec, data, recipe, seeds, device=DEVICE, **options)
    assert here.path == there.path
    for name, w in here.weights.items():
        assert type(there.weights[name]) is torch.Tensor and torch.equal(w, there.weights[name])
    for one, two in zip(here.outcomes, there.outcomes, strict=True):
        assert (one.accuracy, one.loss, one.curve) == (two.accuracy, two.loss, two.curve)


@pytest.mark.parametrize(("spec", "path"), TOKENS, ids=str)
def test_tokens_train_alike_on_both_devices(spec, path):
    for sampling in ("full", "without-replacement"):
        both(spec, token_data(FACTS), SHORT.but(sampling=sampling), [0, 1], path=path)


@pytest.mark.parametrize(("spec", "path"), VECTORS, ids=str)
def test_vectors_train_alike_on_both_devices(spec, path):
    made = torch.Generator().manual_seed(0)
    context = torch.rand(*(() if spec.shared else (20,)), spec.n, spec.d, generator=made)
    query, labels = torch.rand(20, 8, generator=made), torch.randint(5, (20,), generator=made)
    data = Data(query, labels, context=context, contexts_differ=not spec.shared)
    for sampling in ("full", "with-replacement"):
        both(spec, data, SHORT.but(sampling=sampling), [0, 1], path=path)


def test_models_leave_runs_resume_and_losses_differ_there(tmp_path):
    """Tables of different lengths, an early stop, the best weights kept, a run that was cut."""
    recipe = SHORT.but(sampling="full", steps=36, stop_at=1.0, lr=0.05, keep_best=True)
    both(ONE, token_data(TABLES), recipe, [0, 1, 2])
    both(ONE, token_data(FACTS), SHORT.but(loss="hinge", optimizer="sgd", momentum=0.9), [0])

    class Cut(Exception):
        pass

    def cut(p):
        if p.done >= 30:
            raise Cut

    whole = train_stack(ONE, token_data(TABLES), recipe, [0, 1, 2], path="torch")
    assert min(o.steps for o in whole.outcomes) < 30 < max(o.steps for o in whole.outcomes)
    how = {"checkpoint": tmp_path / "run", "checkpoint_seconds": 0, "device": DEVICE}
    with OtherDevice():
        with pytest.raises(Cut):
            train_stack(ONE, token_data(TABLES), recipe, [0, 1, 2], progress=cut, **how)
        resumed = train_stack(ONE, token_data(TABLES), recipe, [0, 1, 2], **how)
    assert all(torch.equal(w, resumed.weights[k]) for k, w in whole.weights.items())


def test_the_other_device_is_one():
    """It refuses what a device refuses, and its numbers come back only when they are fetched."""
    with OtherDevice():
        x = torch.arange(3.0, device=DEVICE)
        assert type(x) is Elsewhere and x.device == DEVICE and (x + 1).device == DEVICE
        assert type(torch.zeros_like(x)) is Elsewhere and type(x.cpu()) is torch.Tensor
        for mixed in (
            lambda: x + torch.ones(3),
            lambda: torch.stack([x, torch.ones(3)]),
            lambda: torch.zeros(3, 2).mT @ x,
            lambda: torch.zeros(3).add_(x),
        ):
            with pytest.raises(MixedDevices):
                mixed()
        assert (x * 2).tolist() == [0, 2, 4] and x.cpu().tolist() == [0, 1, 2]


def test_a_device_that_is_not_here_is_refused(monkeypatch):
    assert devices.check_device("auto") in ("cpu", "cuda", "mps")
    for name in ("tpu", "cuda:x", ""):
        with pytest.raises(OptionError, match="auto, cpu, cuda or mps"):
            devices.check_device(name)
    with pytest.raises(ByheartError, match="no such device here"):
        devices.check_device("cuda:99")
    monkeypatch.setattr(devices, "_count", lambda kind: 2)
    assert [devices.check_device(x) for x in ("auto", "cuda:1", "mps")] == ["cuda", "cuda:1", "mps"]
    with pytest.raises(ByheartError, match="no float64"):
        devices.training_device("mps", torch.float64)


def test_trainings_of_a_block_run_where_it_says(monkeypatch):
    """As those of a study's procedure do, which name no device."""
    monkeypatch.setattr(trainer, "training_device", devices.training_device)
    monkeypatch.setattr(devices, "check_device", lambda device: device or devices._default.get())
    here = train_stack(ONE, token_data(FACTS), SHORT, [0], path="torch")
    with OtherDevice(), devices.training_on("meta") as used:
        there = train_stack(ONE, token_data(FACTS), SHORT, [0], path="torch")
        assert used == {"meta"}
        train_stack(ONE, token_data(FACTS), SHORT, [0], path="torch", device="cpu")
    assert used == {"meta", "cpu"} and devices._default.get() == "cpu"
    assert all(torch.equal(w, there.weights[k]) for k, w in here.weights.items())


@pytest.mark.parametrize("kernel", list(choose.BY_NAME.values()), ids=lambda k: k.name)
def test_compiled_kernels_are_for_the_cpu_in_float32_alone(kernel):
    reason = "compiled kernels compute in float32 on the CPU" if kernel.library else None
    assert kernel.missing("cuda", torch.float32) == kernel.missing("cpu", torch.float64) == reason
    assert kernel.missing("cpu", torch.float32) != reason or reason is None
