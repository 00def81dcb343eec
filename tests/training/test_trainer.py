"""What becomes of a stack: memorized tables, early stops, divergence, batches, bookkeeping."""

import collections
import functools
import itertools
import math
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from oracles.literal import literal_forward

from byheart import random_associations
from byheart.errors import ByheartError
from byheart.models.architectures import module_of
from byheart.specs import (
    AssociativeSpec,
    AttentionOnlySpec,
    MLPTransformerSpec,
    MultiHeadSpec,
    SharedBottleneckSpec,
)
from byheart.training import (
    Data,
    Recipe,
    dana2025,
    learner,
    native,
    token_data,
    train_stack,
    trainer,
)
from byheart.training.data import Sampler, generator
from byheart.training.trainer import initial

FACTS = random_associations(N=8, S=2, T=30, seed=1)
TOKENS = token_data(FACTS)
SPEC = AttentionOnlySpec(N=8, S=2, d=4, d_h=4, H=6, positions="attention", scale=True)
SAMPLINGS = ("full", "with-replacement", "without-replacement", "fixed-sample")
ANY_FORMAT = ("autograd", "bilinear", "u/z", "token tables")
COMPILED = ("compiled pairs",) if native.missing("stack") is None else ()
PATHS = (*COMPILED, *ANY_FORMAT)
QUICK = Recipe(steps=45, batch=8, epoch_steps=5, evaluate_every=15, stop_at=None)

TOKEN_SPECS = [
    SPEC,
    AttentionOnlySpec(N=8, S=2, d=4, d_h=4, H=6, attention="hardmax"),
    AttentionOnlySpec(N=8, S=2, d=6, d_h=4, H=4, layers=2),
    AttentionOnlySpec(N=8, S=2, d=6, d_h=4, H=4, layers=2, attention="hardmax"),
    SharedBottleneckSpec(N=8, S=2, d=6, d_h=4, H=6),
    SharedBottleneckSpec(N=8, S=2, d=6, d_h=4, H=4, layers=2),
    MLPTransformerSpec(N=8, S=2, d=4, d_h=4, H=1, w=16, positions="attention", scale=True),
    MLPTransformerSpec(N=8, S=2, d=4, d_h=4, H=1, w=12, layers=2, activation="relu"),
]
VECTOR_SPECS = [
    MultiHeadSpec(d=6, n=5, d_h=4, H=4, d_v=2, d_out=d_out, shared=shared)
    for d_out, shared in itertools.product((1, 5), (True, False))
]
SCALAR_HEADS = [replace(spec, d_v=1, H=6) for spec in VECTOR_SPECS]
SPECS_OF_ALL_PATHS = [SPEC, TOKEN_SPECS[4], TOKEN_SPECS[6], *VECTOR_SPECS, *SCALAR_HEADS]


def vectors(spec, T=20, seed=0, models=None, size=1.0):
    """Random queries and contexts; values in [0, 1] for one output, classes for several."""
    made = torch.Generator().manual_seed(seed)
    lead = (T,) if models is None else (models, T)
    query = size * torch.rand(*lead, spec.d, generator=made)
    context = torch.rand(*(() if spec.shared else lead), spec.n, spec.d, generator=made)
    own = {"own": models is not None, "context": context, "contexts_differ": not spec.shared}
    if spec.d_out == 1:
        return Data(query, torch.rand(*lead, 1, generator=made), kind="value", **own)
    return Data(query, torch.randint(spec.d_out, lead, generator=made), **own)


def equal(a, b, models):
    """Whether the weights of some models are equal bit for bit."""
    return [all(torch.equal(a.weights[k][m], b.weights[k][m]) for k in a.weights) for m in models]


def distance(a, b):
    return max(float((a[k] - b[k]).abs().max()) for k in a)


def recount(spec, weights, data, tolerance=0.0):
    """Accuracy of one model by the literal formula, one example at a time."""
    stack = {k: w[None] for k, w in weights.items()}
    inputs, targets = data.span(0, data.T)
    outputs = literal_forward(spec, stack, *inputs)[0]
    if data.kind == "value":
        return float(((outputs - targets).abs().amax(-1) <= tolerance).double().mean())
    return float((outputs.argmax(-1) == targets).double().mean())


