"""The compiled kernel for pairs: every shape it covers, every batch size, and nothing leaks from
model to model. (What it shares with the other kernels is tested in test_kernels.py.)"""

import pytest
import torch

from byheart import random_associations
from byheart.models.architectures import module_of
from byheart.specs import AttentionOnlySpec, MLPTransformerSpec, SharedBottleneckSpec
from byheart.training import Data, Recipe, native, token_data, train_stack
from byheart.training.choose import choose
from byheart.training.kernels.compiled_pairs import CHUNK, LOSSES, CompiledPairs
from byheart.training.learner import FlatOptimizer
from byheart.training.losses import example_losses
from byheart.training.trainer import initial

pytestmark = pytest.mark.skipif(
    native.missing("stack") is not None, reason=f"no compiled kernels: {native.missing('stack')}"
)
POSITIONS = ("input", "attention", "none")
HEADS = [(1, 9), (7, 9), (9, 9), (13, 6), (70, 3), (2, 70)]  # H and d: both sides, both paddings
MODELS = 2


def attention(H, d, layers, i):
    """Options in turn, so that every one meets every form of attention."""
    return AttentionOnlySpec(
        N=11, S=2, d=d, d_h=(d, 3, d + 2)[i % 3], H=H, layers=layers, qk_rank=(0, 1, 4)[i % 3],
        positions=POSITIONS[i % 3], scale=i % 2 == 0, skip=i % 5 != 4,
    )  # fmt: skip


SHAPES = [
    attention(*heads, layers, i + layers)
    for layers in (1, 2, 3)
    for i, heads in enumerate(HEADS)
    if layers < 3 or max(heads) < 70
]
SHAPES += [
    MLPTransformerSpec(11, 2, 6, 4, 1, 17, 1, positions="attention", scale=True),
    MLPTransformerSpec(11, 2, 6, 4, 8, 17, 1, activation="relu", scale=True),
    MLPTransformerSpec(11, 2, 6, 4, 8, 17, 2, positions="none", scale=True),
    MLPTransformerSpec(11, 2, 6, 4, 2, 17, 2, activation="relu", positions="attention"),
    MLPTransformerSpec(11, 2, 6, 4, 1, 17, 3, positions="input", scale=True),
]
SHAPES += [
    SharedBottleneckSpec(11, 2, d, d_h, H, layers)
    for layers, d, d_h, H in ((1, 9, 4, 6), (1, 9, 6, 2), (1, 3, 5, 7), (2, 9, 4, 6), (3, 4, 6, 2))
]


def table(spec, T, seed=0):
    made = torch.Generator().manual_seed(seed)
    tokens = torch.randint(spec.N, (T, 2), generator=made)
    return Data(tokens, torch.randint(spec.N, (T,), generator=made))


def exact(spec, weights, data, order, loss="cross-entropy"):
    """Gradients by autograd in float64."""
    leaves = {k: w.double().requires_grad_() for k, w in weights.items()}
    inputs, targets = data.batch(order)
    outputs = module_of(spec).forward(spec, leaves, *inputs)
    example_losses(loss, outputs, targets, "class").mean(1).sum().backward()
    gradients: dict[str, torch.Tensor] = {k: w.grad for k, w in leaves.items()}  # type: ignore[misc]
    return gradients


def check(spec, T, batch, loss="cross-entropy"):
    data, weights = table(spec, T), initial(spec, range(MODELS))
    order = torch.randint(T, (1, MODELS, batch), generator=torch.Generator().manual_seed(1))
    kernel = choose(spec, loss, data, "compiled pairs")
    made = kernel(spec, MODELS, Recipe(loss=loss))
    made.load(weights)
    made.prepare(data, order)
    made.grad.fill_(torch.nan)  # whatever was there before is overwritten
    made.gradient(0)
    expected = exact(spec, weights, data, order[0], loss)
    for name, gradient in made.weights(made.grad).items():
        size = float(expected[name].abs().max())
        assert float((gradient - expected[name]).abs().max()) <= 1e-5 * max(size, 1e-6), name


@pytest.mark.parametrize("spec", SHAPES, ids=str)
def test_gradients_equal_float64_autograd_for_every_shape(spec):
    check(spec, T=60, batch=37)


