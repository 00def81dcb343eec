"""Dana et al. 2025: the divergence bounds hold on random tasks; C in two ways; the false bound."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byheart.errors import ByheartError
from byheart.specs import AttentionOnlySpec
from byheart.theory.dana2025 import (
    bennett_bound,
    coherence,
    divergence,
    shannon,
    slides_least_squares,
    slides_weighted_least_squares,
    theorem1_constant,
    theorem1_constant_svd,
    theorem1_excess,
    theorem1_excess_per_sequence,
    theorem2_bound,
    theorem2_factor,
    theorem2_logits,
)
from byheart.theory.registry import find

SPEC = AttentionOnlySpec(N=10, S=2, d=4, d_h=2, H=3)
seeds = st.integers(0, 2**32 - 1)


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@settings(max_examples=40, deadline=None)
@given(seeds, st.integers(1, 12), st.integers(1, 20))
def test_the_constant_of_theorem1_in_two_ways(seed, m, more):
    """sqrt(1 + |X_1^{-1} X_2|²) and 1/σ_min(V_11) agree to 1e-8, whatever the conditioning is."""
    r = np.random.default_rng(seed)
    X1, X2 = r.normal(size=(m, m)), r.normal(size=(m, more))
    if np.linalg.cond(X1) > 1e6:
        return
    direct, by_svd = theorem1_constant(X1, X2), theorem1_constant_svd(X1, X2)
    assert by_svd == pytest.approx(direct, rel=1e-8)
    # And the printed sqrt(1 + |V_11^{-1}|²) is at most sqrt 2 too large.
    assert direct <= math.hypot(1, by_svd) <= math.sqrt(2) * direct * (1 + 1e-8)


def test_the_constant_of_theorem1_by_hand():
    """X_1 = diag(2, 1), X_2 = (6, 4): X_1^{-1} X_2 = (3, 4) has norm 5, C = sqrt 26."""
    assert theorem1_constant([[2, 0], [0, 1]], [[6], [4]]) == pytest.approx(math.sqrt(26))
    assert theorem1_constant(np.eye(3), np.zeros((3, 0))) == 1.0


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_theorem1_holds_and_the_sharper_form_lies_between(seed):
    """The literal construction on random features: the change of KL, the two bounds above it."""
    assert "theorem1_constant" in find("dana2025.theorem1").statement.constants
    r = np.random.default_rng(seed)
    N, d, m, T = 6, 3, 8, 14
    pi = r.dirichlet(np.full(N, 0.7), size=T) * 0.99 + 0.01 / N
    prior = np.sort(r.dirichlet(np.ones(T)))[::-1]
    W, E, X = r.normal(size=(N, d)), r.normal(size=(d, T)), r.normal(size=(m, T))
    if np.linalg.cond(X[:, :m]) > 1e5:
        return
    W_O = E[:, :m] @ np.linalg.inv(X[:, :m])
    before = divergence(pi, (W @ E).T, prior)
    after = divergence(pi, (W @ W_O @ X).T, prior)
    sharp = theorem1_excess_per_sequence(pi, prior, W, E, X)
    C = theorem1_constant(X[:, :m], X[:, m:])
    published = theorem1_excess(C, float(prior[m:].sum()), W @ E)
    assert abs(after - before) <= sharp * (1 + 1e-9)
    assert sharp <= published * (1 + 1e-9)


def test_the_factor_sqrt2_of_theorem1_cannot_be_dropped():
    """The printed C ε |W E| fails for this encoder (one likely sequence, ε = 1/2).

    W = (1, -1)^T, E = (-1, 0), X = (1, 10): on the second sequence f = 0, but the layer's logits
    are 10 (-1, 1). With π = (1, 0) up to 1e-9 the KL grows from log 2 to log(1 + e^20), by 19.31;
    times 1/2 that is 9.65. C = sqrt 101, |W E| = sqrt 2: C ε |W E| = 7.11 < 9.65 < sqrt 2 · 7.11.
    """
    pi, prior = np.array([[0.5, 0.5], [1 - 1e-9, 1e-9]]), [0.5, 0.5]
    W, E, X = np.array([[1.0], [-1.0]]), np.array([[-1.0, 0.0]]), np.array([[1.0, 10.0]])
    layer = (W @ E[:, :1] @ X).T
    change = divergence(pi, layer, prior) - divergence(pi, (W @ E).T, prior)
    bound = theorem1_excess(theorem1_constant(X[:, :1], X[:, 1:]), 0.5, W @ E)
    assert change == pytest.approx((20 - math.log(2)) / 2, abs=1e-6)
    sharp = theorem1_excess_per_sequence(pi, prior, W, E, X)
    assert bound / math.sqrt(2) < change <= sharp <= bound


@settings(max_examples=30, deadline=None)
@given(seeds, st.integers(3, 9), st.integers(2, 9), st.floats(0.05, 3.0))
def test_theorem2_holds_on_random_frames(seed, N, d, concentration):
    assert "theorem2_bound(pi, W)" in find("dana2025.theorem2_unit").statement.matrices
    r = np.random.default_rng(seed)
    pi = r.dirichlet(np.full(N, concentration), size=12) * (1 - 1e-6) + 1e-6 / N
    prior = r.dirichlet(np.ones(12))
    W = unit(r.normal(size=(N, d)))
    if coherence(W)[1] > 0.999:
        return
    f = theorem2_logits(pi, W)
    assert divergence(pi, f, prior) <= theorem2_bound(pi, W, prior) * (1 + 1e-9) + 1e-12


def test_theorem2_lambda_solves_its_equation():
    """Against scipy's root finder."""
    from scipy.optimize import brentq

    r = np.random.default_rng(3)
    pi, W = r.dirichlet(np.full(7, 0.5), size=5), unit(r.normal(size=(7, 4)))
    f = theorem2_logits(pi, W)
    for t in range(5):
        g = int(pi[t].argmax())
        entropy = -sum(p * math.log(p) for p in pi[t])

        def gap(lam, g=g, entropy=entropy):
            return np.logaddexp.reduce(lam * (W @ W[g] - W[g] @ W[g])) - entropy

        lam = brentq(gap, 0, 1e4, xtol=1e-13)
        assert f[t, g] == pytest.approx(lam, rel=1e-9)