@pytest.mark.parametrize("spec", TOKEN_SPECS, ids=str)
def test_every_token_family_memorizes_a_small_table(spec):
    trained = train_stack(spec, TOKENS, Recipe(steps=600, lr=0.03), seeds=[0, 1])
    for m, outcome in enumerate(trained.outcomes):
        assert outcome.accuracy == 1 and outcome.stopped == outcome.steps
        assert outcome.diverged is None and outcome.loss < 1
        assert recount(spec, trained.model(m), TOKENS) == 1


@pytest.mark.parametrize("layers", [1, 2])
def test_annealed_training_ends_in_a_hardmax_that_remembers(layers):
    """The softmax that is trained is not the model: accuracy is that of the exact hardmax."""
    spec = AttentionOnlySpec(N=8, S=2, d=6, d_h=4, H=4, layers=layers, attention="hardmax")
    recipe = Recipe(steps=300, lr=0.03, surrogate="annealed")
    trained = train_stack(spec, TOKENS, recipe, seeds=[0, 1])
    assert trained.outcomes[trained.best].accuracy == 1
    for m, outcome in enumerate(trained.outcomes):
        assert outcome.accuracy == recount(spec, trained.model(m), TOKENS)


@pytest.mark.parametrize("spec", VECTOR_SPECS, ids=str)
def test_multi_head_attention_memorizes_values_and_classes(spec):
    loss = "mse" if spec.d_out == 1 else "cross-entropy"
    recipe = Recipe(steps=1500, lr=0.03, loss=loss, tolerance=0.1)
    data = vectors(spec)
    trained = train_stack(spec, data, recipe, seeds=[0, 1])
    assert trained.path == "autograd"
    best = trained.outcomes[trained.best]
    assert best.accuracy == 1 == max(outcome.accuracy for outcome in trained.outcomes)
    # 1e-5: the literal formula in another order of sums may cross the tolerance
    assert recount(spec, trained.model(trained.best), data, 0.1 + 1e-5) == 1


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_start_and_batches_do_not_depend_on_the_stack(monkeypatch, sampling):
    seen = collections.defaultdict(list)
    prepare = learner.Learner.prepare

    def spy(self, data, order):
        seen[self.models].append(order)
        prepare(self, data, order)

    monkeypatch.setattr(learner.Learner, "prepare", spy)
    recipe = QUICK.but(sampling=sampling)
    stacks = {n: [7, *range(n - 1)][::-1] for n in (1, 2, 5)}
    runs = {
        n: train_stack(SPEC, TOKENS, recipe, seeds, path="autograd", dtype=torch.float64)
        for n, seeds in stacks.items()
    }
    for n in (2, 5):
        start = initial(SPEC, stacks[n])
        assert all(torch.equal(w[0], start[k][-1]) for k, w in initial(SPEC, [7]).items())
        for alone, among in zip(seen[1], seen[n], strict=True):
            if sampling == "full":
                assert alone is None and among is None
            else:
                assert torch.equal(alone[:, 0], among[:, -1])
        # 45 steps of float64: differences are roundings.
        assert distance(runs[1].model(0), runs[n].model(n - 1)) < 1e-8
        assert runs[n].outcomes[-1].seed == 7
        assert runs[n].outcomes[-1].accuracy == runs[1].outcomes[0].accuracy