@pytest.mark.parametrize("batch", [1, 2, 15, 16, 17, CHUNK - 1, CHUNK + 1, 2 * CHUNK + 19])
@pytest.mark.parametrize("layers", [1, 2])
def test_gradients_equal_float64_autograd_for_every_batch(batch, layers):
    """The tail of a batch, and more or fewer tokens than examples."""
    for spec in (attention(3, 5, layers, 0), attention(6, 5, layers, 1)):
        check(spec, T=100, batch=batch)


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_that_it_covers(loss):
    check(
        MLPTransformerSpec(11, 2, 6, 6, 2, 8, 2, positions="attention"), T=60, batch=30, loss=loss
    )


def test_a_table_of_many_tokens_of_which_few_occur():
    spec = AttentionOnlySpec(N=5000, S=2, d=4, d_h=4, H=3, layers=2, positions="attention")
    check(spec, T=30, batch=30)


def trained(spec, models, data, steps=30, batch=19, weights=None):
    """Weights (models, ...) after some steps of Adam, and the flat tensor."""
    made = CompiledPairs(spec, len(models), Recipe())
    made.load({k: w[list(models)] for k, w in (weights or initial(spec, range(4))).items()})
    generator = torch.Generator().manual_seed(3)
    order = torch.randint(data.T, (steps, 4, batch), generator=generator)[:, list(models)]
    made.prepare(data, order)
    optimizer = FlatOptimizer(made.recipe, made.theta, made.grad)
    for i in range(steps):
        made.gradient(i, log=i % 2 == 0)
        optimizer.step(0.01)
    return made


@pytest.mark.parametrize(
    "spec", [SHAPES[1], SHAPES[3], SHAPES[9], *SHAPES[-8:-5], SHAPES[-1]], ids=str
)
def test_a_model_does_not_depend_on_its_neighbours(spec):
    """Bit for bit: alone, beside others, and beside one that is NaN from the start."""
    data = table(spec, 60)
    together = trained(spec, (0, 1, 2, 3), data).weights()
    spoiled = initial(spec, range(4))
    spoiled["W_V"][1] = torch.nan
    spoiled["W_U"][2] = torch.inf
    beside = trained(spec, (0, 1, 2, 3), data, weights=spoiled).weights()
    alone = trained(spec, (3,), data).weights()
    for name, w in together.items():
        assert w.isfinite().all()
        assert torch.equal(w[3], alone[name][0]), name
        assert torch.equal(w[[0, 3]], beside[name][[0, 3]]), name
    assert not all(w[1].isfinite().all() for w in beside.values())
    assert not all(w[2].isfinite().all() for w in beside.values())


def test_heads_that_only_fill_a_vector_stay_zero():
    spec = attention(13, 6, 2, 0)
    made = trained(spec, (0, 1), table(spec, 60))
    assert any(w.abs().max() > 0 for w in made.views(made.theta).values())
    for w in made.views(made.theta).values():
        w.zero_()
    assert not made.theta.any()


def test_a_model_that_diverges_is_seen_and_has_nothing_right():
    spec = AttentionOnlySpec(N=8, S=2, d=4, d_h=4, H=5, layers=2, positions="attention")
    data = token_data(random_associations(N=8, S=2, T=40, seed=0))
    weights = initial(spec, [0, 1, 2])
    weights["W_Q"][1] = torch.nan
    recipe = Recipe(steps=200, evaluate_every=50)
    run = train_stack(spec, data, recipe, [0, 1, 2], start=weights, path="compiled pairs")
    assert [o.diverged is not None for o in run.outcomes] == [False, True, False]
    assert run.outcomes[1].accuracy == 0.0
    assert min(run.outcomes[m].accuracy for m in (0, 2)) > 0.5


def test_right_answers_are_counted_as_arg_max_counts_them():
    """Ties go to the first: with weights of zero all answers are token 0."""
    spec = attention(3, 5, 1, 0)
    data = table(spec, 50)
    made = CompiledPairs(spec, 1, Recipe())
    made.prepare(data, None)
    assert made.gradient(0, log=True).tolist() == [int((data.targets == 0).sum())]  # type: ignore[union-attr]
