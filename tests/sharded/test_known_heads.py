"""Heads of one's own choice: so many facts a head, heads by a column, several copies of a fact."""
# Owners and facts are there by construction.
# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false
# pyright: reportIndexIssue=false, reportArgumentType=false

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import byheart as bh
from byheart.construct.sharded.plan import plan
from byheart.construct.sharded.shares import equal_shares
from byheart.errors import CapacityError
from byheart.measure import lost_with_each, lost_without


@pytest.fixture(scope="module")
def facts():
    return bh.as_facts("countries").subset(np.arange(60))


def test_one_fact_one_head_in_plain_torch(facts):
    memory = bh.build(facts, bh.Sharded(facts_per_head=1))
    owners = memory.owners()
    assert bh.certify(memory).certified
    assert memory.spec.H == facts.T and memory.spec.d_h == 1 and owners.survive == ()
    assert sorted(owners.heads_of(i) for i in range(facts.T)) == [(h,) for h in range(facts.T)]
    module, inputs = memory.to_torch().double(), memory.to_dense().inputs_of(facts)
    right = torch.tensor(facts.answers)
    W_O = module.layers[0].W_O
    for head in range(facts.T):
        with torch.no_grad():
            kept = W_O[head].clone()
            W_O[head] = 0.0
            wrong = module(inputs).argmax(1) != right
            W_O[head] = kept
        assert tuple(wrong.nonzero()[:, 0].tolist()) == owners.facts_of(head)


@pytest.mark.parametrize("k", [2, 3, 7])
def test_a_few_facts_a_head(facts, k):
    memory = bh.build(facts, bh.Sharded(facts_per_head=k))
    owners = memory.owners()
    assert memory.spec.d_h == k and all(len(heads) <= 1 for heads in owners.heads)
    assert max(len(owners.facts_of(head)) for head in range(memory.spec.H)) <= k
    assert min(len(owners.facts_of(head)) for head in range(memory.spec.H)) >= 1
    assert lost_with_each(memory) == [owners.facts_of(head) for head in range(memory.spec.H)]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    keys=st.sets(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=60),
    k=st.integers(1, 8),
)
def test_no_head_is_given_more_than_it_can_hold(keys, k):
    rows = {(f"a{i}", f"b{j}"): f"c{(3 * i + j) % 7}" for i, j in sorted(keys)}
    facts = bh.as_facts(rows)
    made = plan(facts, bh.Sharded(facts_per_head=k))
    assert made.sizes.max() <= k and made.sizes.sum() == facts.T


@pytest.mark.parametrize(("column", "place"), [("relation", 1), (1, 0)])
def test_heads_by_a_column(facts, column, place):
    memory = bh.build(facts, bh.Sharded(heads_by=column))
    owners, values = memory.owners(), facts.tokens[:, place]
    assert bh.certify(memory).certified and owners.survive == ()
    for value in np.unique(values):
        mine = np.flatnonzero(values == value)
        assert len({owners.heads_of(i) for i in mine.tolist()}) == 1
        assert lost_without(memory, owners.heads_of(int(mine[0]))) == tuple(mine.tolist())
    assert len(np.unique(owners.shard)) == len(np.unique(values))


def test_twins_say_the_same_and_hold_it_elsewhere(facts):
    """Equal outputs on every fact, from heads by subject and from heads by relation."""
    twins = [bh.build(facts, bh.Sharded(heads_by=c)) for c in ("country", "relation")]
    logits = [twin.outputs(twin.inputs_of(facts), torch.float64) for twin in twins]
    assert torch.equal(twins[0].weights["W_U"], twins[1].weights["W_U"])
    assert float((logits[0] - logits[1]).abs().max()) < 1e-4
    groups = [len(np.unique(twin.owners().shard)) for twin in twins]
    assert groups == [20, 3]


@pytest.mark.parametrize("options", [{"facts_per_head": 1}, {}, {"heads_by": "country"}])
def test_no_single_copy_is_needed(facts, options):
    memory = bh.build(facts, bh.Sharded(copies=2, **options))
    owners = memory.owners()
    assert bh.certify(memory).certified
    assert all(len(heads) % 2 == 0 for heads in owners.heads)
    assert lost_with_each(memory) == [()] * memory.spec.H
    for shard in np.unique(owners.shard).tolist()[::6]:
        held = tuple(np.flatnonzero(owners.shard == shard).tolist())
        assert lost_without(memory, owners.heads[shard]) == held
    assert memory.construction.why[-1].startswith("every fact is kept when any single head")


def test_what_copies_do_not_reach_is_said(facts):
    memory = bh.build(facts, bh.Sharded(copies=2, heads_by="relation", d=8, d_h=2, slack=0.0))
    lost = set().union(*lost_with_each(memory))
    said = memory.construction.why[-1]
    expected = f"copies=2 did not reach its end: {len(lost):,} facts"
    assert said.startswith(expected if lost else "every fact is kept")


def test_shares_are_equal_where_each_head_can_hold_all():
    g = torch.Generator().manual_seed(0)
    X = torch.randn(5, 3, 4 * 6, generator=g, dtype=torch.float64)
    Y = torch.randn(5, 3, 2, generator=g, dtype=torch.float64)
    W = equal_shares(X, Y, 4, torch.zeros(5, 3, dtype=torch.float64), 1e-9)
    for h in range(4):
        own = slice(6 * h, 6 * h + 6)
        assert torch.allclose(X[..., own] @ W[:, own], Y / 4)


def test_facts_that_survive_by_luck_are_named():
    """Both facts share the one last token, whose embedding names one of the two answers."""
    facts = bh.as_facts({("a", "r"): "x", ("b", "r"): "y"})
    memory = bh.build(facts, bh.Sharded(heads_by=2))
    everything = [h for heads in memory.owners().heads for h in heads]
    lost = set(lost_without(memory, everything))
    assert lost == {0, 1} - set(memory.owners().survive)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"facts_per_head": 1, "shard_size": 3}, "`shard_size`"),
        ({"facts_per_head": 1, "d_h": 3}, "`d_h`"),
        ({"facts_per_head": 1, "slack": 0.5}, "`slack`"),
        ({"facts_per_head": 1, "heads_by": "country"}, "`heads_by`"),
        ({"heads_by": "country", "shard_size": 3}, "`shard_size`"),
        ({"facts_per_head": 9, "d": 8}, "`facts_per_head` must be at most the width"),
        ({"facts_per_head": 1, "gate": "key"}, "needs `gate=query`"),
        ({"heads_by": "relation", "gate": "key"}, "reads the first key column"),
        ({"heads_by": "countries"}, "Did you mean 'country'"),
        ({"heads_by": 3}, "a number from 1 to 2"),
        ({"copies": 2, "gate": "subject-sink"}, "every fact depends on every head"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(facts, options, says):
    with pytest.raises(bh.ByheartError, match=says):
        bh.build(facts, bh.Sharded(**options))


def test_facts_of_three_tokens_that_cannot_be_told_apart():
    rows = {(f"a{i % 2}", f"b{i // 2 % 2}", f"c{i // 4}"): "x" for i in range(8)}
    with pytest.raises(CapacityError, match="facts_per_head=4"):
        bh.build(bh.as_facts(rows), bh.Sharded(facts_per_head=1))


def test_the_cost_is_said_before_it_is_paid(facts):
    told: list[str] = []
    memory = bh.Sharded(facts_per_head=1).build(facts, progress=told.append)
    cost = next(i for i, line in enumerate(told) if f"{memory.spec.parameters:,} param" in line)
    assert any("shards solved" in line for line in told[cost:])
    assert not any("shards solved" in line for line in told[:cost])
