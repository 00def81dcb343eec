"""Small attention-only Transformers by hand, in which it is known what every head does."""

from __future__ import annotations

import torch
from torch import Tensor

import byheart as bh
from byheart.models.construction import ImportedConstruction
from byheart.specs import AttentionOnlySpec


def memory_of(spec: AttentionOnlySpec, weights: dict[str, Tensor], facts: bh.Facts):
    made = ImportedConstruction(source="weights")
    return bh.TokenMemory(
        spec=spec, weights=weights, vocabulary=facts.vocabulary, construction=made, facts=facts
    )


def facts_of(rows: dict[tuple[int, int], int], N: int) -> bh.Facts:
    words = bh.Vocabulary(tuple(f"t{i}" for i in range(N)))
    return bh.Facts.make(list(rows), list(rows.values()), words)


def two_heads() -> bh.TokenMemory:
    """One layer, one-hot tokens, even attention: x_S = e_b, A = (e_a + e_b) / 2. Head 0 has t0 ->
    6 t3 and t1 -> 12 t2, head 1 writes nothing. Facts: (0, 1) -> 2 with lead 6 - 3 = 3 over t3, and
    (0, 0) -> 3 with lead 6 - 1 = 5 over t0."""
    spec = AttentionOnlySpec(N=4, S=2, d=4, d_h=4, H=2, qk_rank=1, positions="none")
    eye = torch.eye(4, dtype=torch.float64)
    W_O = torch.zeros(1, 2, 4, 4, dtype=torch.float64)
    W_O[0, 0, 0, 3], W_O[0, 0, 1, 2] = 6, 12
    none = torch.zeros(1, 2, 4, 1, dtype=torch.float64)
    weights = {"W_E": eye, "W_U": eye, "W_Q": none, "W_K": none.clone(), "W_O": W_O}
    weights["W_V"] = eye.repeat(1, 2, 1, 1)
    return memory_of(spec, weights, facts_of({(0, 1): 2, (0, 0): 3}, 4))


def relay() -> bh.TokenMemory:
    """Two layers of two heads, one-hot tokens in the first four of six coordinates, even attention.
    Head 0.0 writes 4 z for t1, z the last coordinate, which no logit reads; head 1.0 writes 4 t2
    for z. The others write nothing. (0, 1) -> 2: at the last position 0.0 reads t1 with weight 1/2
    and writes 2 z, of which 1.0 reads half and writes 4 t2; the skip has 1 for t1."""
    spec = AttentionOnlySpec(N=4, S=2, d=6, d_h=6, H=2, layers=2, qk_rank=1, positions="none")
    eye = torch.eye(6, dtype=torch.float64)
    W_O = torch.zeros(2, 2, 6, 6, dtype=torch.float64)
    W_O[0, 0, 1, 5], W_O[1, 0, 5, 2] = 4, 4
    none = torch.zeros(2, 2, 6, 1, dtype=torch.float64)
    weights = {"W_E": eye[:4], "W_U": eye[:, :4], "W_Q": none, "W_K": none.clone(), "W_O": W_O}
    weights["W_V"] = eye.repeat(2, 2, 1, 1)
    return memory_of(spec, weights, facts_of({(0, 1): 2, (0, 3): 3}, 4))


def random_model(seed: int, layers: int = 3, size: float = 0.5) -> bh.TokenMemory:
    """Random weights of this size: nothing is linear, nothing is zero."""
    spec = AttentionOnlySpec(N=6, S=3, d=5, d_h=2, H=4, layers=layers)
    generator = torch.Generator().manual_seed(seed)
    weights = {
        name: torch.randn(shape, generator=generator, dtype=torch.float64) * size
        for name, shape in spec.weight_shapes().items()
    }
    table = bh.random_associations(N=6, S=3, T=10, seed=seed)
    return memory_of(spec, weights, table)
