"""Every fact is recalled through its own heads and through the whole literal layer."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.literal import memory_logits

import byheart as bh
from byheart.certificates.arithmetic import U
from byheart.certificates.arithmetic import margins as bounded_margins
from byheart.certificates.sharded import leaks, sharded_margins
from byheart.construct.sharded.plan import plan
from byheart.models import attention_only
from byheart.models.sharded import residual, to_dense, with_bos
from byheart.specs import ShardedSpec

SETTINGS = settings(max_examples=60, deadline=None, derandomize=True)
U32 = 2.0**-24

tables = st.fixed_dictionaries(
    {
        "N": st.integers(2, 14),
        "S": st.integers(1, 4),
        "T": st.integers(1, 70),
        "seed": st.integers(0, 2**20),
        "keys": st.sampled_from(["uniform", "zipf", "geometric", "few last", "repeated", "roles"]),
        "answers": st.sampled_from(["uniform", "equal", "distinct"]),
    }
)
options = st.fixed_dictionaries(
    {
        "shard_size": st.sampled_from([2, 5, 20, 250]),
        "dtype": st.sampled_from(["float32", "float64"]),
        "untied": st.booleans(),
        "code": st.sampled_from(["lat1", "lat2"]),
        "gate": st.sampled_from(["query", "query", "key", "subject-sink"]),
    }
)


def assert_exact(memory, facts, found):
    """Recall, agreement of sparse and dense, and the certificate's bound around the truth."""
    spec, weights = memory.spec, dict(memory.weights)
    right = torch.tensor(facts.answers)
    promised = [found.own64, found.full64]
    if memory.dtype == torch.float32:
        promised += [found.own32, found.full32]
    for logits in promised:
        assert (logits.argmax(1) == right).all()
    ids = memory.in_order(facts.tokens)
    proof = sharded_margins(spec, weights, ids, right, lambda _: None)
    margins, bounds = proof.margins, proof.bounds
    assert (margins > bounds).all()
    # |literal - W_U w_g| <= max|w| (|δ| + |leak|) = bound / 2, whatever the token.
    W_U = weights["W_U"].double()
    ideal = (W_U.T @ W_U)[right]
    room = torch.tensor(bounds)[:, None] / 2 + found.bounded.error
    assert ((found.bounded.value - ideal).abs() <= room * (1 + 1e-9) + 1e-15).all()
    # The proof by evaluating every head says the same, and cannot be worse.
    margin, error = bounded_margins(found.bounded, right)
    assert (torch.tensor(margins - bounds) <= margin + error).all()
    # Sparse and dense: a leak apart, and twice the rounding of the larger of the two sums.
    leak = leaks(spec, weights, ids)
    norms = float(weights["W_O"].double().flatten(1).norm(dim=1).sum())
    apart = (leak.foreign + 3 * leak.shut * norms) * float(W_U.norm(dim=0).max())
    assert ((found.full64 - found.own64).abs() <= apart + 2 * found.bounded.error).all()
    # Error bounds are linear in the unit roundoff as long as they are small.
    coarse = 2 * found.bounded.error * U32 / U
    assert ((found.full32 - found.own32).abs().double() <= apart + coarse + 1e-5).all()


@SETTINGS
@given(table=tables, options=options)
def test_random_tables(make_table, make_literal, table, options):
    facts = make_table(**table)
    refused = None
    try:
        plan(facts, bh.Sharded(**options))
    except bh.ByheartError as error:
        refused = str(error)
    if refused is not None:
        # Only the gates that promise less may refuse, and only for the reasons they give.
        assert options["gate"] != "query", refused
        reasons = ("one role each", "keys of", "at least 2 tokens", "the key gate cannot split")
        assert any(reason in refused for reason in reasons), refused
        return
    memory = bh.build(facts, "sharded", **options)
    assert memory.construction.recalled == facts.T
    assert_exact(memory, facts, make_literal(memory, facts))


