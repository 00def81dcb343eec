"""Random heads and the read-out from attention features to W_V and W_O; and all weights at once
(docs/multi-head.md).

A shared context has features A (T, H n), and any values V^h (n, m) of its tokens: W_V^h W_O^h =
E^+ V^h. Own contexts have features Z (T, H d), rows [E(t)^T a^1, ...], and any W_V^h W_O^h (d, m).
`newton_run` whitens queries (and own tokens), and sees a shared context only through the keys K^h
(n, q) and values v^h (n) of its tokens, q = min(d_h, n-1).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from byheart.construct.attention_only import gaussians
from byheart.facts import VectorFacts
from byheart.models import multi_head
from byheart.models.memory import BATCH_BYTES
from byheart.models.threads import one_thread
from byheart.specs import MultiHeadSpec

Weights = dict[str, Tensor]
STD = 5.0  # of the logits: 3 to 10 condition best; at 100 nine heads in ten are saturated
SAMPLE = 512  # examples that the logits are scaled on
FITTED = 1e-10  # largest error at which a start counts as done, labels of order 1
ITERATIONS = 600
STALLED, STALL_SHARE = 60, 0.9  # a start ends when 60 iterations keep more than 0.9 of the error
# Standard deviation of the logits at the start, one after another. Nearly uniform attention finds
# the way (T = P itself in 3 of 3 starts at 0.1); at 3 no start of 9 reached 0.9 P.
LOGITS = (0.1, 0.3, 1.0)


def random_heads(
    facts: VectorFacts, H: int, d_h: int, seed: int = 0, std: float = STD
) -> tuple[Tensor, Tensor]:
    """Gaussian W_Q, W_K (H, d, d_h), centred, logits of standard deviation `std` in every head."""
    W_Q, W_K = gaussians(seed)(2, H, facts.d, d_h)
    mean_token = facts.context.reshape(-1, facts.d).mean(0)
    W_Q, W_K = _without(W_Q, facts.query.mean(0)), _without(W_K, mean_token)
    chosen = np.random.default_rng(seed).permutation(facts.T)[:SAMPLE]
    E, e = torch.tensor(facts.contexts()[chosen]), torch.tensor(facts.query[chosen])
    q = torch.einsum("td,hde->the", e, W_Q)
    logits = torch.einsum("the,hde->thd", q, W_K) @ E.transpose(1, 2)
    spread = (logits - logits.mean(-1, keepdim=True)).square().mean((0, 2)).sqrt()
    factor = (std / spread.clamp_min(1e-300)).sqrt()[:, None, None]
    return W_Q * factor, W_K * factor


def _without(W: Tensor, direction: np.ndarray) -> Tensor:
    """W with the part along `direction` (on its d axis) taken out."""
    u = torch.tensor(direction)
    size = float(u.norm())
    if size == 0.0 or len(u) == 1:
        return W
    u = u / size
    return W - u[:, None] * torch.einsum("d,hde->he", u, W)[:, None]


def condition_heads(
    facts: VectorFacts, W_Q: Tensor, W_K: Tensor, steps: int, lr: float = 4e-3
) -> tuple[Tensor, Tensor, list[float]]:
    """Adam on -log det(X X^T) of the features X; returns the best iterate seen, never the last, and
    the condition numbers on the way (every tenth step)."""
    E, e = torch.tensor(facts.context), torch.tensor(facts.query)
    W = [W_Q.clone().requires_grad_(), W_K.clone().requires_grad_()]
    optimizer = torch.optim.Adam(W, lr=lr * float(W_Q.std()))
    best, best_condition, seen = (W_Q, W_K), math.inf, []
    with one_thread():
        for step in range(steps + 1):
            keys = torch.einsum("nd,hde->hne", E, W[1]) if facts.shared else W[1]
            X = attended(e, None if facts.shared else E, W[0], keys)[1].flatten(1)
            K = X @ X.T
            if step % 10 == 0 or step == steps:
                values = torch.linalg.eigvalsh(K.detach())
                seen.append(math.sqrt(float(values[-1] / values[0].clamp_min(1e-300))))
                if seen[-1] < best_condition:
                    best, best_condition = (W[0].detach().clone(), W[1].detach().clone()), seen[-1]
            L, info = torch.linalg.cholesky_ex(K)
            if int(info) != 0 or step == steps:
                break
            loss = -2 * L.diagonal().log().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return *best, seen


def attended(e: Tensor, E: Tensor | None, W: Tensor, K: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Attention a (T, H, n), what v multiplies (T, H, rows), and queries W^T e (T, H, q)."""
    u = torch.einsum("td,hdq->thq", e, W)
    if E is None:
        a = torch.softmax(torch.einsum("thq,hnq->thn", u, K), -1)
        return a, a, u
    a = torch.softmax(torch.einsum("thq,hdq->thd", u, K) @ E.transpose(1, 2), -1)
    return a, a @ E, u


def features(spec: MultiHeadSpec, weights: Weights, facts: VectorFacts) -> Tensor:
    """A (T, H n) if the context is shared, else Z (T, H d); float64, in batches."""
    stacked = {name: w[None].double() for name, w in weights.items()}
    query, E = torch.tensor(facts.query), torch.tensor(facts.context)
    width = spec.n if facts.shared else spec.d
    X = torch.empty(facts.T, spec.H * width, dtype=torch.float64)
    step = max(1, BATCH_BYTES // spec.row_bytes(8))
    for i in range(0, facts.T, step):
        b = slice(i, i + step)
        own = E if facts.shared else E[None, b]
        a = multi_head.attention(spec, stacked, own, query[b])[0]
        X[b] = (a if facts.shared else a @ E[b]).flatten(1)
    return X


def value_weights(facts: VectorFacts, V: np.ndarray | Tensor) -> Weights:
    """W_V (H, d, d_v) and W_O (H, d_v, m) with E W_V^h W_O^h = V^h (H, n, m), or, for own
    contexts, W_V^h W_O^h = V^h (H, d, m)."""
    values = torch.as_tensor(V, dtype=torch.float64)
    H, rows, m = values.shape
    left = torch.linalg.pinv(torch.tensor(facts.context)) if facts.shared else None
    if m <= rows:  # the product as W_V, the identity as W_O
        W_V = values if left is None else left @ values
        return {"W_V": W_V.contiguous(), "W_O": torch.eye(m).double().repeat(H, 1, 1)}
    left = torch.eye(rows, dtype=torch.float64) if left is None else left
    return {"W_V": left.expand(H, -1, -1).contiguous(), "W_O": values.contiguous()}


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
    gaussian = gaussians(seed)
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
    W, K = gaussian(H, facts.d, q) * scale, gaussian(H, rows, q) * scale
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
