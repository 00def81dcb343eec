"""Ranks, subsets and distances against brute force and planted dependence."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byheart.audits.measures import (
    LADDER,
    context_check,
    head_groups,
    kruskal_check,
    largest_independent,
    query_check,
    separation_check,
)
from byheart.measure.kruskal import parallel_rows, sample_subsets, subset_ratios


def rows(seed: int, T: int, d: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((T, d))


@given(seed=st.integers(0, 99), size=st.integers(2, 4))
@settings(max_examples=20, deadline=None)
def test_planted_dependence_is_the_measured_rank(seed: int, size: int):
    """Rows in a space of size - 1 dimensions: subsets of `size` fail, smaller ones hold."""
    X = rows(seed, 12, size - 1) @ rows(seed + 1, size - 1, 6)
    assert largest_independent(X, 5, 40, seed) == size - 1
    check = query_check(X, "float64", False, n=5, draws=40, seed=seed)
    assert (check["rank"], check["Q"], check["independent"], check["general"]) == (
        size - 1, size - 1, 0.0, 0.0,
    )  # fmt: skip


@given(seed=st.integers(0, 99))
@settings(max_examples=10, deadline=None)
def test_generic_rows_are_independent_up_to_d(seed: int):
    X = rows(seed, 20, 6)
    for dtype in ("float32", "float64"):
        check = query_check(X, dtype, False, n=5, draws=20, seed=seed)
        assert (check["rank"], check["Q"], check["independent"]) == (6, 5, 1.0)
        assert check["general"] == 1.0


def test_a_large_common_part_is_seen_as_dependence_by_float32_only():
    """Why the published verdicts depend on format and centring: σ_1 grows with the common part."""
    X = rows(0, 30, 10) + 1e7
    found = {
        (dtype, centred): query_check(X, dtype, centred, n=8, draws=20, seed=0)["Q"]
        for dtype in ("float32", "float64") for centred in (False, True)
    }  # fmt: skip
    assert found["float64", False] == found["float64", True] == 8
    assert found["float32", False] < 8


def test_equal_rows_minus_their_mean_have_rank_0():
    X = np.tile(rows(0, 1, 8) * 1e3, (30, 1))
    for dtype in ("float32", "float64"):
        check = query_check(X, dtype, True, n=4, draws=5, seed=0)
        assert check["rank"] == 0


def test_general_position_cannot_be_seen_with_fewer_rows_than_d():
    X = rows(0, 5, 8)
    assert query_check(X, "float64", False, n=4, draws=5, seed=0)["general"] is None
    report, first, general = kruskal_check(X, 4, draws=5, search=4, seed=0)
    assert first == "proved" and general == "too few contexts"  # five independent rows: all known
    assert report.lower == 5


@pytest.mark.parametrize("planted", [False, True])
def test_verdicts(planted: bool):
    X = rows(0, 40, 8)
    if planted:
        X[7] = X[3] + X[5]
    report, first, general = kruskal_check(X, 6, draws=20, search=4, seed=0)
    assert (first, general) == (("fails", "fails") if planted else ("not refuted", "not refuted"))
    assert report.upper == (2 if planted else 8)


@given(seed=st.integers(0, 50), rank=st.integers(1, 4))
@settings(max_examples=20, deadline=None)
def test_ranks_of_contexts(seed: int, rank: int):
    good, bad = rows(seed, 4, 6), rows(seed + 1, 4, rank) @ rows(seed + 2, rank, 6)
    check = context_check(np.stack([good, bad]), "float64", False)
    assert check["full"] == 1 + (rank == 4)
    assert check["rank_min"] == rank
    shares = list(check["ladder"].values())
    assert len(shares) == len(LADDER) and shares == sorted(shares)  # smaller tolerance, more


def test_centring_contexts_keeps_generic_rank_and_removes_a_common_part():
    E = rows(0, 50 * 4, 6).reshape(50, 4, 6)
    assert context_check(E, "float32", True)["full"] == 50
    shifted = E + 1e8
    assert (
        context_check(shifted, "float64", True)["ratio_median"]
        > 100 * (context_check(shifted, "float64", False)["ratio_median"])
    )


@given(seed=st.integers(0, 99), T=st.integers(2, 30), d=st.integers(1, 5), twin=st.booleans())
@settings(max_examples=30, deadline=None)
def test_separation_is_the_brute_force_one(seed: int, T: int, d: int, twin: bool):
    X = rows(seed, T, d)
    if twin:
        X[0] = X[-1]
    found = separation_check(X)
    distances = [np.linalg.norm(a - b) for a, b in itertools.combinations(X, 2)]
    distances = [x for x in distances if x > 0]
    assert math.isclose(found["r"], max(np.linalg.norm(x) for x in X))
    if distances:
        assert math.isclose(found["delta"], min(distances), rel_tol=1e-9)
        assert math.isclose(found["spread"], found["r"] / min(distances), rel_tol=1e-9)
    assert found["equal"] == (1 if twin else 0)


def test_close_pairs_keep_their_digits():
    """|a - b|² by a product has an error of 1e-16 |a|²: 1e-8 of |a| would be lost."""
    X = rows(0, 200, 16) * 1e3
    X[17] = X[3]
    X[17, 0] += 1e-7
    assert math.isclose(separation_check(X)["delta"], 1e-7, rel_tol=1e-5)


def test_groups_of_a_layer():
    X = rows(0, 60, 16)
    T0, found = head_groups(X, H=4, r=8, seed=0)
    assert T0 == 4 * 7 + 1 and found is not None and found.holds
    T0, found = head_groups(np.tile(X[:1], (60, 1)), H=4, r=8, seed=0)
    assert found is not None and not found.holds
    assert head_groups(X, H=4, r=1, seed=0) == (1, None)


def test_subset_ratios_are_what_sampling_counts():
    X = rows(0, 30, 8)
    X[1] = X[0]
    ratios = subset_ratios(X, 4, 1000, 0)
    assert sample_subsets(X, 4, 1000, 0).dependent == int((ratios < 1e-12).sum()) > 0
    assert not subset_ratios(X, 9, 3).any()  # more rows than coordinates


@given(seed=st.integers(0, 99), scale=st.sampled_from([2.0, -0.5, 1024.0, 1.0]))
@settings(max_examples=30, deadline=None)
def test_parallel_rows_are_found_by_their_shadow_too(seed: int, scale: float):
    X = rows(seed, 20, 5)
    X[13], X[4] = scale * X[2], 0.0
    assert parallel_rows(X) == ((4,), ((2, 13),))
