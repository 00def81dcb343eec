"""What the papers promise: one file a paper, functions of sizes, and every theorem as an object.

`bounds(spec, facts)` asks all of them about an architecture, `size(facts)` for the smallest one.
A new bound goes into the `BOUNDS` tuple of its paper's file; `registry` joins them.
"""

from byheart.theory.bound import Answer, Bound, Case, Size
from byheart.theory.dana2025 import corollary1_capacity, corollary1_heads
from byheart.theory.families import FAMILIES, size
from byheart.theory.registry import BOUNDS, bounds, find

__all__ = [
    "BOUNDS",
    "FAMILIES",
    "Answer",
    "Bound",
    "Case",
    "Size",
    "bounds",
    "corollary1_capacity",
    "corollary1_heads",
    "find",
    "size",
]
