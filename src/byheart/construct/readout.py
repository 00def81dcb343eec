"""Read-outs of frozen random attention where exact interpolation asks too much.

`convex_readout`: more facts than H d_h + d, by multinomial logistic regression. Not a theorem: it
reports what it lost (docs/benchmarks.md). `ridge_readout`, `kl_readout`: distributions, logits
W (x_S + [F, x_S] V) near π in all sequences, weighted by their prior.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import OptimizeResult, minimize
from torch import Tensor

from byheart._progress import Report, quiet
from byheart.construct.frames import coherence
from byheart.models.memory import answer_margins
from byheart.models.threads import one_thread

ROUND = 100  # L-BFGS iterations between two looks at the margins
ROUNDS, PATIENCE = 40, 4  # stop after PATIENCE rounds that recall no further fact
# Enough of the frame's own margin to be safe from float32, which loses about 1e-5 of |z|.
SAFE_SHARE = 0.05
PRUNE_ROUNDS = 12
RIDGES = tuple(10.0**-k for k in range(12))
ITERATIONS, LARGE_ITERATIONS = 2000, 200
LARGE = 10**6  # entries of π: below, several threads only wait for each other


def lbfgs(
    value_and_gradient: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    most: int,
    ftol: float,
    gtol: float = 1e-9,
    calls: int = 2,
    progress: Report = quiet,
) -> OptimizeResult:
    """scipy's L-BFGS-B for at most `most` iterations, `calls` evaluations each. `progress` is told
    after each of them."""
    steps = itertools.count(1)

    def tell(_: np.ndarray) -> None:
        progress(f"step {next(steps):,} of at most {most:,}")

    options = {"maxiter": most, "maxfun": calls * most, "maxcor": 20, "ftol": ftol, "gtol": gtol}
    how = {"jac": True, "method": "L-BFGS-B", "callback": tell}
    return minimize(value_and_gradient, start, options=options, **how)


class Readout(NamedTuple):
    """W_O (H d_h, d), M_0 (d, d) and how long the search took."""

    W_O: Tensor
    M_0: Tensor
    iterations: int


@one_thread()
def convex_readout(
    F: Tensor, x_S: Tensor, rows: Tensor, right: Tensor, prior: Tensor, *, safe: float | None = None
) -> Readout:
    """min Σ_t p_t [ log Σ_j exp(z_t·w_j) - z_t·w_{g(t)} ],  z_t = F_t W_O + x_S M_0.

    `rows` (A, d) the frame, `right` (T,) the index of the right row. It starts at W_O = 0, M_0 = I,
    so that M_0 stays invertible in directions that no answer uses. When not all facts can be held,
    the worse half of the lost ones is dropped and the rest fitted again: an overloaded read-out
    loses far more than the surplus. It stops at margins of `safe` times the mean |z| (default: 0.05
    of the frame's own margin).
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
    scale = (x_S + X @ V).norm(dim=1).mean().clamp_min(1e-30)
    W, d = unwhiten @ V, rows.shape[1]
    M_0 = torch.eye(d, dtype=W.dtype) + W[-d:]
    return Readout(W[:-d] / scale, M_0 / scale, iterations)


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
            result = lbfgs(self.loss_and_gradient, V.flatten().numpy(), ROUND, 0, 0, calls=4)
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


class CrossEntropy:
    """Σ_t p_t [log Σ_j exp f_tj - π_t·f_t] for f = z W^T, and G = p (softmax f - π).

    d_KL is this minus the entropy of π. Gradients: G^T z in W, G W in z. Tables of some million
    entries would spend a third of their time on fresh memory without the buffers.
    """

    def __init__(self, pi: Tensor, prior: Tensor) -> None:
        self.pi, self.prior = pi, prior
        self._f, self._work = torch.empty_like(pi), torch.empty_like(pi)

    def __call__(self, z: Tensor, W: Tensor) -> tuple[float, Tensor]:
        """The loss and G; G lies in a buffer that the next call overwrites."""
        f = torch.mm(z, W.T, out=self._f)
        linear = torch.mul(self.pi, f, out=self._work).sum(1)
        top = f.amax(1, keepdim=True)
        q = f.sub_(top).exp_()
        total = q.sum(1, keepdim=True)
        loss = self.prior @ ((total.log() + top)[:, 0] - linear)
        return float(loss), q.div_(total).sub_(self.pi).mul_(self.prior[:, None])

    def threads(self) -> AbstractContextManager[None]:
        """One thread for small tables, as many as torch has for large ones."""
        return one_thread() if self.pi.numel() <= LARGE else nullcontext()


class Fitted(NamedTuple):
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
    fits = []
    for rho in RIDGES:
        V = Vt.T @ (s[:, None] * coefficients / (s**2 + rho * scale)[:, None])
        fits.append(Fitted(V, task.kl(task.base + task.X @ V), 0, rho))
    return min(fits, key=lambda fit: fit.kl)


def kl_readout(task: ReadoutTask, start: Tensor, with_W: bool = False) -> Fitted:
    """min_V Σ_t p_t KL(π_t || softmax W (x_S + X_t V)): convex in V, by L-BFGS on features that
    are whitened under the prior; from `start`, never worse than it.

    `with_W`: over V and W at once, no longer convex. The best W for a free encoder is not the best
    for one that is linear in m features: with few heads that is most of what is lost.
    """
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
        result = lbfgs(value_and_gradient, torch.cat(first).numpy(), most, ftol=1e-12)
    V, W = parts(torch.from_numpy(result.x))
    V, steps = unwhiten @ V, int(result.nit)
    after = Fitted(V, replace(task, W=W).kl(task.base + task.X @ V), steps, W=W)
    return after if after.kl < before.kl else before._replace(iterations=steps)
