"""Losses against formulas written out in plain Python; schedules at their ends; recipes."""

import itertools
import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from byheart.errors import ByheartError
from byheart.training.losses import LOSSES, check_loss, example_losses, right
from byheart.training.recipe import SCHEDULES, Recipe, dana2025, kajitsuka2025, mahdavi2024

KINDS = ("class", "distribution", "value")
FITS = {
    "cross-entropy": ("class", "distribution"),
    "cross-entropy-as-coded": ("class",),
    "kl": ("class", "distribution"),
    "mse": KINDS,
    "total-variation": ("class", "distribution"),
    "hinge": ("class",),
}
PAIRS = [(name, kind) for name, kinds in FITS.items() for kind in kinds]


def softmax(logits):
    top = max(logits)
    powers = [math.exp(x - top) for x in logits]
    return [p / math.fsum(powers) for p in powers]


def log_softmax(logits):
    top = max(logits)
    total = math.log(math.fsum(math.exp(x - top) for x in logits))
    return [x - top - total for x in logits]


def by_hand(name, output, target, kind):
    """The loss of one example, from lists of numbers."""
    if kind == "value":
        return math.fsum((x - y) ** 2 for x, y in zip(output, target, strict=True)) / len(output)
    if kind == "class":
        target = [float(j == target) for j in range(len(output))]
    p, log_p = softmax(output), log_softmax(output)
    answer = target.index(max(target))
    if name == "cross-entropy":
        return -math.fsum(t * x for t, x in zip(target, log_p, strict=True))
    if name == "cross-entropy-as-coded":
        return -math.log(p[answer] + 1e-12)
    if name == "kl":
        pairs = zip(target, log_p, strict=True)
        return math.fsum(t * (math.log(t) - x) for t, x in pairs if t > 0)
    if name == "mse":
        return math.fsum((x - t) ** 2 for x, t in zip(p, target, strict=True))
    if name == "total-variation":
        return math.fsum(abs(x - t) for x, t in zip(p, target, strict=True)) / 2
    others = [x for j, x in enumerate(output) if j != answer]
    return max(0.0, 1 - (output[answer] - max(others)))


@st.composite
def examples(draw, kind):
    """Outputs and targets of a stack as nested lists, (models, B, K)."""
    models, B, K = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(2, 6))
    size = draw(st.sampled_from([1.0, 30.0]))
    number = st.floats(-size, size)

    def nested(cell):
        return [[draw(cell) for _ in range(B)] for _ in range(models)]

    row = st.lists(number, min_size=K, max_size=K)
    outputs = nested(row)
    if kind == "class":
        return outputs, nested(st.integers(0, K - 1))
    if kind == "value":
        return outputs, nested(row)
    # Some probabilities are exactly 0: 0 log 0 = 0.
    weights = st.lists(st.integers(0, 9), min_size=K, max_size=K).filter(any)
    return outputs, nested(weights.map(lambda w: [x / sum(w) for x in w]))


@pytest.mark.parametrize(("name", "kind"), PAIRS)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_losses_equal_their_formulas(name, kind, data):
    outputs, targets = data.draw(examples(kind))
    dtype = torch.long if kind == "class" else torch.float64
    found = example_losses(
        name, torch.tensor(outputs, dtype=torch.float64), torch.tensor(targets, dtype=dtype), kind
    )
    wanted = [
        [by_hand(name, x, t, kind) for x, t in zip(row, wants, strict=True)]
        for row, wants in zip(outputs, targets, strict=True)
    ]
    expected = torch.tensor(wanted, dtype=torch.float64)
    # Terms are at most |logit| <= 30 or a square of 60: 1e-11 is thousands of roundings of them.
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-11)


def test_the_losses_of_known_cases():
    logits = torch.tensor([[[2.0, 2.0, 2.0, 2.0]]], dtype=torch.float64)
    one = torch.tensor([[1]])
    spread = torch.tensor([[[0.5, 0.5, 0.0, 0.0]]], dtype=torch.float64)
    assert float(example_losses("cross-entropy", logits, one, "class")) == pytest.approx(
        math.log(4)
    )
    assert float(example_losses("kl", logits, spread, "distribution")) == pytest.approx(math.log(2))
    assert float(example_losses("total-variation", logits, one, "class")) == pytest.approx(0.75)
    assert float(example_losses("hinge", logits, one, "class")) == 1
    assert float(example_losses("mse", logits, one, "class")) == pytest.approx(9 / 16 + 3 / 16)


