"""What the papers promise: one file a paper, functions of sizes, and every theorem as an object.

`bounds(spec, facts)` asks all of them about an architecture, `size(facts)` for the smallest one.
What a theorem says stands in theorems.toml, what it needs and computes in the `BOUNDS` tuple of its
paper's file; `registry` joins them with those of other packages.
"""

from byheart.theory.bound import Answer, Bound, Capacity, Claim, Hypothesis, Size, Statement
from byheart.theory.candidates import CANDIDATES, Sizes, size
from byheart.theory.case import Case, architecture
from byheart.theory.dana2025 import corollary1_capacity, corollary1_heads
from byheart.theory.registry import BOUNDS, Answers, bounds, find

__all__ = [
    "BOUNDS", "CANDIDATES", "Answer", "Answers", "Bound", "Capacity", "Case", "Claim",
    "Hypothesis", "Size", "Sizes", "Statement", "architecture", "bounds", "corollary1_capacity",
    "corollary1_heads", "find", "size",
]  # fmt: skip
