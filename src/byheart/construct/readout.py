"""The convex read-out: more facts than H d_h + d, with frozen random attention.

Exact interpolation asks F W_O + x_S M_0 = w_g, d equations a fact. Recall only asks that the
right logit is the largest. That is a multinomial logistic problem in W_O and M_0, convex, solved
on whitened features by L-BFGS. How many facts it holds depends on d and on the number of answers:
1.3 to 4.7 times H d_h + d (measured: docs/benchmarks.md). Not a theorem: it reports what it lost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from byheart.construct.frames import coherence
from byheart.models.memory import answer_margins
from byheart.models.threads import one_thread

ROUND = 100  # L-BFGS iterations between two looks at the margins
ROUNDS, PATIENCE = 40, 4  # stop after PATIENCE rounds that recall no further fact
# Enough of the frame's own margin to be safe from float32, which loses about 1e-5 of |z|.
SAFE_SHARE = 0.05
PRUNE_ROUNDS = 12


@dataclass(frozen=True)
class Readout:
    """W_O (H d_h, d), M_0 (d, d), which facts they recall, and how long the search took."""

    W_O: Tensor
    M_0: Tensor
    held: Tensor
    iterations: int


@one_thread()
def convex_readout(
    F: Tensor,
    x_S: Tensor,
    rows: Tensor,
    right: Tensor,
    prior: Tensor,
    *,
    safe: float | None = None,
) -> Readout:
    """min Σ_t p_t [ log Σ_j exp(z_t·w_j) - z_t·w_{g(t)} ],  z_t = F_t W_O + x_S M_0.

    `F` (T, H d_h) and `x_S` (T, d) features, `rows` (A, d) the frame, `right` (T,) the index of
    the right row, `prior` (T,). It starts at W_O = 0, M_0 = I, so that M_0 stays invertible in
    directions that no answer uses. When not all facts can be held, the worse half of the lost
    ones is dropped and the rest fitted again, until all that is left is held: an overloaded
    read-out loses far more than the surplus. It stops at margins of `safe` times the mean |z|
    (default: 0.05 of the frame's own margin).
    """
    safe = SAFE_SHARE * (1 - coherence(rows)) if safe is None else safe
    X, unwhiten = whitened(torch.cat([F, x_S], 1))
    V = torch.zeros(X.shape[1], rows.shape[1], dtype=torch.float64)
    kept = torch.arange(len(X))
    iterations = 0
    for _ in range(PRUNE_ROUNDS):
        problem = _Problem(X[kept], x_S[kept], rows, right[kept], prior[kept], safe)
        V, steps = problem.solve(V)
        iterations += steps
        margins = problem.margins(V)
        lost = int((margins <= 0).sum())
        if lost == 0 or lost == len(kept):
            break
        kept = kept[margins.argsort()[(lost + 1) // 2 :]].sort().values
    z = x_S + X @ V
    held = answer_margins(z @ rows.T, right) > 0
    scale = z.norm(dim=1).mean().clamp_min(1e-30)
    W = unwhiten @ V
    d = rows.shape[1]
    M_0 = torch.eye(d, dtype=W.dtype) + W[-d:]
    return Readout(W[:-d] / scale, M_0 / scale, held, iterations)


@dataclass(frozen=True)
class _Problem:
    """Logits (base + X V) rows^T of some facts."""

    X: Tensor
    base: Tensor
    rows: Tensor
    right: Tensor
    prior: Tensor
    safe: float

    def margins(self, V: Tensor) -> Tensor:
        """Margins in units of the mean |z|."""
        z = self.base + self.X @ V
        return answer_margins(z @ self.rows.T, self.right) / z.norm(dim=1).mean()

    def loss_and_gradient(self, flat: np.ndarray) -> tuple[float, np.ndarray]:
        V = torch.from_numpy(flat).reshape(self.X.shape[1], -1)
        log_p = torch.log_softmax((self.base + self.X @ V) @ self.rows.T, dim=1)
        p = self.prior / self.prior.sum()
        loss = -(p * log_p.gather(1, self.right[:, None])[:, 0]).sum()
        error = log_p.exp()
        error[torch.arange(len(self.right)), self.right] -= 1.0
        error *= p[:, None]
        return float(loss), (self.X.T @ (error @ self.rows)).flatten().numpy()

    def solve(self, V: Tensor) -> tuple[Tensor, int]:
        """L-BFGS from V, in rounds, until all facts are held safely or none is gained any more."""
        best, best_score, idle, steps = V, (-1, -np.inf), 0, 0
        for _ in range(ROUNDS):
            result = minimize(
                self.loss_and_gradient,
                V.flatten().numpy(),
                jac=True,
                method="L-BFGS-B",
                options={"maxiter": ROUND, "maxfun": 4 * ROUND, "maxcor": 20, "ftol": 0, "gtol": 0},
            )
            V = torch.from_numpy(result.x).reshape(V.shape).clone()
            steps += int(result.nit)
            margins = self.margins(V)
            score = (int((margins > 0).sum()), float(margins.min()))
            idle = 0 if score[0] > best_score[0] else idle + 1
            if score > best_score:
                best, best_score = V, score
            if score[1] >= self.safe or idle >= PATIENCE or result.nit == 0:
                break
        return best, steps


def whitened(X: Tensor, prior: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """X L^{-T} with X^T X / T = L L^T (Σ_t p_t X_t X_t^T under a prior), and L^{-T}: features of
    unit covariance descend evenly."""
    T, m = X.shape
    C = X.T @ X / T if prior is None else X.T @ (prior[:, None] * X)
    # T < m, or fewer distinct last tokens than d, leaves C singular: the ridge keeps the factor.
    C += 1e-10 * C.diagonal().mean() * torch.eye(m, dtype=X.dtype)
    L = torch.linalg.cholesky(C)
    unwhiten = torch.linalg.solve_triangular(L.T, torch.eye(m, dtype=X.dtype), upper=True)
    return X @ unwhiten, unwhiten
