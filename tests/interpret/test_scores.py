"""Metrics against their definitions, spelled out, and against what must hold for any scores."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byheart.errors import ByheartError
from byheart.interpret.scores import (
    average_precision,
    chance_precision,
    misplaced,
    precision_at_k,
    true_shares,
)

ROUNDING = 1e-12  # sums of fewer than 100 numbers of at most 1


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Scores with ties, and owners, at least one."""
    n = draw(st.integers(1, 12))
    scores = draw(st.lists(st.integers(-3, 3), min_size=n, max_size=n))
    owners = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    owners[draw(st.integers(0, n - 1))] = True
    return np.array(scores, float), owners


def spelled_out(scores: np.ndarray, owners: np.ndarray) -> float:
    """For every owner the precision of all heads that score at least as much; their mean."""
    reaching = [scores >= score for score in scores[owners]]
    return float(np.mean([owners[which].mean() for which in reaching]))


@settings(max_examples=50)
@given(cases())
def test_average_precision_is_bounded_and_the_mean_precision_at_the_owners(case):
    scores, owners = case
    found = average_precision(scores, owners)
    assert 1 / owners.size - ROUNDING <= found <= 1 + ROUNDING
    assert found == pytest.approx(spelled_out(scores, owners), abs=ROUNDING)
    best = np.where(owners, scores + 10, scores)
    worst = np.where(owners, scores - 10, scores)
    assert average_precision(best, owners) == pytest.approx(1, abs=ROUNDING)
    assert average_precision(worst, owners) <= found + ROUNDING


@settings(max_examples=50)
@given(cases())
def test_only_the_order_counts(case):
    scores, owners = case
    for measure in (average_precision, precision_at_k):
        moved = measure(np.exp(2 * scores) - 5, owners)
        assert measure(scores, owners) == pytest.approx(moved, abs=ROUNDING)
        assert measure(scores.reshape(1, -1), owners.reshape(1, -1)) == measure(scores, owners)


@settings(max_examples=50)
@given(cases())
def test_precision_at_k_is_the_mean_over_orders_of_ties(case):
    """Each owner's chance to be among the first k, over all orders that ties allow."""
    scores, owners = case
    k = int(owners.sum())
    above = (scores[:, None] > scores).sum(0)
    tied = (scores[:, None] == scores).sum(0)
    chances = np.clip((k - above) / tied, 0, 1)
    assert precision_at_k(scores, owners) == pytest.approx(chances[owners].sum() / k, abs=ROUNDING)


@pytest.mark.parametrize(("k", "n"), [(1, 1), (1, 5), (2, 5), (3, 6), (4, 4)])
def test_chance_is_the_mean_over_all_orders(k: int, n: int):
    owners = np.arange(n) < k
    values = [
        average_precision(np.array(p, float), owners) for p in itertools.permutations(range(n))
    ]
    assert chance_precision(k, n) == pytest.approx(np.mean(values), abs=ROUNDING)


@settings(max_examples=50)
@given(cases())
def test_misplaced_is_what_would_have_to_be_moved(case):
    scores, owners = case
    parts = np.where(owners, np.abs(scores) + 1, scores)
    shares = true_shares(parts, owners)
    assert shares.sum() == pytest.approx(1, abs=ROUNDING) and not shares[~owners].any()
    assert misplaced(shares * 7, shares) == pytest.approx(0, abs=ROUNDING)
    assert 0 <= misplaced(scores, shares) <= 1 + ROUNDING
    if not owners.all():
        assert misplaced(np.where(owners, -1.0, 1.0), shares) == pytest.approx(1, abs=ROUNDING)


def test_owners_that_speak_against_their_answer_share_evenly():
    assert true_shares(np.array([-1.0, 0.0, 4.0]), np.array([1, 1, 0])).tolist() == [0.5, 0.5, 0]


@pytest.mark.parametrize(
    ("scores", "owners", "words"),
    [([1.0, 2.0], [0, 0], "0 owners"), ([1.0], [1, 0], "found 1 scores"),
     ([np.nan, 1.0], [1, 0], "1 of them finite")],
)  # fmt: skip
def test_what_cannot_be_compared_is_refused(scores, owners, words):
    with pytest.raises(ByheartError, match=words):
        average_precision(np.array(scores), np.array(owners))
