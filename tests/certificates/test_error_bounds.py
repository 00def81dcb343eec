"""The error bounds contain the truth: float64 and balls against 200-bit arithmetic."""

import itertools
import math
from fractions import Fraction
from typing import Any, Literal

import mpmath
import numpy as np
import pytest
import torch
from flint import arb, ctx
from hypothesis import example, given, settings
from hypothesis import strategies as st

from byheart._progress import quiet
from byheart.certificates.architectures import ball_margins, bounded_logits
from byheart.certificates.arithmetic import (
    FLOAT64,
    Bounded,
    Rounding,
    U,
    exactly,
    gamma,
    margins,
)
from byheart.errors import ByheartError
from byheart.specs import AssociativeSpec, AttentionOnlySpec, MultiHeadSpec

SETTINGS = settings(max_examples=80, deadline=None, derandomize=True)
NAMES = ("W_E", "W_pos", "W_Q", "W_K", "W_V", "W_O", "W_U")
scales = st.fixed_dictionaries({name: st.floats(-3, 3).map(lambda e: 10**e) for name in NAMES})


@st.composite
def specs(draw: st.DrawFn) -> AttentionOnlySpec:
    positions: Literal["input", "none"] = draw(st.sampled_from(["input", "none"]))
    return AttentionOnlySpec(
        N=draw(st.integers(1, 6)),
        S=draw(st.integers(1, 4)),
        d=draw(st.integers(1, 5)),
        d_h=draw(st.integers(1, 4)),
        H=draw(st.integers(1, 4)),
        qk_rank=draw(st.integers(1, 4)),
        positions=positions,
        scale=draw(st.booleans()),
        skip=draw(st.booleans()),
    )


def some_tokens(spec, seed: int, batch: int = 3) -> torch.Tensor:
    return torch.randint(spec.N, (batch, spec.S), generator=torch.Generator().manual_seed(seed))


def assert_contains(found: Bounded, truth: list[list[Any]]) -> None:
    """|value - truth| <= error, compared at 200 bits; an infinite or NaN error claims nothing."""
    with mpmath.workprec(200):
        for values, errors, exact in zip(
            found.value.tolist(), found.error.tolist(), truth, strict=True
        ):
            for v, e, x in zip(values, errors, exact, strict=True):
                assert math.isnan(e) or abs(mpmath.mpf(v) - x) <= mpmath.mpf(e)


@SETTINGS
@given(spec=specs(), scale=scales, seed=st.integers(0, 2**20))
def test_rounding_bounds_contain_the_truth(random_weights, true_logits, spec, scale, seed):
    weights = random_weights(spec, seed, scale)
    tokens = some_tokens(spec, seed)
    found = bounded_logits(spec, weights, tokens)
    assert bool((found.error >= 0).all())
    assert_contains(found, true_logits(spec, weights, tokens))


@SETTINGS
@given(spec=specs(), seed=st.integers(0, 2**20))
def test_rounding_bounds_are_not_vacuous(random_weights, spec, seed):
    """Weights and scores of order 1: the bound is far below any margin that matters."""
    weights = random_weights(spec, seed, dict.fromkeys(NAMES, 0.5))
    found = bounded_logits(spec, weights, some_tokens(spec, seed))
    magnitude = max(1.0, float(found.value.abs().max()))
    assert float(found.error.max()) < 1e-11 * magnitude


@SETTINGS
@given(
    spec=st.builds(AssociativeSpec, N=st.integers(1, 6), S=st.integers(1, 4), d=st.integers(1, 6)),
    seed=st.integers(0, 2**20),
)
def test_associative_bounds_contain_the_truth_and_are_sharp(
    random_weights, true_logits, true_margins, spec, seed
):
    weights, tokens = random_weights(spec, seed), some_tokens(spec, seed)
    found = bounded_logits(spec, weights, tokens)
    assert_contains(found, true_logits(spec, weights, tokens))
    assert float(found.error.max()) < 1e-11
    if spec.N > 1:
        right = np.zeros(len(tokens), dtype=np.int64)
        assert_ball_contains(spec, weights, tokens, right, true_margins)


def assert_ball_contains(spec, weights, tokens, right, true_margins, precision=128) -> np.ndarray:
    middle, radii = ball_margins(
        spec, weights, tokens.numpy(), right, precision=precision, progress=quiet
    )
    truth = true_margins(spec, weights, tokens, right)
    with mpmath.workprec(200):
        for m, r, x in zip(middle.tolist(), radii.tolist(), truth, strict=True):
            assert abs(mpmath.mpf(m) - x) <= mpmath.mpf(r)
    return radii


