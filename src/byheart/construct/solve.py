"""Linear systems X W = Y with at most as many equations as unknowns, solved with refinement."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

EPS = torch.finfo(torch.float64).eps
# Cholesky of X X^T squares the condition number: beyond this it has no digits left for refinement.
CHOLESKY_LIMIT = 1e7
RANK_UP_TO = 2000  # equations: above, the singular values take longer than the solve
Apply = Callable[[Tensor], Tensor]


def solve_bytes(T: int, m: int) -> int:
    """Memory that `minimum_norm` needs for X (T, m): X itself, X X^T and its factor."""
    return 8 * T * (m + 2 * T)


class RankError(Exception):
    """X has not the rank that the theorem needs, to working precision; `rank` where it is known."""

    def __init__(self, message: str, rank: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank


class Solution(NamedTuple):
    """W (m, k), the condition number of X (2-norm, estimated) and max |X W - Y|."""

    W: Tensor
    condition: float
    residual: float
    solver: str


def minimum_norm(X: Tensor, Y: Tensor) -> Solution:
    """W of least norm with X W = Y, for X (T, m) of rank T <= m.

    T < m: W = X^T (X X^T)^{-1} Y by Cholesky with one step of refinement, or by QR of X^T when
    X is too ill conditioned for that. T = m: LU with one step of refinement.

    >>> X = torch.tensor([[3.0, 4.0]], dtype=torch.float64)
    >>> minimum_norm(X, torch.tensor([[5.0]], dtype=torch.float64)).W.T
    tensor([[0.6000, 0.8000]], dtype=torch.float64)
    """
    T, m = X.shape
    if T > m:
        raise RankError(f"{T} equations for {m} unknowns")
    solution = _lu(X, Y) if T == m else _cholesky(X, Y)
    solution = solution or _qr(X, Y)
    if not math.isfinite(solution.residual) or solution.condition > 0.1 / EPS:
        countable = T <= RANK_UP_TO and bool(torch.isfinite(X).all())
        rank = int(torch.linalg.matrix_rank(X)) if countable else None
        found = f"below {T}" if rank is None or rank == T else f"{rank} < {T}"
        raise RankError(
            f"the {T} x {m} system has numerical rank {found} "
            f"(condition number {solution.condition:.0e})",
            rank,
        )
    return solution


def _refined(X: Tensor, Y: Tensor, solve: Apply, condition: float, solver: str) -> Solution:
    W = solve(Y)
    W += solve(Y - X @ W)
    return Solution(W, condition, float((X @ W - Y).abs().max()), solver)


def _cholesky(X: Tensor, Y: Tensor) -> Solution | None:
    L, info = torch.linalg.cholesky_ex(lower_gram(X))
    if int(info) != 0:
        return None
    condition = _condition(lambda v: X @ (X.T @ v), lambda v: torch.cholesky_solve(v, L), len(X))
    if not condition < CHOLESKY_LIMIT:
        return None
    return _refined(X, Y, lambda y: X.T @ torch.cholesky_solve(y, L), condition, "Cholesky")


def _qr(X: Tensor, Y: Tensor) -> Solution:
    Q, R = torch.linalg.qr(X.T)
    if float(R.diagonal().abs().min()) == 0.0:
        return Solution(Q[:, :0], math.inf, math.inf, "QR")

    def half(y: Tensor) -> Tensor:  # R^-T y
        return torch.linalg.solve_triangular(R.T, y, upper=False)

    condition = _condition(
        lambda v: R.T @ (R @ v),
        lambda v: torch.linalg.solve_triangular(R, half(v), upper=True),
        len(R),
    )
    return _refined(X, Y, lambda y: Q @ half(y), condition, "QR")


def _lu(X: Tensor, Y: Tensor) -> Solution | None:
    LU, pivots, info = torch.linalg.lu_factor_ex(X)
    if int(info) != 0:
        return None

    def solve(y: Tensor, adjoint: bool = False) -> Tensor:
        return torch.linalg.lu_solve(LU, pivots, y, adjoint=adjoint)

    condition = _condition(lambda v: X.T @ (X @ v), lambda v: solve(solve(v, adjoint=True)), len(X))
    return _refined(X, Y, solve, condition, "LU")


def lower_gram(X: Tensor, block: int = 2048) -> Tensor:
    """The lower triangle of X X^T (the rest is not filled in): half the work of the product."""
    T = len(X)
    K = torch.empty(T, T, dtype=X.dtype)
    for i in range(0, T, block):
        j = min(i + block, T)
        torch.mm(X[i:j], X[:j].T, out=K[i:j, :j])
    return K


def _condition(gram: Apply, inverse: Apply, n: int) -> float:
    """cond(X) from its Gram matrix (n, n) and the inverse of that."""
    return math.sqrt(_largest_eigenvalue(gram, n) * _largest_eigenvalue(inverse, n))


def _largest_eigenvalue(apply: Apply, n: int) -> float:
    """Power iteration from a fixed start: a lower estimate, close after 8 steps."""
    v = torch.randn(n, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    value = 0.0
    for _ in range(8):
        v = v / v.norm()
        w = apply(v)
        value = float(w.norm())
        if not math.isfinite(value) or value == 0.0:
            return math.inf
        v = w
    return value
