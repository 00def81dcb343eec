"""The best rank-d encoder we can find: L-BFGS on W and E, from several starts.

Bilinear, so not convex: what it finds is an upper estimate of d_KL(π, L(N, S, d)). Deterministic:
starts and steps are fixed by the seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from scipy.optimize import minimize

from byheart._progress import Report, quiet
from byheart.construct.encoders.encoder import Array, Encoder
from byheart.construct.encoders.loss import CrossEntropy
from byheart.facts import Distributions
from byheart.theory.dana2025 import divergence

ITERATIONS = 2000
HEAT = 300  # iterations that every start gets; then the best of them alone goes on
PRECISION = {"maxcor": 20, "ftol": 1e-13, "gtol": 1e-9}


def optimised(
    table: Distributions,
    starts: Sequence[Encoder],
    *,
    iterations: int = ITERATIONS,
    progress: Report = quiet,
) -> Encoder:
    """argmin_{W,E} Σ_t p_t KL(π_t || softmax W E_t), the best local minimum from the `starts`.

    All starts run for `HEAT` steps, the best of them to the end. Never worse than any start.

    >>> from byheart.facts import random_distributions
    >>> from byheart.construct.encoders.closed import weighted
    >>> table = random_distributions("gauss", N=6)
    >>> start = weighted(table, 2)
    >>> found = optimised(table, [start])
    >>> pi = table.probabilities
    >>> divergence(pi, found.logits) < divergence(pi, start.logits)
    True
    """
    pi, prior = table.probabilities, table.prior

    def kl(encoder: Encoder) -> float:
        return divergence(pi, encoder.logits, prior)

    heat = min(HEAT, iterations) if len(starts) > 1 else iterations
    raced = []
    for number, start in enumerate(starts):
        progress(f"optimising the encoder, start {number + 1} of {len(starts)} ({start.name})")
        raced.append(min((start, _descend(table, start, heat)), key=kl))
    best = min(raced, key=kl)
    if heat < iterations:
        progress(f"optimising the encoder further from the {best.name} start")
        best = min((best, _descend(table, best, iterations)), key=kl)
    return Encoder(best.W, best.E, "optimised", f"L-BFGS on W and E from {best.why or best.name}")


def random_start(table: Distributions, d: int, seed: int) -> Encoder:
    """Gaussian W and E with logits of standard deviation about 1."""
    r = np.random.default_rng(seed)
    W, E = r.normal(size=(table.A, d)), r.normal(size=(table.T, d)) / np.sqrt(d)
    return Encoder(W, E, "random", f"a random start ({seed})")


def _descend(table: Distributions, start: Encoder, iterations: int) -> Encoder:
    """L-BFGS in the variables sqrt(p_t) E_t and sqrt(m_j) W_j, m_j = Σ_t p_t π_t(j).

    The Hessian in E_t is p_t times a matrix of W, in W_j about m_j times one of E: in these
    variables rare sequences and rare answers descend as fast as frequent ones.
    """
    pi = torch.from_numpy(table.probabilities.copy())
    p = torch.from_numpy(table.prior.copy())
    T, A, d = table.T, table.A, start.d
    of_t = p.sqrt().clamp_min(1e-8)[:, None]
    of_j = (p @ pi).sqrt().clamp_min(1e-8)[:, None]
    W, E = _even(start.W * of_j.numpy(), start.E * of_t.numpy())

    loss = CrossEntropy(pi, p)

    def value_and_gradient(flat: Array) -> tuple[float, Array]:
        both = torch.from_numpy(flat)
        W_j = both[: A * d].reshape(A, d) / of_j
        E_t = both[A * d :].reshape(T, d) / of_t
        value, G = loss(E_t, W_j)
        gradient = torch.cat([((G.T @ E_t) / of_j).flatten(), ((G @ W_j) / of_t).flatten()])
        return value, gradient.numpy()

    with loss.threads():
        x = minimize(
            value_and_gradient,
            np.concatenate([W.ravel(), E.ravel()]),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": iterations, "maxfun": 2 * iterations, **PRECISION},
        ).x
    W, E = x[: A * d].reshape(A, d) / of_j.numpy(), x[A * d :].reshape(T, d) / of_t.numpy()
    return replace(start, W=W, E=E)


def _even(W: Array, E: Array) -> tuple[Array, Array]:
    """The same product E W^T with W^T W = E^T E: both factors then descend at one speed."""
    Q_W, R_W = np.linalg.qr(W)
    Q_E, R_E = np.linalg.qr(E)
    U, s, Vt = np.linalg.svd(R_E @ R_W.T)
    # Directions with s = 0 would have a gradient of exactly 0 on both sides: leave them a start.
    root = np.sqrt(np.maximum(s, 1e-6 * s.max(initial=1e-300)))
    if W.shape[0] < W.shape[1] or E.shape[0] < E.shape[1]:
        return W, E
    return Q_W @ Vt.T * root, Q_E @ U * root
