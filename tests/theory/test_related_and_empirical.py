"""The other papers' rows and the measurements, against counting and cases worked by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byheart.specs import (
    AttentionOnlySpec,
    FeedForwardTransformerSpec,
    MultiHeadSpec,
    TransformerSpec,
)
from byheart.theory.bound import Case
from byheart.theory.registry import find
from byheart.theory.related import (
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


def test_the_information_limit_of_a_layer(ask):
    """W = 4 (2 + 2 · 1024 + 4 · 2 · 3) = 8,296 parameters of 16 bits, 10 bits a fact: 13,273."""
    assert LAYER.parameters == 8296
    answer = ask("related.information", LAYER, bits=16)
    assert answer.capacity == 8296 * 16 // 10 == 13273
    assert answer.bits_per_parameter == pytest.approx(16, rel=1e-3)
    assert ask("related.information", LAYER, 20_000, bits=16).holds is False
    assert ask("related.information", LAYER, 13_000, bits=16).holds is None


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


def test_the_law_of_free_dimensions_on_the_measured_table(ask):
    """Experiment 2 with per-head projections (N = 50, d = 10, H = 20): measured accuracies, as
    associations X = 2500 (acc - 1/50)/(1 - 1/50), lie within the stated residual of 123."""
    measured = [.2453, .3931, .5233, .6128, .6974, .7492, .7791, .7972, .8078, .8146]  # fmt: skip
    for d_h, accuracy in enumerate(measured, start=1):
        X = 2500 * (accuracy - 0.02) / 0.98
        assert abs(trained_associations(10, d_h, 20) - X) <= 123
        spec = AttentionOnlySpec(N=50, S=2, d=10, d_h=d_h, H=20)
        found = ask("empirical.free_dimensions", spec)
        assert found.capacity == round(215 + 0.465 * 2 * (20 * d_h - d_h**2) * 20)
    for other in (
        AttentionOnlySpec(N=51, S=2, d=10, d_h=5, H=20),
        AttentionOnlySpec(N=50, S=2, d=12, d_h=5, H=20),
        AttentionOnlySpec(N=50, S=2, d=10, d_h=11, H=2),
        AttentionOnlySpec(N=50, S=2, d=10, d_h=10, H=40),
    ):
        outside = ask("empirical.free_dimensions", other)
        assert (outside.applies, outside.capacity) == (False, None)
