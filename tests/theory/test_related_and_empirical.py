"""The other papers' rows and the measurements, against counting and cases worked by hand."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import byheart as bh
from byheart.papers.slides.associative import drawn, summed
from byheart.specs import (
    AssociativeSpec,
    AttentionOnlySpec,
    FeedForwardTransformerSpec,
    MultiHeadSpec,
    TransformerSpec,
)
from byheart.theory.bound import Case
from byheart.theory.registry import find
from byheart.theory.related import (
    DOF_LAW,
    associative_capacity,
    associative_width,
    bubeck_neurons,
    facts_in_bits,
    information_parameters,
    trained_associations,
    vardi_parameters,
)

LAYER = AttentionOnlySpec(N=1024, S=2, d=4, d_h=2, H=3)
GPT2 = TransformerSpec(
    d=768, H=12, d_h=64, S=1024, N=50257, layers=12, d_ff=3072, bias=True, tied=True, other=1536
)


@given(T=st.integers(1, 2000), A=st.integers(2, 5000), bits=st.integers(1, 64))
def test_the_information_limit_is_counting_tables(T, A, bits):
    """A^T tables, 2^(W bits) settings of the parameters: W is enough for the count, W - 1 is not.

    Exact whole numbers; where A is a power of two both sides can be equal.
    """
    W = information_parameters(T, A, bits)
    assert A**T <= 2 ** (W * bits)
    assert A**T > 2 ** ((W - 1) * bits)


@given(bits=st.integers(1, 5000), A=st.integers(2, 5000))
def test_the_facts_in_so_many_bits(bits, A):
    T = facts_in_bits(bits, A)
    assert A**T <= 2**bits < A ** (T + 1)


@pytest.mark.parametrize("A", [3, 10, 50_257])
def test_counts_are_exact_where_floats_are_not(A):
    """2^b just below and at the smallest power of two above A^T, T so large that floats jump."""
    T = 3 * 10**17 + 1  # no double
    b = information_parameters(T, A, 1)
    assert facts_in_bits(b, A) >= T > facts_in_bits(b - 1, A)
    assert facts_in_bits(64 * T, 2**64) == T == information_parameters(T, 2**64, 64)


@pytest.mark.parametrize("A", [3, 10, 50_257])
def test_counts_are_exact_where_facts_almost_fill_the_bits(A):
    """b/T a continued fraction of log2 A: A^T and 2^b as near as such numbers come, on either side.
    Compared as whole numbers of up to half a million bits."""
    before, at = (1, 0), (0, 1)
    x = Fraction(math.log2(A))
    sides = set()
    for _ in range(12):
        whole = math.floor(x)
        before, at = (whole * before[0] + at[0], whole * before[1] + at[1]), before
        b, T = before
        if b > 5e5 or x == whole:
            break
        if b and T:
            fits = A**T <= 2**b
            sides.add(fits)
            assert (facts_in_bits(b, A) >= T) is fits
            assert (information_parameters(T, A, b) == 1) is fits
        x = 1 / (x - whole)
    assert sides == {True, False}


def test_the_information_limit_of_a_layer(ask):
    """W = 4 (2 + 2 · 1024 + 4 · 2 · 3) = 8,296 parameters of 16 bits, 10 bits a fact: 13,273."""
    assert LAYER.parameters == 8296
    answer = ask("related.information", LAYER, bits=16)
    assert answer.capacity == 8296 * 16 // 10 == 13273
    assert answer.bits_per_parameter == pytest.approx(16, rel=1e-3)
    assert ask("related.information", LAYER, 20_000, bits=16).holds is False
    assert ask("related.information", LAYER, 13_000, bits=16).holds is None


def recalled(T: int, d: int, answers: int, seed: int) -> float:
    """Share of T random facts whose sum gives the right answer the largest logit."""
    X, U, right = drawn(T, d, answers, seed)
    logits = X @ summed(X, U, right) @ U.T
    return float((logits.argmax(1) == right).float().mean())


@pytest.mark.parametrize(("d", "answers"), [(64, 0), (128, 0), (128, 16), (128, 64)])
def test_an_associative_memory_holds_about_d_squared_by_log(d, answers):
    """At the stated T the sum recalls 0.6 to 0.8 of random facts, at a quarter of it nearly all:
    far above d with an answer for every key, of order d with few."""
    T = associative_capacity(d, answers or None)
    shares = [sum(recalled(t, d, answers, seed) for seed in range(5)) / 5 for t in (T, T // 4)]
    assert 0.6 < shares[0] < 0.8
    assert shares[1] > 0.97
    assert (T > 4 * d) == (answers in (0, 64))


def test_a_trained_matrix_holds_more_than_its_sum():
    """W by gradient descent on the logistic loss, d = 32: all of the 83 facts (and half as many
    again) whose sum recalls two thirds."""
    d, source = 32, np.random.default_rng(0)
    T = associative_capacity(d) * 3 // 2
    keys, out = (x / np.linalg.norm(x, axis=1)[:, None] for x in source.normal(size=(2, T, d)))
    W = keys.T @ out
    for _ in range(400):
        logits = 10 * keys @ W @ out.T
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        W -= 0.5 * keys.T @ (p / p.sum(axis=1, keepdims=True) - np.eye(T)) @ out
    assert ((keys @ W @ out.T).argmax(axis=1) == np.arange(T)).all()


@given(T=st.integers(1, 10**12), A=st.integers(2, 10**6))
def test_the_width_of_an_associative_memory_inverts_its_capacity(T, A):
    d = associative_width(T, A)
    assert associative_capacity(d, A) >= T
    assert d == 2 or associative_capacity(d - 1, A) < T


def test_a_million_facts_are_no_trillion_parameters(ask):
    """d = sqrt(2 T log T) = 5,271 in place of d = T = 10^6, which is for outputs, not answers."""
    (row,) = bh.size(T=10**6, N=10**6, S=2, families=["associative"])
    assert row.sizes["d"] == pytest.approx(math.sqrt(2e6 * math.log(1e6)), rel=0.01)
    spec = AssociativeSpec(N=10**6, S=2, d=5271)
    assert ask("related.associative_memory", spec).capacity >= 10**6
    exact = ask("dana2025.associative", spec)
    assert (exact.capacity, exact.parameters) == (5271, spec.parameters)
    assert ask("related.associative_memory", LAYER).applies is False


def test_two_layer_networks(ask):
    """T = 1,000 in R^64: 4 · 16 = 64 neurons, each 64 weights, a bias, an output weight: 4,224."""
    assert bubeck_neurons(1000, 64) == 64
    size = find("related.bubeck2020").size
    assert size is not None
    assert size(Case(T=1000, d=64)).parameters == 4224
    relu = FeedForwardTransformerSpec(d=6, n=10, m=64, q=64, blocks=1)
    answer = ask("related.bubeck2020", relu)
    assert (answer.capacity, answer.parameters) == (1024, 4224)
    assert "gelu" in ask("related.bubeck2020", GPT2).reason
    assert "attention only" in ask("related.bubeck2020", LAYER).reason


def test_deep_relu_networks_of_width_twelve(ask):
    """T = 10^4 points in R^4, r/δ = 2^11: R = 20 · 2^11 · 10^8 sqrt(4π) is 2^43.7.

    sqrt(T log T) = 364.5, sqrt(T/log T) = 27.43: depth 2 + 1095.6 + 3 · 27.43 · 43.7 + 54.9 + 2,
    that is 4,753; times 156 and 13 · 4 for the projection.
    """
    R = 20 * 2**11 * 10**8 * math.sqrt(4 * math.pi)
    depth = 2 + 3 * 364.53 + 2 + 3 * 27.433 * math.log2(R) + 2 * 27.433 + 2
    assert vardi_parameters(10**4, 4, 2.0**11, 2) == pytest.approx(156 * depth + 52, rel=1e-3)
    assert ask("related.vardi2022", LAYER, 100).applies is False
    size = find("related.vardi2022").size
    assert size is not None
    assert size(Case(T=10**4, N=100, S=2)).parameters > 0


@given(N=st.integers(2, 50), T=st.integers(1, 50))
def test_distributions_have_N_minus_1_free_numbers(N, T):
    """T distributions over N tokens: T (N - 1) numbers; the bound inverts its size."""
    bound = find("related.madden2024")
    assert bound.size is not None
    needed = bound.size(Case(T=T, N=N)).parameters
    assert needed == T * N - T
    assert bound.answer(Case(parameters=int(needed), N=N)).capacity == T
    assert bound.answer(Case(parameters=int(needed) - 1, N=N)).capacity == T - 1


def test_without_separation_half_as_many_parameters_as_points(ask):
    """W >= (T-1)/2: 5 parameters shatter at most 11 points in general position."""
    bound = find("related.sontag1997")
    assert bound.size is not None
    assert [bound.size(Case(T=T)).parameters for T in (10, 11, 12)] == [5, 5, 6]
    assert bound.answer(Case(parameters=5)).capacity == 11
    vectors = MultiHeadSpec(d=4, n=2, d_h=2, H=1)
    assert ask("related.sontag1997", vectors).capacity == 2 * vectors.parameters + 1
    assert ask("related.sontag1997", LAYER).applies is False


@pytest.mark.parametrize(
    "bound",
    ["related.park2021", "related.kim2023", "related.kajitsuka2023", "related.vc_dimension"],
)
def test_orders_without_constants_give_no_number(ask, bound):
    answer = ask(bound, LAYER, 100)
    assert (answer.applies, answer.capacity) == (None, None)
    assert "no number" in answer.reason
    assert answer.exactness in ("up to constants", "up to logs")


@pytest.mark.parametrize(
    ("bound", "rate"),
    [("empirical.knowledge_capacity", 2.0), ("empirical.memorization_capacity", 3.6)],
)
def test_bits_per_parameter_of_trained_models(ask, bound, rate):
    """GPT-2 small: 124,439,808 parameters, log2 50257 = 15.617 bits a fact."""
    answer = ask(bound, GPT2)
    assert answer.capacity == math.floor(rate * 124_439_808 / math.log2(50257))
    assert answer.kind == "measurement"
    assert answer.bits_per_parameter == pytest.approx(rate, rel=1e-6)
    assert ask(bound, LAYER).applies is False


def test_the_law_of_free_dimensions_is_that_of_the_recorded_study(ask, tmp_path):
    """X0 and κ of both measures and the largest residual, from the study's recorded rows."""
    result = bh.reproduce("dana2025/dof-law", recorded=True, store=tmp_path / "store.db")
    numbers = result.finding.numbers
    for law, by in (("sample", "training sample"), ("all", "all facts")):
        X0, slope = DOF_LAW[law]
        assert X0 == round(numbers[f"X0, {by}"]["estimate"])
        assert slope == round(numbers[f"κ, {by}"]["estimate"], 3)
    answer = ask("empirical.free_dimensions", AttentionOnlySpec(N=50, S=2, d=10, d_h=5, H=20))
    assert f"largest residual {numbers['largest residual, all facts']:.0f}" in answer.note
    for law in DOF_LAW.values():
        assert f"{law[0]:.0f} + {law[1]} dof" in find("empirical.free_dimensions").statement.formula


