"""Stacks whose models have learning rates of their own, clipped gradients, starts that look at the
data, and the best of several trials."""

import math

import pytest
import torch

from byheart._search import guarded
from byheart.errors import ByheartError
from byheart.models import feed_forward
from byheart.specs import AttentionOnlySpec, FeedForwardTransformerSpec
from byheart.training import Data, Recipe, best_of, kajitsuka2025, train_stack
from byheart.training.learner import FlatOptimizer, Learner
from byheart.training.trainer import initial
from byheart.training.trials import drawn

SPEC = FeedForwardTransformerSpec.experiment(d=4, n=3, blocks=2, d_out=3, read=0)
PAIRS = AttentionOnlySpec(N=6, S=2, d=3, d_h=3, H=4, positions="attention", scale=True)


def sentences(rows=20, seed=0):
    source = torch.Generator().manual_seed(seed)
    ids = torch.randint(9, (rows, 3), generator=source)
    table = torch.randn(9, 4, generator=source)
    return Data(ids, torch.randint(3, (rows,), generator=source), context=table)


def pairs():
    source = torch.Generator().manual_seed(3)
    tokens = torch.randint(6, (15, 2), generator=source)
    return Data(tokens, torch.randint(6, (15,), generator=source))


def same(a, b):
    return all(torch.equal(w, b.weights[name]) for name, w in a.weights.items())


def test_one_recipe_for_all_or_equal_ones_are_the_same_training():
    recipe = Recipe(steps=30)
    once = train_stack(PAIRS, pairs(), recipe, [0, 1])
    assert same(once, train_stack(PAIRS, pairs(), [recipe, recipe], [0, 1]))
    assert once.recipes == ()


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize(("spec", "data"), [(SPEC, sentences()), (PAIRS, pairs())])
def test_a_model_is_trained_at_its_own_rate_as_it_would_be_alone(spec, data, optimizer):
    base = Recipe(steps=40, optimizer=optimizer, weight_decay=0.01, momentum=0.5, stop_at=None)
    recipes = [base.but(lr=0.01, warmup=0.5), base.but(lr=0.03, lr_low=0.01), base.but(lr=0.02)]
    stack = train_stack(spec, data, recipes, [5, 6, 7])
    assert stack.recipes == tuple(recipes)
    for m, (recipe, seed) in enumerate(zip(recipes, [5, 6, 7], strict=True)):
        alone = train_stack(spec, data, recipe, [seed])
        for name, w in alone.weights.items():
            assert float((w[0] - stack.weights[name][m]).abs().max()) < 2e-5, name


def test_recipes_that_differ_in_more_than_rates_are_refused():
    with pytest.raises(ByheartError, match="may differ in `lr`, `lr_low` and `warmup` only"):
        train_stack(PAIRS, pairs(), [Recipe(), Recipe(batch=3)], [0, 1])
    with pytest.raises(ByheartError, match="1 recipes, but 2 seeds"):
        train_stack(PAIRS, pairs(), [Recipe()], [0, 1])


def test_a_run_with_different_rates_goes_on_to_the_same_bits(tmp_path):
    recipes = drawn(kajitsuka2025(tuned=True, steps=60, evaluate_every=10, stop_at=0.95), 4, 0)
    whole = train_stack(SPEC, sentences(), recipes, range(4))

    class Cut(Exception):
        pass

    def cut(progress):
        if progress.done >= 20:
            raise Cut

    file = tmp_path / "run.safetensors"
    often = {"checkpoint": file, "checkpoint_seconds": 0}
    with pytest.raises(Cut):
        train_stack(SPEC, sentences(), recipes, range(4), progress=cut, **often)
    resumed = train_stack(SPEC, sentences(), recipes, range(4), checkpoint=file)
    assert same(whole, resumed)
    with pytest.raises(ByheartError, match="another run: rates differ"):
        train_stack(SPEC, sentences(), recipes[:1] * 4, range(4), checkpoint=file)


@pytest.mark.parametrize("fused", [True, False])
def test_clipping_and_beta2_equal_those_of_torch(fused):
    """Two models of one parameter vector each, interleaved in the flat tensor."""
    owner = torch.tensor([0, 1, 0, 1, 1, 0])
    recipe = Recipe(optimizer="adamw", beta2=0.9, clip=0.5)
    source = torch.Generator().manual_seed(0)
    theta, grad = torch.randn(6, generator=source), torch.zeros(6)
    parameters = [torch.nn.Parameter(theta[owner == m].clone()) for m in (0, 1)]
    oracles = [
        torch.optim.AdamW([p], lr=0.1, betas=(0.9, 0.9), weight_decay=0.0) for p in parameters
    ]
    mine = FlatOptimizer(recipe, theta, grad, fused=fused, owner=owner)
    for i in range(20):
        grad.copy_(torch.randn(6, generator=source) * (0.1 if i % 3 else 3.0))
        for m, (p, oracle) in enumerate(zip(parameters, oracles, strict=True)):
            p.grad = grad[owner == m].clone()
            torch.nn.utils.clip_grad_norm_([p], 0.5)
            oracle.step()
        mine.step(0.1)
    for m, p in enumerate(parameters):
        assert float((theta[owner == m] - p.detach()).abs().max()) < 1e-5


