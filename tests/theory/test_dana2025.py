"""Corollary 1 in whole numbers: capacity and heads undo each other."""

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from byheart.specs import AttentionOnlySpec
from byheart.theory import corollary1_capacity, corollary1_heads

# Without shrinking: with integers up to 10^18 it takes minutes and explains nothing.
SETTINGS = settings(
    max_examples=200, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate]
)

sizes = st.integers(1, 10**6)
last_tokens = st.none() | st.integers(1, 10**6)


def capacity(H: int, d: int, d_h: int, last: int | None) -> int:
    return corollary1_capacity(AttentionOnlySpec(N=2, S=2, d=d, d_h=d_h, H=H), last)


@SETTINGS
@given(T=st.integers(1, 10**18), d=sizes, d_h=sizes, last=last_tokens)
def test_heads_are_enough_and_one_fewer_is_not(T, d, d_h, last):
    H = corollary1_heads(T, d, d_h, last)
    assert H >= 1
    assert capacity(H, d, d_h, last) >= T
    if H > 1:
        assert capacity(H - 1, d, d_h, last) < T


@SETTINGS
@given(H=st.integers(1, 10**12), d=sizes, d_h=sizes, last=last_tokens)
def test_capacity_needs_exactly_these_heads(H, d, d_h, last):
    T = capacity(H, d, d_h, last)
    assert corollary1_heads(T, d, d_h, last) == H
    assert corollary1_heads(T + 1, d, d_h, last) == H + 1


@SETTINGS
@given(H=sizes, d=sizes, d_h=sizes, last=st.integers(1, 10**6))
def test_the_skip_counts_min_of_width_and_last_tokens(H, d, d_h, last):
    assert capacity(H, d, d_h, None) == H * d_h + d
    assert capacity(H, d, d_h, last) == H * d_h + (d if d <= last else last)


def test_the_numbers_of_the_paper():
    """Table 1 and experiment 6: H d_h + d associations; d = 2 is enough for T0 = H d_h + 2."""
    assert capacity(H=20, d=10, d_h=10, last=None) == 210
    assert capacity(H=20, d=2, d_h=2, last=None) == 42
    assert corollary1_heads(42, d=2, d_h=2) == 20