@pytest.mark.parametrize("sampling", ["full", "without-replacement"])
@pytest.mark.parametrize(
    "spec", [SPEC, TOKEN_SPECS[4], TOKEN_SPECS[6], *VECTOR_SPECS, *SCALAR_HEADS], ids=str
)
def test_every_path_trains_alike(spec, sampling):
    vector = isinstance(spec, MultiHeadSpec)
    data = vectors(spec) if vector else TOKENS
    loss = "mse" if data.kind == "value" else "cross-entropy"
    recipe = QUICK.but(sampling=sampling, loss=loss, steps=80, tolerance=0.2)
    names = PATHS if spec == SPEC else PATHS[:-1]
    if isinstance(spec, MultiHeadSpec):
        names = ("autograd", *(("scalar heads",) if spec.d_v == 1 else ()))
    runs = [train_stack(spec, data, recipe, [0, 1], path=name) for name in names]
    assert [run.path for run in runs] == list(names)
    for m in (0, 1):
        one, *others = [run.outcomes[m] for run in runs]
        assert one.accuracy > 0.2  # not a comparison of models that learned nothing
        for other in others:
            # Float32 runs part slowly: an example on the edge may fall the other way.
            assert abs(other.accuracy - one.accuracy) <= 1 / data.T + 1e-9
            assert other.loss == pytest.approx(one.loss, rel=2e-2, abs=1e-4)


def test_finished_models_leave_and_the_others_go_on(monkeypatch):
    """Tables of 3, 4 and 6 facts are learned at once, 64 facts never by so small a model."""
    sizes, choose = [], trainer.choose

    def spy(*shape, **where):
        class Spy(choose(*shape, **where)):
            def bind(self):
                sizes.append(self.models)
                super().bind()

        return Spy

    monkeypatch.setattr(trainer, "choose", spy)
    spec = AttentionOnlySpec(N=8, S=2, d=2, d_h=2, H=1)
    tables = [random_associations(N=8, S=2, T=T, seed=T) for T in (64, 3, 4, 6)]
    data = token_data(tables)
    recipe = Recipe(steps=800, schedule="constant", evaluate_every=10, lr=0.05)
    told: list[Any] = []
    trained = train_stack(spec, data, recipe, seeds=[0, 1, 2, 3], progress=told.append)
    running = [p.running for p in told]
    first, *others = trained.outcomes
    assert first.stopped is None and first.steps == 800 and first.accuracy < 1
    assert all(o.stopped == o.steps < 800 and o.accuracy == 1 for o in others)
    assert running == sorted(running, reverse=True) and running[0] == 4
    assert sizes[0] == 4 and sizes[-1] == 1 and sizes == sorted(sizes, reverse=True)
    assert first.seconds > max(o.seconds for o in others) > 0
    # Until the first stop the stack is whole: a run that ends there has the same weights.
    soonest = min(others, key=lambda o: o.steps)
    m = trained.outcomes.index(soonest)
    cut = train_stack(spec, data, recipe.but(steps=soonest.steps), seeds=[0, 1, 2, 3])
    assert equal(trained, cut, [m]) == [True]
    # The others are as if trained alone, up to roundings, at the step of their own stop.
    for m, outcome in enumerate(trained.outcomes[1:], start=1):
        assert recount(spec, trained.model(m), token_data(tables[m])) == 1
        alone = train_stack(spec, token_data(tables[m]), recipe, seeds=[m])
        assert abs(alone.outcomes[0].steps - outcome.steps) <= 10
        if alone.outcomes[0].steps == outcome.steps:
            assert distance(alone.model(0), trained.model(m)) < 1e-3


def test_a_model_that_goes_on_is_the_same_after_its_neighbours_left():
    """Weights, moments, time and batches survive the repacking: as one run without departures."""
    spec = AttentionOnlySpec(N=8, S=2, d=2, d_h=2, H=1)
    tables = [random_associations(N=8, S=2, T=T, seed=0) for T in (60, 2, 2, 2)]
    for sampling in ("full", "with-replacement"):
        recipe = QUICK.but(steps=120, stop_at=1.0, sampling=sampling, schedule="constant", lr=0.03)
        options = {"seeds": [0, 1, 2, 3], "dtype": torch.float64}
        leaving = train_stack(spec, token_data(tables), recipe, **options)
        staying = train_stack(spec, token_data(tables), recipe.but(stop_at=None), **options)
        assert [o.stopped is None for o in leaving.outcomes] == [True, False, False, False]
        assert max(o.steps for o in leaving.outcomes[1:]) <= 60
        assert distance(leaving.model(0), staying.model(0)) < 1e-8


