"""Unit rows that are far apart: theorems where there are some, better than chance elsewhere."""

import math

import pytest
import torch

from byheart.construct.frames import coherence, frame
from byheart.construct.widths import smallest_width
from byheart.errors import ByheartError

EPS = torch.finfo(torch.float64).eps


def gram_off_diagonal(W: torch.Tensor) -> torch.Tensor:
    A = len(W)
    return (W @ W.T)[~torch.eye(A, dtype=torch.bool)]


@pytest.mark.parametrize(
    ("A", "d"),
    [(1, 1), (2, 1), (1, 4), (2, 2), (3, 2), (10, 2), (5, 4), (6, 4), (50, 10), (350, 11)],
)
def test_rows_are_unit_vectors(A, d):
    W = frame(A, d)
    assert W.shape == (A, d) and W.dtype == torch.float64
    # A row is divided by its computed norm: d squares, one root, one quotient.
    assert torch.allclose(
        W.norm(dim=1), torch.ones(A, dtype=torch.float64), rtol=0, atol=(d + 3) * EPS
    )


@pytest.mark.parametrize(("A", "d"), [(2, 1), (2, 5), (3, 2), (4, 3), (5, 4), (4, 9), (20, 19)])
def test_simplex_is_the_optimum(A, d):
    """Σ_ij w_i·w_j = |Σ w_i|² >= 0, so the largest of A (A-1) inner products is >= -1/(A-1);
    the simplex has them all equal to it."""
    # An SVD of a matrix of norm 1 is good to A eps times a small constant.
    inner = gram_off_diagonal(frame(A, d))
    assert torch.allclose(inner, torch.full_like(inner, -1 / (A - 1)), rtol=0, atol=20 * A * EPS)


@pytest.mark.parametrize("A", [4, 5, 10, 50, 1000])
def test_circle_of_proposition_3(A):
    """d = 2: margin 1 - cos(2π/A), which no A unit vectors in the plane exceed (pigeonhole)."""
    # cos and sin good to eps, angles up to 2π good to 2π eps, three products.
    assert 1 - coherence(frame(A, 2)) == pytest.approx(1 - math.cos(2 * math.pi / A), abs=20 * EPS)


@pytest.mark.parametrize(("A", "d"), [(20, 4), (100, 6), (350, 11), (200, 3)])
def test_optimised_rows_beat_random_rows(A, d):
    found = coherence(frame(A, d))
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        random = torch.nn.functional.normalize(
            torch.randn(A, d, generator=generator, dtype=torch.float64)
        )
        assert found < coherence(random)
    # Rankin: more than d + 1 vectors cannot all be at obtuse angles. Nor can a search beat that.
    assert found >= -10 * d * EPS


def test_default_width_keeps_the_promised_margin():
    """`smallest_width`: a margin near 0.4 whatever the number of answers."""
    for A in (5, 20, 100, 350, 1000):
        assert 1 - coherence(frame(A, smallest_width(A))) > 0.3


@pytest.mark.parametrize(("A", "d"), [(2, 3), (7, 3), (2049, 3), (2500, 2)])
def test_coherence_is_the_largest_inner_product(A, d):
    """Also across the blocks of 2048 rows in which it is computed."""
    W = torch.randn(A, d, dtype=torch.float64, generator=torch.Generator().manual_seed(A))
    W = torch.nn.functional.normalize(W)
    # d products summed in any order.
    assert coherence(W) == pytest.approx(float(gram_off_diagonal(W).max()), abs=2 * d * EPS)


def test_coherence_sees_a_pair_in_different_blocks():
    W = torch.zeros(2100, 2100, dtype=torch.float64)
    W.fill_diagonal_(1.0)
    assert coherence(W) == 0.0
    W[2099] = W[0]
    assert coherence(W) == 1.0


def test_coherence_is_signed_and_minus_one_for_one_row():
    assert coherence(torch.tensor([[1.0, 0.0]])) == -1.0
    assert coherence(torch.tensor([[1.0, 0.0], [-0.6, 0.8]])) == pytest.approx(-0.6, abs=1e-7)


def test_coherence_does_not_change_its_input():
    W = frame(10, 3)
    before = W.clone()
    coherence(W)
    assert torch.equal(W, before)


@pytest.mark.parametrize(("A", "d"), [(4, 5), (9, 2), (40, 5)])
def test_same_seed_same_frame(A, d):
    assert torch.equal(frame(A, d, seed=3), frame(A, d, seed=3))


def test_other_seed_other_frame():
    assert not torch.equal(frame(40, 5, seed=3), frame(40, 5, seed=4))


def test_a_line_holds_two_answers_only():
    with pytest.raises(ByheartError, match="at most 2 answers apart, found 3"):
        frame(3, 1)
