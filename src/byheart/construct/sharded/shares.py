"""Redundant heads: every head of a shard carries an equal share of its facts.

Of all solutions of Σ_h F_h W_h = Y the one with the least Σ_h |F_h W_h|² spreads what is written
over the heads: with Q_h an orthonormal basis of the columns of F_h and K = Σ_h Q_h Q_h^T,

    F_h W_h = Q_h Q_h^T K^-1 Y.

Where every head can hold all facts of the shard (F_h of full row rank) K = m I, and each of m heads
writes exactly Y / m. Without one of them the stream is (1 - 1/m) w_g + x_S / m, which names g if
x_S is small: embeddings are `QUIET` times their length, and scores get it back.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from byheart.construct.attention_only import POSITION_SHARE, TOKEN_SHARE
from byheart.facts import Facts
from byheart.models.ablated import margins_without_each
from byheart.models.attention_only import Weights
from byheart.models.sharded_memory import ShardedMemory

QUIET = 2.0**-4  # of |x|: a power of two, so that nothing is rounded


def steady_values(weights: Weights, last_shut: bool) -> Weights:
    """Heads of one number each, F = σ v·x, that no token makes nearly 0, so that W_O stays small:
    v points where the positions that are read do, and these make up most of x."""
    steady = {name: w.double().clone() for name, w in weights.items()}
    read = slice(1, -1 if last_shut else None)
    steady["W_E"] *= math.sqrt(POSITION_SHARE / TOKEN_SHARE)
    steady["W_pos"][read] *= math.sqrt(TOKEN_SHARE / POSITION_SHARE)
    v = steady["W_pos"][read].mean(0)
    steady["V"] = (v / v.norm()).expand(len(steady["V"]), -1)[..., None].contiguous()
    return {name: w.to(weights[name].dtype) for name, w in steady.items()}


def quiet_embeddings(weights: Weights) -> Weights:
    """Embeddings of `QUIET` times the length, and heads that score them as before."""
    scale = {"W_E": QUIET, "W_pos": QUIET, "u": 1 / QUIET, "w": 1 / QUIET}
    return {name: w * scale[name] if name in scale else w for name, w in weights.items()}


def equal_shares(X: Tensor, Y: Tensor, heads: int, padding: Tensor, tolerance: float) -> Tensor:
    """W (B, h d_h, out) for features X (B, n, h d_h) and targets Y (B, n, out); `padding` (B, n) is
    1 in rows that are none. Directions of a head below `tolerance` of its largest are not used.

    >>> X, none = torch.randn(1, 2, 3 * 4, dtype=torch.float64), torch.zeros(1, 2).double()
    >>> Y = torch.ones(1, 2, 5, dtype=torch.float64)
    >>> W = equal_shares(X, Y, 3, none, 1e-9)
    >>> bool(torch.allclose(X[..., :4] @ W[:, :4], Y / 3))
    True
    """
    blocks = X.unflatten(2, (heads, -1)).transpose(1, 2)
    U, S, Vh = torch.linalg.svd(blocks, full_matrices=False)
    kept = S > tolerance * S[..., :1].clamp_min(1e-300)
    Q = U * kept[:, :, None]
    K = torch.einsum("bhnm,bhlm->bnl", Q, Q)
    K.diagonal(dim1=1, dim2=2).add_(padding)
    L, _ = torch.linalg.cholesky_ex(K)
    inverse = torch.where(kept, 1 / S, 0.0)
    W = torch.zeros(len(X), X.shape[2], Y.shape[2], dtype=X.dtype)
    for _ in range(2):  # the second time what rounding left
        share = Q.transpose(2, 3) @ torch.cholesky_solve(Y - X @ W, L)[:, None]
        W = W + (Vh.transpose(2, 3) @ (inverse[..., None] * share)).flatten(1, 2)
    return W


def lost_with_one_head(memory: ShardedMemory, facts: Facts) -> int:
    """How many facts are lost when some single head is zeroed, from the stored weights."""
    lost, W_U = 0, memory.weights["W_U"].double()
    for part in memory.head_parts(memory.inputs_of(facts), memory.answers_of(facts)):
        lost += int((margins_without_each(part, W_U) <= 0).any(1).sum())
    return lost