@SETTINGS
@given(spec=specs(), scale=scales, seed=st.integers(0, 2**20))
def test_ball_margins_contain_the_truth(random_weights, true_margins, spec, scale, seed):
    if spec.N == 1:
        return
    weights, tokens = random_weights(spec, seed, scale), some_tokens(spec, seed)
    right = np.arange(len(tokens)) % spec.N
    assert_ball_contains(spec, weights, tokens, right, true_margins)


def test_balls_are_as_sharp_as_a_float_can_say(random_weights, true_margins):
    spec = AttentionOnlySpec(N=5, S=3, d=4, d_h=3, H=3)
    weights, tokens = random_weights(spec, 0), some_tokens(spec, 0, 10)
    right = np.zeros(10, dtype=np.int64)
    radii = assert_ball_contains(spec, weights, tokens, right, true_margins)
    middle, _ = ball_margins(spec, weights, tokens.numpy(), right, precision=128, progress=quiet)
    # The midpoint is rounded to 53 bits; the ball of 128 bits itself is far smaller.
    assert bool((radii <= 2 * U * np.abs(middle)).all())
    # Few bits, a wide ball, still around the truth.
    wide = assert_ball_contains(spec, weights, tokens, right, true_margins, precision=30)
    assert bool((wide > 1e-9).all())


def test_the_precision_of_others_is_left_alone(random_weights):
    spec = AttentionOnlySpec(N=3, S=2, d=2, d_h=2, H=1)
    before = ctx.prec
    right = np.zeros(3, dtype=np.int64)
    tokens = some_tokens(spec, 0).numpy()
    ball_margins(spec, random_weights(spec, 0), tokens, right, precision=99, progress=quiet)
    assert ctx.prec == before


@SETTINGS
@given(spec=specs(), seed=st.integers(0, 2**20))
def test_both_arithmetics_agree_within_their_bounds(random_memory, spec, seed):
    memory = random_memory(spec, seed)
    facts = memory.facts
    tokens, right = torch.tensor(facts.tokens), torch.tensor(facts.answers)
    values = bounded_logits(spec, memory.weights, tokens)
    margin, bound = margins(values, right)
    middle, radius = ball_margins(
        spec,
        memory.weights,
        facts.tokens,
        facts.answers,
        precision=128,
        progress=quiet,
    )
    if spec.N == 1:
        assert bool(torch.isinf(margin).all()) and np.isinf(middle).all()
        return
    assert (np.abs(margin.numpy() - middle) <= bound.numpy() + radius).all()


def test_exp_is_as_good_as_assumed():
    """torch.exp against Arb on 200,000 points of [-745, 0]: 16 times better than the bounds need.

    Beyond -708 results are subnormal: their absolute error is below `tiny`.
    """
    generator = torch.Generator().manual_seed(0)
    # Odd lengths and strides take the vector and the scalar paths of the library.
    points = -745 * torch.rand(200_001, generator=generator, dtype=torch.float64)
    points[:1001] = -torch.logspace(-20, 2.8, 1001, dtype=torch.float64)
    points[1001] = 0.0
    whole, strided = torch.exp(points), torch.exp(points[::7])
    single = torch.stack([torch.exp(x) for x in points[:2000]])
    smallest_normal = torch.finfo(torch.float64).tiny
    worst, worst_subnormal = 0.0, 0.0
    before, ctx.prec = ctx.prec, 128
    try:
        for x, found in itertools.chain(
            zip(points.tolist(), whole.tolist(), strict=True),
            zip(points[::7].tolist(), strided.tolist(), strict=True),
            zip(points[:2000].tolist(), single.tolist(), strict=True),
        ):
            truth = arb(x).exp()
            error = abs(float(truth - arb(found)))
            if found >= smallest_normal:
                worst = max(worst, error / found)
            else:
                worst_subnormal = max(worst_subnormal, error)
    finally:
        ctx.prec = before
    assert 0 < worst <= FLOAT64.exp / 16
    assert worst_subnormal <= FLOAT64.tiny == smallest_normal


floats = st.floats(-1e6, 1e6).filter(lambda v: v == 0 or abs(v) > 1e-100)
entries = st.one_of(st.integers(-1000, 1000).map(float), floats)