def bad_start(value):
    start = initial(SPEC, [0, 1, 2, 3])
    for weight in start.values():
        weight[1] = value
    return start


@functools.cache
def calm_run(path, sampling):
    recipe = QUICK.but(sampling=sampling, steps=30)
    return train_stack(SPEC, TOKENS, recipe, [0, 1, 2, 3], path=path)


@pytest.mark.parametrize("value", [math.nan, 1e30], ids=str)
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("path", PATHS)
def test_a_model_that_diverges_at_once_leaves_the_others_bit_identical(path, sampling, value):
    options = {"path": path, "seeds": [0, 1, 2, 3]}
    recipe = QUICK.but(sampling=sampling, steps=30)
    calm = calm_run(path, sampling)
    wild = train_stack(SPEC, TOKENS, recipe, start=bad_start(value), **options)
    assert equal(calm, wild, [0, 2, 3]) == [True] * 3
    for m in (0, 2, 3):
        a, b = calm.outcomes[m], wild.outcomes[m]
        assert (a.accuracy, a.train_accuracy, a.loss) == (b.accuracy, b.train_accuracy, b.loss)
    outcome = wild.outcomes[1]
    block = {"full": 15, "without-replacement": 30 // 8}.get(sampling, 5)
    assert outcome.diverged == block and outcome.steps == 15  # found after a block of batches
    assert outcome.accuracy == 0 and outcome.train_accuracy == 0 and outcome.stopped is None
    assert wild.best != 1 and all(o.diverged is None for o in calm.outcomes)


def test_a_model_that_explodes_by_its_own_data_leaves_the_others_bit_identical():
    """Gradient descent at a rate that suits inputs in [0, 1] and not inputs a thousand times as
    large: one model of four diverges after some steps."""
    wide = MultiHeadSpec(d=6, n=5, d_h=4, H=4, d_v=2, shared=True)
    calm = vectors(wide, models=4)
    large = torch.tensor([1.0, 1.0, 1000.0, 1.0])[:, None, None]
    wild = Data(**{**vars(calm), "targets": calm.targets * large})
    recipe = QUICK.but(loss="mse", optimizer="sgd", lr=0.1)
    paths = [("autograd", wide), ("scalar heads", replace(wide, d_v=1))]
    for (path, spec), sampling in itertools.product(paths, SAMPLINGS[:2]):
        options = {"seeds": [0, 1, 2, 3], "path": path}
        one = train_stack(spec, calm, recipe.but(sampling=sampling), **options)
        two = train_stack(spec, wild, recipe.but(sampling=sampling), **options)
        assert [o.diverged is not None for o in two.outcomes] == [False, False, True, False]
        assert equal(one, two, [0, 1, 3]) == [True] * 3
        assert not any(w.isfinite().all() for w in two.model(2).values())


def test_a_model_with_an_infinite_loss_has_diverged_even_if_its_weights_are_finite():
    """Adam divides an overflowing gradient by its own size: weights stay, the loss is infinite."""
    spec = MultiHeadSpec(d=6, n=5, d_h=4, H=4, d_v=2, shared=True)
    calm = vectors(spec, models=2)
    far = torch.tensor([1.0, 1e30])[:, None, None]
    data = Data(**{**vars(calm), "targets": calm.targets * far})
    trained = train_stack(spec, data, QUICK.but(loss="mse"), seeds=[0, 1])
    assert trained.outcomes[0].diverged is None
    assert trained.outcomes[1].diverged is not None
    assert trained.best == 0


def sampler(sampling, rows, batch, epoch_steps, seeds=(0, 1, 2), sample_seed=0):
    T = max(rows) if isinstance(rows, tuple) else rows
    lead = (len(rows),) if isinstance(rows, tuple) else ()
    data = Data(
        torch.zeros(*lead, T, 2, dtype=torch.long),
        torch.zeros(*lead, T, dtype=torch.long),
        own=bool(lead),
        rows=torch.tensor(rows) if lead else None,
    )
    recipe = Recipe(sampling=sampling, batch=batch, epoch_steps=epoch_steps)
    return Sampler(recipe, data, [generator(s, "test") for s in seeds], sample_seed)


def drawn(made):
    order = made.next()
    assert order is not None
    return order


def sample(made):
    assert made.sample is not None
    return sorted(made.sample.tolist())


@pytest.mark.parametrize(("T", "batch"), [(24, 6), (24, 24), (24, 100), (25, 6), (7, 4), (1, 8)])
def test_without_replacement_shows_every_example_at_most_once_an_epoch(T, batch):
    made = sampler("without-replacement", T, batch, 99)
    size = min(T, batch)
    epochs = [drawn(made) for _ in range(3)]
    for order in epochs:
        assert order.shape == (T // size, 3, size)
        for m in range(3):
            shown = order[:, m].flatten().tolist()
            assert len(set(shown)) == len(shown)
            if T % size == 0:
                assert sorted(shown) == list(range(T))
    if T > 2:
        assert not torch.equal(epochs[0], epochs[1])
        assert not torch.equal(epochs[0][:, 0], epochs[0][:, 1])


def test_a_fixed_sample_is_the_same_multiset_for_all_epochs_and_models():
    made = sampler("fixed-sample", 40, 8, 16)
    epochs = [drawn(made) for _ in range(3)]
    known = sample(made)
    assert len(known) == 8 * 16 and len(set(known)) < 40 < len(known)
    for order in epochs:
        assert order.shape == (16, 3, 8)
        assert all(sorted(order[:, m].flatten().tolist()) == known for m in range(3))
    assert not torch.equal(epochs[0], epochs[1])
    assert not torch.equal(epochs[0][:, 0], epochs[0][:, 1])
    other = sampler("fixed-sample", 40, 8, 16, sample_seed=1)
    assert sample(other) != known
    same = sampler("fixed-sample", 40, 8, 16, seeds=(9,))
    assert sample(same) == known


def test_with_replacement_is_uniform_and_independent_between_batches():
    T, n = 10, 64 * 400
    made = sampler("with-replacement", T, 64, 400, seeds=(0, 1))
    order = drawn(made)
    assert order.shape == (400, 2, 64)
    for m in (0, 1):
        counts = torch.bincount(order[:, m].flatten(), minlength=T).double()
        assert float(((counts - n / T) ** 2 / (n / T)).sum()) < 33.7  # χ²(9), 1 in 10,000
        shown = order[:, m].flatten()
        pairs = torch.bincount(shown[:-1] * T + shown[1:], minlength=T * T).double()
        assert float(((pairs - n / T**2) ** 2 / (n / T**2)).sum()) < 161  # χ²(99), 1 in 10,000
    assert not torch.equal(order[:, 0], order[:, 1])


def test_models_with_tables_of_their_own_length_see_only_their_own_examples():
    rows = (30, 7, 19)
    made = sampler("with-replacement", rows, 6, 50)
    shown = [set() for _ in rows]
    for _ in range(60):
        order = drawn(made)
        for m in range(3):
            shown[m] |= set(order[:, m].flatten().tolist())
    assert shown == [set(range(n)) for n in rows]
    # An epoch has one length for the whole stack.
    for sampling in ("without-replacement", "fixed-sample"):
        with pytest.raises(ByheartError, match="tables of one length"):
            sampler(sampling, rows, 6, 50)


@pytest.mark.parametrize("sampling", ["full", "with-replacement"])
@pytest.mark.parametrize(
    ("path", "dtype"),
    [*((p, torch.float32) for p in PATHS), *((p, torch.float64) for p in ANY_FORMAT)],
    ids=str,
)
def test_own_tables_of_different_lengths_train_as_each_alone(path, sampling, dtype):
    tables = [random_associations(N=8, S=2, T=T, seed=T) for T in (30, 11, 5)]
    recipe = QUICK.but(sampling=sampling, steps=20)
    options = {"path": path, "dtype": dtype}
    together = train_stack(SPEC, token_data(tables), recipe, seeds=[0, 1, 2], **options)
    for m, table in enumerate(tables):
        alone = train_stack(SPEC, token_data(table), recipe, seeds=[m], **options)
        # Adam divides gradients by their size, so that roundings of tiny ones show: measured up
        # to 4e-6 in float32, 1.2e-11 in float64 (1/rows is rounded to float32 in both).
        limit = 2e-5 if dtype == torch.float32 else 1e-9
        assert distance(together.model(m), alone.model(0)) < limit
        a, b = together.outcomes[m], alone.outcomes[0]
        assert a.accuracy == b.accuracy == recount(SPEC, alone.model(0), token_data(table))
        assert a.loss == pytest.approx(b.loss, rel=1e-4)


@functools.cache
def literal_loop(recipe, seed, sample_seed):
    """The plain way: autograd, torch.optim.Adam, one model; accuracy before every update."""
    T = TOKENS.T
    weights = {k: w.double().requires_grad_() for k, w in initial(SPEC, [seed]).items()}
    optimizer = torch.optim.Adam(list(weights.values()))
    source = generator(seed, "order of the batches")
    sample = torch.randint(
        T, (recipe.batch * recipe.epoch_steps,), generator=generator(sample_seed, "fixed sample")
    )
    batches, accuracies = [], []
    for step in range(recipe.steps):
        if not batches:
            if recipe.sampling == "with-replacement":
                order = torch.randint(T, sample.shape, generator=source)
            elif recipe.sampling == "without-replacement":
                order = torch.randperm(T, generator=source)[: T // recipe.batch * recipe.batch]
            else:
                order = sample[torch.randperm(len(sample), generator=source)]
            batches = list(order.view(-1, recipe.batch))
        chosen = batches.pop(0)
        logits = module_of(SPEC).forward(SPEC, weights, TOKENS.inputs[chosen])[0]
        targets = TOKENS.targets[chosen]
        accuracies.append(float((logits.argmax(-1) == targets).double().mean()))
        optimizer.param_groups[0]["lr"] = recipe.learning_rate(step)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits, targets).backward()
        optimizer.step()
    return accuracies, {k: w.detach()[0] for k, w in weights.items()}


@pytest.mark.parametrize(
    ("path", "steps"), [*((path, 127) for path in ANY_FORMAT), ("u/z", 57), ("bilinear", 1)]
)
@pytest.mark.parametrize("sampling", SAMPLINGS[1:])
def test_train_accuracy_is_the_mean_of_the_100_batches_before_the_last(path, sampling, steps):
    recipe = QUICK.but(sampling=sampling, steps=steps, lr=0.01, evaluate_every=steps)
    options = {"sample_seed": 5, "path": path, "dtype": torch.float64}
    trained = train_stack(SPEC, TOKENS, recipe, seeds=[3, 4], **options)
    for m, seed in enumerate((3, 4)):
        accuracies, weights = literal_loop(recipe, seed, sample_seed=5)
        logged = accuracies[-101:-1]
        found = trained.outcomes[m].train_accuracy
        if steps == 1:  # the only batch is the last one
            assert found is None and not logged
        else:
            assert len(logged) == min(steps - 1, 100) and len(set(accuracies)) > 3
            assert found == pytest.approx(sum(logged) / len(logged), abs=1e-12)
        assert distance(trained.model(m), weights) < 1e-7


def test_train_accuracy_does_not_depend_on_how_often_models_are_looked_at():
    recipe = QUICK.but(sampling="fixed-sample", steps=240, schedule="constant")
    runs = [
        train_stack(SPEC, TOKENS, recipe.but(evaluate_every=every), seeds=[0, 1])
        for every in (240, 120, 5)
    ]
    assert len({tuple(o.train_accuracy for o in run.outcomes) for run in runs}) == 1
    assert all(equal(runs[0], run, [0, 1]) == [True, True] for run in runs[1:])


@pytest.mark.parametrize("spec", TOKEN_SPECS, ids=str)
@pytest.mark.parametrize("sampling", ["full", "fixed-sample"])
def test_accuracy_and_loss_are_those_of_the_returned_weights(spec, sampling):
    recipe = QUICK.but(sampling=sampling, steps=30)
    trained = train_stack(spec, TOKENS, recipe, seeds=[0, 1])
    for m, outcome in enumerate(trained.outcomes):
        weights = {k: w[None] for k, w in trained.model(m).items()}
        logits = literal_forward(spec, weights, TOKENS.inputs)[0]
        hits = int((logits.argmax(-1) == TOKENS.targets).sum())
        assert 0 < hits and outcome.accuracy == hits / TOKENS.T
        loss = float(torch.nn.functional.cross_entropy(logits, TOKENS.targets))
        assert outcome.loss == pytest.approx(loss, rel=1e-5)
        assert (outcome.seed, outcome.steps) == (m, 30)
        if sampling == "full":
            assert outcome.train_accuracy == outcome.accuracy


def test_large_tables_in_pieces_give_the_same_gradients_and_accuracy(monkeypatch):
    whole = train_stack(SPEC, TOKENS, QUICK, seeds=[0, 1], path="autograd", dtype=torch.float64)
    monkeypatch.setattr(learner, "CHUNK_BYTES", 4 * 2 * SPEC.row_bytes(8))
    parts = train_stack(SPEC, TOKENS, QUICK, seeds=[0, 1], path="autograd", dtype=torch.float64)
    assert distance(whole.weights, parts.weights) < 1e-9
    assert [o.accuracy for o in whole.outcomes] == [o.accuracy for o in parts.outcomes]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[float, float]]]:
    """(accuracy, loss) of every model at every evaluation that a test makes."""
    scores, evaluate = [], learner.evaluate

    def spy(*arguments):
        accuracy, loss = evaluate(*arguments)
        scores.append(list(zip(accuracy.tolist(), loss.tolist(), strict=True)))
        return accuracy, loss

    monkeypatch.setattr(learner, "evaluate", spy)
    return scores


