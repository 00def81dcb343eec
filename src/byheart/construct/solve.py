"""What every construction shares: what it may cost, linear systems X W = Y with at most as many
equations as unknowns, solved with refinement, and what the weights as they are stored hold."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from byheart._machine import check_room
from byheart.errors import CapacityError
from byheart.facts import Facts
from byheart.models.attention_only import Weights
from byheart.models.construction import Construction, LostFact, finite
from byheart.models.token_memory import TokenMemory
from byheart.specs import AssociativeSpec, AttentionOnlySpec

DTYPES = {"float32": torch.float32, "float64": torch.float64}
EPS = torch.finfo(torch.float64).eps
# Cholesky of X X^T squares the condition number: beyond this it has no digits left for refinement.
CHOLESKY_LIMIT = 1e7
RANK_UP_TO = 2000  # equations: above, the singular values take longer than the solve
ROOM = 2.0
Apply = Callable[[Tensor], Tensor]
AnyTokenMemory = TypeVar("AnyTokenMemory", bound=TokenMemory)


def check_fits(work: int, parameters: int, what: str) -> None:
    """Refuse before any work what cannot fit into this machine's memory: bytes of work, and weights
    in float64, a rounded copy, and the copy that is stored."""
    advice = "Use smaller `d`, `H`, `d_h` or `qk_rank`, or `method=sharded` for many facts."
    check_room(work + 3 * 8 * parameters, what, advice)


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
        found += f" (condition number {solution.condition:.0e})"
        raise RankError(f"the {T} x {m} system has numerical rank {found}", rank)
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

    def inverse(v: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(R, half(v), upper=True)

    condition = _condition(lambda v: R.T @ (R @ v), inverse, len(R))
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


def as_stored(
    make: Callable[..., AnyTokenMemory],
    spec: AttentionOnlySpec | AssociativeSpec,
    weights: Weights,
    dtype: torch.dtype,
    facts: Facts,
    construction: Construction,
) -> AnyTokenMemory:
    """A memory with the weights as `dtype` stores them. A spec with one position more than the keys
    reads the start token in front of them, the last id of the vocabulary."""
    vocabulary, start_id = facts.vocabulary, None
    if spec.S > facts.S:
        vocabulary, start_id = vocabulary.with_special("<start>")
    return make(
        spec=spec,
        weights={name: w.to(dtype) for name, w in weights.items()},
        vocabulary=vocabulary,
        construction=construction,
        facts=facts,
        start_id=start_id,
        pad_id=facts.pad_id,
    )


def leads(memory: TokenMemory, facts: Facts) -> tuple[np.ndarray, np.ndarray]:
    """Margins from the weights as they are stored, and which of them count: those above `ROOM`
    times what rounding did to any positive one; the order of one batch's sums holds no fact."""
    margins = memory.margins(facts)
    noise = np.abs(margins - memory.margins(facts, torch.float64))
    counted = (margins > 0) & np.isfinite(noise)
    return margins, margins > ROOM * noise[counted].max(initial=0.0)


def held(memory: AnyTokenMemory, facts: Facts) -> AnyTokenMemory:
    """The memory with what it recalls from the weights as they are stored, on record: how many
    facts, the lost ones and the margin of the others."""
    margins, good = leads(memory, facts)
    record = replace(
        memory.construction,
        recalled=int(good.sum()),
        lost=tuple(
            LostFact(int(facts.rows[i]), facts.answer(i), facts.key(i))
            for i in (~good).nonzero()[0].tolist()
        ),
        margin=finite(float(margins[good].min())) if good.any() else None,
    )
    return replace(memory, construction=record)


def holding(memory: AnyTokenMemory, facts: Facts) -> AnyTokenMemory:
    """The memory with only the facts that it recalls; an error if there are none."""
    if not memory.construction.lost:
        return memory
    if not memory.construction.recalled:
        none = f"none of the {facts.T:,} facts could be held by {memory.spec}"
        raise CapacityError(f"{none}. Use more heads (`H`) or a larger `d`.")
    return replace(memory, facts=facts.subset(leads(memory, facts)[1]))
