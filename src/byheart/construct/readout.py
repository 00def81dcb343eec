"""The convex read-out: more facts than H d_h + d, with frozen random attention.

Exact interpolation asks F W_O + x_S M_0 = w_g, d equations a fact. Recall only asks that the
right logit is the largest. That is a multinomial logistic problem in [W_O; M_0], convex, solved
on whitened features by L-BFGS. How many facts it holds depends on d and on the number of answers:
1.3 to 4.4 times H d_h + d (measured: docs/benchmarks.md). Not a theorem: it reports what it lost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from byheart.models.memory import answer_margins

ROUND = 100  # L-BFGS iterations between two looks at the margins
SAFE_MARGIN = 0.02  # of the mean |z|: float32 loses about 1e-5 of it
ROUNDS, PATIENCE = 40, 4  # stop after PATIENCE rounds that recall no further fact
PRUNE_ROUNDS = 6


@dataclass(frozen=True)
class Readout:
    """W = [W_O; M_0] (m, d), which facts it recalls, and how long it searched."""

    W: Tensor
    held: Tensor
    iterations: int


def convex_readout(X: Tensor, rows: Tensor, right: Tensor, prior: Tensor) -> Readout:
    """min_W Σ_t p_t [ log Σ_j exp(X_t W w_j) - X_t W w_{g(t)} ], stopped when every fact is held.

    `X` (T, m) features, `rows` (A, d) the frame, `right` (T,) the index of the right row,
    `prior` (T,) weights. If not all facts can be held, those lost are dropped and the rest is
    fitted again, because an overloaded read-out loses far more than the surplus.
    """
    Xw, unwhiten = _whitened(X)
    V = torch.zeros(X.shape[1], rows.shape[1], dtype=torch.float64)
    weights = prior / prior.mean()
    best, best_held, iterations = V, torch.zeros(len(X), dtype=torch.bool), 0
    kept = torch.ones(len(X), dtype=torch.bool)
    for _ in range(PRUNE_ROUNDS):
        V, steps = _fit(Xw[kept], rows, right[kept], weights[kept], V)
        iterations += steps
        held = answer_margins(Xw @ V @ rows.T, right) > 0
        if held.sum() > best_held.sum():
            best, best_held = V, held
        if bool(held[kept].all()):
            break
        kept = kept & held
        if not bool(kept.any()):
            break
    scale = (Xw @ best).norm(dim=1).mean().clamp_min(1e-30)
    return Readout(unwhiten @ best / scale, best_held, iterations)


def _fit(X: Tensor, rows: Tensor, right: Tensor, weights: Tensor, V: Tensor) -> tuple[Tensor, int]:
    """L-BFGS from V, in rounds, until all facts are held safely or none is gained any more."""
    shape = V.shape

    def loss_and_gradient(flat: np.ndarray) -> tuple[float, np.ndarray]:
        W = torch.from_numpy(flat).reshape(shape)
        logits = X @ W @ rows.T
        log_p = torch.log_softmax(logits, dim=1)
        loss = -(weights * log_p.gather(1, right[:, None])[:, 0]).mean()
        error = log_p.exp()
        error[torch.arange(len(right)), right] -= 1.0
        error *= weights[:, None] / len(right)
        return float(loss), (X.T @ (error @ rows)).flatten().numpy()

    best, best_held, best_margin, idle, steps = V, -1, -np.inf, 0, 0
    for _ in range(ROUNDS):
        result = minimize(
            loss_and_gradient,
            V.flatten().numpy(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": ROUND, "maxfun": 4 * ROUND, "maxcor": 20, "ftol": 0, "gtol": 1e-12},
        )
        V = torch.from_numpy(result.x).reshape(shape).clone()
        steps += int(result.nit)
        z = X @ V
        margins = answer_margins(z @ rows.T, right) / z.norm(dim=1).mean()
        held, margin = int((margins > 0).sum()), float(margins.min())
        idle = 0 if held > best_held else idle + 1
        if (held, margin) > (best_held, best_margin):
            best, best_held, best_margin = V, held, margin
        if margin >= SAFE_MARGIN or idle >= PATIENCE or result.nit == 0:
            break
    return best, steps


def _whitened(X: Tensor) -> tuple[Tensor, Tensor]:
    """X L^{-T} with X^T X / T = L L^T, and L^{-T}: features of unit covariance descend evenly."""
    T, m = X.shape
    C = X.T @ X / T
    C += 1e-12 * C.diagonal().mean() * torch.eye(m, dtype=X.dtype)  # T < m leaves C singular
    L = torch.linalg.cholesky(C)
    unwhiten = torch.linalg.solve_triangular(L.T, torch.eye(m, dtype=X.dtype), upper=True)
    return X @ unwhiten, unwhiten
