"""Our own sharded attention-only layer, counted before it is built."""

from __future__ import annotations

import math

from byheart.specs import ShardedSpec
from byheart.theory.bound import Hypothesis, Size, ceil_div
from byheart.theory.case import Case
from byheart.theory.statements import theorem


def sharded_heads(T: int, d_h: int, shard: int = 250, slack: float = 0.05) -> int:
    """H = ceil(T/n) ceil(n (1 + slack)/d_h): every shard of n facts owns whole heads.

    >>> sharded_heads(10**6, d_h=16)
    68000
    """
    return ceil_div(T, shard) * math.ceil(shard * (1 + slack) / d_h)


def sharded_size(case: Case) -> Size:
    """d_g = d_h = 16 unless given, a two-dimensional code (d = d_g + 4), shards of 250, slack 5 %.

    parameters = d (S + 1 + 2 (N + 1) + 2 (2 + d_h) H), structural zeros included.

    >>> sharded_size(Case(T=10**6, N=50_000, S=2)).sizes
    {'d': 20, 'd_h': 16, 'H': 68000, 'shards': 4000}
    """
    d_g = case.d_h if case.d_h is not None else 16
    shards = ceil_div(case["T"], 250)
    H = sharded_heads(case["T"], d_g)
    spec = ShardedSpec(
        N=case["N"] + 1, S=case["S"], d_g=d_g, d_h=d_g, H=H, groups=shards, shards=shards,
        lam=128.0, s1=0.5,
    )  # fmt: skip
    sizes = {"d": spec.d, "d_h": d_g, "H": H, "shards": shards}
    return Size(spec.parameters, sizes, "each fact owned by known heads; 5 % slack included")


BOUNDS = (
    theorem(
        "sharded.layer",
        hypotheses=(
            Hypothesis("no last token with more facts than a shard (else sub-shards, wider d)"),
            Hypothesis("shards packed full: bin packing reached 1.03 n at most"),
        ),
        size=sharded_size,
    ),
)
