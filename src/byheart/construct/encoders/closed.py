"""Least squares on log π: for distributions near uniform, where KL is nearly quadratic.

With Z = f - log π, KL_t = ½ Var_{π_t}(Z) + O(Z³): the right weights are p_t π_t, and a constant for
each sequence is free. Plain SVD ignores both, the centred one the weights; weighted least squares
has no SVD form and is solved by alternation.
"""

from __future__ import annotations

import torch

from byheart.construct.encoders.encoder import Encoder, check_rank, factored
from byheart.facts import Distributions
from byheart.models.threads import one_thread

SWEEPS = 300
SETTLED = 1e-9  # relative decrease of the loss in a sweep at which alternation stops
RIDGE = 1e-10  # of the mean diagonal: answers that nearly no sequence gives leave singular systems


def svd(table: Distributions, d: int) -> Encoder:
    """f_ls = the rank-d truncated SVD of log π (slides of June 2024): min ||f - log π||.

    >>> from byheart.facts import random_distributions
    >>> svd(random_distributions("gauss", N=5), d=5).logits.shape
    (25, 5)
    """
    check_rank(d)
    W, E = factored(table.logarithms(), d)
    return Encoder(W, E, "svd", "rank-d SVD of log π")


def centred_svd(table: Distributions, d: int) -> Encoder:
    """The rank-d SVD of log π - mean_j log π: the constant of each sequence costs no rank.

    Exact for d >= min(T, A - 1) (Proposition 2). Derived: softmax does not see constants.

    >>> from byheart.facts import random_distributions
    >>> from byheart.theory.dana2025 import divergence
    >>> table = random_distributions("gauss", N=5)
    >>> divergence(table.probabilities, centred_svd(table, d=4).logits) < 1e-14
    True
    """
    check_rank(d)
    L = table.logarithms()
    W, E = factored(L - L.mean(axis=1, keepdims=True), d)
    return Encoder(W, E, "centred", "rank-d SVD of log π without its mean in each sequence")


def weighted(table: Distributions, d: int) -> Encoder:
    """min Σ_t p_t Σ_j π_t(j) (E_t·W_j + o_t - log π_t(j))², o_t free: alternating least squares.

    Derived: the second-order expansion of d_KL. From the centred SVD; each half step solves its
    least-squares problems exactly, so the loss never rises.

    >>> from byheart.facts import random_distributions
    >>> table = random_distributions("gauss", N=6, tau=0.1)
    >>> weighted(table, d=2).name
    'weighted'
    """
    start = centred_svd(table, d)
    L = torch.from_numpy(table.logarithms())
    w = torch.from_numpy(table.prior[:, None] * table.probabilities)
    W, E = torch.from_numpy(start.W), torch.from_numpy(start.E)
    last = float("inf")
    with one_thread():
        for _ in range(SWEEPS):
            # With an offset: rows (W_j, 1) against unknowns (E_t, o_t), one system a sequence.
            rows = torch.cat([W, torch.ones(len(W), 1, dtype=W.dtype)], dim=1)
            both = _row_solves(w, L, rows)
            E, offset = both[:, :d], both[:, d:]
            W = _row_solves(w.T, (L - offset).T, E)
            loss = float((w * (E @ W.T + offset - L) ** 2).sum())
            if last < float("inf") and last - loss <= SETTLED * last:
                break
            last = loss
    why = "least squares on log π weighted by p π, offsets free, by alternation"
    return Encoder(W.numpy().copy(), E.numpy().copy(), "weighted", why)


def _row_solves(w: torch.Tensor, target: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """x_i = argmin Σ_j w_ij (rows_j·x_i - target_ij)², for all i at once."""
    n = rows.shape[1]
    outer = (rows[:, :, None] * rows[:, None, :]).flatten(1)
    G = (w @ outer).reshape(-1, n, n)
    scale = G.diagonal(dim1=1, dim2=2).mean(1).clamp_min(1e-300)
    G = G + RIDGE * scale[:, None, None] * torch.eye(n, dtype=G.dtype)
    return torch.linalg.solve(G, ((w * target) @ rows)[:, :, None])[:, :, 0]
