"""All weights at once, by Levenberg-Marquardt: scalar labels, up to about 0.95 P examples.

A layer is a P-dimensional smooth family of functions on the examples (`effective_parameters`), so
generic labels of more than P examples are out of reach (Sard), and least squares gets close to P.
Not a theorem: it restarts, and says what every start came to. Queries (and own tokens) are
whitened; a shared context is only seen through the keys K^h (n, q) and values v^h (n) of its
tokens, q = min(d_h, n-1). Steps J^T λ solve the T x T system (J J^T + μ I) λ = residual.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from byheart.construct.multi_head.generic import attended
from byheart.facts import VectorFacts
from byheart.models.threads import one_thread

FITTED = 1e-10  # largest error at which a start counts as done, labels of order 1
ITERATIONS = 600
STALLED, STALL_SHARE = 60, 0.9  # a start ends when 60 iterations keep more than 0.9 of the error
# Standard deviation of the logits at the start, one after another. Nearly uniform attention finds
# the way (T = P itself in 3 of 3 starts at 0.1); at 3 no start of 9 reached 0.9 P.
LOGITS = (0.1, 0.3, 1.0)


class NewtonRun(NamedTuple):
    """What one start came to. `W_Q` (H, d, q), `K` (H, n, q) or (H, d, q), `v` (H, n) or (H, d)."""

    W_Q: Tensor
    K: Tensor
    v: Tensor
    error: float
    iterations: int


@one_thread()
def newton_run(
    facts: VectorFacts, H: int, d_h: int, seed: int = 0, logits: float = LOGITS[0]
) -> NewtonRun:
    """One start: Gaussian heads with logits of that size, read-out by least squares, then LM."""
    generator = torch.Generator().manual_seed(seed)
    e, B = _whitened(torch.tensor(facts.query))
    y = torch.tensor(facts.targets[:, 0])
    E, C = None, None
    if facts.shared:
        rows, q = facts.n, min(d_h, facts.n - 1)
    else:
        tokens, C = _whitened(torch.tensor(facts.context.reshape(-1, facts.d)))
        E = tokens.reshape(facts.context.shape)
        rows, q = facts.d, min(d_h, facts.d)
    scale = math.sqrt(logits) / (q * facts.d) ** 0.25
    W = torch.randn(H, facts.d, q, generator=generator, dtype=torch.float64) * scale
    K = torch.randn(H, rows, q, generator=generator, dtype=torch.float64) * scale
    K = K * (facts.d**0.25 if facts.shared else 1.0)
    X = attended(e, E, W, K)[1].flatten(1)
    v = torch.linalg.lstsq(X, y[:, None], driver="gelsd").solution[:, 0].reshape(H, rows)
    W, K, v, error, iterations = _levenberg_marquardt(e, E, y, W, K, v)
    W_Q = torch.einsum("dk,hkq->hdq", B, W)
    if C is not None:  # own tokens were whitened: back
        K, v = torch.einsum("dk,hkq->hdq", C, K), torch.einsum("dk,hk->hd", C, v)
    return NewtonRun(W_Q, K, v, error, iterations)


def _whitened(X: Tensor) -> tuple[Tensor, Tensor]:
    """X B with unit second moments (ridged, so that B exists for every X), and B (d, d)."""
    values, vectors = torch.linalg.eigh(X.T @ X / len(X))
    B = vectors / (values.clamp_min(0) + 1e-8 * values[-1]).sqrt()
    return X @ B, B


def _jacobian(
    e: Tensor, E: Tensor | None, W: Tensor, K: Tensor, v: Tensor
) -> tuple[Tensor, Tensor]:
    """f (T,) and J (T, weights), columns in the order W, K, v.

    With g = ∂f/∂logits = a ⊙ (value - a·value): ∂f/∂W = e ⊗ K^T x, ∂f/∂K = x ⊗ W^T e, ∂f/∂v = X,
    where x is g itself (shared context, K holds keys of tokens) or E^T g.
    """
    a, X, u = attended(e, E, W, K)
    value = v if E is None else torch.einsum("tnd,hd->thn", E, v)
    g = a * (value - (a * value).sum(-1, keepdim=True))
    x = g if E is None else g @ E
    f = (X * v).sum((1, 2))
    T = len(e)
    to_W = torch.einsum("td,thq->thdq", e, torch.einsum("thr,hrq->thq", x, K))
    to_K = torch.einsum("thr,thq->thrq", x, u)
    return f, torch.cat([to_W.reshape(T, -1), to_K.reshape(T, -1), X.reshape(T, -1)], 1)


def _levenberg_marquardt(
    e: Tensor, E: Tensor | None, y: Tensor, W: Tensor, K: Tensor, v: Tensor
) -> tuple[Tensor, Tensor, Tensor, float, int]:
    sizes = [W.numel(), K.numel(), v.numel()]
    mu, iteration = 1e-2, 0
    f, J = _jacobian(e, E, W, K, v)
    r = y - f
    checkpoint = float(r.norm())
    for iteration in range(1, ITERATIONS + 1):
        G = J @ J.T
        mean = float(G.diagonal().mean())
        for _ in range(12):
            L, info = torch.linalg.cholesky_ex(G + mu * mean * torch.eye(len(y)).double())
            if int(info) == 0:
                step = (J.T @ torch.cholesky_solve(r[:, None], L))[:, 0]
                dW, dK, dv = step.split(sizes)
                trial = (W + dW.view_as(W), K + dK.view_as(K), v + dv.view_as(v))
                X = attended(e, E, trial[0], trial[1])[1]
                left = y - (X * trial[2]).sum((1, 2))
                if float(left.norm()) < float(r.norm()):
                    break
            mu *= 4.0
        else:
            break
        W, K, v = trial
        mu = max(mu / 5.0, 1e-15)
        f, J = _jacobian(e, E, W, K, v)
        r = y - f
        if float(r.abs().max()) < FITTED:
            break
        if iteration % STALLED == 0:
            if float(r.norm()) > STALL_SHARE * checkpoint:
                break
            checkpoint = float(r.norm())
    return W, K, v, float(r.abs().max()), iteration
