"""Read-outs for distributions: logits W (x_S + [F, x_S] V) near π when H d_h + d < T.

The square solve of Theorem 1 interpolates the likely sequences and leaves the others to chance.
Both read-outs here look at all sequences, weighted by their prior.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from byheart.construct.encoders.loss import CrossEntropy
from byheart.construct.readout import whitened

RIDGES = tuple(10.0**-k for k in range(12))
ITERATIONS = 2000
LARGE = 10**6  # entries of π: above, an iteration takes a tenth of a second or more
LARGE_ITERATIONS = 200
PRECISION = {"maxcor": 20, "ftol": 1e-12, "gtol": 1e-9}


@dataclass(frozen=True)
class Fitted:
    """V (m, d) for the features, W (A, d), d_KL in nats, and how they were found."""

    V: Tensor
    kl: float
    iterations: int
    ridge: float | None = None
    W: Tensor | None = None


@dataclass(frozen=True)
class ReadoutTask:
    """X (T, m) features, `base` (T, d) the skip, W (A, d), π (T, A) and the prior."""

    X: Tensor
    base: Tensor
    W: Tensor
    pi: Tensor
    prior: Tensor

    def kl(self, z: Tensor) -> float:
        log_q = torch.log_softmax(z @ self.W.T, dim=1)
        logs = torch.where(self.pi > 0, self.pi, 1.0).log()
        return float(self.prior @ (self.pi * (logs - log_q)).sum(1))


def ridge_readout(task: ReadoutTask, targets: Tensor) -> Fitted:
    """min Σ_t p_t |x_S + X_t V - E_t|² + ρ s |V|², s the mean square of a weighted feature.

    `targets` (T, d) is E for a W with orthonormal columns, so that |W Δ| = |Δ|: the error counts
    as logits. ρ is the one of 1, 0.1, ..., 1e-11 with the smallest d_KL.
    """
    root = task.prior.sqrt()[:, None]
    Y = root * (targets - task.base)
    U, s, Vt = torch.linalg.svd(root * task.X, full_matrices=False)
    coefficients, scale = U.T @ Y, float((s**2).sum() / task.X.shape[1])
    best: Fitted | None = None
    for rho in RIDGES:
        V = Vt.T @ (s[:, None] * coefficients / (s**2 + rho * scale)[:, None])
        kl = task.kl(task.base + task.X @ V)
        if best is None or kl < best.kl:
            best = Fitted(V, kl, 0, rho)
    assert best is not None
    return best


def convex_kl_readout(task: ReadoutTask, start: Tensor) -> Fitted:
    """min_V Σ_t p_t KL(π_t || softmax W (x_S + X_t V)): convex in V, by L-BFGS on features that
    are whitened under the prior; from `start`, never worse than it."""
    return _descend(task, start, with_W=False)


def joint_kl_readout(task: ReadoutTask, start: Tensor) -> Fitted:
    """The same over V and W at once: no longer convex, never worse than `start`.

    The best W for an encoder that is free in every sequence is not the best for one that must be
    linear in m features: with few heads that is most of what is lost.
    """
    return _descend(task, start, with_W=True)


def _descend(task: ReadoutTask, start: Tensor, with_W: bool) -> Fitted:
    before = Fitted(start, task.kl(task.base + task.X @ start), 0, W=task.W)
    loss = CrossEntropy(task.pi, task.prior)
    m, d = start.shape
    # sqrt(Σ_t p_t π_t(j)): in units of it, rows of W for rare answers descend like the others.
    of_j = (task.prior @ task.pi).sqrt().clamp_min(1e-8)[:, None]

    def parts(x: Tensor) -> tuple[Tensor, Tensor]:
        """V for the whitened features, and W."""
        return x[: m * d].reshape(m, d), x[m * d :].reshape(-1, d) / of_j if with_W else task.W

    with loss.threads():
        X, unwhiten = whitened(task.X, task.prior)

        def value_and_gradient(flat: np.ndarray) -> tuple[float, np.ndarray]:
            V, W = parts(torch.from_numpy(flat))
            z = task.base + X @ V
            value, G = loss(z, W)
            gradient = [(X.T @ (G @ W)).flatten()]
            if with_W:
                gradient.append(((G.T @ z) / of_j).flatten())
            return value, torch.cat(gradient).numpy()

        # Triangular, so exact enough to start from; the comparison at the end is with `start`.
        first = [torch.linalg.solve_triangular(unwhiten, start, upper=True).flatten()]
        if with_W:
            first.append((task.W * of_j).flatten())
        most = LARGE_ITERATIONS if task.pi.numel() > LARGE else ITERATIONS
        result = minimize(
            value_and_gradient,
            torch.cat(first).numpy(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": most, "maxfun": 2 * most, **PRECISION},
        )
    V, W = parts(torch.from_numpy(result.x))
    V, steps = unwhiten @ V, int(result.nit)
    after = Fitted(V, replace(task, W=W).kl(task.base + task.X @ V), steps, W=W)
    return after if after.kl < before.kl else replace(before, iterations=steps)
