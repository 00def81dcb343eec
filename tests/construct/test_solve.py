"""X W = Y solved to the last digit that counts, or refused."""

import pytest
import torch

from byheart.construct.solve import RankError, lower_gram, minimum_norm

EPS = torch.finfo(torch.float64).eps
SHAPES = [(1, 1), (1, 7), (20, 20), (20, 21), (20, 60), (60, 61)]


def gaussian(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def with_condition(T: int, m: int, condition: float, seed: int = 0) -> torch.Tensor:
    """U diag(s) V^T with singular values from 1 down to 1/condition, evenly in the logarithm."""
    U = torch.linalg.qr(gaussian(T, T, seed=seed)).Q
    V = torch.linalg.qr(gaussian(m, T, seed=seed + 1)).Q
    s = torch.logspace(0, -float(torch.log10(torch.tensor(condition))), T, dtype=torch.float64)
    return (U * s) @ V.T


def assert_backward_stable(X: torch.Tensor, Y: torch.Tensor, W: torch.Tensor) -> None:
    """|X W - Y| <= c eps |X| |W|: W solves exactly a system that differs from X by c eps |X|.

    That is the best a float64 solution can do whatever the condition number: rounding W itself
    costs eps |X| |W|. c = 10 m covers the sums of m products in solution and check.
    """
    residual = torch.linalg.matrix_norm(X @ W - Y, 2)
    allowed = (
        10 * X.shape[1] * EPS * torch.linalg.matrix_norm(X, 2) * torch.linalg.matrix_norm(W, 2)
    )
    assert residual <= allowed


@pytest.mark.parametrize(("T", "m"), SHAPES)
def test_solution_of_least_norm(T, m):
    X, Y = gaussian(T, m), gaussian(T, 3, seed=9)
    found = minimum_norm(X, Y)
    assert_backward_stable(X, Y, found.W)
    # Two backward-stable solutions differ by their backward errors times the condition number.
    reference = torch.linalg.pinv(X) @ Y
    difference = torch.linalg.matrix_norm(found.W - reference, 2)
    cond = float(torch.linalg.cond(X))
    assert difference <= 20 * m * EPS * cond * torch.linalg.matrix_norm(reference, 2)


@pytest.mark.parametrize("condition", [1e3, 1e5, 3e6, 1e9, 1e13])
@pytest.mark.parametrize(("T", "m"), [(30, 30), (30, 45)])
def test_ill_conditioned_systems(T, m, condition):
    X, Y = with_condition(T, m, condition), gaussian(T, 4, seed=9)
    found = minimum_norm(X, Y)
    assert_backward_stable(X, Y, found.W)
    assert found.residual == float((X @ found.W - Y).abs().max())
    # Least norm: W lies in the row space of X, spanned by the first right singular vectors.
    V = torch.linalg.svd(X, full_matrices=False).Vh
    outside = found.W - V.T @ (V @ found.W)
    # Computing the row space to eps loses a factor cond for its weakest direction.
    assert outside.norm() <= 100 * EPS * condition * found.W.norm()


@pytest.mark.parametrize("condition", [1e1, 1e3, 1e6, 1e9, 1e13])
@pytest.mark.parametrize(("T", "m"), [(30, 30), (30, 45), (200, 230)])
def test_condition_number_within_a_factor_two(T, m, condition):
    X = with_condition(T, m, condition)
    found = minimum_norm(X, gaussian(T, 1)).condition
    true = float(torch.linalg.cond(X))
    assert true / 2 <= found <= 2 * true


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("T", "m"), [(2, 2), (50, 50), (50, 80)])
def test_condition_number_of_gaussian_systems(T, m, seed):
    X = gaussian(T, m, seed=seed)
    true = float(torch.linalg.cond(X))
    assert true / 2 <= minimum_norm(X, gaussian(T, 1)).condition <= 2 * true


def rank_deficient(kind: str, T: int, m: int) -> torch.Tensor:
    X = gaussian(T, m)
    if kind == "zero":
        return torch.zeros(T, m, dtype=torch.float64)
    if kind == "zero row":
        X[3] = 0
    elif kind == "equal rows":
        X[3] = X[5]
    elif kind == "combination":
        X[3] = X[:3].sum(0) - 2 * X[7]
    else:  # half the rank
        X = gaussian(T, T // 2) @ gaussian(T // 2, m, seed=1)
    return X


@pytest.mark.parametrize("kind", ["zero", "zero row", "equal rows", "combination", "half"])
@pytest.mark.parametrize(("T", "m"), [(20, 20), (20, 21), (20, 60)])
def test_rank_deficient_systems_are_refused(T, m, kind):
    X = rank_deficient(kind, T, m)
    assert torch.linalg.matrix_rank(X) < T
    with pytest.raises(RankError, match=rf"{T} x {m} system has numerical rank \d+ < {T}"):
        minimum_norm(X, gaussian(T, 2))


def test_more_equations_than_unknowns_are_refused():
    with pytest.raises(RankError, match="3 equations for 2 unknowns"):
        minimum_norm(gaussian(3, 2), gaussian(3, 1))


def test_nothing_that_is_not_finite_is_called_a_solution():
    X = gaussian(4, 6)
    X[1, 2] = torch.nan
    with pytest.raises(RankError):
        minimum_norm(X, gaussian(4, 1))


@pytest.mark.parametrize("T", [1, 5, 6, 13])
def test_lower_triangle_of_the_gram_matrix(T):
    """Also where the last block is not full."""
    X = gaussian(T, 4)
    assert torch.allclose(lower_gram(X, block=6).tril(), (X @ X.T).tril(), rtol=0, atol=40 * EPS)
