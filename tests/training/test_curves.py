"""Curves: bounded, the batch's own numbers, the same after a cut, in files, pictures and JSON."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch

import byheart as bh
from byheart.errors import ByheartError
from byheart.models.construction import Curve, TrainedConstruction
from byheart.reports import figure
from byheart.specs import AttentionOnlySpec, MLPTransformerSpec, MultiHeadSpec
from byheart.training import Data, Recipe, token_data, train_stack
from byheart.training.curves import MOST, Trace, training_figure
from byheart.training.learner import evaluate
from byheart.training.trainer import initial

FACTS = bh.random_associations(N=8, S=2, T=30, seed=1)
SPEC = AttentionOnlySpec(N=8, S=2, d=4, d_h=4, H=6, positions="attention", scale=True)
LONG = Recipe(steps=300, batch=10, epoch_steps=4, evaluate_every=50, stop_at=None)


def curve_of(outcome) -> Curve:
    assert outcome.curve is not None
    return outcome.curve


@pytest.mark.parametrize("count", [1, MOST - 1, MOST, MOST + 1, 1000, 12_345])
def test_a_trace_is_bounded_and_evenly_spaced(count):
    trace = Trace(2)
    for step in range(count):
        if trace.wants(step):
            trace.add(step, torch.full((2, 2), float(step)))
    curve = trace.curve(1, count)
    assert len(curve.steps) < MOST and list(curve.steps) == list(range(0, count, trace.every))
    assert count < MOST or len(curve.steps) >= MOST // 2
    assert curve.loss == curve.accuracy == tuple(float(f"{s:.4g}") for s in curve.steps)


@pytest.mark.parametrize("path", ["autograd", "bilinear", "u/z", "token tables"])
@pytest.mark.parametrize("own", [False, True])
def test_of_full_batches_a_point_is_the_evaluation_before_the_step(path, own):
    """Whatever the kernel, and for tables of different lengths."""
    tables = [FACTS, FACTS.subset(range(11))]
    data, seeds = token_data(tables) if own else token_data(FACTS), [0, 1]
    start = initial(SPEC, seeds)
    trained = train_stack(SPEC, data, LONG, seeds, start=start, path=path)
    accuracy, loss = evaluate(SPEC, start, data, LONG)
    after = train_stack(SPEC, data, LONG.but(steps=4, schedule="constant"), seeds, path=path)
    longer = train_stack(SPEC, data, LONG.but(steps=5, schedule="constant"), seeds, path=path)
    for m, o in enumerate(trained.outcomes):
        curve = curve_of(o)
        assert curve.steps[0] == 0 and curve.steps[-1] < 300
        assert curve.accuracy[0] == pytest.approx(float(accuracy[m]), rel=1e-3)
        assert curve.loss[0] == pytest.approx(float(loss[m]), rel=1e-3)
        last = curve_of(longer.outcomes[m])
        assert last.steps == (0, 1, 2, 3, 4)
        assert last.loss[4] == pytest.approx(after.outcomes[m].loss, rel=1e-3)
        assert last.accuracy[4] == pytest.approx(after.outcomes[m].accuracy, rel=1e-3)


def test_deep_models_vectors_and_values_have_curves():
    T, d = 20, 3
    query, context = torch.rand(T, d), torch.rand(T, 4, d)
    vectors = Data(query, torch.rand(T, 1), "value", context=context, contexts_differ=True)
    deep = MLPTransformerSpec(8, 2, 4, 4, 2, 8, layers=2)
    cases = [
        (deep, token_data(FACTS), LONG),
        (MultiHeadSpec(d=d, n=4, d_h=2, H=2), vectors, LONG.but(loss="mse", sampling="full")),
        (MultiHeadSpec(d=d, n=4, d_h=2, H=2, d_v=2), vectors, LONG.but(loss="mse")),
    ]
    for spec, data, recipe in cases:
        curve = curve_of(train_stack(spec, data, recipe.but(steps=20), [0]).outcomes[0])
        assert len(curve.steps) == 20 and all(x is not None and x > 0 for x in curve.loss)


def test_curves_do_not_change_what_is_trained_and_follow_the_model_that_leaves(monkeypatch):
    """Of three models one stops early: it has its own points, and the others go on."""
    tables = [FACTS, FACTS.subset(range(2)), FACTS.subset(range(3))]
    recipe = LONG.but(stop_at=1.0, lr=0.003)
    with_curves = train_stack(SPEC, token_data(tables), recipe, [0, 1, 2])
    stops = [o.steps for o in with_curves.outcomes]
    assert stops[0] > max(stops[1:])  # it was left behind in a smaller stack
    for o in with_curves.outcomes:
        curve = curve_of(o)
        assert curve.steps[-1] < o.steps and len(curve.steps) >= min(o.steps, MOST // 2)
        first, last = curve.loss[0], curve.loss[-1]
        assert first is not None and last is not None and last < first
    monkeypatch.setattr(Trace, "wants", lambda self, step: False)
    without = train_stack(SPEC, token_data(tables), recipe, [0, 1, 2])
    assert all(torch.equal(w, without.weights[k]) for k, w in with_curves.weights.items())
    for one, two in zip(with_curves.outcomes, without.outcomes, strict=True):
        one, two = (dataclasses.replace(o, curve=None, seconds=0) for o in (one, two))
        assert one == two


def test_what_is_not_finite_is_a_gap():
    start = initial(SPEC, [0, 1])
    start["W_V"][1] = math.nan
    trained = train_stack(SPEC, token_data(FACTS), LONG, [0, 1], start=start)
    assert curve_of(trained.outcomes[1]).loss[0] is None
    assert len(training_figure(trained.outcomes).axes) == 2
    assert len(trained.figure().axes) == 2


def test_a_memory_keeps_its_curves_and_draws_them(tmp_path):
    memory = bh.train(FACTS, d=4, H=4, seeds=2, steps=100)
    memory.save(tmp_path / "m")
    again = bh.load(tmp_path / "m")
    assert again.construction == memory.construction
    drawn = figure(again, "training", tmp_path / "curves.svg")
    assert (tmp_path / "curves.svg").stat().st_size > 5000
    left, right = drawn.axes
    lines = [x for line in right.get_lines() if (x := np.array(line.get_data())).size > 2]
    assert isinstance(again.construction, TrainedConstruction)
    for line, outcome in zip(lines, again.construction.training.models, strict=True):
        curve = curve_of(outcome)
        assert np.array_equal(line, np.array([curve.steps, curve.accuracy]))
    assert left.get_yscale() == "log"


def test_a_memory_without_curves_says_so(tmp_path):
    with pytest.raises(ByheartError, match="was not trained"):
        figure(bh.build(FACTS), "training")
    memory = bh.train(FACTS, d=4, H=4, seeds=1, steps=20)
    memory.save(tmp_path / "m")
    file = tmp_path / "m" / "memory.json"
    text = json.loads(file.read_text())
    del text["construction"]["training"]["models"][0]["curve"]
    made = type(memory.construction).from_json(text["construction"])
    with pytest.raises(ByheartError, match="keeps no curves"):
        figure(dataclasses.replace(memory, construction=made), "training")


class Cut(Exception):
    """The power goes out."""


@pytest.mark.parametrize("sampling", ["full", "with-replacement"])
def test_a_run_that_was_cut_has_the_same_curve(tmp_path, sampling):
    """Cut before, at and after the steps at which points are thinned."""
    recipe = LONG.but(sampling=sampling, evaluate_every=4)

    def train(cut_at=None):
        def progress(p):
            if cut_at is not None and p.done >= cut_at:
                raise Cut

        place = None if cut_at is None else tmp_path / "run"
        how = {"checkpoint": place, "checkpoint_seconds": 0, "progress": progress}
        return train_stack(SPEC, token_data(FACTS), recipe, [0, 1], **how)

    whole = train()
    for cut_at in (100, MOST, MOST + 4, 2 * MOST, 299):
        with pytest.raises(Cut):
            train(cut_at)
    resumed = train(10**9)
    assert [o.curve for o in resumed.outcomes] == [o.curve for o in whole.outcomes]
    assert len(curve_of(whole.outcomes[0]).steps) == 75  # every fourth of 300
