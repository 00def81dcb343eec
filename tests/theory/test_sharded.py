"""The sharded layer: counted as it was built."""

import pytest

from byheart.specs import AttentionOnlySpec
from byheart.theory.bound import Case
from byheart.theory.registry import find
from byheart.theory.related import sharded_heads


@pytest.mark.parametrize(
    ("T", "shard", "slack", "heads", "per_fact"),
    [(10**6, 250, 0.05, 68_000, 49), (10**4, 100, 0.1, 700, 50), (10**5, 1000, 0.1, 6900, 50),
     (10**5, 250, 0.1, 7200, 52)],
)  # fmt: skip
def test_heads_and_parameters_per_fact_of_measured_builds(T, shard, slack, heads, per_fact):
    """d_g = d_h = 16, d = 20, W_QK of rank 2: (2 · 2 + 2 · 16) · 20 numbers a head."""
    H = sharded_heads(T, 16, shard, slack)
    assert H == heads
    assert round((4 + 32) * 20 * H / T) == per_fact


def test_a_million_facts_by_hand(ask):
    """N = 50,000, S = 2: 20 (3 + 2 · 50,001 + 2 (2 + 16) 68,000) parameters."""
    size = find("sharded.layer").size
    assert size is not None
    found = size(Case(T=10**6, N=50_000, S=2))
    assert found.parameters == 20 * (3 + 2 * 50_001 + 36 * 68_000)
    assert found.sizes["d"] == 20
    answer = ask("sharded.layer", AttentionOnlySpec(N=10, S=2, d=4, d_h=2, H=3))
    assert (answer.applies, answer.capacity) == (None, None)
