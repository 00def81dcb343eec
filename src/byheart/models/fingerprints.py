"""Fingerprints of keys: what a sharded memory compares to tell stored keys from others.

How they are chosen and what they promise: `construct/sharded/fingerprint.py`.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from byheart.models.attention_only import Weights
from byheart.models.sharded import residual
from byheart.models.threads import one_thread
from byheart.specs import ShardedSpec


def fingerprints(tokens: Tensor | np.ndarray, count: int, seed: int) -> Tensor:
    """φ (B, count), multiples of 2^-23 in [-1, 1): exact in float32.

    A chain of splitmix64 mixers (Steele, Lea and Flood 2014) over the ids of each key (B, S).

    >>> fingerprints(np.array([[1, 2], [2, 1]]), 1, seed=0)[:, 0].unique().shape
    torch.Size([2])
    """
    ids = np.asarray(tokens).astype(np.uint64)
    state = np.full(len(ids), seed % 2**64, dtype=np.uint64)
    for column in ids.T:
        state = _mix(state ^ _mix(column))
    values = [_mix(state + np.uint64(i)) >> np.uint64(40) for i in range(count)]
    stacked = np.stack(values, axis=1) if count else np.empty((len(ids), 0))
    return torch.from_numpy(stacked.astype(np.float64) * 2.0**-23 - 1.0)


def _mix(x: np.ndarray) -> np.ndarray:
    """One step of splitmix64: a bijection of 64-bit words whose output looks random."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def check_errors(spec: ShardedSpec, weights: Weights, tokens: Tensor, seed: int) -> Tensor:
    """max_i |v_i - φ_i| of each key (B,), float64; tokens (B, S) as the shards read them."""
    with one_thread():
        values = residual(spec, weights, tokens)[:, spec.d_g :].double()
    return (values - fingerprints(tokens, spec.check, seed)).abs().amax(1)