@pytest.mark.parametrize("gate", ["query", "key", "subject-sink"])
@pytest.mark.parametrize("R", [1, 2, 10, 50])
def test_relations_last(make_relations, make_literal, gate, R):
    facts = make_relations(subjects=600 // R, R=R)
    memory = bh.build(facts, "sharded", gate=gate, shard_size=100)
    assert memory.spec.to_json()["gate"] == gate
    if gate != "query":
        assert memory.order == (0, 1)  # the subject decides where it stands
    assert_exact(memory, facts, make_literal(memory, facts))


@pytest.mark.parametrize("S", [3, 5])
@pytest.mark.parametrize("untied", [False, True])
def test_subject_sink_for_longer_keys(make_relations, make_literal, S, untied):
    facts = make_relations(subjects=100, R=5, S=S)
    memory = bh.build(facts, "sharded", gate="subject-sink", shard_size=80, untied=untied)
    found = make_literal(memory, facts)
    assert_exact(memory, facts, found)
    # In two parts the cancelling heads leave nothing that float64 could see.
    assert float((found.full64 - found.own64).abs().max()) < 1e-9


def test_one_fact_and_equal_answers(make_table, make_literal):
    for T in (1, 30):
        facts = make_table(N=8, S=2, T=T, seed=0, answers="equal")
        memory = bh.build(facts, "sharded", shard_size=10)
        assert_exact(memory, facts, make_literal(memory, facts))


def test_a_token_in_nine_tenths_of_the_facts(make_literal):
    rng = np.random.default_rng(0)
    tokens = np.stack([np.arange(1000), np.where(rng.random(1000) < 0.9, 0, 1 + np.arange(1000))])
    names = tuple(str(i) for i in range(1001))
    facts = bh.Facts.make(tokens.T, rng.integers(50, size=1000), bh.Vocabulary(names))
    # Column 1 has no hot token; forced to the other, the planner splits it by bits.
    assert bh.build(facts, "sharded").order == (1, 0)
    both = np.concatenate([tokens.T, tokens.T[:, ::-1]])
    _, first = np.unique(both, axis=0, return_index=True)
    both = both[np.sort(first)]
    facts = bh.Facts.make(both, rng.integers(50, size=len(both)), bh.Vocabulary(names))
    memory = bh.build(facts, "sharded", shard_size=100)
    assert isinstance(memory.spec, ShardedSpec) and memory.spec.bits > 0
    assert_exact(memory, facts, make_literal(memory, facts))


@pytest.mark.parametrize("gate", ["query", "key", "subject-sink"])
def test_an_unknown_deciding_token_opens_no_head(make_relations, gate):
    """Reserved far point: the output is x_S, in the literal layer too."""
    facts = make_relations(subjects=40, R=5)
    memory = bh.build(facts, "sharded", gate=gate, shard_size=20)
    assert isinstance(memory.spec, ShardedSpec)
    unused = int(np.setdiff1d(np.arange(facts.N), facts.tokens)[0])
    tokens = facts.tokens[:10].copy()
    tokens[:, 0] = unused
    ids = memory.in_order(tokens)
    own = memory.outputs(memory.with_start(tokens), torch.float64)
    dense, weights = to_dense(memory.spec, dict(memory.weights))
    full = memory_logits(dense, weights, memory.with_start(tokens), torch.float64)
    w = memory.weights
    x_S = (w["W_E"].double()[ids[:, -1]] + w["W_pos"].double()[-1]) @ w["W_U"].double()
    assert torch.equal(own, x_S)
    assert float((full - x_S).abs().max()) < 1e-9


@pytest.mark.parametrize("lam", [2.0, 8.0, 16.0, 32.0, 64.0])
@pytest.mark.parametrize("gate", ["query", "key", "subject-sink"])
def test_leak_stays_below_its_bound_for_any_strength(make_relations, gate, lam):
    """|leak| <= S e^{s_max - λ} times norms: at small λ it can be seen, and it falls like e^-λ."""
    facts = make_relations(subjects=60, R=4)
    memory = bh.build(facts, "sharded", gate=gate, shard_size=30, dtype="float64")
    assert isinstance(memory.spec, ShardedSpec)
    spec, ids = replace(memory.spec, lam=lam), memory.in_order(facts.tokens)
    weights = dict(memory.weights)
    dense, written = to_dense(spec, weights)
    stacked = {name: w[None] for name, w in written.items()}
    full = attention_only.residual(dense, stacked, with_bos(spec, ids))[0, :, : spec.d_g]
    leak = (full - residual(spec, weights, ids)).norm(dim=1)
    bound = leaks(spec, weights, ids)
    norms = float(weights["W_O"].flatten(1).norm(dim=1).sum())
    assert float(leak.max()) <= bound.foreign + 3 * bound.shut * norms + 1e-10
    if lam <= 8.0:
        assert float(leak.max()) > 1e-6  # visible, or the test shows nothing


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"untied": True}, {"code": "lat1"}, {"gate": "key"}, {"gate": "subject-sink"}],
    ids=str,
)
def test_100_000_facts(options):
    """Certified, and a sample through every head in float32."""
    rng = np.random.default_rng(0)
    tokens = np.stack([np.repeat(np.arange(20_000), 5), 20_000 + np.tile(np.arange(5), 20_000)], 1)
    names = tuple(str(i) for i in range(21_005))
    facts = bh.Facts.make(tokens, 20_005 + rng.integers(1000, size=100_000), bh.Vocabulary(names))
    memory = bh.build(facts, "sharded", **options)
    assert bh.certify(memory).certified
    spec = memory.spec
    assert isinstance(spec, ShardedSpec)
    dense, weights = to_dense(spec, dict(memory.weights))
    some = rng.choice(facts.T, 50, replace=False)
    ids = memory.with_start(facts.tokens[some])
    for i in range(0, 50, 10):
        logits = memory_logits(dense, weights, ids[i : i + 10], torch.float32)
        assert (logits.argmax(1).numpy() == facts.answers[some[i : i + 10]]).all()


def test_gates_do_not_mix_with_scores_in_float32(make_relations):
    """λ |P|² is about 10^5 here: summed with the generic scores it would cost them a digit."""
    facts = make_relations(subjects=2000, R=2)
    memory = bh.build(facts, "sharded", gate="key", shard_size=4)
    assert isinstance(memory.spec, ShardedSpec) and memory.spec.groups == 1000
    ids = memory.in_order(facts.tokens[::40])
    dense, weights = to_dense(memory.spec, dict(memory.weights))
    full = with_bos(memory.spec, ids)
    stacked = {name: w[None].float() for name, w in weights.items()}
    _, F = attention_only.head_outputs(dense, stacked, full)
    _, exact = attention_only.head_outputs(dense, {k: w.double() for k, w in stacked.items()}, full)
    assert float((F - exact).abs().max()) < 2e-5
