"""The block-diagonal solve: batches partition the shards, and padding changes nothing."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import byheart as bh
from byheart.construct.sharded.build import by_shard, solve_batch
from byheart.construct.sharded.housing import unknowns_needed
from byheart.construct.sharded.plan import Batch, batches, plan
from byheart.specs import ShardedSpec

sizes_of_shards = st.lists(
    st.one_of(st.integers(0, 20), st.integers(0, 400), st.just(250)), min_size=1, max_size=60
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(sizes=sizes_of_shards, d_h=st.integers(1, 30), slack=st.floats(0, 2))
def test_batches_are_a_partition_with_enough_heads(sizes, d_h, slack):
    sizes = np.array(sizes)
    made = batches(sizes, d_h, slack, sizes)
    assert sorted(np.concatenate([b.shards for b in made]).tolist()) == list(range(len(sizes)))
    for batch in made:
        assert batch.size == max(1, sizes[batch.shards].max())
        assert batch.heads >= 1 and batch.heads * d_h >= sizes[batch.shards].max() * (1 + slack)
        if batch.size > 16:
            assert sizes[batch.shards].min() * 9 >= batch.size * 8
    again = batches(sizes.copy(), d_h, slack, sizes)
    assert [(b.shards.tolist(), b.heads, b.size) for b in made] == [
        (b.shards.tolist(), b.heads, b.size) for b in again
    ]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(shard=st.lists(st.integers(0, 9), min_size=1, max_size=100))
def test_members_are_all_facts_once(shard):
    found = np.array(shard)
    sizes = np.bincount(found, minlength=10)
    members = by_shard(found, sizes)
    assert [len(m) for m in members] == sizes.tolist()
    assert sorted(np.concatenate(members).tolist()) == list(range(len(shard)))
    assert all((found[m] == g).all() for g, m in enumerate(members))


@pytest.mark.parametrize("options", [{}, {"untied": True}, {"gate": "subject-sink"}])
def test_a_shard_alone_and_in_a_padded_batch_have_the_same_solution(make_relations, options):
    facts = make_relations(subjects=200, R=3)
    memory = bh.build(facts, "sharded", shard_size=60, slack=1.0, dtype="float64", **options)
    spec, weights = memory.spec, dict(memory.weights)
    assert isinstance(spec, ShardedSpec)
    layout = plan(facts, bh.Sharded(shard_size=60, gate=spec.gate))
    tokens = memory.in_order(facts.tokens)
    targets = weights["W_U"][:, torch.tensor(facts.answers)].T
    members = by_shard(layout.shard, layout.sizes)
    start = weights["head_start"].tolist()
    heads = start[1]
    everyone = np.arange(spec.shards)
    padded = Batch(everyone, heads, int(layout.sizes.max()) + 7)
    order, sizes = np.concatenate(members), layout.sizes.tolist()
    together, residual, _ = solve_batch(spec, weights, padded, tokens[order], targets[order], sizes)
    assert residual < 1e-12
    for g in everyone.tolist():
        single = Batch(np.array([g]), heads, int(layout.sizes[g]))
        own = members[g]
        alone, _, condition = solve_batch(
            spec, weights, single, tokens[own], targets[own], [len(own)]
        )
        assert condition < 1e4  # or 1e-12 would be too much to ask
        assert float((alone[0] - together[g]).abs().max()) <= 1e-12 * condition
        assert float((alone[0] - weights["W_O"][start[g] : start[g + 1]]).abs().max()) < 1e-9


def test_empty_shards_are_solved_too(make_relations):
    """Sub-shards of hot tokens may be empty."""
    facts = make_relations(subjects=20, R=2)
    memory = bh.build(facts, "sharded", shard_size=10)
    spec, weights = memory.spec, dict(memory.weights)
    assert isinstance(spec, ShardedSpec)
    targets = torch.zeros(0, spec.d_g, dtype=torch.float64)
    batch = Batch(np.array([0, 1]), 1, 1)
    tokens = memory.in_order(facts.tokens)[:0]
    W_O, residual, _ = solve_batch(spec, weights, batch, tokens, targets, [0, 0])
    assert residual == 0.0 and not W_O.any()


def test_few_tokens_need_more_heads():
    """All 8 keys (b1, b2, b3, t): two heads of width 8 span 1 + 2·3 = 7 functions of three bits."""
    bits = np.stack(np.unravel_index(np.arange(8), (2, 2, 2)), 1)
    tokens = np.concatenate([bits + 2 * np.arange(3), np.full((8, 1), 6)], 1)
    needed = unknowns_needed(np.zeros(8, int), np.array([8]), tokens, d_h=8)
    assert needed.tolist() == [3 * 8]
    facts = bh.Facts.make(tokens, np.arange(8) % 7, bh.Vocabulary(tuple("abcdefg")))
    memory = bh.build(facts, "sharded")
    assert memory.construction.recalled == 8
    assert memory.construction.slack == 0.05  # at the first draw
    assert int(memory.weights["head_start"][-1]) >= 3


def test_same_seed_same_bytes(make_table):
    facts = make_table(N=40, S=2, T=300, seed=1, keys="zipf")
    one, two = (bh.build(facts, "sharded", shard_size=20, seed=5) for _ in range(2))
    assert all(torch.equal(one.weights[name], two.weights[name]) for name in one.weights)
    other = bh.build(facts, "sharded", shard_size=20, seed=6)
    assert not torch.equal(one.weights["W_E"], other.weights["W_E"])
