"""Dana et al. 2025: the counts, against ranks of random layers and cases worked by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byheart.specs import AssociativeSpec, AttentionOnlySpec
from byheart.theory.dana2025 import phi, phi_inverse, proposition3_margin, random_coherence
from byheart.theory.registry import case_of, find


def layer(N=10, S=2, d=4, d_h=2, H=3, **options) -> AttentionOnlySpec:
    return AttentionOnlySpec(N=N, S=S, d=d, d_h=d_h, H=H, **options)


def features(spec: AttentionOnlySpec, rank1: bool = False, seed: int = 0) -> np.ndarray:
    """[W_V A(t); x_S] of all N^S sequences, (T, H d_h + d): a literal one-layer forward."""
    r = np.random.default_rng(seed)
    grids = np.meshgrid(*[np.arange(spec.N)] * spec.S, indexing="ij")
    tokens = np.stack([g.ravel() for g in grids], axis=1)
    e = r.normal(size=(spec.N, spec.d))
    x = e[tokens] + r.normal(size=(spec.S, spec.d))
    columns = []
    for _ in range(spec.H):
        rank = 1 if rank1 else spec.d_h
        W_QK = 2 * r.normal(size=(spec.d, rank)) @ r.normal(size=(rank, spec.d))
        scores = np.einsum("td,de,tse->ts", x[:, -1], W_QK, x)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        columns.append(np.einsum("ts,tsd->td", weights, x) @ r.normal(size=(spec.d, spec.d_h)))
    return np.concatenate([*columns, x[:, -1]], axis=1)


@pytest.mark.parametrize("sizes", [(10, 2, 4, 2, 3), (7, 3, 3, 3, 4), (12, 2, 5, 1, 9)])
@pytest.mark.parametrize("bound", ["dana2025.corollary1", "dana2025.corollary1_rank1"])
def test_the_features_of_a_random_layer_have_the_promised_rank(ask, sizes, bound):
    """Corollary 1 is this rank: so many facts can be prescribed by W_O and the skip (Lemma 2)."""
    spec = layer(*sizes)
    X = features(spec, rank1=bound.endswith("rank1"))
    assert ask(bound, spec).capacity == np.linalg.matrix_rank(X) == spec.H * spec.d_h + spec.d


def test_keys_of_one_token_are_refused_because_the_rank_is_d(ask):
    """Attention over one position is constant: the features span d directions, not H d_h + d."""
    spec = layer(N=30, S=1, d=4, d_h=2, H=3)
    assert np.linalg.matrix_rank(features(spec)) == 4
    answer = ask("dana2025.corollary1", spec)
    assert answer.applies is False
    assert answer.capacity is None
    assert "S >= 2" in answer.reason


def test_few_last_tokens_make_the_skip_narrow(ask):
    """3 last tokens span 3 of d = 5 directions: 12 · 2 + 3 = 27."""

    class Facts:
        T, S, N, last_tokens = 27, 2, 40, 3
        prior = np.full(27, 1 / 27)
        answer_ids = np.arange(5)

    spec = layer(N=40, S=2, d=5, d_h=2, H=12)
    answer = ask("dana2025.corollary1", spec, Facts())
    assert (answer.capacity, answer.holds) == (27, True)
    tokens = np.arange(1600).reshape(40, 40)[:, :3].ravel()
    assert np.linalg.matrix_rank(features(spec)[tokens]) == 27


def test_parameters_of_the_layer_and_of_rank_one(ask):
    """d = 10, S = 2, N = 50, d_h = 10, H = 99, by hand.

    Tables e (50 x 10), W_U (10 x 50), pos (2 x 10): 500 + 500 + 20 = 1,020.
    A head: W_Q, W_K, W_V, W_O of 10 x 10: 400; with rank-1 W_QK 10 + 10 + 100 + 100 = 220.
    """
    spec = layer(N=50, S=2, d=10, d_h=10, H=99)
    assert ask("dana2025.corollary1", spec).parameters == 1020 + 99 * 400 == spec.parameters
    rank1 = ask("dana2025.corollary1_rank1", spec)
    assert rank1.parameters == 1020 + 99 * 220


def test_width_two_needs_the_parameters_of_the_paper():
    """Corollary 1: T0 facts need 2(S + 2N + 4(T0-2)) parameters at d = 2 (T0 even)."""
    size = find("dana2025.corollary1").size
    assert size is not None
    for T0 in (4, 42, 10**6):
        found = size(find_case(T=T0, N=10, S=2))
        assert found.parameters == 2 * (2 + 2 * 10 + 4 * (T0 - 2))


def find_case(**sizes):
    from byheart.theory.bound import Case

    return Case(**sizes)


def test_proposition1_logits_have_rank_d(ask):
    """W E with W (N x d): rank d; modulo a constant a sequence at most N - 1."""
    r = np.random.default_rng(0)
    for d, N in ((3, 8), (9, 6)):
        logits = r.normal(size=(40, d)) @ r.normal(size=(d, N))
        centred = logits - logits.mean(axis=1, keepdims=True)
        answer = ask("dana2025.proposition1", layer(N=N, d=d, d_h=1))
        assert answer.capacity == np.linalg.matrix_rank(centred) == min(d, N - 1)


def test_proposition2_is_the_rank_of_centred_log_probabilities(ask):
    """log π centred has rank N - 1 for random π: d = N - 1 is needed and enough."""
    pi = np.random.default_rng(0).dirichlet(np.ones(6), size=50)
    L = np.log(pi)
    rank = np.linalg.matrix_rank(L - L.mean(axis=1, keepdims=True))
    enough = ask("dana2025.proposition2", layer(N=6, d=5))
    assert enough.applies is True
    assert enough.capacity == rank == 5
    few = ask("dana2025.proposition2", layer(N=6, d=4))
    assert (few.applies, few.capacity) == (False, None)
    assert "needs d >= N - 1: 4 < 5" in few.reason


@pytest.mark.parametrize("N", [2, 3, 10, 50])
def test_proposition3_margin_of_the_circle(ask, N):
    """The smallest gap between the right logit and the next on the literal circle."""
    angles = 2 * np.pi * np.arange(N) / N
    W = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    gram = W @ W.T
    gap = (np.diag(gram)[:, None] - gram)[~np.eye(N, dtype=bool)].min()
    assert proposition3_margin(N) == pytest.approx(gap, abs=1e-14)
    assert ask("dana2025.proposition3", layer(N=N, d=2)).capacity == 2
    assert ask("dana2025.proposition3", layer(N=N, d=1, d_h=1)).applies is False


def test_corollary2_is_what_is_held_and_what_is_guessed(ask):
    """N = 10, S = 2, all T0 = 100 keys; d = d_h = 2, H = 20 hold 42; 58 guesses hit one in ten:
    42 + 5.8 of 100."""
    spec = layer(N=10, S=2, d=2, d_h=2, H=20)
    assert ask("dana2025.corollary2", spec, 100).capacity == pytest.approx(0.478)
    assert ask("dana2025.corollary2", spec, 40).capacity == 1.0
    assert ask("dana2025.corollary2", spec).applies is None
    assert phi(40, N=10, T0=100) == pytest.approx((40 + 60 / 10) / 100)


@given(st.integers(2, 10**6), st.integers(1, 10**9), st.floats(0, 1))
def test_phi_and_its_inverse(N, T0, share):
    X = share * T0
    assert phi_inverse(phi(X, N, T0), N, T0) == pytest.approx(X, abs=T0 * 1e-9)


def test_corollary2_refuses_weighted_facts(ask):
    class Facts:
        T, S, N, last_tokens = 3, 2, 10, 3
        prior = np.array([0.5, 0.25, 0.25])
        answer_ids = np.arange(2)

    answer = ask("dana2025.corollary2", layer(), Facts())
    assert (answer.applies, answer.capacity) == (False, None)
    assert "uniform" in answer.reason


def test_theorem1_says_how_much_of_the_prior_is_left_out(ask):
    """H d_h + d = 2 + 2 = 4 of 5 facts: the fifth has prior 0.05."""

    class Facts:
        T, S, N, last_tokens = 5, 2, 10, 5
        prior = np.array([0.05, 0.4, 0.3, 0.2, 0.05])
        answer_ids = np.arange(3)

    spec = layer(d=2, d_h=2, H=1)
    for bound in ("dana2025.theorem1", "dana2025.theorem3"):
        assert ask(bound, spec, Facts()).capacity == 4
    assert "ε = 0.05 " in ask("dana2025.theorem1", spec, Facts()).note


def test_associative_memory_solves_d_independent_keys(ask):
    """d random sign vectors are independent: W K = U has a solution; d + 1 are not."""
    keys = np.random.default_rng(0).choice([-1.0, 1.0], size=(33, 32))
    targets = np.random.default_rng(1).normal(size=(33, 2))
    for T, solved in ((32, True), (33, False)):
        W = np.linalg.lstsq(keys[:T], targets[:T], rcond=None)[0]
        assert (np.abs(keys[:T] @ W - targets[:T]).max() < 1e-9) == solved
    answer = ask("dana2025.associative", AssociativeSpec(N=40, S=1, d=32))
    assert answer.capacity == 32
    assert answer.parameters == 32 * 40 + 32 * 32 + 32 * 40
    assert ask("dana2025.associative", layer()).applies is False


def test_random_rows_need_503_dimensions_for_50_tokens(ask):
    """128 ln 51 = 503.26, so C < 1/2 from d = 504 on; the paper's Theorem 2 is then vacuous."""
    assert random_coherence(50, 504) < 0.5 < random_coherence(50, 503)
    refused = ask("dana2025.theorem2_random", layer(N=50, d=503))
    assert (refused.applies, refused.capacity) == (False, None)
    assert "503" in refused.reason
    allowed = ask("dana2025.theorem2_random", layer(N=50, d=2048))
    C = math.sqrt(32 * math.log(51) / 2048)
    assert allowed.capacity == pytest.approx((1 + 2 * C) / (1 - 2 * C))
    assert "vacuous" in allowed.note
    # The width it needs exceeds N - 1 until N is about 870.
    needs = next(N for N in range(50, 2000) if 128 * math.log(N + 1) < N - 1)
    assert needs == 868


