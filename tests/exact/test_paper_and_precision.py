"""The paper's own network as a cross-check; number formats; theory's counts."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.paper_network import OUT, memorizer, paper_network
from oracles.table_formats import table_limits, tradeoff_points

from byheart.errors import ByheartError
from byheart.exact import evaluate, memorize
from byheart.exact.literal import run
from byheart.exact.precision import FORMATS, evaluate_in, rounded_integer, to_bfloat16
from byheart.measure.precision import limits, precision
from byheart.theory.kajitsuka2025 import memorizer_depth, sparse_size, theorem41

few = settings(deadline=None, max_examples=25)  # a busy machine is slow at times


@few
@given(
    keys=st.lists(st.integers(0, 255), min_size=1, max_size=20, unique=True),
    seed=st.integers(0, 99),
)
def test_lemma_c1_on_every_key(keys, seed):
    """Labels for the given keys, 0 for all others of 8 bits."""
    labels = np.random.default_rng(seed).integers(0, 8, len(keys))
    made = memorizer(keys, labels.tolist(), rho=8, c=3)
    every = np.arange(256)
    said = run(made.blocks, [every, *(np.zeros(256, dtype=np.int64) for _ in range(8))])[OUT]
    expected = np.zeros(256, dtype=np.int64)
    expected[keys] = labels
    assert (said == expected * made.scale).all()
    assert made.groups == math.ceil(len(keys) / made.size)
    # Depth of the lemma: no deeper than its formula with these bits, skips restored.
    if len(keys) > 3:
        assert len(made.blocks) <= memorizer_depth(len(keys), 3 * 8 + 8, 3)


@pytest.mark.parametrize("N", [1, 2, 16, 60])
def test_both_networks_say_the_same(N):
    rng = np.random.default_rng(N)
    rows, labels = rng.permutation(4 * N).reshape(N, 4), rng.integers(0, 5, N)
    paper = paper_network(rows, labels)
    ours = memorize(rows, labels, ff1="paper")
    assert (evaluate(paper.network, rows) == paper.scale * labels).all()
    assert (evaluate(ours.network, rows) == labels).all()
    counts = paper.network.counts()
    assert counts.width <= 14
    assert ours.network.counts().parameters < counts.parameters
    if N > 1:  # the published constants, for the range of reals that the theorem allows
        assert counts.dense < theorem41(N, 4, 1, 4.0 * N, 5).parameters


def test_the_papers_network_refuses_large_tables():
    with pytest.raises(ByheartError, match="different keys"):
        memorizer(list(range(3000)), [1] * 3000, rho=12, c=1)
    with pytest.raises(ByheartError, match="one label"):
        paper_network(np.array([[1, 2]]), np.array([[1, 2]]))


@few
@given(w=st.integers(-(2**80), 2**80), bits=st.integers(1, 60))
def test_rounding_to_nearest(w, bits):
    r = rounded_integer(w, bits)
    assert abs(r).bit_length() <= max(bits, abs(w).bit_length() + 1)
    step = 1 << max(0, abs(w).bit_length() - bits)
    assert abs(r - w) * 2 <= step
    assert bits < 53 or abs(w) >= 2**53 or r == w
    if abs(w) < 2**100:
        assert rounded_integer(w, 53) == int(float(w))


def test_bfloat16_is_torchs():
    import torch

    x = np.random.default_rng(0).normal(size=1000).astype(np.float32) * 1e5
    assert (to_bfloat16(x) == torch.from_numpy(x).bfloat16().float().numpy()).all()


def test_float_limits_of_the_table():
    """The recipes: float32 right up to 16 keys, wrong at 24; float64 96 and 128."""
    rows = {row["format"]: row for row in table_limits(seeds=3, keys=(8, 16, 24, 32, 48, 96, 128))}
    assert rows["float32"]["plain: last right"] == 16
    assert rows["float32"]["plain: first wrong"].startswith("24 ")
    assert rows["float32"]["gathered: last right"] == 32
    assert rows["float64"]["plain: last right"] == 96
    assert rows["float64"]["plain: first wrong"].startswith("128 ")
    assert rows["int8"]["plain: last right"] is None


def test_a_network_in_floats_is_exact_while_its_bits_fit():
    """Every number of the network below 2^24: float32 computes it exactly."""
    rows = np.array([[1, 2], [3, 4], [5, 6]])
    built = memorize(rows, [1, 2, 3])
    largest = 0

    def look(_stack, _i, state):
        nonlocal largest
        largest = max(largest, *(int(np.abs(c).max()) for c in state))

    evaluate(built.network, rows, trace=look)
    assert largest.bit_length() < 53
    assert evaluate_in(built.network, rows, "float64").tolist() == [1, 2, 3]
    with pytest.raises(ByheartError, match="format"):
        evaluate_in(built.network, rows, "float8")
    assert "longdouble" in FORMATS


def test_limits_of_a_table_of_facts():
    import byheart as bh

    facts = bh.read_facts("elements")
    rows = limits(facts, ("sqrt", "attention"), [2, 8, 128])
    found = {(row.method, row.format): row for row in rows}
    assert found["sqrt", "float32"].first_wrong in (8, 128)
    assert found["attention", "float64"].first_wrong is None
    kept = precision(bh.build(facts))
    assert kept[-2].format == "float64" and kept[-2].recalled == facts.T


def test_fewer_bits_cost_parameters():
    points = tradeoff_points(1000)
    bits, parameters = [p.max_bits for p in points], [p.parameters for p in points]
    assert len(points) >= 5
    assert bits == sorted(bits)
    assert parameters == sorted(parameters, reverse=True)
    assert parameters[0] > 2.5 * parameters[-1]


@pytest.mark.parametrize("N", [1000, 4000])
def test_theory_counts_what_is_built(N):
    """`byheart size` estimates the sparse construction within 10 %."""
    rng = np.random.default_rng(0)
    rows = rng.permutation(10 * N).reshape(N, 10)
    built = memorize(rows, rng.integers(1, 3, N)).network.counts()
    estimate = sparse_size(N, key_bits=(10 * N).bit_length(), C=2, d=1, n=10)
    assert estimate.parameters == pytest.approx(built.parameters, rel=0.10)