@pytest.mark.parametrize("keep", [True, False])
def test_keep_best_returns_the_best_evaluation(seen: list[list[tuple[float, float]]], keep: bool):
    # A rate far too high: accuracy goes up and down.
    recipe = QUICK.but(lr=0.5, steps=200, schedule="constant", keep_best=keep, evaluate_every=10)
    trained = train_stack(SPEC, TOKENS, recipe, seeds=[0, 1, 2])
    fell = 0
    for m, outcome in enumerate(trained.outcomes):
        scores = [evaluated[m] for evaluated in seen]
        best = max(scores, key=lambda s: (s[0], -s[1]))
        fell += best[0] > scores[-1][0]
        assert len(scores) == 20
        assert (outcome.accuracy, outcome.loss) == (best if keep else scores[-1])
        assert outcome.accuracy == recount(SPEC, trained.model(m), TOKENS)
    assert fell  # or the two would be the same


def test_the_best_evaluation_of_a_regression_by_loss_has_the_smallest_error(
    seen: list[list[tuple[float, float]]],
):
    """Values within the tolerance may be many by luck where the error is large."""
    spec = MultiHeadSpec(d=6, n=5, d_h=4, H=1, d_v=1, shared=True)
    recipe = QUICK.but(loss="mse", lr=0.02, steps=300, evaluate_every=10, stop_at=None)
    by_loss = recipe.but(keep_best=True, best_by="loss", tolerance=0.05)
    trained = train_stack(spec, vectors(spec), by_loss, seeds=[0, 1, 2], path="autograd")
    others = 0
    for m, outcome in enumerate(trained.outcomes):
        scores = [evaluated[m] for evaluated in seen]
        assert (outcome.accuracy, outcome.loss) == min(scores, key=lambda s: (s[1], -s[0]))
        others += max(scores, key=lambda s: (s[0], -s[1])) != (outcome.accuracy, outcome.loss)
    assert others  # or the two would be the same