sizes = st.integers(1, 10**12)


@given(N=st.integers(2, 10**12), S=st.integers(2, 10**12), d=st.integers(2, 10**12),
       d_h=sizes, H=sizes)  # fmt: skip
def test_corollary1_is_monotone_in_heads_and_widths(N, S, d, d_h, H):
    def held(d, d_h, H):
        bound = find("dana2025.corollary1")
        return bound.answer(case_of(AttentionOnlySpec(N=N, S=S, d=d, d_h=d_h, H=H))).capacity

    here = held(d, d_h, H)
    if d_h > d or here is None:
        assert d_h > d and here is None
        return
    assert here == H * d_h + d
    assert held(d, d_h, H + 1) == here + d_h
    assert held(d + 1, d_h, H) == here + 1
    if d_h < d:
        assert held(d, d_h + 1, H) == here + H


@given(T=st.integers(1, 10**12), N=st.integers(2, 10**6), d=st.integers(2, 200),
       d_h=st.integers(1, 200), rank1=st.booleans())  # fmt: skip
def test_size_and_capacity_are_inverse(T, N, d, d_h, rank1):
    from byheart.theory.bound import Case

    bound = find("dana2025.corollary1_rank1" if rank1 else "dana2025.corollary1")
    assert bound.size is not None
    found = bound.size(Case(T=T, N=N, S=2, d=d, d_h=d_h))
    H, d_h = int(found.sizes["H"]), int(found.sizes["d_h"])

    def held(H):
        return bound.answer(case_of(AttentionOnlySpec(N=N, S=2, d=d, d_h=d_h, H=H)))

    assert (held(H).capacity or 0) >= T
    assert held(H).parameters == found.parameters
    if H > 1:
        assert (held(H - 1).capacity or 0) < T


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"d": 4, "d_h": 5}, "needs d_h <= d: 5 > 4"),
        ({"positions": "none"}, "positions"),
        ({"positions": "attention"}, "positions"),
        ({"skip": False}, "skip"),
        ({"d": 1, "d_h": 1}, "d >= 2"),
        ({"N": 1}, "N >= 2"),
    ],
)
def test_a_layer_outside_the_hypotheses_gets_a_reason_and_no_number(ask, options, reason):
    answer = ask("dana2025.corollary1", layer(**options))
    assert (answer.applies, answer.capacity, answer.parameters) == (False, None, None)
    assert reason in answer.reason
