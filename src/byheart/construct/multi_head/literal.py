"""The proof of Theorem 1 as written: random logits, head by head, λ large (Mahdavi et al. 2024).

Head 1 owns r examples and has no saturating part; every further head owns r-1. In head h the
earlier examples are frozen by λ k c^T, its own get random attention. Exact in float64; in float32
the cancellation c·e(t) = 0 on the own examples is lost at the λ that the earlier ones need.
"""

from __future__ import annotations

import numpy as np

from byheart.construct.multi_head.groups import GroupCertificate
from byheart.construct.multi_head.heads import (
    assemble,
    complement,
    dual_basis,
    fine_logits,
    pseudo_inverse_times,
    saturation,
    strength,
)
from byheart.facts import VectorFacts

TRIES = 16  # Gaussian pairs (c, k); the proof takes any, the best needs the smallest λ


def literal_heads(
    facts: VectorFacts, groups: GroupCertificate, d_h: int, seed: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """W_Q, W_K (H, d, d_h) of the inductive proof, and the largest λ (the first head has none: 1);
    `groups.over` is the r-th example of head 1."""
    rng = np.random.default_rng(seed)
    columns, largest, old = [], 1.0, []
    for h, group in enumerate(groups.groups):
        own = ([groups.over] if h == 0 else []) + list(group)
        # Step 1 and 2c: any logits on the own examples, E(t)^+ l(t) dual(t)^T.
        p = pseudo_inverse_times(facts.contexts()[own], rng.standard_normal((len(own), facts.n)))
        dual = dual_basis(facts.query[own])
        if h == 0:
            columns.append((dual, p))
            old = own
            continue
        # Step 2a, b: c orthogonal to the own queries, k with distinct E(t) k; random does.
        basis = complement(facts.query[own], facts.d)
        pairs = [
            saturation(
                facts, basis @ rng.standard_normal(basis.shape[1]), rng.standard_normal(facts.d)
            )
            for _ in range(TRIES)
        ]
        part = max(pairs, key=lambda pair: float(pair.gap[old].min()))
        # Step 2d: λ large enough to freeze every earlier example (finite suffices).
        fine = fine_logits(facts, dual, p)
        lam = strength(facts, part, fine, np.array(old))
        columns.append((np.vstack([dual, part.c]), np.vstack([p, lam * part.k])))
        largest = max(largest, lam)
        old = old + own
    return *assemble(columns, facts.d, d_h), largest
