"""Dana, Pydi, Chevaleyre, "Memorization in Attention-only Transformers" (AISTATS 2025)."""

from __future__ import annotations

import math

from byheart.specs import AttentionOnlySpec


def corollary1_capacity(spec: AttentionOnlySpec, last_tokens: int | None = None) -> int:
    """T0 = H d_h + d associations that one layer holds exactly (Corollary 1).

    The d comes from the skip x_S, which spans at most as many directions as there are distinct
    last tokens: with `last_tokens` of them the count is H d_h + min(d, last_tokens).

    >>> spec = AttentionOnlySpec(N=50, S=2, d=10, d_h=10, H=99)
    >>> corollary1_capacity(spec), corollary1_capacity(spec, last_tokens=3)
    (1000, 993)
    """
    skip = spec.d if last_tokens is None else min(spec.d, last_tokens)
    return spec.H * spec.d_h + skip


def corollary1_heads(T: int, d: int, d_h: int, last_tokens: int | None = None) -> int:
    """The fewest heads H >= 1 with H d_h + d >= T (Corollary 1, inverted).

    >>> corollary1_heads(1000, d=10, d_h=10), corollary1_heads(1001, d=10, d_h=10)
    (99, 100)
    """
    skip = d if last_tokens is None else min(d, last_tokens)
    return max(1, math.ceil((T - skip) / d_h))
