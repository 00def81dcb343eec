"""The sharded attention memory: softmax saturation (Mahdavi et al. 2024) gates groups of heads to
shards of facts, so the solve of Dana et al. (2025) becomes block diagonal.

`plan` lays out the shards, `codes` the addresses, `solve` the blocks, `build` puts them together.
"""

from byheart.construct.sharded.build import build_sharded, recalled_through_own_heads
from byheart.construct.sharded.plan import Plan, plan

__all__ = ["Plan", "build_sharded", "plan", "recalled_through_own_heads"]
