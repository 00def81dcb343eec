"""Integer lattice codes: who is addressed, exactly, in float32 too.

Each group of facts has a lattice point P; a token that decides for it carries (s1 P, s2 |P|²),
s1 and s2 powers of two. A head that listens for P_g reads from it

    dist(g, t) = |P_g|² - 2 P_g·P_t + |P_t|² = |P_g - P_t|²  = 0 for its own group, >= 1 for others.

Integers times powers of two: no rounding as long as partial sums stay below 2^24 (float32), which
holds for `MAX_GROUPS` points. "lat1" has one coordinate less, and fewer groups. Other codes
(circle, sphere, random) have gaps that shrink with the number of groups and were measured to fail
in float32 from some thousand groups on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

DIMENSIONS = {"lat1": 1, "lat2": 2}
# 4 |P|² <= 2^24, so that each partial sum of dist is an exact float32 integer.
MAX_GROUPS = {1: 4096, 2: 4_000_000}


@dataclass(frozen=True)
class Lattice:
    """`points` (groups, k) int64, centred, distinct; `far` a point outside that opens no head;
    `s1`, `s2` the powers of two that scale coordinates and |P|² to at most 1."""

    points: np.ndarray
    far: np.ndarray
    s1: float
    s2: float

    @property
    def k(self) -> int:
        return self.points.shape[1]


def lattice(groups: int, k: int = 2) -> Lattice:
    """The first `groups` points of a line (k = 1, "lat1") or a square (k = 2, "lat2").

    >>> code = lattice(5)
    >>> code.points.tolist(), code.far.tolist()
    ([[-1, -1], [-1, 0], [-1, 1], [0, -1], [0, 0]], [2, 2])
    >>> code.s1, code.s2
    (0.25, 0.03125)
    """
    if not 1 <= groups <= MAX_GROUPS[k]:
        raise ValueError(f"lat{k} codes 1 to {MAX_GROUPS[k]:,} groups exactly, found {groups:,}")
    side = groups if k == 1 else math.isqrt(groups - 1) + 1
    index = np.arange(groups, dtype=np.int64)
    columns = (index,) if k == 1 else (index // side, index % side)
    points = np.stack(columns, axis=1) - side // 2
    far = np.full(k, side - side // 2, dtype=np.int64)
    # No coordinate exceeds side // 2 + 1, so s1 |coordinate| < 1 and, over k of them, s2 |P|² < 1.
    s1 = 2.0 ** -math.ceil(math.log2(side // 2 + 2))
    return Lattice(points, far, s1, s1 * s1 / k)
