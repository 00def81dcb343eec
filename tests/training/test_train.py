"""`byheart.train`: a table of facts -> a memory like a built one."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import byheart as bh
from byheart.errors import ByheartError
from byheart.facts import Vocabulary
from byheart.models.construction import LostFact, TrainedConstruction
from byheart.specs import AttentionOnlySpec, MLPTransformerSpec, SharedBottleneckSpec
from byheart.training import Recipe, training_spec
from byheart.training.method import MODELS

QUICK = Recipe(steps=400, evaluate_every=50, keep_best=True)
KINDS = [("attention", 1), ("attention", 2), ("mlp", 1), ("as-coded", 1)]
SIZES: dict[str, Any] = {"d": 6, "H": 3, "d_h": 4}


def some(S: int = 2, T: int = 30, N: int = 12, seed: int = 1) -> bh.Facts:
    return bh.random_associations(N=N, S=S, T=T, seed=seed)


def train(facts: bh.Facts, spec: Any = None, **options: Any) -> bh.TokenMemory:
    return bh.train(facts, spec, **{"recipe": QUICK, "seeds": 2, **options})


def check_recall(memory: bh.TokenMemory, facts: bh.Facts) -> None:
    """Every fact, asked for by its tokens and by its margin."""
    assert memory.construction.recalled == facts.T
    assert memory.construction.lost == ()
    margins = memory.margins(facts)
    assert float(margins.min()) > 0
    assert memory.construction.margin == pytest.approx(float(margins.min()))
    for i in range(facts.T):
        assert memory.recall(*facts.key(i)).answer == facts.answer(i)


@pytest.mark.parametrize("S", [1, 2, 3])
@pytest.mark.parametrize(("model", "layers"), KINDS)
def test_memories_recall_and_survive_a_round_trip(model, layers, S, tmp_path: Path):
    facts = some(S=S, T=20, N=20)
    spec = training_spec(facts, model, layers=layers, **SIZES)
    memory = train(facts, spec)
    check_recall(memory, facts)
    assert memory.spec == spec
    assert (memory.start_id is not None) == (S == 1)
    memory.save(tmp_path / "m")
    loaded = bh.load(tmp_path / "m")
    assert isinstance(loaded, bh.TokenMemory)
    check_recall(loaded, facts)
    assert loaded.spec == spec
    assert loaded.start_id == memory.start_id
    assert loaded.construction == memory.construction
    for name, w in memory.weights.items():
        assert torch.equal(loaded.weights[name], w)
        assert w.shape == spec.weight_shapes()[name]
        assert bool(w.isfinite().all())


@pytest.mark.parametrize("S", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("model", "layers"), KINDS)
def test_trained_memories_are_certified_like_built_ones(model, layers, dtype, S):
    facts = some(S=S, T=15, N=15)
    memory = train(facts, training_spec(facts, model, layers=layers, **SIZES), dtype=dtype)
    for arithmetic in ("rounding", "ball"):
        proof = bh.certify(memory, arithmetic=arithmetic)
        assert proof.certified
        assert proof.facts == 15
        assert proof.margin is not None and proof.error_bound is not None
        assert proof.margin > proof.error_bound


def test_damage_to_a_trained_memory_is_noticed():
    facts = some()
    memory = train(facts, training_spec(facts, **SIZES))
    memory.weights["W_U"].neg_()
    assert not bh.certify(memory).certified


def test_padded_keys(tmp_path: Path):
    lines = [
        {"input": ["a"], "output": "x"},
        {"input": ["b", "a"], "output": "y"},
        {"input": ["c", "b", "a"], "output": "z"},
        {"input": ["b"], "output": "a"},
    ]
    table = tmp_path / "t.jsonl"
    table.write_text("".join(json.dumps(line) + "\n" for line in lines))
    facts = bh.read_facts(table, pad=True)
    for model in MODELS:
        memory = train(facts, training_spec(facts, model, **SIZES))
        assert memory.pad_id == facts.pad_id is not None
        assert [memory.recall(*line["input"]).answer for line in lines] == ["x", "y", "z", "a"]


def test_one_fact_and_one_answer():
    vocabulary = Vocabulary(("a", "b", "x"))
    one = bh.Facts.make([[0]], [2], vocabulary)
    check_recall(train(one), one)
    alike = bh.Facts.make([[0, 1], [1, 0]], [2, 2], vocabulary)
    check_recall(train(alike), alike)


def test_the_weights_are_float64_where_asked():
    facts = some()
    memory = train(facts, training_spec(facts, **SIZES), dtype="float64")
    assert {w.dtype for w in memory.weights.values()} == {torch.float64}
    assert memory.construction.dtype == "float64"
    check_recall(memory, facts)
    rounded = {k: w.float().double() for k, w in memory.weights.items()}
    assert any(not torch.equal(rounded[k], w) for k, w in memory.weights.items())


def test_same_seed_same_weights_other_seed_other_weights():
    facts = some()
    spec = training_spec(facts, **SIZES)
    batches = QUICK.but(sampling="without-replacement", batch=8, steps=60, evaluate_every=20)
    for recipe in (QUICK, batches):
        one, two, other = (train(facts, spec, recipe=recipe, seed=seed) for seed in (3, 3, 4))
        assert all(torch.equal(w, two.weights[k]) for k, w in one.weights.items())
        assert any(not torch.equal(w, other.weights[k]) for k, w in one.weights.items())


def test_the_best_start_is_kept_and_all_are_recorded():
    facts = some(T=60)
    spec, recipe = training_spec(facts, d=4, H=2, d_h=2), QUICK.but(steps=100)
    bests = set()
    for seed in range(3):
        memory = train(facts, spec, seeds=5, recipe=recipe, seed=seed)
        made = memory.construction
        assert isinstance(made, TrainedConstruction)
        told = made.training
        accuracies = [m.accuracy for m in told.models]
        assert len(accuracies) == len({m.seed for m in told.models}) == 5
        assert min(accuracies) < max(accuracies) == accuracies[told.best]
        assert memory.construction.recalled == round(60 * max(accuracies))
        assert told.recipe == recipe.to_json()
        bests.add(told.best)
    assert len(bests) > 1  # not always the first


def test_a_model_that_is_too_small_lists_what_it_lost():
    facts = some(T=100)
    memory = train(facts, training_spec(facts, d=2, H=1), recipe=QUICK.but(steps=100))
    told = memory.construction
    assert 0 < told.recalled < 100
    assert told.recalled + len(told.lost) == told.facts == 100
    assert memory.facts is not None
    assert memory.facts.T == told.recalled
    margins = memory.margins(facts)
    wrong = [i for i in range(100) if float(margins[i]) <= 0]
    assert told.lost == tuple(LostFact(i + 1, facts.answer(i), facts.key(i)) for i in wrong)
    assert told.margin == pytest.approx(float(margins[margins > 0].min()))
    assert bh.certify(memory).facts == told.recalled


def test_every_start_diverged_is_an_error_that_says_so():
    with pytest.raises(ByheartError, match=r"all 2 starts diverged .* smaller learning rate"):
        train(some(), recipe=QUICK.but(optimizer="sgd", lr=1e30))


def test_the_start_token_has_a_name_of_its_own():
    vocabulary = Vocabulary(("a", "<start>", "x", "y"))
    facts = bh.Facts.make([[0], [1]], [2, 3], vocabulary)
    memory = train(facts)
    assert memory.recall("<start>").answer == "y"
    assert memory.start_id == 4
    assert memory.spec.N == 5


def test_specs_that_are_chosen():
    small, large = some(T=100), bh.random_associations(N=100, S=2, T=4000, seed=0)
    for model, kind in (
        ("attention", AttentionOnlySpec),
        ("mlp", MLPTransformerSpec),
        ("as-coded", SharedBottleneckSpec),
    ):
        spec = training_spec(small, model)
        assert isinstance(spec, kind)
        assert (spec.N, spec.S, spec.layers) == (12, 2, 1)
        assert training_spec(large, model).parameters > spec.parameters
        assert training_spec(small, model, layers=3).layers == 3
    given = training_spec(small, "mlp", d=5, H=2, d_h=3, width=7, activation="relu")
    assert isinstance(given, MLPTransformerSpec)
    assert (given.d, given.H, given.d_h, given.w, given.activation) == (5, 2, 3, 7, "relu")
    for spec in (training_spec(small), training_spec(small, "mlp")):
        assert isinstance(spec, (AttentionOnlySpec, MLPTransformerSpec)) and spec.scale
    one = training_spec(some(S=1, T=5))
    assert (one.S, one.N) == (2, 13)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"spec": AttentionOnlySpec(13, 2, 4, 4, 2)}, "they have 12 tokens and keys of 2"),
        ({"spec": AttentionOnlySpec(12, 3, 4, 4, 2)}, "13 and 3"),
        ({"spec": AttentionOnlySpec(13, 4, 4, 4, 2)}, "training_spec"),
        ({"spec": AttentionOnlySpec(12, 1, 4, 4, 2)}, "does not fit"),
        ({"dtype": "float16"}, "`dtype` must be one of float32, float64, found 'float16'"),
        ({"seeds": 0}, "`seeds` must be at least 1, found 0"),
        ({"path": "magic"}, "`path` must be one of"),
        ({"recipe": QUICK.but(loss="hinge"), "path": "bilinear"}, "does not do this"),
    ],
    ids=lambda x: str(x)[:40],
)
def test_what_cannot_be_trained_is_refused(options, words):
    with pytest.raises(ByheartError, match=words):
        train(some(), **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "magic"}, "attention, mlp, as-coded, found 'magic'"),
        ({"width": 5}, "`width` belongs to `model=mlp`"),
        ({"model": "as-coded", "width": 5}, "as-coded has no hidden layer"),
    ],
    ids=str,
)
def test_specs_that_do_not_exist(options, words):
    with pytest.raises(ByheartError, match=words):
        training_spec(some(), **options)


@pytest.mark.parametrize("loss", ["hinge", "mse", "kl"])
def test_other_losses_memorize_too(loss):
    facts = some(T=20)
    check_recall(train(facts, training_spec(facts, d=8, H=4), recipe=QUICK.but(loss=loss)), facts)


def test_a_checkpoint_of_a_finished_run_gives_the_same_memory(tmp_path: Path):
    facts = some()
    spec = training_spec(facts, **SIZES)
    place = tmp_path / "run.checkpoint"
    one = train(facts, spec, checkpoint=place)
    assert place.is_file()
    steps: list[int] = []
    two = train(facts, spec, checkpoint=place, progress=lambda p: steps.append(p.done))
    assert steps == []  # nothing was left to do
    assert all(torch.equal(w, two.weights[k]) for k, w in one.weights.items())
    with pytest.raises(ByheartError, match="a checkpoint of another run: recipe differ"):
        train(facts, spec, checkpoint=place, recipe=QUICK.but(lr=0.01))