def test_keep_best_gives_back_a_diverged_models_best_weights():
    spec = MultiHeadSpec(d=6, n=5, d_h=4, H=4, d_v=2, shared=True)
    data = vectors(spec)
    recipe = QUICK.but(loss="mse", optimizer="sgd", lr=1e-3, tolerance=3.0, evaluate_every=1)
    rising = recipe.but(schedule="linear", lr_low=1e4, keep_best=True, steps=200)
    (outcome,) = train_stack(spec, data, rising, seeds=[0]).outcomes
    assert outcome.diverged is not None
    assert outcome.accuracy > 0 and math.isfinite(outcome.loss)


def test_progress_says_where_the_run_is():
    seen = []
    recipe = QUICK.but(sampling="with-replacement", steps=33)
    train_stack(SPEC, TOKENS, recipe, seeds=[0, 1], progress=seen.append)
    assert [p.done for p in seen] == [5, 10, 15, 20, 25, 30, 33]
    assert all(p.total == 33 for p in seen)
    assert seen[0] == "step 5 of 33, 2 models"
    assert re.fullmatch(r"step 15 of 33, 2 models, best loss [\d.]+, accuracy \d\.\d{4}", seen[2])
    assert seen[1].accuracy is None and seen[1].loss is None
    assert seen[2].accuracy is not None and seen[2].loss is not None
    assert [p.running for p in seen] == [2] * 6 + [0]


