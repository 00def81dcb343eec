"""Random heads and one linear solve, and the read-out from attention features to W_V and W_O.

For generic W_QK the features have rank min(H(n-1)+1, H d) if the context is shared and H d
otherwise, for every d_h >= 2 (docs/multi-head.md). A shared context has features A (T, H n), and
any values V^h (n, m) of its tokens: W_V^h W_O^h = E^+ V^h. Own contexts have features Z (T, H d),
rows [E(t)^T a^1, ...], and any W_V^h W_O^h (d, m).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from byheart.facts import VectorFacts
from byheart.models import multi_head
from byheart.models.memory import BATCH_BYTES
from byheart.models.threads import one_thread
from byheart.specs import MultiHeadSpec

Weights = dict[str, Tensor]
STD = 5.0  # of the logits: 3 to 10 condition best; at 100 nine heads in ten are saturated
SAMPLE = 512  # examples that the logits are scaled on


def random_heads(
    facts: VectorFacts, H: int, d_h: int, seed: int = 0, std: float = STD
) -> tuple[Tensor, Tensor]:
    """Gaussian W_Q, W_K (H, d, d_h), centred, logits of standard deviation `std` in every head."""
    generator = torch.Generator().manual_seed(seed)
    W_Q, W_K = torch.randn(2, H, facts.d, d_h, generator=generator, dtype=torch.float64)
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
