"""Kajitsuka and Sato 2025: formulas against direct evaluation, chains and built networks."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import byheart as bh
from byheart.errors import ByheartError
from byheart.facts import random_associations
from byheart.specs import AttentionOnlySpec, FeedForwardTransformerSpec, TransformerSpec
from byheart.theory.bound import Case, largest
from byheart.theory.kajitsuka2025 import (
    Table,
    best_table,
    corollary41,
    log2_R,
    low_bits,
    memorizer_depth,
    sparse_size,
    theorem41,
    theorem42_parameters,
    theorem43_parameters,
    theoremD1,
    theoremE1,
    theoremF1,
)
from byheart.theory.registry import case_of, find

DATA = {"n": 10, "d": 4, "spread": 2.0**11}


def lemma_C1(N, R, C):
    """The printed depth, straight from R and C."""
    log = math.log2
    return (
        2
        + (3 * math.sqrt(N * log(N)) + 2)
        + 3 * math.sqrt(N / log(N)) * max(log(R), log(C))
        + 2 * math.sqrt(N / log(N))
        + 2
    )


def test_theorem41_at_ten_thousand_sequences():
    """N = 10^4, n = 10, d = 4, r/δ = 2^11, C = 2, from the printed constants themselves."""
    N, n, d, spread = 10**4, 10, 4, 2**11
    R = 400 * math.sqrt(3 * d) * n**3 * spread * N**5 * math.pi
    R_phi = 20 * spread * (N * n) ** 2 * math.sqrt(math.pi * d)
    C_phi = math.ceil(4 * N**3 * math.sqrt(math.pi))
    ids, labels = math.ceil(lemma_C1(N, R_phi, C_phi)), math.ceil(lemma_C1(N, R, 2))
    found = theorem41(N, C=2, **DATA)
    assert found.log2_R == pytest.approx(math.log2(R))
    assert found.depth == ids + labels == 14643
    dense = (14 * 14 + 14) * ids + (12 * 12 + 12) * labels
    embed, attention, read = 14 * d, 4 * 14, 14
    assert found.parameters == dense + embed + attention + read
    assert round(found.parameters, -4) == 2_570_000


def test_theorem41_falls_below_T_at_a_billion():
    assert round(theorem41(10**6, C=2, **DATA).parameters, -6) == 28_000_000
    assert theorem41(1_053_239_599, C=2, **DATA).parameters < 1_053_239_599
    assert theorem41(1_050_000_000, C=2, **DATA).parameters > 1_050_000_000


def spec(blocks, q=14, m=14, **options):
    return FeedForwardTransformerSpec(d=4, n=10, m=m, q=q, blocks=blocks, **options)


def with_data(spec_, facts=None, **options):
    """The separation of the tokens is data, not architecture."""
    return case_of(spec_, facts, spread=2.0**11, answers=2, **options)


def test_theorem41_capacity_is_the_deepest_network_that_fits():
    bound = find("kajitsuka2025.theorem41")
    answer = bound.answer(with_data(spec(14643)))
    T = answer.capacity
    assert T is not None and T >= 10**4
    assert theorem41(int(T), C=2, **DATA).depth <= 14643 < theorem41(int(T) + 1, C=2, **DATA).depth
    assert answer.parameters == spec(14643).parameters
    shallow = bound.answer(with_data(spec(10)))
    assert (shallow.applies, shallow.capacity) == (False, None)
    least = theorem41(2, C=2, **DATA).depth
    assert shallow.reason == f"needs depth >= {least} for 2 sequences: 10"
    narrow = bound.answer(with_data(spec(14643, q=8, m=2)))
    assert narrow.reason == "needs width >= 14: 8 < 14"


def test_corollary41_is_theorem41_for_every_token():
    """n T tokens: 1,000 sequences of 10 need what 10^4 next-token problems need."""
    assert corollary41(1000, C=2, **DATA) == theorem41(10**4, C=2, **DATA)
    answer = find("kajitsuka2025.corollary41").answer(with_data(spec(14643)))
    next_token = find("kajitsuka2025.theorem41").answer(with_data(spec(14643))).capacity
    assert next_token is not None
    assert answer.capacity == next_token // 10


def test_theoremD1_by_direct_evaluation():
    """T = 100 multisets of at most 10 in R^4: R = 80 M² N⁵ r δ^{-1} π sqrt d."""
    T, M, d, spread = 100, 10, 4, 2.0**11
    R = 80 * M**2 * T**5 * spread * math.pi * math.sqrt(d)
    ids = lemma_C1(T, 20 * spread * (T * M) ** 2 * math.sqrt(math.pi * d), 4 * T**3 * math.pi**0.5)
    depth = math.ceil(ids) + math.ceil(lemma_C1(T, R, 2))
    found = theoremD1(T, M, d, spread, 2)
    assert (found.depth, found.width) == (depth, 12)
    assert found.parameters == 12 * 13 * depth + 12 * d
    answer = find("kajitsuka2025.theoremD1").answer(with_data(spec(depth, q=12, m=12)))
    assert answer.capacity is not None and answer.capacity >= T


def test_theoremE1_by_direct_evaluation():
    """ω = 1,000 ids: R = 200 sqrt 3 n² r N⁵ δ^{-1} ω π; ω parameters replace FF1."""
    T, n, omega = 10**4, 10, 1000
    R = 200 * math.sqrt(3) * n**2 * omega * T**5 * omega * math.pi
    depth = math.ceil(lemma_C1(T, R, 2))
    found = theoremE1(T, n, float(omega), 2, omega)
    assert (found.depth, found.parameters) == (depth, omega + 12 * 13 * depth)
    size = find("kajitsuka2025.theoremE1").size
    assert size is not None
    assert size(Case(T=T, n=n, S=n, N=100, answers=2)).parameters == found.parameters


def test_theoremF1_by_direct_evaluation():
    """B = 10 at T = 10^4: 100 networks for 100 points each, keys and labels as for all."""
    T, n, d, spread, B = 10**4, 10, 4, 2.0**11, 10
    R = 2 ** log2_R(T, n, d, spread)
    one = math.ceil(
        lemma_C1(100, 20 * spread * (T * n) ** 2 * math.sqrt(math.pi * d), 4 * T**3 * math.pi**0.5)
    ) + math.ceil(lemma_C1(100, R, 2))
    found = theoremF1(T, n, d, spread, 2, B)
    assert (found.depth, found.width) == (100 * one, 15)
    assert found.parameters == 15 * 16 * found.depth
    assert found.bits == pytest.approx(2 + 10 / math.sqrt(math.log2(10)) * math.log2(R))
    for wrong in (1, 101):
        with pytest.raises(ByheartError, match="2 <= B <="):
            theoremF1(T, n, d, spread, 2, wrong)


def test_theoremF1_needs_more_bits_than_a_float_has():
    """B = 2: 2 + 2/1 · 99.5 = 201 bits (up to a constant), not 32."""
    bound = find("kajitsuka2025.theoremF1")
    case = with_data(spec(10**9, q=15, m=15), 10**4)
    refused = bound.answer(case)
    assert (refused.applies, refused.capacity) == (False, None)
    assert "about 201 bits" in refused.reason and refused.reason.endswith("32")
    allowed = bound.answer(with_data(spec(10**6, q=15, m=15), 10**4, bits=4096))
    T = allowed.capacity
    assert allowed.applies is True and T is not None
    # Deeper networks or more bits would be needed for one more.
    most = max(
        B
        for B in range(2, math.isqrt(int(T)) + 1)
        if theoremF1(int(T), C=2, B=B, **DATA).bits <= 4096
    )
    assert theoremF1(int(T), C=2, B=most, **DATA).depth <= 10**6


@given(copies=st.integers(1, 100), B=st.integers(2, 10**3))
def test_more_bits_fewer_parameters(copies, B):
    """The trade-off, at T that both B and B + 1 divide into whole networks."""
    T = copies * (B * (B + 1)) ** 2
    few, more = (theoremF1(T, 10, 4, 2.0**11, 2, b) for b in (B, B + 1))
    assert more.parameters < few.parameters
    assert more.bits > few.bits


def test_theorem42_and_theorem43_follow_from_their_chains(ask):
    """W = ceil of the bound satisfies nT <= 3 W² log2(48 e n³ T); one less does not."""
    for T, n in ((10**4, 1), (10**4, 8), (10**9, 100)):
        W = math.ceil(theorem43_parameters(T, n))
        right = math.log2(48 * math.e * n**3 * T)
        assert 3 * (W - 1) ** 2 * right < n * T <= 3 * W**2 * right
        assert theorem43_parameters(T, n) >= math.sqrt(n * T / 9 / math.log2(48 * math.e * n * T))


def test_theorem42_is_of_order_sqrt_T(ask):
    """W = Ω(sqrt T), without a logarithm: T <= 16 W (W + 1) from VC dimension <= 4 W (t + 2)."""
    for T in (1, 10, 32, 33, 10**4, 10**9, 16 * 10**30 + 1):
        W = theorem42_parameters(T)
        assert 16 * (W - 1) * W < T <= 16 * W * (W + 1) == 4 * W * (4 * W + 2 + 2)
    assert theorem42_parameters(10**4) == 25
    assert theorem42_parameters(4 * 10**12) == 2 * theorem42_parameters(10**12)
    # Theorem 4.3 at n = 1 has a logarithm and says less.
    assert theorem43_parameters(10**4, 1) < 13
    formula = find("kajitsuka2025.theorem42").statement.formula
    assert formula == "T <= 16 W (W + 1), so W >= sqrt(T/16 + 1/4) - 1/2"


@pytest.mark.parametrize(("m", "q", "blocks", "s"), [(2, 8, 4, 1), (1, 1, 1, 1), (14, 14, 9, 3)])
def test_the_operations_of_theorem42(m, q, blocks, s):
    """One of n equal tokens through E_in, blocks x + W_2 relu(W_1 x + b_1) + b_2, x + W_O W_V x and
    E_out, operation by operation: at most 4 W + 2."""
    spec = FeedForwardTransformerSpec(d=6, n=10, m=m, q=q, blocks=blocks, s=s)
    products = 6 * m + blocks * 2 * m * q + 2 * m * s + m  # each with a sum
    biases, relus, skips = blocks * (m + q), blocks * q, blocks * m + m
    t = 2 * products + biases + 2 * relus + skips + 2
    assert t <= 4 * spec.parameters + 2


def test_the_lower_bounds_as_limits_of_a_spec(ask):
    small = FeedForwardTransformerSpec(d=6, n=10, m=2, q=8, blocks=4)  # 190 parameters
    assert ask("kajitsuka2025.theorem42", small).capacity == 16 * 190 * 191
    assert "hardmax" in ask("kajitsuka2025.theorem43", small).reason
    hard = FeedForwardTransformerSpec(d=6, n=10, m=2, q=8, blocks=4, attention="hardmax")
    T = ask("kajitsuka2025.theorem43", hard).capacity
    assert theorem43_parameters(T, 10) <= 190 < theorem43_parameters(T + 1, 10)
    gelu = TransformerSpec(d=8, H=2, d_h=4, S=8, N=10, layers=2, d_ff=32)
    assert ask("kajitsuka2025.theorem42", gelu).applies is False
    # With positions, sequences of equal tokens are not constant: softmax enters the function.
    layer = AttentionOnlySpec(N=10, S=3, d=4, d_h=2, H=3)
    assert "needs no positions" in ask("kajitsuka2025.theorem42", layer).reason
    bare = AttentionOnlySpec(N=10, S=3, d=4, d_h=2, H=3, positions="none")
    assert ask("kajitsuka2025.theorem42", bare).applies is True


def test_bits_are_parameters_times_bits(ask):
    """T = 100 facts over 10 tokens, keys of 2: d = 2, r = |(10, 2)|, C = 10."""
    layer = AttentionOnlySpec(N=10, S=2, d=4, d_h=2, H=3)
    literal = theorem41(100, 2, 2, math.hypot(10, 2), 10)
    R = 400 * math.sqrt(6) * 8 * math.hypot(10, 2) * 100**5 * math.pi
    bits = 1 + math.sqrt(100 / math.log2(100)) * math.log2(R)
    answer = ask("kajitsuka2025.bits", layer, 100)
    assert answer.capacity == pytest.approx(literal.parameters * bits)
    assert "332 bits" in answer.note  # 100 log2 10
    assert ask("kajitsuka2025.bits", layer).applies is None


@pytest.mark.parametrize(
    ("k", "t", "parameters", "bits"),
    [(5, 12, 12298, 66), (12, 16, 5738, 205), (31, 17, 3864, 559), (60, 19, 5045, 1201),
     (100, 20, 7620, 2101), (400, 20, 28182, 8401)],
)  # fmt: skip
def test_the_table_counts_what_the_prototype_built(k, t, parameters, bits):
    """K = 10^4, w = 26, c = 1: parameters and largest weight of networks that were built."""
    table = Table(K=10**4, w=26, c=1, k=k, t=t)
    assert (table.parameters, table.largest_weight_bits) == (parameters, bits)


def test_the_best_group_is_the_best_of_all_groups():
    for K in (10, 100, 3000):
        w = 2 * math.ceil(math.log2(K)) - 2
        every = min(Table(K, w, 1, k, low_bits(K, k, w)).parameters for k in range(1, K + 1))
        assert best_table(K, w, 1).parameters <= every * 1.01


def test_the_sparse_estimate_is_near_the_built_networks(ask):
    """Random facts, built: the estimate is within five per cent."""
    for T, N, S in ((300, 100, 2), (3000, 50, 3), (4000, 1000, 2)):
        facts = random_associations(N=N, S=S, T=T)
        estimate = sparse_size(
            T, key_bits=math.ceil(math.log2(N * S)), C=len(facts.answer_ids), n=S
        )
        assert estimate.parameters == pytest.approx(
            bh.build(facts, "sqrt").spec.parameters, rel=0.05
        )
    size = find("kajitsuka2025.sparse").size
    assert size is not None
    sizes = [size(Case(T=T, N=1000, S=2)).parameters for T in (10**3, 10**5)]
    assert 0.45 < math.log(sizes[1] / sizes[0]) / math.log(100) < 0.55
    layer = AttentionOnlySpec(N=10, S=2, d=4, d_h=2, H=3)
    assert ask("kajitsuka2025.sparse", layer).applies is None


@given(T=st.integers(2, 10**15), n=st.integers(1, 10**6), d=st.integers(1, 10**4))
def test_sizes_grow_with_the_facts(T, n, d):
    here = theorem41(T, n, d, 10.0, 2)
    more = theorem41(2 * T, n, d, 10.0, 2)
    assert more.parameters > here.parameters
    assert more.depth > here.depth
    assert theorem42_parameters(32 * T) > theorem42_parameters(T)


def test_one_sequence_is_refused():
    with pytest.raises(ByheartError, match="at least 2"):
        memorizer_depth(1, 10.0, 1.0)


@pytest.mark.parametrize(
    ("layers", "bits"), [(9000, 100_000), (9000, 2000), (2500, 10**6), (700, 10**5)]
)
def test_the_inverse_of_theoremF1_is_the_largest_T(layers, bits):
    """Depth is not monotone in T: with 9,000 layers and 10^5 bits, 1,370 facts with the largest B
    for them are too many, and 69² are not."""
    case = with_data(spec(layers, q=15, m=15), 4, bits=bits)
    found = int(find("kajitsuka2025.theoremF1").answer(case).capacity or 3)

    def possible(T: int, B: int) -> bool:
        network = theoremF1(T, C=2, B=B, **DATA)
        return network.depth <= layers and network.bits <= bits

    near = range(found, found + found // 5 + 9)  # all above are deeper still, at every B
    held = [T for T in near for B in range(2, math.isqrt(T) + 1) if possible(T, B)]
    assert found == max(held, default=3)


@pytest.mark.parametrize("layers", [60_000, 100_000, 199_999, 250_000])
@pytest.mark.parametrize("bits", [3000, 40_000, 10**9])
def test_the_inverse_of_theoremF1_at_large_sizes(layers, bits):
    """Against every B, one by one: a B far below the largest can be the best, because 3.99 networks
    are three, and with a slightly smaller B four."""
    case = with_data(spec(layers, q=15, m=15), 4, bits=bits)

    def within(T: int, B: int) -> bool:
        network = theoremF1(T, C=2, B=B, **DATA)
        return network.depth <= layers and network.bits <= bits

    best, B = 3, 2
    while within(B * B, B):
        copies = layers // theoremF1(B * B, C=2, B=B, **DATA).depth
        if copies * B * B > best:
            best = max(best, largest(lambda T: within(T, B), B * B))  # noqa: B023
        B += 1
    assert find("kajitsuka2025.theoremF1").answer(case).capacity == best