def test_one_thread_inside_and_the_users_number_after(monkeypatch):
    inside = []
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for threads in (1, None):
            train_stack(
                SPEC,
                TOKENS,
                QUICK.but(steps=1),
                seeds=[0],
                threads=threads,
                progress=lambda _: inside.append(torch.get_num_threads()),
            )
            assert torch.get_num_threads() == 2
        assert inside == [1, 2]
    finally:
        torch.set_num_threads(before)


def test_the_dana_recipe_trains_on_the_sample_only():
    """Pairs that the sample does not contain are not learned: the two accuracies differ."""
    facts = random_associations(N=8, S=2, T=64, seed=0)
    recipe = dana2025(batch=8, batches=4, epochs=100)
    trained = train_stack(SPEC, token_data(facts), recipe, seeds=[0, 1], sample_seed=1)
    made = Sampler(recipe, token_data(facts), [], 1)
    share = len(set(sample(made))) / 64
    assert share < 0.5
    for outcome in trained.outcomes:
        assert outcome.steps == 400 and outcome.stopped is None
        assert outcome.train_accuracy is not None and outcome.train_accuracy > 0.95
        assert share * 0.9 < outcome.accuracy < share + 0.3


EMPTY = torch.zeros(0, 2, dtype=torch.long), torch.zeros(0, dtype=torch.long)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": []}, "at least one seed"),
        ({"data": token_data([FACTS, FACTS])}, "data of 2 models, but 3 seeds"),
        (
            {"recipe": QUICK.but(loss="hinge"), "data": vectors(VECTOR_SPECS[0])},
            "`loss=hinge` takes",
        ),
        ({"path": "fast"}, "`path` must be one of auto, "),
        ({"path": "scalar heads"}, "the kernel scalar heads does not do this"),
        ({"recipe": QUICK.but(loss="mse"), "path": "u/z"}, "the kernel u/z does not do this"),
        ({"spec": AssociativeSpec(N=8, S=2, d=4)}, "associative models are not trained"),
        ({"recipe": QUICK.but(init="zero")}, "init of attention-only must be one of"),
        (
            {
                "data": token_data([FACTS, FACTS, random_associations(N=8, S=2, T=3)]),
                "recipe": QUICK.but(sampling="fixed-sample"),
            },
            "batches need tables of one length",
        ),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_what_cannot_be_trained_is_refused(change, message):
    options = {"spec": SPEC, "data": TOKENS, "recipe": QUICK, "seeds": [0, 1, 2]} | change
    with pytest.raises((ByheartError, ValueError), match=message):
        train_stack(**options)


def test_data_that_is_no_data_is_refused():
    with pytest.raises(ByheartError, match="no examples to train on"):
        Data(*EMPTY)
    with pytest.raises(ByheartError, match="differ in length"):
        Data(torch.zeros(3, 2, dtype=torch.long), torch.zeros(4, dtype=torch.long))
    with pytest.raises(ByheartError, match="differ in length"):
        Data(torch.zeros(2, 3, 2), torch.zeros(2, 4), own=True)
