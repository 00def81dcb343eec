"""It is known which heads hold which fact: ablating them loses the shard, and nothing else."""

from dataclasses import replace

import pytest
import torch
from oracles.literal import memory_logits

import byheart as bh
from byheart.models.sharded import shard_of, to_dense
from byheart.specs import ShardedSpec


def cases(make_relations, make_table):
    yield make_relations(subjects=60, R=4), {}
    yield make_relations(subjects=60, R=4), {"untied": True}
    yield make_relations(subjects=60, R=4), {"gate": "key"}
    yield make_table(N=40, S=2, T=300, seed=1, keys="zipf"), {}
    yield make_table(N=12, S=3, T=200, seed=1), {}


@pytest.mark.parametrize("case", range(5))
def test_ablating_the_owner_loses_exactly_the_shard(make_relations, make_table, case):
    facts, options = list(cases(make_relations, make_table))[case]
    memory = bh.build(facts, "sharded", shard_size=30, **options)
    assert isinstance(memory.spec, ShardedSpec)
    tokens, full_ids = memory.in_order(facts.tokens), memory.with_start(facts.tokens)
    shards = shard_of(dict(memory.weights), tokens)
    before = memory.outputs(full_ids)
    dense, written = to_dense(memory.spec, dict(memory.weights))
    full_before = memory_logits(dense, written, full_ids)
    skip = memory.weights["W_E"][tokens[:, -1]] + memory.weights["W_pos"][-1]
    for g in shards.unique().tolist()[:6]:
        i = int((shards == g).nonzero()[0])
        owner = memory.owner(*facts.key(i))
        assert owner.shard == g
        assert owner.facts == tuple((shards == g).nonzero()[:, 0].tolist())
        assert memory.split(*facts.key(i)).heads == owner.heads
        assert memory.recall(*facts.key(i)).answer == facts.answer(i)
        heads = slice(owner.heads[0], owner.heads[-1] + 1)
        W_O = memory.weights["W_O"].clone()
        W_O[heads] = 0.0
        ablated = replace(memory, weights={**memory.weights, "W_O": W_O})
        after, own = ablated.outputs(full_ids), shards == g
        assert torch.equal(after[~own], before[~own])
        assert torch.equal(after[own], (skip @ memory.weights["W_U"])[own])
        # The whole literal layer, in float32: what is left of the others is what it was.
        W_O = written["W_O"].clone()
        W_O[0, heads] = 0.0
        full = memory_logits(dense, {**written, "W_O": W_O}, full_ids)
        assert torch.equal(full[~own].argmax(1), full_before[~own].argmax(1))
        assert float((full - full_before)[~own].abs().max()) < 1e-10
        assert float((full - full_before)[own].abs().amax(1).min()) > 1e-3


def test_the_split_of_an_owner_adds_up(make_relations):
    facts = make_relations(subjects=40, R=3)
    for gate in ("query", "key", "subject-sink"):
        memory = bh.build(facts, "sharded", gate=gate, shard_size=30)
        split = memory.split(*facts.key(7))
        logits = memory.outputs(memory.encode([facts.key(7)]), torch.float64)[0]
        answer, runner_up = memory.vocabulary.ids([str(split.answer), str(split.runner_up)])
        margin = float(logits[answer] - logits[runner_up])
        assert split.margin == pytest.approx(margin, abs=1e-9)


def lost_without(spec, weights, ids, right, heads, instead=None) -> set[int]:
    """Facts that the literal layer, in float64 and plain torch, loses when `heads` write nothing,
    or `instead` of what they read, (facts, d)."""
    w = {name: value.double() for name, value in weights.items()}
    x = w["W_E"][ids] + w["W_pos"]
    q = torch.einsum("bd,hdr->bhr", x[:, -1], w["W_Q"][0])
    k = torch.einsum("bsd,hdr->bhsr", x, w["W_K"][0])
    a = torch.einsum("bhr,bhsr->bhs", q, k).softmax(-1)
    read = torch.einsum("bhs,bsd->bhd", a, x)
    read[:, heads] = 0.0 if instead is None else instead(x)[:, None]
    written = torch.einsum("bhd,hde,hef->bf", read, w["W_V"][0], w["W_O"][0])
    logits = (x[:, -1] + written) @ w["W_U"]
    return set((logits.argmax(1) != right).nonzero()[:, 0].tolist())


@pytest.mark.parametrize("gate", ["query", "key", "subject-sink"])
def test_the_owner_says_what_else_depends_on_its_heads(make_relations, gate):
    """The literal layer without these heads, for every gate."""
    facts = make_relations(subjects=60, R=4)
    memory = bh.build(facts, "sharded", gate=gate, shard_size=30)
    ids, right = memory.with_start(facts.tokens), torch.tensor(facts.answers)
    spec, weights = to_dense(memory.spec, dict(memory.weights))
    assert not lost_without(spec, weights, ids, right, [])
    for i in (0, facts.T // 2):
        owner = memory.owner(*facts.key(i))
        lost = lost_without(spec, weights, ids, right, list(owner.heads))
        shard = set(owner.facts)
        if gate == "subject-sink":
            assert len(lost - shard) > facts.T / 4
            assert "Zeroing their W_O loses facts elsewhere" in owner.others
            first = lambda x: x[:, 1]  # noqa: E731
            lost = lost_without(spec, weights, ids, right, list(owner.heads), first)
        else:
            assert owner.others == ""
        assert lost <= shard and len(lost) > 0.7 * len(shard)
        assert len(repr(owner)) < 400 and owner.key[0] in repr(owner)


def test_unknown_keys_have_no_owner(make_relations):
    facts = make_relations(subjects=40, R=3)
    memory = bh.build(facts, "sharded", shard_size=30)
    nobody = memory.owner(facts.vocabulary.token(facts.N - 1), facts.key(0)[1])
    assert (nobody.shard, nobody.heads, nobody.facts) == (None, (), ())
