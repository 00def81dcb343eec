"""Sequence encoders: bounds hold, closed forms are what they minimise, exact where they must be."""

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from byheart.construct.encoders import (
    ENCODERS,
    Encoder,
    best,
    compare,
    encode,
    optimised,
    weighted,
)
from byheart.construct.frames import frame
from byheart.errors import ByheartError, FactsError
from byheart.facts import Distributions, random_associations, random_distributions
from byheart.measure import encoder_bounds, losses
from byheart.theory.dana2025 import (
    divergence,
    random_coherence,
    shannon,
    slides_least_squares,
    theorem2_bound,
    theorem2_factor,
    theorem2_logits,
)

seeds = st.integers(0, 2**32 - 1)
KINDS = st.sampled_from(["gauss", "lut", "power"])


def drawn(kind, seed, N=7, T=20, **options):
    r = np.random.default_rng(seed)
    settings = {"tau": r.uniform(0.1, 3), "eta": r.uniform(0.001, 0.6), "exponent": 1.5}
    return random_distributions(kind, N, 2, T, **settings, zipf=1.0, seed=seed % 1000, **options)


def kl(table, made):
    return divergence(table.probabilities, made.logits, table.prior)


def proven(table: Distributions, encoder: Encoder) -> dict[str, float]:
    """The bounds that can be computed."""
    return {name: b for name, b in encoder_bounds(table, encoder).items() if b is not None}


@settings(max_examples=25, deadline=None)
@given(seeds, KINDS, st.integers(2, 5))
def test_measured_divergences_obey_every_rigorous_bound(seed, kind, d):
    """Bennett for every encoder, Theorem 2 (unit rows) for λ W_g with both λ."""
    table = drawn(kind, seed)
    for name in ("svd", "centred", "theorem2", "theorem2*"):
        made = encode(table, d, name)
        found, bounds = kl(table, made), proven(table, made)
        assert 0 <= found + 1e-14
        assert found <= bounds["bennett"] * (1 + 1e-9) + 1e-13
        if name.startswith("theorem2"):
            assert found <= bounds["theorem2"] * (1 + 1e-9) + 1e-13


@settings(max_examples=15, deadline=None)
@given(seeds, KINDS, st.integers(1, 4))
def test_rank_orders_the_encoders(seed, kind, d):
    """The optimised encoder is never worse than any closed form of the same rank; Bennett holds."""
    table = drawn(kind, seed, N=5, T=12)
    rows = {row.name: row for row in compare(table, d)}
    assert tuple(rows) == ENCODERS
    least = rows["optimised"].encoder
    assert least is not None and np.linalg.matrix_rank(least.logits) <= d
    for name, row in rows.items():
        if row.encoder is None:
            assert d == 1 and name.startswith("theorem2") and "at most 2 answers" in row.reason
        elif name in ("weighted", "theorem2*"):  # its starts
            assert kl(table, least) <= kl(table, row.encoder) * (1 + 1e-12) + 1e-15
    assert kl(table, least) <= proven(table, least)["bennett"] * (1 + 1e-9) + 1e-13


def test_the_published_factor_of_theorem2_is_vacuous_for_small_n():
    """C < 1/2 by Johnson-Lindenstrauss needs d > 128 log(N+1), which exceeds the N - 1 at which
    Proposition 2 is exact until N is about 870; measured frames at N = 20, 50 have C > 1/2."""
    for N in range(2, 860):
        assert random_coherence(N, N - 1) >= 0.5
    assert random_coherence(900, 899) < 0.5
    for N, d in ((10, 4), (20, 8), (50, 10)):
        with pytest.raises(ByheartError, match="C < 1/2"):
            theorem2_factor(frame(N, d).numpy(), "published")
        table = random_distributions("lut", N, T=N, eta=0.03)
        bounds = proven(table, encode(table, d, "theorem2"))
        assert bounds["theorem2 published"] == math.inf and bounds["theorem2"] < math.inf


