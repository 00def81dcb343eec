"""What no layer can exceed: counts of sign patterns against arrangements and layers that exist."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import byheart as bh
from byheart.specs import AssociativeSpec, AttentionOnlySpec
from byheart.theory.case import case_of
from byheart.theory.limits import (
    hardmax_bits,
    matrix_bits,
    operations,
    pfaffian_bits,
    pfaffian_dimension,
    shattered,
    sign_patterns,
    softmax_bits,
)

COUNTED = {
    "limits.hardmax": hardmax_bits,
    "limits.softmax_tokens": softmax_bits,
    "limits.softmax": pfaffian_bits,
    "limits.associative": matrix_bits,
}


@given(m=st.integers(1, 2000), W=st.integers(1, 40))
def test_hyperplanes_have_fewer_regions_than_the_bound(m, W):
    """m hyperplanes in general position in R^W: Σ_{i <= W} C(m, i) regions (Schläfli, Cover)."""
    regions = sum(math.comb(m, i) for i in range(W + 1))
    assert math.log2(regions) <= sign_patterns(m, 1, W) + 1e-9
    assert sign_patterns(m, 1, W) <= sign_patterns(m, 1, W, zeros=True)


@given(m=st.integers(1, 500), D=st.integers(1, 20))
def test_polynomials_of_one_variable(m, D):
    """m polynomials with D real roots each, all different: m D + 1 intervals between them."""
    assert math.log2(m * D + 1) <= sign_patterns(m, D, 1) + 1e-9 or 2**m < m * D + 1


@given(m=st.integers(1, 300), V=st.integers(1, 300))
def test_sauer_is_above_the_binomials(m, V):
    binomials = sum(math.comb(m, i) for i in range(min(m, V) + 1))
    assert math.log2(binomials) <= shattered(m, V) + 1e-9


def tables(spec, draws, seed=0):
    """How many different tables random weights of a layer of two tokens and width 1 recall, over
    all keys of two tokens: the literal layer, ties left out."""
    r, N = np.random.default_rng(seed), spec.N
    keys = np.array(list(itertools.product(range(N), repeat=2)))
    found = set()
    for _ in range(draws):
        e, pos, W_U = r.normal(size=N), r.normal(size=2), r.normal(size=N)
        W_QK, W_OV = r.normal(size=(2, spec.H)) * 3
        x = e[keys] + pos
        scores = x[:, 1, None, None] * W_QK[:, None] * x[:, None, :]
        if spec.attention == "hardmax":
            a = (scores == scores.max(axis=2, keepdims=True)) * 1.0
        else:
            a = np.exp(scores - scores.max(axis=2, keepdims=True))
        heads = np.einsum("ths,ts->th", a / a.sum(axis=2, keepdims=True), x)
        logits = (x[:, 1] + heads @ W_OV)[:, None] * W_U
        found.add(tuple(logits.argmax(axis=1)))
    return len(found)


@pytest.mark.parametrize("attention", ["hardmax", "softmax"])
@pytest.mark.parametrize(("N", "H"), [(2, 1), (3, 1), (3, 2)])
def test_a_layer_recalls_no_more_tables_than_counted(N, H, attention):
    spec = AttentionOnlySpec(N=N, S=2, d=1, d_h=1, H=H, attention=attention)
    case, T = case_of(spec), N**2
    bits = hardmax_bits if attention == "hardmax" else softmax_bits
    assert math.log2(tables(spec, 3000)) <= min(bits(case, T), pfaffian_bits(case, T))


@pytest.mark.parametrize(
    ("bound", "spec"),
    [
        ("limits.hardmax", AttentionOnlySpec(N=10, S=6, d=4, d_h=4, H=2, attention="hardmax")),
        ("limits.softmax_tokens", AttentionOnlySpec(N=10, S=6, d=4, d_h=4, H=2)),
        ("limits.softmax", AttentionOnlySpec(N=10, S=12, d=4, d_h=4, H=2)),
        ("limits.associative", AssociativeSpec(N=1000, S=2, d=64)),
    ],
)
def test_the_limit_is_where_the_tables_outnumber_the_patterns(ask, bound, spec):
    """T log2 A <= b(T) at the limit and not beyond; 1 % beyond, next to no table is held."""
    answer, case = ask(bound, spec), case_of(spec)
    T, bits, A = int(answer.capacity), COUNTED[bound], math.log2(spec.N)
    assert T * A <= bits(case, T) * (1 + 1e-9)
    assert (T + 1) * A > bits(case, T + 1)
    more = math.ceil(1.01 * T)
    assert more * A - bits(case, more) > 40 and "1 % more" in answer.note
    assert ask(bound, spec, T + 1).holds is False
    assert ask(bound, spec, T).holds is None


def test_the_numbers_by_hand(ask):
    """N = 10, S = 6, d = 4, d_h = 4, H = 2: W = 232 parameters, 128 in the scores, 4,763 = ..."""
    spec = AttentionOnlySpec(N=10, S=6, d=4, d_h=4, H=2)
    case = case_of(spec)
    assert spec.parameters == 4 * (6 + 20 + 4 * 4 * 2) == 232
    V = 232 - 2 * 4 * 4 * 2 + 2 * 100 * 5
    at = V * math.log2(4 * math.e * 6 * 45 * 4763 / V)
    assert softmax_bits(case, 4763) == pytest.approx(at)
    assert ask("limits.softmax_tokens", spec).capacity == 4763
    t, q = operations(case)
    assert q == 2 * 5
    assert pfaffian_dimension(232, q, t) > (232 * 11) ** 2


@settings(max_examples=60, deadline=None)
@given(N=st.integers(2, 10**4), S=st.integers(2, 40), d=st.integers(2, 200),
       H=st.integers(1, 100), hard=st.booleans())  # fmt: skip
def test_limits_are_above_what_is_built(N, S, d, H, hard):
    """Corollary 1 builds H d_h + d facts; b(T) is concave, so that one crossing is all."""
    spec = AttentionOnlySpec(N=N, S=S, d=d, d_h=d, H=H, attention="hardmax" if hard else "softmax")
    rows = {a.id: a for a in bh.bounds(spec) if a.applies}
    limits = [rows[name] for name in COUNTED if name in rows]
    assert len(limits) == (1 if hard else 2)
    built = H * d + d
    for limit in limits:
        assert limit.capacity is not None and min(built, N**S) <= limit.capacity
        bits, case, T = COUNTED[limit.id], case_of(spec), int(limit.capacity)
        first, second, third = (bits(case, t) for t in (T, 2 * T, 3 * T))
        assert second - first >= (third - second) * (1 - 1e-9)


def test_two_tokens_are_too_few_for_a_softmax_limit(ask):
    """S = 2: N² keys and N² exponentials a head. Both softmax limits say that they say nothing."""
    spec = AttentionOnlySpec(N=50, S=2, d=10, d_h=10, H=1)
    for bound in ("limits.softmax_tokens", "limits.softmax"):
        assert "says nothing: there are only N^n = 2,500 keys" in ask(bound, spec).note


def test_other_architectures_are_refused(ask):
    deep = AttentionOnlySpec(N=10, S=3, d=4, d_h=4, H=2, layers=2, attention="hardmax")
    assert ask("limits.hardmax", deep).reason == "counts one attention-only layer: this is 2 layers"
    soft = AttentionOnlySpec(N=10, S=3, d=4, d_h=4, H=2)
    assert ask("limits.hardmax", soft).reason == "needs hardmax attention, found softmax"
    assert ask("limits.associative", soft).applies is False