def test_owner_names_the_model_of_every_number():
    made = Learner(PAIRS, 3, Recipe())
    made.theta.copy_(made.owner().float())
    assert all((w == torch.arange(3.0).view(-1, *[1] * (w.dim() - 1))).all()
               for w in made.weights().values())  # fmt: skip


def test_trials_are_drawn_from_the_seed_and_recorded():
    recipe = kajitsuka2025(tuned=True, steps=20, stop_at=None)
    tried = best_of(SPEC, sentences(), recipe, trials=5, seed=4, rates=(0.01, 0.1))
    again = best_of(SPEC, sentences(), recipe, trials=5, seed=4, rates=(0.01, 0.1))
    assert same(tried, again) and tried.recipes == again.recipes
    assert len({r.lr for r in tried.recipes}) == len({r.warmup for r in tried.recipes}) == 5
    assert all(0.01 <= r.lr <= 0.1 and 0.02 <= r.warmup <= 0.3 for r in tried.recipes)
    assert len({o.seed for o in tried.outcomes}) == 5
    assert tried.recipes != best_of(SPEC, sentences(), recipe, trials=5, seed=5).recipes
    longer = drawn(recipe, 8, 4, (0.01, 0.1))
    assert tuple(longer[:5]) == tried.recipes
    with pytest.raises(ByheartError, match="`trials` must be at least 1"):
        drawn(recipe, 0, 0)
    with pytest.raises(ByheartError, match="`rates` must be"):
        drawn(recipe, 1, 0, (0.2, 0.1))


def test_the_first_success_ends_the_run_of_all():
    recipe = Recipe(steps=400, evaluate_every=10, stop_at=0.9, lr=0.02)
    each = train_stack(SPEC, sentences(), recipe, range(4))
    together = train_stack(SPEC, sentences(), recipe.but(stop_together=True), range(4))
    first = min(o.steps for o in each.outcomes)
    assert first < max(o.steps for o in each.outcomes)
    assert {o.steps for o in together.outcomes} == {first}
    won = [o.stopped is not None for o in together.outcomes]
    assert any(won) and [o.accuracy >= 0.9 for o in together.outcomes] == won


def test_a_guarded_search_asks_again_below_what_it_found():
    asked = []

    def good(k, attempt):
        asked.append((k, attempt))
        return k >= 12 or (k == 11 and attempt == 1)  # 11 failed by chance

    assert guarded(good) == 11
    assert asked[-2:] == [(11, 1), (10, 2)]
    assert guarded(lambda k, attempt: False, limit=20) is None
    assert guarded(lambda k, attempt: True) == 1


@pytest.mark.parametrize("kind", ["table", "words", "vectors"])
def test_a_spread_start_is_fitted_to_the_tokens(kind):
    data = sentences(rows=60)
    spec = SPEC
    if kind == "words":
        spec = FeedForwardTransformerSpec.experiment(d=9, n=3, blocks=2, d_out=3, read=0)
        data = Data(data.inputs, data.targets)
    elif kind == "vectors":
        assert data.context is not None
        data = Data(data.context[data.inputs], data.targets)
    weights = initial(spec, [3, 4], "spread", data)
    inputs = data.span(0, data.T)[0]
    z = feed_forward.embedded(spec, weights, *inputs)
    torch.testing.assert_close(z.std((1, 2), correction=0), torch.ones(2, 2), rtol=1e-4, atol=1e-4)
    # The kinks of a unit: somewhere W_1 z + b_1 is 0, at a token.
    hidden = z.flatten(1, 2) @ weights["W_1"][:, 0] + weights["b_1"][:, 0, None]
    assert float(hidden.abs().amin(1).max()) < 1e-5
    added = torch.relu(hidden) @ weights["W_2"][:, 0]
    size = z.std((1, 2, 3), correction=0) / math.sqrt(spec.first)
    torch.testing.assert_close(added.std((1, 2), correction=0), size, rtol=1e-4, atol=1e-4)
    for name, w in initial(spec, [4], "spread", data).items():
        torch.testing.assert_close(w[0], weights[name][1])
    with pytest.raises(ByheartError, match="looks at the data"):
        initial(spec, [3], "spread")