def test_the_simplified_bound_after_theorem2_is_false_for_the_built_encoder():
    """N = 50, orthonormal W: KL .95433 > .91737, while the bound with E outside holds."""
    one, spread = [0.7, 0.3] + [0.0] * 48, [0.7] + [0.3 / 49] * 49
    found = divergence([one, spread], theorem2_logits([one, spread], np.eye(50)))
    assert found == pytest.approx(0.95433, abs=1e-5)
    simplified = 0.3 * math.log(49 / math.expm1(shannon([one, spread]).mean()))
    assert simplified == pytest.approx(0.91737, abs=1e-5)
    assert found <= theorem2_bound([one, spread], np.eye(50)) * (1 + 1e-12)


def test_the_slides_bound_is_worse_than_knowing_nothing_from_tau_1_on():
    """N|π|²σ² + (N|π|)^1.5 σ³ with joint π exceeds log N; with conditional π even at τ = 0.3."""
    table = random_distributions("gauss", 50, tau=1.0)
    assert slides_least_squares(table.probabilities, table.prior, 10) > math.log(50)
    mild = random_distributions("gauss", 50, tau=0.3)
    assert slides_least_squares(mild.probabilities, mild.prior, 10) < math.log(50)
    L = np.log(mild.probabilities)
    top, sigma = mild.probabilities.max(), np.linalg.svd(L, compute_uv=False)[10]
    assert 50 * top**2 * sigma**2 + (50 * top) ** 1.5 * sigma**3 > math.log(50)


@settings(max_examples=25, deadline=None)
@given(seeds, KINDS)
def test_d_equal_to_answers_minus_one_is_exact_and_says_so(seed, kind):
    """Proposition 2; and the number of sequences is enough too."""
    table = drawn(kind, seed, N=6, T=15)
    made = best(table, 5)
    assert kl(table, made) < 1e-12
    assert "exact" in made.why and "Proposition 2" in made.why
    few = drawn(kind, seed, N=6, T=2)
    assert kl(few, best(few, 2)) < 1e-12
    assert kl(few, encode(few, 2, "centred")) < 1e-12


def test_d_one_below_is_not_exact_for_some_distributions():
    """Proposition 2, the other half: one answer sure in each sequence, in turn."""
    N = 6
    pi = 0.3 * np.eye(N) + 0.7 / N
    table = Distributions.make(np.arange(N)[:, None], pi, random_associations(N, 1, 1).vocabulary)
    assert kl(table, best(table, N - 2)) > 1e-4
    assert kl(table, best(table, N - 1)) < 1e-14


def test_one_sequence_alone_needs_rank_one():
    table = Distributions.make([[0]], [[0.5, 0.3, 0.2]], random_associations(3, 1, 1).vocabulary)
    made = best(table, 1)
    assert kl(table, made) < 1e-14 and "min(T, A - 1) = 1" in made.why


@pytest.mark.parametrize("N", [3, 10, 20])
def test_two_dimensions_hold_every_association(N):
    """Proposition 3: on the circle d_KL falls to 0 as λ grows, and every answer is the largest."""
    facts = random_associations(N, 2, N * N)
    masses = Distributions.make(facts.tokens, np.eye(N)[facts.answers], facts.vocabulary)
    made = encode(masses, 2, "theorem2*")
    found = losses(masses, made.logits).mean()
    assert found["kl"] < 1e-12 and found["accuracy"] == 1.0
    smaller = [kl(masses, Encoder(made.W, s * made.E, "scaled")) for s in (0.05, 0.2, 1.0)]
    assert smaller[0] > smaller[1] > smaller[2]
    with pytest.raises(ByheartError, match="entropy > 0"):
        encode(masses, 2, "theorem2")


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_the_best_lambda_against_scipy(seed):
    table = drawn("lut", seed, N=6, T=5)
    made = encode(table, 3, "theorem2*")
    scores = made.W @ made.W.T
    for t in range(table.T):
        g = int(table.probabilities[t].argmax())

        def value(lam, t=t, g=g):
            return divergence(table.probabilities[t : t + 1], lam * scores[g : g + 1])

        found = minimize_scalar(value, bounds=(0, 60), method="bounded", options={"xatol": 1e-10})
        own = value(float(np.linalg.norm(made.E[t])))
        assert own <= found.fun + 1e-10