@SETTINGS
@given(data=st.data(), n=st.integers(1, 8), noisy=st.booleans())
def test_product_contains_the_exact_product(data, n, noisy):
    """Every pair of matrices within the errors of the factors, here at the ends of them."""
    row = st.lists(entries, min_size=n, max_size=n)
    table = st.lists(row, min_size=2, max_size=2)
    A, B = (torch.tensor(data.draw(table), dtype=torch.float64) for _ in range(2))
    err_A, err_B = (factor.abs() * 2.0**-20 if noisy else factor * 0 for factor in (A, B))
    found = Rounding({}).einsum("bd,nd->bn", Bounded(A, err_A), Bounded(B, err_B))
    for sign_a, sign_b in itertools.product((-1, 0, 1), repeat=2):
        for i, j in itertools.product(range(2), repeat=2):
            exact = sum(
                (Fraction(a) + sign_a * Fraction(ea)) * (Fraction(b) + sign_b * Fraction(eb))
                for a, ea, b, eb in zip(
                    A[i].tolist(), err_A[i].tolist(), B[j].tolist(), err_B[j].tolist(), strict=True
                )
            )
            difference = abs(Fraction(float(found.value[i, j])) - exact)
            assert difference <= Fraction(float(found.error[i, j]))
    if not noisy:  # and no more than the textbook bound, but for the factor that rounds it up
        limit = gamma(n) * (A.abs() @ B.abs().T) * 1.001 + 100 * n * FLOAT64.tiny
        assert bool((found.error <= limit).all())


@SETTINGS
@given(a=entries, b=entries)
def test_sum_contains_the_exact_sum(a, b):
    one, two = (exactly(torch.tensor(v, dtype=torch.float64)) for v in (a, b))
    found = Rounding({}).add(one, two)
    difference = abs(Fraction(float(found.value)) - Fraction(a) - Fraction(b))
    assert difference <= Fraction(float(found.error))


def assert_softmax_contains(scores: list[float], error: float, signs: list[int]) -> None:
    """softmax of scores known up to ± error, against that of one choice within these errors."""
    value = torch.tensor(scores, dtype=torch.float64)
    found = Rounding({}).softmax(Bounded(value, torch.full_like(value, error)))
    with mpmath.workprec(200):
        exact = [
            mpmath.mpf(s) + sign * mpmath.mpf(error) for s, sign in zip(scores, signs, strict=False)
        ]
        e = [mpmath.exp(v - max(exact)) for v in exact]
        truth = [[v / mpmath.fsum(e) for v in e]]
    assert_contains(Bounded(found.value[None], found.error[None]), truth)


@SETTINGS
@given(
    scores=st.lists(st.floats(-300, 300), min_size=1, max_size=5),
    error=st.floats(0, 1e-12) | st.floats(0, 20),
    signs=st.lists(st.sampled_from([-1, 0, 1]), min_size=5, max_size=5),
)
def test_softmax_contains_every_softmax_of_scores_within_their_errors(scores, error, signs):
    assert_softmax_contains(scores, error, signs)


@SETTINGS
@given(gap=st.floats(700, 1500), error=st.floats(0, 354))
@example(gap=760.0, error=100.0)
def test_softmax_contains_what_underflows(gap, error):
    """exp(-gap) is 0 or subnormal in float64, but the exact scores may be 2·error closer."""
    assert_softmax_contains([0.0, -gap], error, [-1, 1])


def test_what_the_proofs_do_not_cover_is_refused():
    """A spec without a registered evaluator, in either arithmetic."""
    spec = MultiHeadSpec(d=4, n=3, d_h=3, H=2)
    tokens, right = np.zeros((1, 2), dtype=np.int64), np.zeros(1, dtype=np.int64)
    with pytest.raises(ByheartError, match="do not cover"):
        bounded_logits(spec, {}, torch.tensor(tokens))
    with pytest.raises(ByheartError, match="do not cover"):
        ball_margins(spec, {}, tokens, right, precision=64, progress=quiet)


def test_margin_bound_is_that_of_the_worst_rival():
    """A rival with a smaller logit but a larger error may be the one that matters."""
    values = Bounded(
        torch.tensor([[3.0, 2.0, 1.0]], dtype=torch.float64),
        torch.tensor([[0.1, 0.2, 1.9]], dtype=torch.float64),
    )
    margin, bound = margins(values, torch.tensor([0]))
    assert float(margin) == 1.0
    # Smallest possible margin: 3 - 0.1 - (1 + 1.9) = 0, so the bound must reach 1.
    assert 1.0 <= float(bound) <= 1.0 + 1e-12
