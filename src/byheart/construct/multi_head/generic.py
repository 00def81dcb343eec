"""Random heads and one linear solve: what the rank alone gives, whatever the proof says.

For generic W_QK the features have rank min(H(n-1)+1, H d) if the context is shared and H d
otherwise, for every d_h >= 2 (measured; derived in docs/multi-head.md). The mean query and the mean
token are projected out first: they move all logits of a head alike, or all examples alike.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from byheart.facts import VectorFacts
from byheart.models.threads import one_thread

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
    q = torch.einsum("td,hde->the", torch.tensor(facts.query[chosen]), W_Q)
    y = torch.einsum("the,hde->thd", q, W_K)
    E = torch.tensor(facts.contexts()[chosen])
    logits = y @ E.transpose(1, 2)
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
    """Adam on -log det(X X^T) of the features X; returns the best iterate seen, never the last.

    The condition numbers are those looked at on the way (every tenth step).
    """
    E, e = torch.tensor(facts.context), torch.tensor(facts.query)
    W = [W_Q.clone().requires_grad_(), W_K.clone().requires_grad_()]
    optimizer = torch.optim.Adam(W, lr=lr * float(W_Q.std()))
    best, best_condition, seen = (W_Q, W_K), math.inf, []
    with one_thread():
        for step in range(steps + 1):
            X = _features(E, e, W[0], W[1])
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


def _features(E: Tensor, e: Tensor, W_Q: Tensor, W_K: Tensor) -> Tensor:
    q = torch.einsum("td,hde->the", e, W_Q)
    if E.dim() == 2:
        logits = torch.einsum("the,hne->thn", q, torch.einsum("nd,hde->hne", E, W_K))
        return torch.softmax(logits, -1).flatten(1)
    y = torch.einsum("the,hde->thd", q, W_K)
    return (torch.softmax(y @ E.transpose(1, 2), -1) @ E).flatten(1)