def test_weighted_least_squares_is_a_stationary_point():
    """The gradient of Σ p π (f + o - log π)² in W, E and o vanishes, relative to its terms."""
    table = random_distributions("gauss", 8, tau=0.5)
    made = weighted(table, 3)
    w, L = table.prior[:, None] * table.probabilities, np.log(table.probabilities)
    off = np.sum(w * (L - made.logits), axis=1, keepdims=True) / w.sum(axis=1, keepdims=True)
    residual = w * (made.logits + off - L)
    for gradient, scale in (
        (residual @ made.W, np.abs(residual) @ np.abs(made.W)),
        (residual.T @ made.E, np.abs(residual).T @ np.abs(made.E)),
    ):
        assert np.abs(gradient).max() < 1e-3 * scale.max()


def test_the_centred_svd_is_the_nearest_of_its_rank():
    """Eckart and Young: the squared distance is the sum of the other squared singular values."""
    table = random_distributions("gauss", 9)
    L = np.log(table.probabilities)
    L -= L.mean(axis=1, keepdims=True)
    s = np.linalg.svd(L, compute_uv=False)
    off = np.linalg.norm(encode(table, 4, "centred").logits - L) ** 2
    assert off == pytest.approx((s[4:] ** 2).sum(), rel=1e-10)


def test_the_optimum_is_stationary():
    table = random_distributions("gauss", 7, seed=2)
    made = optimised(table, [weighted(table, 3)])
    q = np.exp(made.logits - np.logaddexp.reduce(made.logits, axis=1, keepdims=True))
    G = table.prior[:, None] * (q - table.probabilities)
    assert np.abs(G @ made.W).max() < 1e-6 and np.abs(G.T @ made.E).max() < 1e-5


def test_best_goes_by_regime_and_says_why():
    for kind, tau, word in (
        ("gauss", 0.2, "high entropy"),
        ("lut", 1.0, "low entropy"),
        ("gauss", 3.0, "entropy in the middle"),
    ):
        table = random_distributions(kind, 8, tau=tau, eta=0.003)
        made = best(table, 3)
        assert made.why.startswith(word) and "L-BFGS" in made.why


def test_encoders_are_deterministic_and_checked():
    table = random_distributions("lut", 6, eta=0.1)
    for name in ENCODERS:
        first, second = encode(table, 3, name), encode(table, 3, name)
        assert (first.logits == second.logits).all()
    with pytest.raises(ByheartError, match="at least 1, found 0"):
        encode(table, 0)
    with pytest.raises(ByheartError, match="one of best, svd"):
        encode(table, 2, "sdv")


def test_zeros_leave_what_needs_no_logarithm():
    """Without full support the SVDs say why not; Theorem 2's λ and the optimum still work."""
    table = Distributions.make(
        [[0], [1], [2]],
        [[0.6, 0.4, 0], [0.3, 0.3, 0.4], [0, 0.2, 0.8]],
        random_associations(3, 1, 1).vocabulary,
    )
    rows = {row.name: row for row in compare(table, 2)}
    for name in ("svd", "centred", "weighted"):
        assert rows[name].encoder is None and "`smooth=" in rows[name].reason
    found = rows["optimised"].encoder
    assert found is not None and kl(table, found) < 1e-6
    with pytest.raises(FactsError, match="full support"):
        encode(table, 2, "centred")


def test_balancing_keeps_the_logits():
    table = random_distributions("gauss", 6)
    made = encode(table, 3, "weighted")
    even = made.balanced()
    np.testing.assert_allclose(even.logits, made.logits, atol=1e-12)
    np.testing.assert_allclose(even.W.T @ even.W, np.eye(3), atol=1e-12)


def test_a_long_descent_tells_its_steps():
    told: list[str] = []
    table = random_distributions("lut", N=6, seed=1)
    made = encode(table, 2, "optimised", progress=told.append)
    assert any(re.fullmatch(r"optimising .* start, step \d+ of at most [\d,]+", x) for x in told)
    silent = encode(table, 2, "optimised")
    assert (made.logits == silent.logits).all()  # who listens changes nothing
