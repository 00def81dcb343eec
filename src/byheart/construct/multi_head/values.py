"""The read-out: from attention features to W_V and W_O.

A shared context has attention features A (T, H n), and any values V^h (n, m) of its tokens can be
had, because E has rank n: W_V^h W_O^h = E^+ V^h. Own contexts have features Z (T, H d), rows
[E(t)^T a^1, ...], and any w^h = W_V^h W_O^h (d, m). Either matrix is a product through d_v =
min(n or d, m) channels: one factor is the identity.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from byheart.facts import VectorFacts
from byheart.models import multi_head
from byheart.models.memory import BATCH_BYTES
from byheart.specs import MultiHeadSpec

Weights = dict[str, Tensor]


def value_width(facts: VectorFacts) -> int:
    """d_v = min(n, m) for a shared context, min(d, m) otherwise: every read-out is possible."""
    return min(facts.n if facts.shared else facts.d, facts.outputs)


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


def value_weights(spec: MultiHeadSpec, facts: VectorFacts, V: np.ndarray | Tensor) -> Weights:
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
