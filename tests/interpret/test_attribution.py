"""Methods where the truth is known by hand, and where two ways must agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from made_models import facts_of, random_model, relay, two_heads

import byheart as bh
from byheart.errors import ByheartError
from byheart.interpret import METHODS, Subject, evaluate, truth
from byheart.interpret.attribution import DRAWS, STEPS
from byheart.interpret.subject import leads, runner_up

ROUNDING = 1e-9  # float64, some hundred operations on numbers below 100
# What every method says of head 0 for (0, 1) -> t2 in `two_heads`. By hand: it writes 3 t3 +
# 6 t2. For (0, 0) it writes 6 t3; the mean of both keys at the last position is 4.5 t3 + 3 t2.
TWO_HEADS = {
    "direct": 6.0, "direct-lead": 3.0, "zero": 3.0, "lost": 1.0, "mean": 3 - (3 - 4.5),
    "resample": 3 - (0 - 6), "patch": (6 - 3) - (0 - 6), "gradient": 3.0, "integrated": 3.0,
    "attention": 1.0,
}  # fmt: skip


@pytest.mark.parametrize("name", TWO_HEADS)
def test_the_head_that_holds_a_fact_has_the_score_that_follows(name: str):
    model = Subject(two_heads())
    scores = METHODS[name](model, model.keys[0], 2)
    idle = 1.0 if name == "attention" else 0.0  # it reads, and writes nothing
    assert scores.tolist() == [pytest.approx([TWO_HEADS[name], idle], abs=ROUNDING)]


def test_what_goes_through_a_later_head_is_seen_by_interventions_alone():
    """Head 0.0 writes nothing that a logit reads: ablations and gradients see it, direct
    attribution does not. The lead over t1, the skip's own token, is 4 - 1 = 3 with both."""
    model = Subject(relay())
    scores = {name: METHODS[name](model, model.keys[0], 2) for name in TWO_HEADS}
    assert scores["direct"].tolist() == [[0, 0], [4, 0]]
    for name in ("zero", "gradient"):
        assert scores[name].tolist() == [[4, 0], [4, 0]]
    assert scores["lost"].tolist() == [[1, 0], [1, 0]]
    # lead(a) = 4 a² - 1, each of the two heads half of what it gains
    assert scores["integrated"].numpy() == pytest.approx(np.array([[2, 0], [2, 0]]), abs=ROUNDING)


@pytest.mark.parametrize("seed", range(3))
def test_integrated_gradients_add_up_to_the_lead(seed: int):
    model = Subject(random_model(seed, size=0.3))  # a path as smooth as 16 points can follow
    for key, answer in zip(model.keys, model.answers.tolist(), strict=True):
        whole = model.run(key[None]).logits[0]
        without = model.gated(key, torch.zeros(1, model.layers, model.H))[0]
        second = runner_up(whole, answer)
        gained = leads(whole, answer, second) - leads(without, answer, second)
        total = METHODS["integrated"](model, key, answer).sum()
        assert float(total) == pytest.approx(float(gained), abs=1e-8)


@pytest.mark.parametrize("layers", [1, 3])
def test_heads_replaced_from_their_layer_on_are_those_of_whole_passes(layers: int):
    model = Subject(random_model(4, layers))
    seen = model.run(model.keys[:1])
    values = torch.randn(layers, model.H, *seen.heads.shape[2:3], 5, dtype=torch.float64)
    fast = model.replaced(seen, values)
    for layer in range(layers):
        for head in range(model.H):

            def edit(at: int, heads: torch.Tensor, layer: int = layer, head: int = head):
                changed = heads.clone()
                if at == layer:
                    changed[:, :, head] = values[layer, head]
                return changed

            slow = model.logits(model.keys[:1], edit)[0]
            assert torch.allclose(fast[layer, head], slow, rtol=0, atol=ROUNDING)


def test_gradients_are_differences():
    model, step = Subject(random_model(5)), 1e-5
    key, answer = model.keys[0], int(model.answers[0])
    second = runner_up(model.run(key[None]).logits[0], answer)
    scores = METHODS["gradient"](model, key, answer)
    size = model.layers * model.H
    ways = torch.eye(size, dtype=torch.float64).view(size, model.layers, model.H)
    above, below = (leads(model.gated(key, 1 + s * ways), answer, second) for s in (step, -step))
    assert torch.allclose(scores.flatten(), (above - below) / (2 * step), rtol=0, atol=1e-7)


def test_the_cost_is_what_passed_through():
    for layers in (1, 3):
        memory = random_model(6, layers)
        heads = layers * 4
        passes = {
            "direct": (1, 0), "direct-lead": (1, 0), "zero": (1 + heads, 0), "lost": (1 + heads, 0),
            "mean": (1 + heads + 10, 0), "resample": (1 + DRAWS * (1 + heads), 0),
            "patch": (2 + heads, 0), "gradient": (2, 1), "integrated": (1 + STEPS, STEPS),
            "attention": (1, 0), "random": (0, 0),
        }  # fmt: skip
        assert passes.keys() == METHODS.keys()
        for name, expected in passes.items():
            model = Subject(memory)
            METHODS[name](model, model.keys[0], int(model.answers[0]))
            assert (model.forwards, model.backwards) == expected, name


def test_a_baseline_is_computed_once():
    model = Subject(random_model(6))
    for row in range(2):
        METHODS["mean"](model, model.keys[row], int(model.answers[row]))
    assert model.forwards == 10 + 2 * (1 + 12)


def test_keys_with_another_answer_are_needed():
    memory = two_heads()
    model = Subject(replace(memory, facts=facts_of({(0, 1): 2, (1, 1): 2}, 4)))
    with pytest.raises(ByheartError, match="every fact of this memory has the same answer"):
        METHODS["patch"](model, model.keys[0], 2)


@pytest.fixture(scope="module")
def sharded() -> bh.ShardedMemory:
    facts = bh.random_associations(N=8, S=2, T=12, seed=2)
    return bh.build(facts, bh.Sharded(shard_size=1))


def test_the_true_shares_are_those_of_the_split(sharded: bh.ShardedMemory):
    where = truth(sharded)
    assert sharded.facts is not None
    for i, row in enumerate(where.rows):
        split = sharded.split(*sharded.facts.key(row))
        positive = np.maximum(split.parts, 0)
        own = where.shares[i, 0, list(split.heads)]
        assert own == pytest.approx(positive / positive.sum(), abs=1e-6)  # stored in float32


def test_owners_of_a_plain_memory_are_found(sharded: bh.ShardedMemory):
    where = truth(sharded)
    for name in ("direct", "zero", "gradient", "attention"):
        found = evaluate(sharded, name, where)
        assert found.average_precision.min() == found.precision.min() == 1
        assert found.misplaced.max() < 1e-6  # gates close to exp(-λ), sums to 1e-16
    assert evaluate(sharded, "random", where).average_precision.mean() < 0.9


def test_some_facts_can_be_asked(sharded: bh.ShardedMemory):
    where = truth(sharded, asked=5, seed=3)
    assert len(where.rows) == len(set(where.rows)) == 5 and where.rows != truth(sharded, 5, 4).rows
    assert len(evaluate(sharded, "direct", where).precision) == 5


def test_memories_without_owners_or_heads_are_refused():
    facts = bh.random_associations(N=6, S=2, T=8)
    with pytest.raises(ByheartError, match="has no owners"):
        truth(bh.build(facts, "attention"))
    with pytest.raises(ByheartError, match="heads are searched in attention-only"):
        Subject(bh.build(facts, "associative"))
