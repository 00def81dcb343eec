"""Zeroing heads by the sum of the stream, against zeroing them in the weights."""
# Owners and facts are there by construction.
# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false
# pyright: reportIndexIssue=false, reportArgumentType=false

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.literal import memory_logits

import byheart as bh
from byheart.errors import FactsError
from byheart.measure import lost_with_each, lost_without
from byheart.models.memory import answer_margins
from byheart.models.token_memory import TokenMemory


def brute_force(memory, layer, heads):
    """The facts lost with the heads zeroed, by the plain formula in float64."""
    dense = memory.to_dense()
    inputs, right = dense.inputs_of(dense.facts), torch.tensor(dense.facts.answers)
    weights = {name: w.double() for name, w in dense.weights.items()}
    before = answer_margins(memory_logits(dense.spec, weights, inputs), right)
    W_O = weights["W_O"].clone()
    W_O[layer, heads] = 0.0
    after = answer_margins(memory_logits(dense.spec, weights | {"W_O": W_O}, inputs), right)
    return tuple(((before > 0) & (after <= 0)).nonzero()[:, 0].tolist())


@settings(max_examples=12, deadline=None, derandomize=True)
@given(layers=st.integers(1, 3), H=st.integers(1, 4), seed=st.integers(0, 99))
def test_each_head_equals_brute_force_at_any_depth(layers, H, seed):
    facts = bh.random_associations(N=9, S=2, T=20, seed=seed)
    spec = bh.AttentionOnlySpec(N=9, S=2, d=6, d_h=3, H=H, layers=layers)
    g = torch.Generator().manual_seed(seed)
    shapes = spec.weight_shapes()
    weights = {n: torch.randn(s, generator=g, dtype=torch.float64) for n, s in shapes.items()}
    made = bh.build(facts, "associative")
    memory = TokenMemory(
        spec=spec, weights=weights, vocabulary=facts.vocabulary, facts=facts,
        construction=made.construction,
    )  # fmt: skip
    for layer in range(layers):
        found = lost_with_each(memory, layer)
        assert found == [brute_force(memory, layer, [h]) for h in range(H)]
        assert lost_without(memory, range(H), layer) == brute_force(memory, layer, [*range(H)])


def test_a_built_memory_equals_brute_force():
    facts = bh.as_facts("countries").subset(np.arange(45))
    for options in ({"shard_size": 10}, {"shard_size": 10, "gate": "key"}, {"facts_per_head": 2}):
        memory = bh.build(facts, bh.Sharded(**options))
        found = lost_with_each(memory)
        assert found == [brute_force(memory, 0, [h]) for h in range(memory.spec.H)]


def test_what_has_no_heads_or_no_facts_is_refused(tmp_path):
    with pytest.raises(bh.ByheartError, match="attention-only memories"):
        lost_without(bh.build({("a", "b"): "c"}, "associative"), [0])
    memory = bh.build({("a", "b"): "c", ("b", "b"): "a"}, bh.Sharded(facts_per_head=2))
    with pytest.raises(bh.ByheartError, match="`layer` must lie between 0 and 0"):
        lost_with_each(memory, 1)
    memory.save(tmp_path / "m", with_facts=False)
    with pytest.raises(FactsError, match="without its facts"):
        lost_with_each(bh.load(tmp_path / "m"))
