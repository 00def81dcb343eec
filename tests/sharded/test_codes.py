"""Lattice codes: distinct points, exact distances in float32."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import byheart as bh
from byheart.construct.frames import coherence, frame
from byheart.construct.sharded.plan import lattice
from byheart.construct.widths import hamming_width
from byheart.models.sharded import to_dense
from byheart.specs import ShardedSpec


def is_power_of_two(value: float) -> bool:
    return value > 0 and math.frexp(value)[0] == 0.5


@settings(max_examples=100, deadline=None, derandomize=True)
@given(groups=st.integers(1, 4096), k=st.sampled_from([1, 2]))
def test_points_are_distinct_and_scaled(groups, k):
    code = lattice(groups, k)
    everything = np.concatenate([code.points, code.far[None]])
    assert code.points.shape == (groups, k)
    assert len(np.unique(everything, axis=0)) == groups + 1
    assert is_power_of_two(code.s1) and is_power_of_two(code.s2)
    assert np.abs(code.s1 * everything).max() <= 1
    assert (code.s2 * (everything**2).sum(1)).max() <= 1


@pytest.mark.parametrize(("k", "groups"), [(1, 4096), (2, 100_000), (2, 4_000_000)])
@pytest.mark.parametrize("lam", [64.0, 512.0])
def test_gates_are_exact_in_float32(k, groups, lam):
    """λ (|P|² r - 2 P·Q + |Q|²) from float32 embeddings and weights, summed in any order."""
    code = lattice(groups, k)
    rng = np.random.default_rng(0)
    P, Q = (code.points[rng.integers(groups, size=20_000)] for _ in range(2))
    Q[:100], Q[100] = P[:100], code.far
    ones = np.ones((len(P), 1))
    key = np.concatenate([ones, code.s1 * Q, code.s2 * (Q**2).sum(1, keepdims=True)], 1)
    gate = np.concatenate(
        [lam * (P**2).sum(1, keepdims=True), lam * -2 * P / code.s1, lam / code.s2 * ones], 1
    )
    key, gate = key.astype(np.float32), gate.astype(np.float32)
    dist = ((P - Q) ** 2).sum(1)
    for order in (np.arange(k + 2), np.arange(k + 2)[::-1], rng.permutation(k + 2)):
        total = np.zeros(len(P), dtype=np.float32)
        for i in order:
            total += key[:, i] * gate[:, i]
        assert (total.astype(np.float64) == lam * dist).all()
    assert (dist[:100] == 0).all() and (dist[100] >= 1)


@pytest.mark.parametrize("code", ["lat1", "lat2"])
@pytest.mark.parametrize("gate", ["query", "key", "subject-sink"])
def test_stored_gates_are_whole_multiples_of_lambda(make_relations, gate, code):
    """The written layer in float32: every head against every deciding token."""
    facts = make_relations(subjects=90, R=3)
    memory = bh.build(facts, "sharded", gate=gate, code=code, shard_size=10)
    spec, weights = memory.spec, dict(memory.weights)
    assert isinstance(spec, ShardedSpec)
    _, written = to_dense(spec, weights)
    subjects = torch.arange(90)
    x = written["W_E"][subjects]
    sign = 1.0 if gate != "key" else -1.0
    column = written["W_Q" if gate == "query" else "W_K"][0, : spec.H, :, 1]
    found = sign * (x @ column.T) / spec.lam
    point = weights["point"].numpy()
    own = point[weights["group"][subjects].long().numpy()]
    starts = weights["head_start"].tolist()
    heads = np.repeat(np.arange(spec.shards), np.diff(starts))
    assert (found.double().numpy() == ((own[:, None] - point[heads]) ** 2).sum(-1)).all()


@pytest.mark.parametrize("A", [2049, pytest.param(5000, marks=pytest.mark.slow)])
def test_hamming_frame_has_the_coherence_it_claims(A):
    d = hamming_width(A)
    rows = frame(A, d)
    signs = rows > 0
    nearest = d
    for i in range(0, A, 500):  # brute force over all pairs
        differ = (signs[i : i + 500, None] != signs[None]).sum(-1)
        differ[torch.arange(len(differ)), torch.arange(i, i + len(differ))] = d
        nearest = min(nearest, int(differ.min()))
    assert nearest == 4
    assert coherence(rows) == pytest.approx(1 - 8 / d, abs=1e-12)