@pytest.mark.parametrize(("name", "kind"), PAIRS)
@pytest.mark.parametrize("size", [88.0, 1e4, 1e15])
def test_gradients_are_finite_at_extreme_outputs(name, kind, size):
    """Right and wrong by far, in float32: a step from there must not make NaN."""
    signs = torch.tensor([[[1.0, -1.0, 0.0], [-1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]])
    outputs = (size * signs).requires_grad_()
    targets = {
        "class": torch.tensor([[0, 0, 1, 2]]),
        "distribution": torch.tensor([[[1.0, 0.0, 0.0]] * 3 + [[0.0, 0.5, 0.5]]]),
        "value": torch.zeros(1, 4, 3),
    }[kind]
    losses = example_losses(name, outputs, targets, kind)
    assert losses.isfinite().all()
    losses.mean(1).sum().backward()
    assert outputs.grad is not None and outputs.grad.isfinite().all()


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_loss_refuses_targets_it_does_not_take(name, kind):
    assert set(LOSSES) == set(FITS)
    if kind in FITS[name]:
        check_loss(name, kind)
        return
    with pytest.raises(ByheartError, match=f"`loss={name}` takes .* kind '{kind}'") as refusal:
        check_loss(name, kind)
    for other, kinds in FITS.items():  # and says which ones do
        advice = str(refusal.value).split("For them use")[1].strip(" .").split(", ")
        assert (other in advice) == (kind in kinds)
    with pytest.raises(ByheartError, match="`loss` must be one of cross-entropy"):
        check_loss("accuracy", kind)


def test_right_answers():
    logits = torch.tensor([[[1.0, 3.0, 2.0], [5.0, 4.0, 0.0]]])
    assert right(logits, torch.tensor([[1, 1]]), "class", 0.0).tolist() == [[True, False]]
    likely = torch.tensor([[[0.2, 0.5, 0.3], [0.2, 0.5, 0.3]]])
    assert right(logits, likely, "distribution", 0.0).tolist() == [[True, False]]
    values = torch.tensor([[[1.0, 3.0, 2.25], [5.0, 4.0, 0.5]]])
    assert right(logits, values, "value", 0.25).tolist() == [[True, False]]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_right_where_an_output_is_not_a_number(kind):
    outputs = torch.tensor([[[math.nan, 0.0], [9.0, math.nan], [math.nan, math.nan], [9.0, 0.0]]])
    targets = {
        "class": torch.zeros(1, 4, dtype=torch.long),
        "distribution": torch.tensor([[[1.0, 0.0]] * 4]),
        "value": torch.tensor([[[9.0, 0.0]] * 4]),
    }[kind]
    assert right(outputs, targets, kind, 0.1).tolist() == [[False, False, False, True]]


@pytest.mark.parametrize("warmup", [0.0, 0.1])
@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_schedules_at_both_ends_and_in_the_middle(schedule, warmup):
    steps, lr, low = 1000, 0.3, 0.1
    ramp = round(warmup * steps)

    def at(step):
        recipe = Recipe(schedule=schedule, steps=steps, lr=lr, lr_low=low, warmup=warmup)
        return recipe.learning_rate(step)

    assert at(ramp) == pytest.approx(lr, rel=1e-12)
    middle = ramp + (steps - ramp) // 2
    assert at(middle) == pytest.approx(lr if schedule == "constant" else (lr + low) / 2, rel=1e-12)
    assert at(steps) == pytest.approx(lr if schedule == "constant" else low, rel=1e-12)
    later = [at(step) for step in range(ramp, steps)]
    assert all(a >= b for a, b in itertools.pairwise(later))
    if ramp:
        assert at(0) == pytest.approx(lr / 100)
        assert at(ramp // 2) == pytest.approx(lr * 0.505)
        first = [at(step) for step in range(ramp + 1)]
        assert all(a < b for a, b in itertools.pairwise(first))


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("warmup", [0.0, 0.5, 0.99])
def test_short_runs_have_a_learning_rate(schedule, steps, warmup):
    recipe = Recipe(
        schedule=schedule, steps=steps, lr=0.1, lr_low=0.01, warmup=warmup, epoch_steps=2
    )
    for step in range(steps):
        assert 0 < recipe.learning_rate(step) <= 0.1


@pytest.mark.parametrize("epochs", [1, 4, 64])
def test_dana_as_coded_is_their_scheduler(epochs):
    """LinearLR with lr and lr_low in the place of factors, stepped once per epoch."""
    lr, low, batches = 0.1, 0.005, 3
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    theirs = torch.optim.lr_scheduler.LinearLR(
        optimizer, start_factor=lr, end_factor=low, total_iters=epochs
    )
    recipe = dana2025(batches=batches, epochs=epochs)
    for epoch in range(epochs):
        for batch in range(batches):
            mine = recipe.learning_rate(epoch * batches + batch)
            assert mine == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-12)
            assert mine == pytest.approx(lr * (lr + (low - lr) * epoch / epochs), rel=1e-12)
        optimizer.step()
        theirs.step()
    assert recipe.learning_rate(0) == pytest.approx(0.01)


def test_dana_as_published_goes_from_a_tenth_to_a_twentieth():
    recipe = dana2025(batches=10, epochs=20, published=True)
    assert recipe.learning_rate(0) == 0.1
    assert recipe.learning_rate(9) == 0.1  # one rate an epoch
    assert recipe.learning_rate(100) == pytest.approx(0.075)
    assert recipe.learning_rate(199) == pytest.approx(0.1 - 0.05 * 19 / 20)


def test_the_temperature_falls_geometrically_from_one():
    recipe = Recipe(steps=11, surrogate="annealed", temperature_low=1e-4)
    rates = [recipe.temperature(step + 1) / recipe.temperature(step) for step in range(10)]
    assert recipe.temperature(0) == 1 and recipe.temperature(10) == pytest.approx(1e-4)
    assert rates == pytest.approx([10**-0.4] * 10)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": "l1"}, "`loss` must be one of cross-entropy, .* found 'l1'"),
        ({"optimizer": "lion"}, "`optimizer` must be one of adam, adamw, sgd, found 'lion'"),
        ({"schedule": "step"}, "`schedule` must be one of constant, .* found 'step'"),
        ({"surrogate": "none"}, "`surrogate` must be one of straight-through, annealed"),
        ({"sampling": "some"}, "`sampling` must be one of full, .* found 'some'"),
        ({"steps": 0}, "`steps` must be a whole number >= 1, found 0"),
        ({"steps": 10.0}, "`steps` must be a whole number >= 1, found 10.0"),
        ({"batch": -1}, "`batch` must be a whole number >= 1, found -1"),
        ({"epoch_steps": 0}, "`epoch_steps` must be a whole number"),
        ({"evaluate_every": 0}, "`evaluate_every` must be a whole number"),
        ({"lr": 0.0}, "`lr` must be a positive number, found 0.0"),
        ({"lr": math.inf}, "`lr` must be a positive number, found inf"),
        ({"lr": math.nan}, "`lr` must be a positive number, found nan"),
        ({"stop_at": 0.0}, r"`stop_at` must be in \(0, 1\], found 0.0"),
        ({"stop_at": 1.5}, r"`stop_at` must be in \(0, 1\], found 1.5"),
    ],
)
def test_recipes_that_cannot_be_meant_are_refused(changes, message):
    with pytest.raises(ByheartError, match=message):
        Recipe(**changes)
    with pytest.raises(ByheartError, match=message):
        Recipe().but(**changes)


