"""Mahdavi et al. 2024: ranks and dimensions of random layers, measured, against the formulas."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from byheart.specs import AttentionOnlySpec, MultiHeadSpec, TransformerSpec
from byheart.theory.bound import Case, explanation
from byheart.theory.mahdavi2024 import (
    effective_parameters,
    generic_rank,
    partly_shared,
    theorem1_capacity,
    theorem1_heads,
)
from byheart.theory.registry import case_of, find


def examples(n, d, T, shared, seed=0):
    r = np.random.default_rng(seed)
    contexts = r.normal(size=(1 if shared else T, n, d)).repeat(T if shared else 1, axis=0)
    return contexts, r.normal(size=(T, d))


def heads(contexts, queries, H, d_h, seed=1):
    """Z (T, H d): what H random heads of rank d_h give the read-out."""
    r = np.random.default_rng(seed)
    d, columns = queries.shape[1], []
    for _ in range(H):
        W = r.normal(size=(d, d_h)) @ r.normal(size=(d_h, d)) / np.sqrt(d * d_h)
        scores = np.einsum("tnd,de,te->tn", contexts, W, queries)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        columns.append(np.einsum("tn,tnd->td", weights, contexts))
    return np.concatenate(columns, axis=1)


def rank(Z):
    """Numerical rank with the largest gap below 1e-8 of the top: generic ranks show a wide gap."""
    values = np.linalg.svd(Z, compute_uv=False)
    return int((values > 1e-9 * values[0]).sum())


@pytest.mark.parametrize(
    ("H", "n", "d", "d_h"), [(4, 8, 16, 8), (3, 5, 9, 4), (6, 3, 6, 6), (5, 4, 4, 4), (7, 6, 6, 3)]
)
@pytest.mark.parametrize("shared", [True, False])
def test_theorem1_examples_can_be_fitted(ask, H, n, d, d_h, shared):
    """At T = H(r-1)+1 the features have full row rank, so every label vector is a combination; at
    n = d too, which the paper (n < d) leaves out."""
    answer = ask("mahdavi2024.theorem1", MultiHeadSpec(d=d, n=n, d_h=d_h, H=H, shared=shared))
    T = answer.capacity
    assert T == H * (min(n, d_h) - 1) + 1
    assert rank(heads(*examples(n, d, T, shared), H, d_h)) == T
    assert answer.parameters == H * (2 * d * d_h + d + 1)


def test_the_paper_has_a_smaller_context_than_the_width():
    """The hypothesis says what is printed beside what the proof needs."""
    said = explanation(find("mahdavi2024.theorem1"))
    assert "n <= d (the paper: n < d)" in said["needs"]
    assert any("The paper has n < d." in line for line in said["corrections"])


def test_theorem1_on_the_sizes_of_the_paper(ask):
    """H = 20, n = 32, d = 64: 20 · 31 + 1 = 621; with Kruskal rank 10: 20 · 9 + 1 = 181."""
    spec = MultiHeadSpec(d=64, n=32, d_h=64, H=20)
    assert ask("mahdavi2024.theorem1", spec).capacity == 621
    assert ask("mahdavi2024.theorem1", spec, kruskal=10).capacity == 181
    refused = ask("mahdavi2024.theorem1", spec, kruskal=1)
    assert (refused.applies, refused.capacity) == (False, None)


@pytest.mark.parametrize(("H", "n", "d", "d_h"), [(4, 8, 16, 8), (3, 5, 4, 2), (5, 6, 6, 3)])
def test_a_shared_context_bounds_the_rank(ask, H, n, d, d_h):
    """rank(Z) <= H(n-1)+1 for one context, and min(H(n-1)+1, H d) is reached (n > d too)."""
    spec = MultiHeadSpec(d=d, n=n, d_h=d_h, H=H, shared=True)
    tight = ask("mahdavi2024.tightness", spec).capacity
    generic = ask("mahdavi2024.generic_rank_shared", spec).capacity
    found = rank(heads(*examples(n, d, H * n + 10, True), H, d_h))
    assert found == generic == min(H * (n - 1) + 1, H * d)
    assert found <= tight == H * (n - 1) + 1


@pytest.mark.parametrize(("H", "n", "d", "d_h"), [(4, 2, 6, 2), (3, 8, 6, 3), (5, 4, 5, 2)])
def test_own_contexts_give_rank_H_d(ask, H, n, d, d_h):
    spec = MultiHeadSpec(d=d, n=n, d_h=d_h, H=H, shared=False)
    found = rank(heads(*examples(n, d, H * d + 10, False), H, d_h))
    assert found == ask("mahdavi2024.generic_rank", spec).capacity == H * d
    refused = ask("mahdavi2024.generic_rank", MultiHeadSpec(d=d, n=1, d_h=d_h, H=H))
    assert (refused.applies, refused.capacity) == (False, None)


def dimension(H, n, d, d_h, contexts, queries):
    """Rank of the Jacobian of the T outputs in all weights (W_K, W_Q, read-out), complex step."""
    r = np.random.default_rng(2)
    shapes = [(H, d, d_h), (H, d, d_h), (H, d)]
    theta = r.normal(size=sum(int(np.prod(s)) for s in shapes)) / np.sqrt(d)
    step = 1e-30

    def output(theta):
        W_K, W_Q, w = (
            part.reshape(shape)
            for part, shape in zip(
                np.split(theta, np.cumsum([np.prod(s) for s in shapes])[:-1]), shapes, strict=True
            )
        )
        scores = np.einsum("tnd,hdk,hek,te->htn", contexts, W_K, W_Q, queries)
        weights = np.exp(scores)
        weights /= weights.sum(axis=2, keepdims=True)
        return np.einsum("htn,tnd,hd->t", weights, contexts, w)

    columns = [
        output(theta + 1j * step * np.eye(1, len(theta), i)[0]).imag / step
        for i in range(len(theta))
    ]
    return rank(np.stack(columns, axis=1))


@pytest.mark.parametrize(
    ("H", "n", "d", "d_h"), [(2, 4, 5, 2), (2, 4, 5, 5), (3, 3, 4, 1), (2, 5, 3, 2), (2, 4, 3, 3)]
)
def test_effective_parameters_are_the_dimension_of_the_family(ask, H, n, d, d_h):
    """P is the rank of the Jacobian at random weights and more than P random examples."""
    for shared, bound in (
        (True, "mahdavi2024.effective_parameters_shared"),
        (False, "mahdavi2024.effective_parameters"),
    ):
        spec = MultiHeadSpec(d=d, n=n, d_h=d_h, H=H, shared=shared)
        P = ask(bound, spec).capacity
        assert P == dimension(H, n, d, d_h, *examples(n, d, P + 8, shared))


@pytest.mark.parametrize("more", ["embed", "decoder"])
def test_the_hard_limit_is_not_given_where_more_is_trained(ask, more):
    """The rank of the Jacobian is above P (the decoder has a bias)."""
    from byheart.models.architectures import initial
    from byheart.models.multi_head import forward

    spec = MultiHeadSpec(d=4, n=3, d_h=2, H=2, shared=False)
    P = ask("mahdavi2024.effective_parameters", spec).capacity
    wide = replace(spec, **{more: True})
    contexts, queries = (torch.tensor(x) for x in examples(3, 4, 3 * P, False))
    start = initial(wide, [torch.Generator().manual_seed(0)], torch.float64)
    names, shapes = list(start), [w.shape for w in start.values()]
    sizes = [w.numel() for w in start.values()]

    def outputs(flat: torch.Tensor) -> torch.Tensor:
        parts = zip(names, flat.split(sizes), shapes, strict=True)
        weights = {name: part.view(shape) for name, part, shape in parts}
        return forward(wide, weights, contexts, queries).flatten()

    flat = torch.cat([w.flatten() for w in start.values()])
    jacobian = torch.autograd.functional.jacobian(outputs, flat)
    assert rank(jacobian.numpy()) > P
    for bound in ("effective_parameters_shared", "effective_parameters"):
        own = replace(wide, shared=bound.endswith("shared"))
        answer = ask(f"mahdavi2024.{bound}", own)
        assert (answer.applies, answer.capacity) == (False, None)
        assert "an embedding or a decoder is trained" in answer.reason


def test_effective_parameters_of_the_recipes():
    """Levenberg-Marquardt table: H = 4, n = 8, d = 16; n <= d form H q (d+n-1-q) + H(n-1) + 1."""
    assert [effective_parameters(4, 8, 16, d_h, shared=True) for d_h in (16, 7, 4, 2, 1)] == [
        477, 477, 333, 197, 117,
    ]  # fmt: skip
    assert effective_parameters(6, 10, 20, 20, shared=True) == 1135
    assert [effective_parameters(4, 8, 16, d_h, shared=False) for d_h in (1, 4, 16)] == [
        188, 512, 1088,
    ]  # fmt: skip


def test_assumption3_needs_a_second_layer(ask):
    """ViT-B/16: 12 heads of 64, n = 197: 12 · 63 + 1 = 757, in layer 2."""
    vit = TransformerSpec(d=768, H=12, d_h=64, S=197, N=None, layers=12)
    answer = ask("mahdavi2024.assumption3", vit)
    assert answer.capacity == 757
    assert answer.parameters == 2 * 12 * (2 * 768 * 64 + 768 + 1)
    one = TransformerSpec(d=768, H=12, d_h=64, S=197, N=None, layers=1)
    assert ask("mahdavi2024.assumption3", one).reason == "needs layers >= 2: 1 < 2"


def test_uniform_attention_repairs_equal_queries():
    """One query for all: Kruskal rank 1. After e + mean(E) any n of them are independent."""
    contexts, _ = examples(4, 8, 20, False)
    query = np.ones(8)
    repaired = query + contexts.mean(axis=1)
    r = np.random.default_rng(0)
    picks = [r.choice(20, size=4, replace=False) for _ in range(200)]
    assert all(np.linalg.matrix_rank(repaired[pick]) == 4 for pick in picks)


def test_equal_queries_and_few_tokens_are_refused(ask):
    """T facts with fewer last tokens have two equal queries: Assumption 1 fails."""

    class Facts:
        T, S, N, last_tokens = 10, 2, 40, 4
        prior = np.full(10, 0.1)
        answer_ids = np.arange(5)

    spec = AttentionOnlySpec(N=40, S=2, d=5, d_h=2, H=3)
    refused = ask("mahdavi2024.theorem1", spec, Facts())
    assert (refused.applies, refused.capacity) == (False, None)
    assert "10 different queries" in refused.reason
    many = AttentionOnlySpec(N=20, S=4, d=8, d_h=8, H=10)  # 10 · 3 + 1 = 31 queries, 20 tokens
    assert (
        "31 different queries (Assumption 1): 20 tokens" in ask("mahdavi2024.theorem1", many).reason
    )


def test_grouped_queries_count_the_groups_only(ask):
    """9 heads in 3 groups: 3 · (64 - 1) + 1 = 190, and it is said; rotary positions are refused."""
    spec = TransformerSpec(
        d=576, H=9, kv_heads=3, d_h=64, S=128, N=49152, layers=2, positions="learned"
    )
    answer = ask("mahdavi2024.theorem1", spec)
    assert answer.capacity == 190
    assert "3 of 9 heads" in answer.note
    assert ask("dana2025.corollary1", spec).capacity == 3 * 64 + 576
    rotary = TransformerSpec(d=576, H=9, d_h=64, S=128, N=9, layers=2, positions="rotary")
    assert "rotary" in ask("mahdavi2024.theorem1", rotary).reason


def test_the_rank_of_the_scores_counts_not_the_width_of_the_values(ask):
    """W_QK of rank 2 and d_h = 4: r = min(n, 2), 5 · 1 + 1 = 6, not 5 · 2 + 1 = 11."""
    spec = AttentionOnlySpec(N=40, S=3, d=6, d_h=4, H=5, qk_rank=2)
    answer = ask("mahdavi2024.theorem1", spec)
    assert answer.capacity == 6
    assert "rank 2" in answer.note


def test_trained_embeddings_are_not_limited_by_P(ask):
    answer = ask("mahdavi2024.effective_parameters", AttentionOnlySpec(N=9, S=2, d=4, d_h=2, H=2))
    assert (answer.applies, answer.capacity) == (False, None)


sizes = st.integers(2, 10**12)


@given(H=sizes, n=sizes, d=sizes, d_h=sizes)
def test_capacity_is_monotone(H, n, d, d_h):
    """In H, in d_h and in n; the limits also in d."""
    here = theorem1_capacity(H, n, d_h)
    assert theorem1_capacity(H + 1, n, d_h) > here
    assert theorem1_capacity(H, n, d_h + 1) >= here
    assert theorem1_capacity(H, n + 1, d_h) >= here
    for shared in (True, False):
        P = effective_parameters(H, n, d, d_h, shared=shared)
        assert effective_parameters(H + 1, n, d, d_h, shared=shared) > P
        assert effective_parameters(H, n, d + 1, d_h, shared=shared) > P
        assert effective_parameters(H, n, d, d_h + 1, shared=shared) >= P
        assert P >= generic_rank(H, n, d, shared=shared)
        if n <= d:
            assert P >= theorem1_capacity(H, n, d_h)


@given(H=sizes, n=sizes, d=sizes, d_h=sizes)
def test_no_number_outside_the_hypotheses(H, n, d, d_h):
    answer = find("mahdavi2024.theorem1").answer(case_of(MultiHeadSpec(d=d, n=n, d_h=d_h, H=H)))
    assert (answer.capacity is None) == (n > d or d_h > d)
    if n > d:
        assert answer.reason == f"needs n <= d: {n} > {d}"


@given(T=st.integers(2, 10**12), n=st.integers(2, 10**6), d_h=st.integers(2, 10**6))
def test_heads_are_enough_and_one_fewer_is_not(T, n, d_h):
    H = theorem1_heads(T, n, d_h)
    assert theorem1_capacity(H, n, d_h) >= T
    if H > 1:
        assert theorem1_capacity(H - 1, n, d_h) < T


@given(T=st.integers(2, 10**9))
def test_the_smallest_layer_is_eleven_parameters_a_fact(T):
    """(2r² + r + 1)/(r - 1) is 11 at r = 2 and 3, more elsewhere; whole heads round up."""
    size = find("mahdavi2024.theorem1").size
    assert size is not None
    found = size(Case(T=T))
    assert 11 * (T - 1) <= found.parameters <= 11 * (T - 1) + 11
    d, n, d_h, H = (int(found.sizes[name]) for name in ("d", "n", "d_h", "H"))
    spec = MultiHeadSpec(d=d, n=n, d_h=d_h, H=H)
    assert spec.parameters == found.parameters
    assert theorem1_capacity(spec.H, spec.n, spec.d_h) >= T


@given(
    H=st.integers(1, 5), n=st.integers(1, 6), d=st.integers(1, 9), c=st.integers(1, 9),
    k=st.integers(1, 30),
)  # fmt: skip
def test_partly_shared_contexts_have_the_derived_rank(H, n, d, c, k):
    """rank(Z) = min(c k, R) for c contexts with k examples each, whatever the sizes (n > d too)."""
    contexts, queries = partly(n, d, c, k)
    assert rank(heads(contexts, queries, H, d)) == min(c * k, partly_shared(H, n, d, d, c)[0])


@pytest.mark.parametrize(
    ("H", "n", "d", "d_h"), [(2, 3, 6, 2), (2, 3, 6, 6), (3, 2, 5, 1), (2, 5, 4, 2), (1, 3, 7, 3)]
)
@pytest.mark.parametrize("c", [1, 2, 3, 5])
def test_partly_shared_contexts_have_the_derived_dimension(H, n, d, d_h, c):
    P = partly_shared(H, n, d, d_h, c)[1]
    for k in (max(1, P // c - 2), P // c + 4):
        assert dimension(H, n, d, d_h, *partly(n, d, c, k)) == min(c * k, P)


def partly(n, d, c, k):
    """c contexts, each with k queries."""
    contexts, queries = examples(n, d, c * k, False, seed=c + k)
    return contexts[:c].repeat(k, axis=0), queries


@given(H=st.integers(1, 9), n=st.integers(1, 9), d=st.integers(1, 9), d_h=st.integers(1, 9))
def test_the_ends_of_partial_sharing_are_the_two_known_cases(H, n, d, d_h):
    """One context, and so many that more change nothing; between them R and P are concave."""
    for shared, c in ((True, 1), (False, d)):
        R, P = partly_shared(H, n, d, d_h, c)
        assert R == generic_rank(H, n, d, shared=shared)
        assert n == 1 or P == effective_parameters(H, n, d, d_h, shared=shared)
    sizes = [partly_shared(H, n, d, d_h, c) for c in range(2 * d + 2)]
    steps = np.diff(np.array(sizes), axis=0)
    assert sizes[0] == (0, 0) and (steps >= 0).all() and (np.diff(steps, axis=0) <= 0).all()
