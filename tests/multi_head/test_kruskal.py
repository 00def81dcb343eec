"""Rank and Kruskal rank: exact where they say so, never a false dependent set."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from byheart.errors import ByheartError, FactsError
from byheart.measure.kruskal import (
    coherence_bound,
    kruskal_rank,
    kruskal_report,
    parallel_rows,
    power,
    sample_subsets,
)
from byheart.measure.rank import exact_rank, numerical_rank, smallest_dependent_set, whitened


def fraction_rank(rows) -> int:
    """Gaussian elimination in fractions: the oracle of the oracle."""
    M = [[Fraction(v) for v in row] for row in np.asarray(rows).tolist()]
    rank = 0
    for column in range(len(M[0])):
        pivot = next((i for i in range(rank, len(M)) if M[i][column]), None)
        if pivot is None:
            continue
        M[rank], M[pivot] = M[pivot], M[rank]
        for i in range(rank + 1, len(M)):
            factor = M[i][column] / M[rank][column]
            M[i] = [a - factor * b for a, b in zip(M[i], M[rank], strict=True)]
        rank += 1
        if rank == len(M):
            break
    return rank


def fraction_kruskal(X) -> int:
    for s in range(1, fraction_rank(X) + 1):
        for rows in itertools.combinations(range(len(X)), s):
            if fraction_rank(X[list(rows)]) < s:
                return s - 1
    return fraction_rank(X)


@settings(max_examples=60, deadline=None)
@given(arrays(np.int64, st.tuples(st.integers(1, 5), st.integers(1, 5)),
              elements=st.integers(-3, 3) | st.integers(-(2**62), 2**62)))  # fmt: skip
def test_exact_rank_is_elimination_in_fractions(X):
    assert exact_rank(X).rank == fraction_rank(X)


@settings(max_examples=40, deadline=None)
@given(arrays(np.float64, (3, 3), elements=st.sampled_from([0.0, 0.1, 0.2, 0.3, 1e-300, -1e300])))
def test_floats_are_fractions(X):
    assert exact_rank(X).rank == fraction_rank(X)


def test_whole_numbers_do_not_overflow():
    """2^62 + 1 is no float64, and products of such numbers are no int64."""
    X = np.array([[2**62, 2**62 + 1], [2**62 - 1, 2**62]])
    assert np.linalg.matrix_rank(X.astype(float)) == 1
    assert exact_rank(X).rank == 2
    low = np.iinfo(np.int64).min
    assert exact_rank(np.array([[low, low], [1, 1]])).rank == 1
    assert exact_rank(np.array([[2**63, 1], [1, 0]], dtype=np.uint64)).rank == 2
    report = kruskal_report(X, 2, draws=1)
    assert report.rank_exact is not None and report.rank_exact.rank == 2


def test_a_rank_full_over_the_rationals_but_not_modulo_the_prime():
    """Modulo 2^61 - 1 the determinant vanishes: elimination over the integers decides."""
    found = exact_rank([[2**61 - 1, 0], [0, 1]])
    assert (found.rank, found.way) == (2, "rational")


def test_numerical_rank_states_what_it_depends_on():
    X = np.random.default_rng(0).random((50, 6)) + 1e9
    raw, centred = numerical_rank(X, dtype="float32"), numerical_rank(X, centred=True)
    assert raw.rank < 6 == centred.rank  # a common component inflates σ_1 and the tolerance
    assert raw.dtype == "float32" and raw.gap > 1 and centred.gap == np.inf
    assert numerical_rank(np.zeros((3, 2))).rank == 0
    assert numerical_rank(np.diag([1.0, 0.1]), tolerance=0.5).rank == 1
    with pytest.raises(ByheartError, match="`dtype` must be one of float32, float64"):
        numerical_rank(X, dtype="float16")


def small_cases(count=200):
    rng = np.random.default_rng(7)
    for i in range(count):
        d = int(rng.integers(2, 5))
        T = int(rng.integers(d, d + 4))
        if i % 2:
            X = rng.integers(-2, 3, (T, d))
        else:
            X = rng.random((T, d))
            if i % 4 == 0 and T > 3:
                X[0] = X[1] + X[2]
        yield X


def test_two_hundred_small_cases_agree_with_enumeration():
    """Bounds contain the truth; the report, which enumerates these, is exact."""
    tight = 0
    for X in small_cases():
        whole = X.dtype.kind == "i"
        truth = fraction_kruskal(X) if whole else kruskal_rank(X)
        assert kruskal_rank(X) == truth
        rank = numerical_rank(X).rank
        found = smallest_dependent_set(X, limit=rank, exact=whole)
        upper = rank if found is None else len(found.rows) - 1
        assert coherence_bound(X.astype(float)) <= truth <= upper
        tight += upper == truth
        if found is not None:  # never a false one
            rows = X[list(found.rows)]
            assert (fraction_rank(rows) if whole else numerical_rank(rows).rank) < len(rows)
        report = kruskal_report(X, min(2, X.shape[1]), draws=5)
        assert report.enumerated and report.lower == report.upper == truth
    assert tight >= 180  # the pursuit is greedy: not always the smallest set


@pytest.mark.parametrize("T", [150, 621])
@pytest.mark.parametrize("s", [2, 3, 5, 8])
def test_planted_sets_are_found_exactly(T, s):
    rng = np.random.default_rng(s)
    X = rng.random((T, 64))
    rows = rng.permutation(T)[:s]
    X[rows[0]] = X[rows[1]] if s == 2 else rng.uniform(0.5, 1.5, s - 1) @ X[rows[1:]]
    report = kruskal_report(X, 32, draws=50)
    assert report.dependent is not None
    assert set(report.dependent.rows) == set(rows.tolist())
    assert report.upper == s - 1 and not report.dependent.exact
    assert report.lower <= report.upper
    assert report.groups is not None and report.groups.holds == (s > 2)
    assert bool(report.parallel) == (s == 2)


def test_rows_in_a_small_space_are_found():
    rng = np.random.default_rng(3)
    X = rng.random((621, 64))
    X[100:140] = rng.standard_normal((40, 10)) @ rng.random((10, 64))
    report = kruskal_report(X, 32, draws=10)
    assert report.dependent is not None and len(report.dependent.rows) == 11
    assert set(report.dependent.rows) <= set(range(100, 140))
    assert report.groups is not None and report.groups.holds


def test_generic_rows_have_no_false_set():
    for seed in range(3):
        X = np.random.default_rng(seed).random((300, 24))
        report = kruskal_report(X, 12, draws=20)
        assert report.dependent is None and report.upper == 24 and report.lower >= 1


def test_whole_numbers_get_an_exact_set():
    X = np.random.default_rng(0).integers(-50, 50, (80, 12))
    X[5] = X[10] - 3 * X[20]
    report = kruskal_report(X, 8, draws=10)
    assert report.dependent is not None and report.dependent.exact
    assert report.dependent.rows == (5, 10, 20)
    assert report.rank_exact is not None and report.rank_exact.rank == 12


@settings(max_examples=50, deadline=None)
@given(arrays(np.int64, (6, 3), elements=st.integers(-2, 2)))
def test_parallel_rows_are_those_of_rank_one(X):
    zero, sets = parallel_rows(X)
    assert zero == tuple(np.flatnonzero(~X.any(1)).tolist())
    together = {frozenset(p) for s in sets for p in itertools.combinations(s, 2)}
    for i, j in itertools.combinations(range(6), 2):
        if i in zero or j in zero:
            continue
        assert (frozenset((i, j)) in together) == (fraction_rank(X[[i, j]]) == 1)


def test_parallel_floats_are_exact_too():
    X = np.array([[0.1, 0.3], [0.2, 0.6], [1.0, 3.0]])
    assert parallel_rows(X) == ((), ((0, 1),))  # 3 · 0.1 is not 0.3 as floats


def test_whitening_is_an_invertible_map_of_the_columns():
    X = np.random.default_rng(0).random((40, 5)) + 10
    W = whitened(X)
    assert np.allclose(np.linalg.norm(W, axis=1), 1)
    A = np.linalg.lstsq(X, W * np.linalg.norm(X, axis=1)[:, None], rcond=None)[0]
    assert np.linalg.matrix_rank(A) == 5
    # Coherence after whitening is lower than before: the rows no longer share one direction.
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    off = ~np.eye(40, dtype=bool)
    assert np.abs(W @ W.T)[off].max() < np.abs(unit @ unit.T)[off].max()


def test_sampling_counts_and_bounds():
    X = np.random.default_rng(0).random((30, 6))
    X[:15] = X[0]  # half the rows are equal: nearly every subset is dependent
    found = sample_subsets(X, 5, 200)
    assert found.dependent > 150 and found.fraction_below > found.dependent / 200
    none = sample_subsets(np.random.default_rng(1).random((30, 6)), 5, 1000)
    assert none.dependent == 0
    assert none.fraction_below == pytest.approx(1 - 0.05 ** (1 / 1000), rel=1e-6)  # about 3/m


def test_power_is_the_chance_to_meet_the_set():
    """Exact by counting: subsets of 3 of 6 rows that contain a given pair: 4 of 20."""
    assert power(6, 3, 2, 1) == pytest.approx(4 / 20)
    assert power(6, 3, 2, 10) == pytest.approx(1 - (16 / 20) ** 10)
    assert power(6, 3, 4, 10) == 0.0 and power(5, 5, 2, 1) == 1.0
    rng = np.random.default_rng(0)
    hits = np.mean([{0, 1, 2} <= set(rng.choice(20, 8, replace=False)) for _ in range(4000)])
    assert hits == pytest.approx(power(20, 8, 3, 1), abs=0.015)


@pytest.mark.parametrize(
    ("X", "n", "message"),
    [
        (np.zeros(3), 1, "expected rows"),
        (np.array([[1.0, np.nan]]), 1, "row 0, column 1 is nan"),
        (np.array([["a"]]), 1, "expected numbers"),
        (np.eye(3), 4, "expected 1 <= n <= d = 3"),
        (np.eye(3), 0, "expected 1 <= n"),
    ],
)
def test_bad_rows(X, n, message):
    with pytest.raises(FactsError, match=message):
        kruskal_report(X, n)


def test_too_many_subsets_are_refused():
    with pytest.raises(FactsError, match="too many subsets to enumerate"):
        kruskal_rank(np.random.default_rng(0).random((60, 20)))
    with pytest.raises(FactsError, match="would take too long"):
        exact_rank(np.zeros((5000, 1000)))


def test_a_zero_row_has_kruskal_rank_0():
    X = np.eye(4)
    X[2] = 0
    report = kruskal_report(X, 2, draws=5)
    assert report.zero_rows == (2,) and report.upper == report.lower == 0
