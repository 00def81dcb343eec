"""Dana et al. 2025, Theorem 3: the class M, and the constant of O(ε log 1/ε), measured."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.attention_features import random_features

from byheart.errors import ByheartError
from byheart.specs import AttentionOnlySpec
from byheart.theory.dana2025_support import (
    approximable,
    nearness,
    on_circle,
    smoothed,
    theorem3_constant,
    theorem3_excess,
)

DELTAS = [10.0**-k for k in range(1, 7)]


def point_masses(answers, N):
    return np.eye(N)[answers]


@given(N=st.integers(2, 60), k=st.integers(0, 10**6))
def test_associations_are_in_the_class_at_rank_two(N, k):
    """α = 1 and c >= 1/(N-1), as stated: the nearest answers are at the margin exactly."""
    answers = [k % N, (k + 1) % N]
    family = on_circle(answers, N)
    found = approximable(point_masses(answers, N), family, DELTAS)
    assert found
    assert found.alpha == pytest.approx(1, abs=0.05)
    for delta in DELTAS:
        low, high = nearness(point_masses(answers, N), family(delta))
        assert delta / (N - 1) * 0.999 <= low <= high <= delta * (1 + 1e-9)
    assert np.linalg.matrix_rank(family(0.1)) <= 2


def test_any_distribution_is_in_the_class_at_full_rank():
    pi = np.random.default_rng(0).dirichlet(np.full(7, 5.0), size=20)
    pi[:, 0] = 0
    pi /= pi.sum(axis=1, keepdims=True)
    found = approximable(pi, smoothed(pi), DELTAS)
    assert found and found.alpha == pytest.approx(1, abs=0.05) and found.c > 0


def test_what_the_class_leaves_out():
    """A family that does not come near; one that meets m exactly, so that no c > 0 exists."""
    m = np.array([[0.5, 0.5, 0.0]])
    assert "above δ" in approximable(m, lambda delta: np.zeros((1, 3)), DELTAS).reason
    uniform = np.full((1, 4), 0.25)
    exact = approximable(uniform, smoothed(uniform), DELTAS)
    assert not exact and "no c > 0" in exact.reason
    with pytest.raises(ByheartError, match="two δ or more"):
        approximable(m, smoothed(m), [0.1])


def test_lemma4_the_range_is_logarithmic():
    """max f_δ - min f_δ over log 1/δ stays bounded: it falls to 2/(1 - cos 2π/N) for the circle."""
    family = on_circle([0], 10)
    ratios = [float(np.ptp(family(delta))) / math.log(1 / delta) for delta in DELTAS]
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[-1] == pytest.approx(2 / (1 - math.cos(math.pi / 5)), rel=0.2)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["circle", "smoothed"])
def test_the_constant_of_theorem3_is_finite_and_bounded(kind, seed):
    """Measured <= bound at every ε, and both settle as ε falls: O(ε log 1/ε) with a constant."""
    N, d, H = 8, (2 if kind == "circle" else 7), (20 if kind == "circle" else 6)
    r = np.random.default_rng(seed)
    answers = r.integers(N, size=N * N)
    pi = point_masses(answers, N)
    family = on_circle(answers, N) if kind == "circle" else smoothed(pi)
    X = random_features(N, d, H, seed)
    found = [theorem3_constant(pi, X, family, 10.0**-k) for k in (2, 4, 6, 8, 10)]
    assert all(0 < one.measured <= one.bound for one in found)
    assert found[-1].measured == pytest.approx(found[-2].measured, rel=0.1)
    assert found[-1].bound == pytest.approx(found[-2].bound, rel=0.1)


def test_theorem3_as_a_bound(ask):
    spec = AttentionOnlySpec(N=50, S=2, d=10, d_h=10, H=20)
    answer = ask("dana2025.theorem3", spec)
    assert answer.capacity == 210
    assert "theorem3_constant" in answer.note
    assert theorem3_excess(2.0, 0.0, 0.0, np.eye(3)) == 0


def test_the_modules_of_the_slides(ask):
    """⌈N_ε/d⌉ modules of width d_h = d: H d distributions, d fewer than Theorem 1 (the skip)."""
    spec = AttentionOnlySpec(N=50, S=2, d=10, d_h=10, H=20)
    assert ask("dana2025.slides_modules", spec).capacity == 200
    assert ask("dana2025.theorem1", spec).capacity == 210
    narrow = ask("dana2025.slides_modules", AttentionOnlySpec(N=50, S=2, d=10, d_h=5, H=20))
    assert (narrow.applies, narrow.reason) == (False, "needs d_h = d: 5 != 10")


@given(T=st.integers(1, 10**9), d=st.integers(2, 10**4))
def test_the_modules_of_the_slides_are_enough_and_one_fewer_is_not(T, d):
    from byheart.theory.bound import Case
    from byheart.theory.registry import find

    size = find("dana2025.slides_modules").size
    assert size is not None
    H = int(size(Case(T=T, N=10**9, S=2, d=d)).sizes["H"])
    assert (H - 1) * d < T <= H * d


def test_bad_questions():
    pi, X = np.eye(3), np.ones((3, 3))
    with pytest.raises(ByheartError, match="m < T"):
        theorem3_constant(pi, X, smoothed(pi), 0.1)
    with pytest.raises(ByheartError, match="N >= 2"):
        on_circle([0], 1)