@pytest.mark.parametrize(
    "recipe",
    [Recipe(), dana2025(), dana2025(published=True), mahdavi2024(30_000), kajitsuka2025(lr=0.1)],
    ids=["default", "dana2025", "published", "mahdavi2024", "kajitsuka2025"],
)
def test_recipes_round_trip_through_json(recipe):
    again = Recipe(**json.loads(json.dumps(recipe.to_json())))
    assert again == recipe and again.to_json() == recipe.to_json()
    assert recipe.but(batch=recipe.batch) == recipe


def test_every_field_of_a_recipe_is_in_its_json():
    other = {
        "steps": 7,
        "loss": "hinge",
        "optimizer": "sgd",
        "lr": 0.5,
        "lr_low": 0.25,
        "schedule": "linear",
        "warmup": 0.5,
        "sampling": "with-replacement",
        "batch": 3,
        "epoch_steps": 3,
        "stop_at": None,
        "evaluate_every": 3,
        "weight_decay": 0.5,
        "momentum": 0.5,
        "tolerance": 0.5,
        "init": "linear",
        "surrogate": "annealed",
        "temperature_low": 0.5,
        "keep_best": True,
        "best_by": "loss",
        "beta2": 0.5,
        "clip": 0.5,
        "stop_together": True,
    }
    assert other.keys() == Recipe().to_json().keys()
    texts = {json.dumps(Recipe().but(**{name: value}).to_json()) for name, value in other.items()}
    assert len(texts | {json.dumps(Recipe().to_json())}) == len(other) + 1


def test_the_recipes_of_the_papers():
    assert dana2025().steps == 64 * 64 and dana2025().sampling == "fixed-sample"
    assert dana2025().stop_at is None
    assert mahdavi2024(30_000).steps == 58_593  # 500 T / 256
    assert mahdavi2024(100).steps == 50_000
    assert mahdavi2024(100).learning_rate(0) == pytest.approx(1e-5)
    assert kajitsuka2025().optimizer == "adamw" and kajitsuka2025().steps == 1000
