"""What the theorem asks of the examples, checked before any work, each refusal with its numbers."""

from __future__ import annotations

import numpy as np

from byheart.errors import CapacityError
from byheart.facts import VectorFacts
from byheart.theory.mahdavi2024 import theorem1_capacity, theorem1_heads


def check_sizes(facts: VectorFacts) -> None:
    """n <= d, and at least two tokens."""
    if facts.n > facts.d:
        raise CapacityError(
            f"n <= d is needed (contexts of rank n): n = {facts.n} tokens of d = {facts.d} "
            "coordinates. Use fewer tokens or wider vectors, or `proof=random`, which does not "
            "need it."
        )
    if facts.n < 2:
        raise CapacityError(
            "n >= 2 is needed: attention over one token is constant, so the query is not read."
        )


def check_contexts(facts: VectorFacts) -> None:
    """Assumption 2: every context has rank n (float64, tolerance max(n, d) ε σ_1)."""
    E = facts.context[None] if facts.shared else facts.context
    values = np.linalg.svd(E, compute_uv=False)
    tolerance = max(E.shape[1:]) * np.finfo(np.float64).eps * values[:, :1]
    ranks = (values > tolerance).sum(1)
    wrong = np.flatnonzero(ranks < facts.n)
    if len(wrong):
        i = int(wrong[0])
        which = "the shared context" if facts.shared else f"the context of example {facts.rows[i]}"
        more = "" if len(wrong) == 1 else f"; {len(wrong):,} contexts in all"
        raise CapacityError(
            f"Assumption 2 fails: {which} has rank {ranks[i]} < n = {facts.n}{more}. "
            "Add position encodings to the tokens, or use `proof=random`."
        )


def check_capacity(facts: VectorFacts, H: int, d_h: int) -> None:
    """T <= H (min(n, d_h) - 1) + 1 (Theorem 1)."""
    capacity = theorem1_capacity(H, facts.n, d_h)
    if facts.T > capacity:
        r = min(facts.n, d_h)
        heads = theorem1_heads(facts.T, facts.n, d_h) if r > 1 else 0
        advice = f"Use `H={heads}` or more" if r > 1 else "Use `d_h=2` or more"
        raise CapacityError(
            f"{facts.T:,} examples are more than H(r-1)+1 = {H}·{r - 1}+1 = {capacity:,}, "
            f"r = min(n, d_h) = {r} (Mahdavi et al. 2024, Theorem 1). {advice}, or "
            "`proof=random` or `proof=newton`, which go further."
        )
