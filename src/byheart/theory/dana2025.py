"""Dana, Pydi, Chevaleyre, "Memorization in Attention-only Transformers" (AISTATS 2025).

Counts from sizes are here, what needs matrices is in `dana2025_kl` and re-exported, the theorems
as objects are in `dana2025_bounds`.
"""

from __future__ import annotations

import math

from byheart.specs import AttentionOnlySpec
from byheart.theory.bound import ceil_div
from byheart.theory.dana2025_kl import (
    bennett_bound,
    coherence,
    divergence,
    slides_least_squares,
    slides_weighted_least_squares,
    theorem1_constant,
    theorem1_constant_svd,
    theorem1_excess,
    theorem1_excess_per_sequence,
    theorem2_bound,
    theorem2_factor,
    theorem2_logits,
    theorem2_simplified,
)

__all__ = [
    "bennett_bound",
    "coherence",
    "corollary1_capacity",
    "corollary1_heads",
    "divergence",
    "phi",
    "phi_inverse",
    "proposition3_margin",
    "random_coherence",
    "slides_least_squares",
    "slides_weighted_least_squares",
    "theorem1_constant",
    "theorem1_constant_svd",
    "theorem1_excess",
    "theorem1_excess_per_sequence",
    "theorem2_bound",
    "theorem2_factor",
    "theorem2_logits",
    "theorem2_simplified",
]


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
    return max(1, ceil_div(T - skip, d_h))


def phi(X: float, N: int, T0: int) -> float:
    """φ(X) = 1/N + (1 - 1/N) X/T0, at most 1: accuracy when X of T0 facts are held, rest guessed.

    Source: Dana et al. 2025, Corollary 2.

    >>> round(phi(40, N=10, T0=100), 9)
    0.46
    """
    return 1 / N + (1 - 1 / N) * min(1.0, X / T0)


def phi_inverse(accuracy: float, N: int, T0: int) -> float:
    """X = T0 (accuracy - 1/N)/(1 - 1/N): the facts that an accuracy stands for; N >= 2.

    >>> round(phi_inverse(0.46, N=10, T0=100), 9)
    40.0
    """
    return T0 * (accuracy - 1 / N) / (1 - 1 / N)


def proposition3_margin(N: int) -> float:
    """1 - cos(2π/N), the margin of N answers on a circle (Proposition 3), as 2 sin²(π/N).

    >>> round(proposition3_margin(10), 3)
    0.191
    """
    return 2 * math.sin(math.pi / N) ** 2


def random_coherence(N: int, d: int) -> float:
    """C = sqrt(32 log(N+1)/d): Johnson-Lindenstrauss coherence of N random directions in R^d.

    >>> round(random_coherence(50, 504), 4)
    0.4996
    """
    return math.sqrt(32 * math.log(N + 1) / d)