def test_the_law_of_free_dimensions_on_the_measured_table(ask):
    """Experiment 2 with per-head projections (N = 50, d = 10, H = 20): accuracies on the training
    sample, measured once more (other seeds), as X = 2500 (acc - 1/50)/(1 - 1/50)."""
    measured = [.2453, .3931, .5233, .6128, .6974, .7492, .7791, .7972, .8078, .8146]  # fmt: skip
    for d_h, accuracy in enumerate(measured, start=1):
        X = 2500 * (accuracy - 0.02) / 0.98
        assert abs(trained_associations(10, d_h, 20, sample=True) - X) <= 135
        spec = AttentionOnlySpec(N=50, S=2, d=10, d_h=d_h, H=20)
        found = ask("empirical.free_dimensions", spec)
        assert found.capacity == round(141 + 0.432 * 2 * (20 * d_h - d_h**2) * 20)
    narrow = AttentionOnlySpec(N=50, S=2, d=10, d_h=10, H=20, qk_rank=2)  # 20 (36 + 100)
    assert ask("empirical.free_dimensions", narrow).capacity == round(141 + 0.432 * 2720)
    for other in (
        AttentionOnlySpec(N=51, S=2, d=10, d_h=5, H=20),
        AttentionOnlySpec(N=50, S=2, d=12, d_h=5, H=20),
        AttentionOnlySpec(N=50, S=2, d=10, d_h=11, H=2),
        AttentionOnlySpec(N=50, S=2, d=10, d_h=10, H=40),
    ):
        outside = ask("empirical.free_dimensions", other)
        assert (outside.applies, outside.capacity) == (False, None)