def test_theorem2_with_orthonormal_rows_is_an_equality():
    """C = 0: f_g - f_j = λ for all j, KL = (1-π_g) λ, λ = log((N-1)/(e^H-1))."""
    pi = np.array([[0.6, 0.3, 0.1], [0.5, 0.25, 0.25]])
    H = -(pi * np.log(pi)).sum(axis=1)
    assert find("dana2025.theorem2").claim.exactness == "exact count"
    by_hand = np.mean((1 - pi.max(axis=1)) * np.log(2 / (np.exp(H) - 1)))
    for form in ("unit", "published"):
        assert theorem2_bound(pi, np.eye(3), form=form) == pytest.approx(by_hand)
    assert divergence(pi, theorem2_logits(pi, np.eye(3))) == pytest.approx(by_hand)


def test_theorem2_as_published_needs_small_coherence(ask):
    """Three rows at 120 degrees: C = 1/2 refuses; unit form: (1 + 1/2)/(1 + 1/2) = 1."""
    angles = 2 * np.pi * np.arange(3) / 3
    W = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert theorem2_factor(W) == pytest.approx(1.0)
    with pytest.raises(ByheartError, match="C < 1/2"):
        theorem2_factor(W, "published")
    assert theorem2_factor(np.eye(4) * math.sqrt(1.2), "published") == pytest.approx(1.4 / 0.6)
    with pytest.raises(ByheartError, match="unit rows"):
        theorem2_factor(np.eye(4) * 1.1)
    with pytest.raises(ByheartError, match="coincide"):
        theorem2_factor([[1.0, 0.0], [1.0, 0.0]])
    for bound in ("dana2025.theorem2", "dana2025.theorem2_unit"):
        answer = ask(bound, SPEC)
        assert (answer.applies, answer.capacity) == (None, None)
        assert "theorem2_bound(pi, W" in answer.reason


def test_the_simpler_bound_is_false(ask):
    """N = 50, orthonormal rows, 1 - π_g = 0.3 twice: noise on one token, and on all 49.

    H_1 = -(.7 ln .7 + .3 ln .3) = 0.61086, H_2 = H_1 + .3 ln 49 = 1.77841. The terms
    0.3 ln(49/(e^H - 1)) are 1.21898 and 0.68968, mean 0.95433, and that is the KL itself;
    the mean entropy 1.19464 gives 0.3 ln(49/(e^1.19464 - 1)) = 0.91737 < 0.95433.
    """
    pi = np.array([[0.7, 0.3] + [0.0] * 48, [0.7] + [0.3 / 49] * 49])
    W = np.eye(50)
    KL = divergence(pi, theorem2_logits(pi, W))
    assert KL == pytest.approx(0.95433, abs=5e-6)
    assert theorem2_bound(pi, W) == pytest.approx(KL)
    simplified = 0.3 * math.log(49 / math.expm1(shannon(pi).mean()))  # the factor of W is 1
    assert simplified == pytest.approx(0.91737, abs=5e-6) and simplified < KL
    answer = ask("dana2025.theorem2_simplified", SPEC)
    assert (answer.applies, answer.capacity, answer.exactness) == (False, None, "false")


