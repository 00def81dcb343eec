"""The groups of the proof: independent where it needs them, and refused with the place if not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byheart.construct.multi_head.saturated import (
    DEPENDENT,
    complement,
    dual_basis,
    find_groups,
    group_certificate,
    pseudo_inverse_times,
    split,
)
from byheart.errors import CapacityError


@given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 8))
def test_groups_hold_every_example_once(T, H, size):
    order = np.random.default_rng(T).permutation(T)
    if T > H * size + 1:
        with pytest.raises(CapacityError):
            split(order, H, size)
        return
    over, groups = split(order, H, size)
    assert sorted([over, *(i for g in groups for i in g)]) == list(range(T))
    assert len(groups) == H and max(map(len, groups)) <= size


@given(st.integers(2, 7), st.integers(0, 5), st.integers(0, 10**6))
def test_the_certificate_is_the_definition(d, extra, seed):
    """Residual > 0 exactly if no query outside a group lies in its span (exact rank)."""
    from byheart.measure.rank import exact_rank

    rng = np.random.default_rng(seed)
    X = rng.integers(-1, 2, (d + extra, d))
    _, groups = split(np.arange(len(X)), max(1, -(-(len(X) - 1) // (d - 1))), d - 1)
    found = group_certificate(X.astype(float), groups)
    truth = True
    for group in groups:
        own = X[list(group)]
        truth &= exact_rank(own).rank == len(group)
        for t in set(range(len(X))) - set(group):
            rows = np.vstack([own, X[t : t + 1]])
            # A dependent group can still leave t outside: compare ranks with and without it.
            truth &= exact_rank(rows).rank > exact_rank(own).rank
    assert found.holds == truth


def test_a_duplicate_is_found_and_named():
    X = np.random.default_rng(0).random((30, 8))
    X[20] = X[3]
    found = find_groups(X, H=5, size=6)
    assert not found.holds
    assert {found.residual_at and found.residual_at[0], found.pivot_at and found.pivot_at[0]} & {
        3,
        20,
    }
    assert "example" in found.reason()


def test_shuffles_separate_rows_that_must_not_meet():
    """Eight neighbours in a 4-dimensional space fail together and pass apart."""
    rng = np.random.default_rng(1)
    X = rng.random((60, 12))
    X[1:9] = rng.random((8, 4)) @ rng.random((4, 12))
    _, groups = split(np.arange(60), 8, 8)
    assert not group_certificate(X, groups).holds
    assert find_groups(X, 8, 8).holds


def test_parts_of_a_head_do_what_they_say():
    rng = np.random.default_rng(2)
    own = rng.random((5, 9))
    assert np.allclose(dual_basis(own) @ own.T, np.eye(5), atol=1e-12)
    assert np.allclose(complement(own, 9).T @ own.T, 0, atol=1e-12)
    E, logits = rng.random((5, 4, 9)), rng.standard_normal((5, 4))
    p = pseudo_inverse_times(E, logits)
    assert np.allclose((E @ p[..., None])[..., 0], logits, atol=1e-11)
    assert DEPENDENT < 1e-9
