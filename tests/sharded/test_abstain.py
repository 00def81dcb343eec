"""Abstention: stored keys are always answered, others almost never."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import kstest

import byheart
from byheart.construct.sharded.fingerprint import coordinates, unseen_keys, with_rates
from byheart.errors import ByheartError
from byheart.models.sharded import fingerprints, residual

# Sharded memories have a spec and facts that a type checker cannot know of.
bh: Any = byheart


@pytest.fixture(scope="module")
def facts():
    return bh.random_associations(N=1000, S=2, T=10_000, seed=1)


@pytest.fixture(scope="module")
def memory(facts):
    return bh.build(facts, abstain=True)


def test_stored_facts_are_answered_and_unseen_keys_are_not(memory, facts):
    said = memory.construction.abstain
    assert said.coordinates == memory.spec.check == 2
    assert said.false_positive_rate <= said.false_positive_bound < 1e-6
    assert bool(memory.knows_by_fingerprint(memory.in_order(facts.tokens)).all())
    unseen = unseen_keys(facts, 10_000, seed=99)
    assert len(unseen) == 10_000
    # Expected: 10,000 x a rate below 1e-7, that is none.
    assert int(memory.knows_by_fingerprint(memory.in_order(unseen)).sum()) == 0
    assert bh.certify(memory).certified


@pytest.mark.parametrize("tolerance", [0.02, 0.1, 0.4])
def test_the_stated_rate_is_the_measured_one(memory, facts, tolerance):
    """At a tolerance so wide that false positives can be counted, the formula counts them."""
    said = memory.construction.abstain
    stated = with_rates(memory, facts, tolerance, said.seed, said.largest_error)
    assert stated.false_positive_rate <= stated.false_positive_bound
    wide = replace(memory, construction=replace(memory.construction, abstain=stated))
    unseen = memory.in_order(unseen_keys(facts, 10_000, seed=7))
    measured = int(wide.knows_by_fingerprint(unseen).sum())
    expected = stated.false_positive_rate * len(unseen)
    # Poisson counts with a sampled expectation: 6 deviations of both, added.
    assert abs(measured - expected) <= 6 * np.sqrt(max(expected, 1)) * 2


def test_alone_and_in_batches(memory, facts):
    """Another order of summation rounds differently: still within the tolerance."""
    tokens = memory.in_order(facts.tokens)
    for i in range(0, 10_000, 97):
        assert bool(memory.knows_by_fingerprint(tokens[i : i + 1])[0])
    assert bool(memory.knows_by_fingerprint(tokens[torch.randperm(len(tokens))]).all())


def test_float64_needs_one_coordinate():
    facts = bh.random_associations(N=60, S=2, T=500, seed=2)
    memory = bh.build(facts, dtype="float64", abstain=True)
    assert memory.spec.check == coordinates(torch.float64) == 1
    assert memory.construction.abstain.false_positive_bound < 1e-6
    assert bool(memory.knows_by_fingerprint(memory.in_order(facts.tokens)).all())


@pytest.mark.parametrize("options", [{"gate": "key"}, {"gate": "query", "d": 4}, {"untied": True}])
def test_every_kind_of_shard(options):
    facts = bh.random_associations(N=200, S=2, T=2000, seed=2)
    memory = bh.build(facts, "sharded", abstain=True, **options)
    assert bool(memory.knows_by_fingerprint(memory.in_order(facts.tokens)).all())
    assert not bool(memory.knows_by_fingerprint(memory.in_order(unseen_keys(facts, 1000, 0))).any())


def test_the_literal_layer_has_the_fingerprints_too():
    from byheart.models.attention_only import head_outputs
    from byheart.models.sharded import to_dense

    facts = bh.random_associations(N=30, S=2, T=100, seed=2)
    memory = bh.build(facts, "sharded", shard_size=20, abstain=True)
    tokens, weights = memory.in_order(facts.tokens), dict(memory.weights)
    dense, written = to_dense(memory.spec, weights)
    stacked = {name: w[None].double() for name, w in written.items()}
    skip, F = head_outputs(dense, stacked, memory.with_start(facts.tokens))
    out = skip[0] + torch.einsum("bhe,hed->bd", F[0], stacked["W_O"][0, -1])
    sparse = residual(memory.spec, weights, tokens, torch.float64)
    assert torch.allclose(out[:, -2:], sparse[:, -2:], atol=1e-9)
    assert not bool(stacked["W_U"][0, -2:].any())


def test_tokens_that_decide_for_nobody_are_never_known(memory, facts):
    spare = replace(memory, weights=dict(memory.weights) | {"group": _without(memory, 5)})
    keys = memory.in_order(facts.tokens[facts.tokens[:, memory.order[-1]] == 5])
    assert len(keys) and not bool(spare.knows_by_fingerprint(keys).any())


def _without(memory, token):
    group = memory.weights["group"].clone()
    group[token] = -1
    return group


def test_edits_keep_fingerprints(memory, facts):
    gone, kept = facts.key(3), facts.key(4)
    done = bh.edit(memory, delete=[gone], set={kept: facts.answer(5)})
    assert done.knows_by_fingerprint(done.in_order(done.key_ids([gone, kept]))).tolist() == [
        False,
        True,
    ]
    assert bool(done.knows_by_fingerprint(done.in_order(done.facts.tokens)).all())
    assert done.construction.abstain.tolerance >= memory.construction.abstain.tolerance


def test_fingerprints_are_uniform_and_independent():
    keys = np.stack(np.meshgrid(np.arange(120), np.arange(120)), axis=-1).reshape(-1, 2)
    values = fingerprints(keys, 2, seed=3).numpy()
    assert (values.astype(np.float32) == values).all()
    for column in values.T:
        assert kstest(column, "uniform", args=(-1, 2)).pvalue > 1e-3
    assert abs(np.corrcoef(values.T)[0, 1]) < 4 / np.sqrt(len(keys))
    assert len(np.unique(values, axis=0)) == len(keys)
    assert not (fingerprints(keys, 2, seed=4).numpy() == values).any(1).mean() > 1e-3
    assert fingerprints(keys[:0], 2, 0).shape == (0, 2)


def test_memories_without_fingerprints_say_how_to_get_them(facts):
    plain = bh.build(facts.subset(np.arange(300)), "sharded")
    with pytest.raises(ByheartError, match="Build it with `abstain`"):
        plain.knows_by_fingerprint(plain.in_order(facts.tokens[:1]))
    with pytest.raises(
        ByheartError, match="`abstain` belongs to sharded or sqrt; this is attention"
    ):
        bh.build(facts, "attention", abstain=True)