@settings(max_examples=60, deadline=None)
@given(seeds, st.floats(1e-6, 4.0))
def test_bennett_holds_and_is_half_the_variance_for_small_errors(seed, scale):
    assert "bennett_bound(pi, f)" in find("dana2025.bennett").statement.matrices
    r = np.random.default_rng(seed)
    pi = r.dirichlet(np.ones(6), size=5) * (1 - 1e-6) + 1e-6 / 6
    Z = scale * r.normal(size=pi.shape)
    f = np.log(pi) + Z
    KL, bound = divergence(pi, f), bennett_bound(pi, f)
    # KL itself is a difference of numbers near log N: it carries rounding errors of about 1e-15.
    assert KL <= bound + 1e-14
    variance = np.mean(np.sum(pi * (Z - np.sum(pi * Z, axis=1, keepdims=True)) ** 2, axis=1))
    if scale < 1e-3:
        assert bound == pytest.approx(variance / 2, rel=0.01)


def test_bennett_by_hand(ask):
    """π = (1/2, 1/2), Z = (1, -1): variance 1, b = 1: log(1 + e - 2); KL = log cosh 1."""
    f = np.log(np.array([[0.5, 0.5]])) + np.array([[1.0, -1.0]])
    assert divergence([[0.5, 0.5]], f) == pytest.approx(math.log(math.cosh(1)))
    assert bennett_bound([[0.5, 0.5]], f) == pytest.approx(math.log(math.e - 1))
    assert "bennett_bound(pi, f)" in ask("dana2025.bennett", SPEC).reason


def test_the_heuristics_of_the_slides_by_hand(ask):
    """Two sequences, prior 1/2 each, π = (3/4, 1/4) and (1/4, 3/4): joint from 1/8 to 3/8.

    log π = [[a, b], [b, a]], a = ln .75, b = ln .25: singular values |a + b| and |a - b| = ln 3.
    d = 1 leaves σ = min of 1.67398 and 1.09861 = ln 3.
    f_ls: 2 (3/8)² σ² + (2 · 3/8)^1.5 σ³. Weighted: sqrt(joint) log π = [[p, q], [q, p]] with
    p = sqrt(3/8) a, q = sqrt(1/8) b: σ = |p - q| or |p + q|, the smaller.
    """
    pi, prior = [[0.75, 0.25], [0.25, 0.75]], [0.5, 0.5]
    s = math.log(3)
    by_hand = 2 * (3 / 8) ** 2 * s**2 + 0.75**1.5 * s**3
    assert slides_least_squares(pi, prior, 1) == pytest.approx(by_hand)
    p, q = math.sqrt(3 / 8) * math.log(0.75), math.sqrt(1 / 8) * math.log(0.25)
    w = min(abs(p - q), abs(p + q))
    by_hand = 3 / 8 * w**2 + 3**1.5 * w**3
    assert slides_weighted_least_squares(pi, prior, 1) == pytest.approx(by_hand)
    assert slides_least_squares(pi, prior, 2) == slides_weighted_least_squares(pi, prior, 2) == 0
    for bound in ("dana2025.slides_ls", "dana2025.slides_wls"):
        assert ask(bound, SPEC).exactness == "heuristic"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theorem1_constant(np.ones((2, 3)), np.ones((2, 1))), "needs X_1"),
        (lambda: theorem1_constant(np.ones((2, 2)), np.ones((2, 1))), "singular"),
        (lambda: theorem1_excess(0.5, 0.1, np.eye(2)), "C >= 1"),
        (lambda: divergence([[0.5, 0.6]], [[0, 0]]), "sum to 1"),
        (lambda: divergence([[1.0]], [[0]]), "N >= 2"),
        (lambda: divergence([[0.5, 0.5]], [[0, 0, 0]]), "found"),
        (lambda: theorem2_logits([[1.0, 0.0]], np.eye(2)), "entropy > 0"),
        (lambda: bennett_bound([[1.0, 0.0]], [[0, 0]]), "full support"),
        (lambda: slides_least_squares([[1.0, 0.0]], [1.0], 1), "full support"),
    ],
)
def test_bad_matrices_are_refused_with_the_reason(call, message):
    with pytest.raises(ByheartError, match=message):
        call()
