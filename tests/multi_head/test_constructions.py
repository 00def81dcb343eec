"""Each construction recalls what its theorem says, is refused past it, and fails past the rank."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.literal import literal_forward

import byheart as bh
from byheart.construct.methods import MultiHead
from byheart.construct.multi_head.generic import condition_heads, features, newton_run, random_heads
from byheart.errors import ByheartError, CapacityError, CheckFailed
from byheart.facts import VectorFacts, random_vectors
from byheart.models.vector_memory import VectorMemory
from byheart.specs import MultiHeadSpec
from byheart.theory.mahdavi2024 import (
    effective_parameters,
    generic_rank,
    theorem1_capacity,
    theorem1_heads,
)

SMALL = (4, 8, 16, 8)
LABELS = {"scalar": {}, "vector": {"outputs": 3}, "long vector": {"outputs": 20},
          "classes": {"classes": 5}, "many classes": {"classes": 40}}  # fmt: skip


def build_multi_head(facts: VectorFacts, proof: str = "one-hot", **options: Any) -> Any:
    memory = bh.build(facts, MultiHead(proof=proof, **options))
    assert isinstance(memory, VectorMemory)
    return memory


def examples(T, n=8, d=16, context="fixed", **labels):
    return random_vectors(T, n, d, context, **labels)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 4), st.integers(2, 6), st.integers(0, 5), st.integers(2, 6), st.booleans(),
    st.sampled_from(["one-hot", "literal"]), st.integers(0, 1000),
)  # fmt: skip
def test_the_theorem_holds_at_its_boundary_and_refuses_past_it(
    H, n, wider, d_h, shared, proof, seed
):
    """T = H(min(n, d_h)-1)+1 for all admissible sizes; T+1 is refused, with the heads needed."""
    d = max(n, d_h) + wider
    T = theorem1_capacity(H, n, d_h)
    context = "fixed" if shared else "random"
    facts = random_vectors(T, n, d, context, seed=seed)
    memory = build_multi_head(facts, proof, H=H, d_h=d_h, dtype="float64", tolerance=1e-6)
    assert memory.construction.recalled == T == memory.construction.capacity
    more = random_vectors(T + 1, n, d, context, seed=seed)
    needed = theorem1_heads(T + 1, n, d_h)
    with pytest.raises(CapacityError, match=f"`H={needed}` or more"):
        build_multi_head(more, proof, H=H, d_h=d_h)


@pytest.mark.parametrize("context", ["fixed", "random", "perm"])
@pytest.mark.parametrize("labels", LABELS.values(), ids=list(LABELS))
@pytest.mark.parametrize("proof", ["one-hot", "literal", "random"])
def test_every_kind_of_label_is_held(context, labels, proof):
    facts = examples(29, context=context, **labels)
    memory = build_multi_head(facts, proof, H=4, d_h=8, dtype="float64", tolerance=None)
    assert memory.construction.recalled == 29 and memory.construction.lost == ()
    spec = memory.spec
    assert spec.d_v == min(8 if facts.shared else 16, facts.outputs)
    assert spec.parameters == sum(w.numel() for w in memory.weights.values())
    # The oracle of the layer says the same.
    stacked = {name: w[None] for name, w in memory.weights.items()}
    out = literal_forward(
        dataclasses.replace(spec, shared=None), stacked,
        torch.tensor(facts.contexts()[:3].copy()), torch.tensor(facts.query[:3]),
    )[0]  # fmt: skip
    assert torch.allclose(out, torch.tensor(facts.targets[:3]), atol=1e-7)


@pytest.mark.parametrize("context", ["fixed", "random"])
def test_one_hot_is_exact_in_float32_arithmetic(context):
    """Must show 1 at (8,32,64,32): float32 weights, float32 arithmetic, error <= 1e-5."""
    facts = random_vectors(249, 32, 64, context)
    memory = build_multi_head(facts, H=8, d_h=32)
    assert memory.dtype == torch.float32
    assert float(memory.errors(facts, torch.float32).max()) <= 1e-5
    a = memory.attention(memory.inputs_of(facts))
    assert float(a.max(-1).values.min()) > 1 - 1e-12  # every example saturated in every head
    token = a.argmax(-1).numpy()
    for h, group in enumerate(memory.construction.groups):
        assert len(set(token[group, h].tolist())) == len(group) == 31
    if facts.shared:
        others = np.delete(np.arange(249), memory.construction.groups[0])
        assert set(token[others, 0].tolist()) <= {0, 1}


def test_the_literal_proof_is_lost_in_float32():
    """Exact in float64; in float32 the cancellation on the own examples is gone."""
    facts = random_vectors(249, 32, 64)
    memory = build_multi_head(facts, "literal", H=8, d_h=32, dtype="float64")
    assert memory.construction.error < 1e-9
    assert memory.construction.error_float32 > 1e-3
    with pytest.raises(CheckFailed, match=r"`dtype=float64` .the literal proof needs it"):
        build_multi_head(facts, "literal", H=8, d_h=32)


@pytest.mark.parametrize("context", ["fixed", "random"])
def test_random_heads_reach_the_generic_rank_and_not_one_more(context):
    """The wall: rank D at T = D, still D at D + 1, where least squares misses by far."""
    H, n, d, d_h = SMALL
    D = generic_rank(H, n, d, shared=context == "fixed")
    errors = []
    for T in (D, D + 1):
        facts = random_vectors(T, n, d, context)
        spec = MultiHeadSpec(d, n, d_h, H, shared=facts.shared)
        W_Q, W_K = random_heads(facts, H, d_h)
        X = features(spec, {"W_Q": W_Q, "W_K": W_K}, facts)
        assert int(torch.linalg.matrix_rank(X)) == D
        y = torch.tensor(facts.targets)
        errors.append(
            float((X @ torch.linalg.lstsq(X, y, driver="gelsd").solution - y).abs().max())
        )
    assert errors[0] < 1e-9 and errors[1] > 1e-3
    assert build_multi_head(examples(D, context=context), "random", H=4, d_h=8, dtype="float64")
    with pytest.raises(CapacityError, match=f"{D + 1} examples are more than"):
        build_multi_head(examples(D + 1, context=context), "random", H=4, d_h=8)


def test_a_rank_2_head_is_enough_for_the_generic_rank():
    """d_h = 2 (Theorem 1: 5 examples) has the full rank H(n-1)+1 = 29: it buys digits only."""
    facts = examples(29)
    memory = build_multi_head(facts, "random", H=4, d_h=2, dtype="float64", tolerance=1e-6)
    assert memory.construction.recalled == 29 > theorem1_capacity(4, 8, 2)


def test_conditioning_keeps_the_best_iterate():
    facts = examples(29)
    W_Q, W_K = random_heads(facts, 4, 8)
    spec = MultiHeadSpec(16, 8, 8, 4, shared=True)

    def condition(W_Q, W_K):
        X = features(spec, {"W_Q": W_Q, "W_K": W_K}, facts)
        values = torch.linalg.svdvals(X)
        return float(values[0] / values[-1])

    better_Q, better_K, seen = condition_heads(facts, W_Q, W_K, 60)
    assert condition(better_Q, better_K) == pytest.approx(min(seen), rel=1e-6)
    assert min(seen) < 0.5 * condition(W_Q, W_K)
    worse_Q, worse_K, seen = condition_heads(facts, W_Q, W_K, 40, lr=10.0)  # destroys it
    assert condition(worse_Q, worse_K) <= condition(W_Q, W_K) * (1 + 1e-6)
    memory = build_multi_head(facts, "random", H=4, d_h=8, steps=40)
    assert memory.construction.condition < condition(W_Q, W_K)


@pytest.mark.parametrize(("d_h", "context"), [(16, "fixed"), (4, "random")])
def test_newton_reaches_nine_tenths_of_the_effective_parameters(d_h, context):
    """Must show 3, one seed here; 14 times Theorem 1, and certified."""
    P = effective_parameters(4, 8, 16, d_h, shared=context == "fixed")
    T = int(0.9 * P)
    facts = examples(T, context=context)
    memory = build_multi_head(facts, "newton", H=4, d_h=d_h, dtype="float64", tolerance=1e-6)
    assert memory.construction.recalled == T >= 14 * theorem1_capacity(4, 8, d_h)
    assert bh.certify(memory).certified
    with pytest.raises(CapacityError, match=f"more than P = {P}"):
        build_multi_head(examples(P + 1, context=context), "newton", H=4, d_h=d_h)


def test_newton_fails_above_P_and_says_so():
    """The iteration itself, past the checks: no start fits 1.1 P examples of a small layer."""
    P = effective_parameters(2, 4, 6, 6, shared=True)
    for seed in range(3):
        run = newton_run(random_vectors(int(1.1 * P), 4, 6, seed=seed), 2, 6, seed)
        assert run.error > 1e-3
    P = effective_parameters(2, 4, 6, 1, shared=True)  # rank 1 gets to about 0.6 P only
    with pytest.raises(CheckFailed, match=rf"none of 2 starts fitted all {P} examples .1.00 P.: e"):
        build_multi_head(random_vectors(P, 4, 6), "newton", H=2, d_h=1, starts=2, dtype="float64")


def test_jacobian_is_the_derivative():
    """J v by hand against finite differences, shared and own contexts."""
    from byheart.construct.multi_head import generic

    g = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    e = draw(5, 4)
    for E, rows in ((None, 3), (draw(5, 3, 4), 4)):
        W, K, v = draw(2, 4, 2), draw(2, rows, 2), draw(2, rows)
        f, J = generic._jacobian(e, E, W, K, v)
        step = draw(W.numel() + K.numel() + v.numel())
        dW, dK, dv = step.split([W.numel(), K.numel(), v.numel()])
        t = 1e-6
        up = generic._jacobian(e, E, W + t * dW.view_as(W), K + t * dK.view_as(K),
                              v + t * dv.view_as(v))[0]  # fmt: skip
        assert torch.allclose((up - f) / t, J @ step, atol=1e-4)


@pytest.mark.parametrize("K", [2, 10])
def test_classes_beyond_the_rank_by_a_convex_readout(K):
    """1.5 D for two classes, 3 D for ten: recalled and certified (Must show 6, small)."""
    D = generic_rank(2, 8, 16, shared=True)
    T = int({2: 1.5, 10: 3.0}[K] * D)
    memory = build_multi_head(examples(T, classes=K), "random", H=2, d_h=8, readout="convex")
    assert memory.construction.recalled == T > D
    assert bh.certify(memory).certified


def test_an_overloaded_convex_readout_lists_what_it_lost():
    memory = build_multi_head(examples(200, classes=2), "random", H=2, d_h=8, readout="convex")
    lost = [fact.row for fact in memory.construction.lost]
    assert lost and memory.facts is not None
    assert memory.facts.T + len(lost) == 200
    assert not set(memory.facts.rows.tolist()) & set(lost)
    assert bh.certify(memory).certified  # what it kept, it holds


@pytest.mark.parametrize("proof", ["one-hot", "literal", "random", "newton"])
def test_heads_are_chosen_when_not_given(proof):
    memory = build_multi_head(examples(29), proof, dtype="float64", tolerance=1e-6)
    assert memory.construction.recalled == 29
    assert any(reason.startswith("H = ") for reason in memory.construction.why)


def with_context(facts, i, rows):
    context = np.array(facts.context)
    context[i] = rows
    return VectorFacts.make(context, facts.query, facts.label)


def test_contexts_that_fail_assumption_2_are_named():
    own = examples(20, context="random")
    context = np.array(own.context[7])
    context[3] = context[2]
    with pytest.raises(CapacityError, match="context of example 7 has rank 7 < n = 8"):
        build_multi_head(with_context(own, 7, context))
    shared = VectorFacts.make(context, own.query, own.label)
    with pytest.raises(CapacityError, match="the shared context has rank 7 < n = 8"):
        build_multi_head(shared)


def test_queries_that_fail_assumption_1_are_named():
    own = examples(29, context="random")
    query = np.array(own.query)
    query[11] = query[4]
    facts = VectorFacts.make(own.context, query, own.label)
    with pytest.raises(CapacityError, match=r"example (4|11) (lies in the span|depends on)"):
        build_multi_head(facts, H=4, d_h=8)
    # Other contexts tell the two apart: random heads do not need Assumption 1.
    assert build_multi_head(facts, "random", H=4, d_h=8).construction.recalled == 29


@pytest.mark.parametrize(
    ("facts", "options", "message"),
    [
        (lambda: examples(9, n=8, d=6), {}, "n <= d is needed .* n = 8 tokens of d = 6"),
        (lambda: examples(9, n=1), {}, "n >= 2 is needed"),
        (lambda: examples(30), {"H": 4, "d_h": 8}, r"30 examples .* H\(r-1\)\+1 = 4·7\+1 = 29"),
        (lambda: examples(9), {"d_h": 1}, "d_h = 1 owns"),
        (lambda: examples(9), {"d_h": 99}, "d_h <= d is needed: 99 > 16"),
        (lambda: examples(9), {"proof": "magic"}, "`proof` must be one of one-hot, literal"),
        (lambda: examples(9), {"dtype": "float16"}, "`dtype` must be one of float32, float64"),
        (lambda: examples(9), {"readout": "convex"}, "for classes and random heads"),
        (lambda: examples(9), {"readout": "odd"}, "exact, convex"),
        (lambda: examples(9, classes=3), {"proof": "newton"}, "fits scalar labels"),
        (lambda: examples(9, classes=3), {"tolerance": 1e-3}, "classes are right or wrong"),
        (lambda: examples(9), {"tolerance": -1.0}, "`tolerance` must be a positive"),
        (lambda: examples(9), {"steps": 3}, "belongs to `proof=random`"),
        (lambda: examples(9), {"slack": -1.0}, "slack"),
    ],
)
def test_what_cannot_be_built_is_refused_with_the_reason(facts, options, message):
    with pytest.raises(ByheartError, match=message):
        build_multi_head(facts(), **options)


def test_build_takes_vectors_too():
    facts = examples(29)
    memory = bh.build(facts, "multihead", H=4, d_h=8)
    assert isinstance(memory, VectorMemory)
    assert (
        bh.build(facts, proof="random", dtype="float64").construction.to_json()["proof"] == "random"
    )
    with pytest.raises(ByheartError, match="use `method` multihead"):
        bh.build(facts, "attention")
    with pytest.raises(ByheartError, match="multihead takes vectors, found facts"):
        bh.build(bh.read_facts("elements"), "multihead")


def test_planted_dependences_that_the_proof_does_not_use_do_no_harm():
    """Kruskal rank 2, and every label is held: the assumption is far stronger than the need."""
    facts = random_vectors(249, 32, 64)
    query = np.array(facts.query)
    query[40] = query[100] + query[200]
    planted = VectorFacts.make(facts.context, query, facts.label)
    assert bh.kruskal_report(query, 32, draws=10).upper == 2
    assert build_multi_head(planted, H=8, d_h=32).construction.recalled == 249


def test_digits_are_memorized_by_construction():
    pytest.importorskip("sklearn")
    facts = bh.digit_vectors(100, classes=None)
    memory = build_multi_head(facts)
    assert memory.construction.recalled == 100 and bh.certify(memory).certified


@pytest.mark.slow
@pytest.mark.parametrize("context", ["fixed", "random"])
@pytest.mark.parametrize("size", [(20, 32, 64, 64), (60, 32, 64, 64), (32, 64, 128, 64)])
def test_the_sizes_of_the_paper(size, context):
    H, n, d, d_h = size
    facts = random_vectors(theorem1_capacity(H, n, d_h), n, d, context)
    memory = build_multi_head(facts, H=H, d_h=d_h)
    assert float(memory.errors(facts, torch.float32).max()) <= 1e-5
    assert bh.certify(memory).certified


@pytest.mark.slow
def test_hundred_classes_at_twenty_times_the_rank():
    facts = random_vectors(4980, 32, 64, classes=100)
    memory = build_multi_head(facts, "random", H=8, d_h=32, readout="convex")
    assert memory.construction.recalled == 4980
    assert bh.certify(memory).certified
