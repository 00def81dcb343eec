"""Attention that follows an encoder: exact at ε = 0, bounded by Theorem 1, saved and loaded."""

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles.literal import literal_forward
from safetensors.torch import load_file, save_file

import byheart as bh
from byheart.construct.attention_only import features, random_attention
from byheart.construct.encoders import encode
from byheart.construct.methods import DistributionAttention
from byheart.construct.readout import ReadoutTask, kl_readout, ridge_readout
from byheart.errors import ByheartError, CapacityError, MemoryFileError
from byheart.facts import Distributions, random_distributions
from byheart.measure import memory_losses
from byheart.models.token_memory import DistributionMemory
from byheart.theory.divergences import kl, log_ratio, squared_error, total_variation


def build_distribution(table: Distributions, **options: Any) -> DistributionMemory:
    """float64 unless said otherwise."""
    memory = bh.build(table, DistributionAttention(**{"dtype": "float64", **options}))
    assert isinstance(memory, DistributionMemory)
    return memory


def small(kind="gauss", N=8, T=40, S=2, **options):
    return random_distributions(kind, N, S, T, zipf=1.5, **options)


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 500), st.sampled_from(["gauss", "lut", "power"]), st.integers(2, 7),
    st.integers(1, 3),
)  # fmt: skip
def test_with_a_feature_a_sequence_the_memory_is_the_encoder(seed, kind, d, S):
    """Theorem 1 with ε = 0: H d_h >= T, d_KL(π, memory) = d_KL(π, encoder) to 1e-12."""
    table = small(kind, T=8 if S == 1 else 30, S=S, seed=seed)
    made = build_distribution(table, d=d, encoder="centred", readout="exact").construction
    assert abs(made.kl - made.kl_encoder) < 1e-12
    assert made.eps == 0.0


@pytest.mark.parametrize("kind", ["gauss", "lut"])
def test_exactly_at_the_capacity_and_refused_past_it(kind):
    """T = H d_h + d is exact to 1e-12; one head less is refused with the heads that suffice."""
    table = small(kind, N=10, T=48)
    made = build_distribution(table, d=4, H=11, readout="exact").construction
    assert made.capacity == 48 == table.T
    assert abs(made.kl - made.kl_encoder) < 1e-12
    with pytest.raises(CapacityError, match="`H=11`"):
        build_distribution(table, d=4, H=10, readout="exact")
    # Not asked for exactness, the default goes over to the convex read-out.
    assert build_distribution(table, d=4, H=10).construction.readout == "convex"


def test_width_n_minus_one_and_enough_heads_recall_pi_itself():
    table = small(N=6, T=36)
    memory = build_distribution(table, d=5)
    assert memory.construction.kl < 1e-13
    assert memory.construction.max_log_ratio < 1e-9
    assert memory_losses(memory).mean()["accuracy"] == 1.0


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 500), st.sampled_from(["gauss", "lut"]), st.integers(2, 7))
@example(444, "gauss", 2)  # a condition number of 2e12
def test_theorem1_bounds_the_square_solve_and_c_is_the_same_both_ways(seed, kind, H):
    """|d_KL(memory) - d_KL(encoder)| <= sharp <= sqrt 2 C ε |W E|; C by a solve and by an SVD."""
    table = small(kind, N=8, T=50, seed=seed)
    made = build_distribution(table, d=4, H=H, encoder="centred", readout="literal").construction
    found: Any = made.theorem1
    eps: Any = made.eps
    likely = np.sort(table.prior)[::-1][: 4 * H + 4].sum()
    assert eps == pytest.approx(1 - likely, abs=1e-12)
    # In floating point both, and the stored layer, are off by about the condition number.
    lost = 1e-15 * (made.condition or 0)
    assert found.C_svd == pytest.approx(found.C, rel=1e-5 + lost)
    slack = 1e-13 * (made.condition or 0) * found.C + 1e-9
    assert abs(made.kl - made.kl_encoder) <= found.sharp * (1 + 1e-6) + slack
    assert found.sharp <= found.excess * (1 + 1e-9)


@pytest.mark.slow
def test_readouts_over_all_sequences_beat_the_square_solve():
    """N = 20, T = 400, m = 160 of them likely: the literal solve is worse than the uniform
    answer; ridge, convex and joint come near the encoder, in this order."""
    for kind, limit in (("gauss", 0.03), ("lut", 0.08)):
        table = random_distributions(kind, 20, 2, 400, zipf=1.5, tau=1.0, eta=0.03)
        coder = encode(table, 8)
        made = {
            way: build_distribution(table, H=19, encoder=coder, readout=way).construction
            for way in ("literal", "ridge", "convex", "joint")
        }
        uniform = float(table.prior @ kl(table.probabilities, np.zeros((400, 20))))
        assert made["literal"].kl > uniform * 0.9
        assert made["joint"].kl <= made["convex"].kl <= made["ridge"].kl
        assert made["convex"].kl - made["convex"].kl_encoder < limit
        assert made["ridge"].kl < uniform / 3


def _task(seed=0):
    table = small(T=30, seed=seed)
    coder = encode(table, 3, "centred").balanced()
    spec = bh.AttentionOnlySpec(N=8, S=2, d=3, d_h=3, H=3)
    x_S, F = features(spec, random_attention(spec, seed, 4.0), torch.tensor(table.tokens))
    tensors = [torch.tensor(a) for a in (coder.W, table.probabilities, table.prior)]
    return ReadoutTask(torch.cat([F, x_S], 1), x_S, *tensors), torch.tensor(coder.E), table


def test_the_convex_readout_finds_the_minimum():
    """Stationary, and no worse than Newton-like descent from elsewhere: convex, one minimum."""
    task, targets, _ = _task()
    start = ridge_readout(task, targets)
    found = kl_readout(task, start.V)
    assert found.kl < start.kl
    other = kl_readout(task, torch.zeros_like(start.V))
    assert other.kl == pytest.approx(found.kl, abs=1e-7)
    V = found.V.clone().requires_grad_()
    log_q = torch.log_softmax((task.base + task.X @ V) @ task.W.T, 1)
    (task.prior @ -(task.pi * log_q).sum(1)).backward()
    assert V.grad is not None and float(V.grad.abs().max()) < 1e-5
    assert kl_readout(task, found.V, with_W=True).kl <= found.kl


def test_the_ridge_solves_its_normal_equations():
    task, targets, _ = _task(1)
    fit = ridge_readout(task, targets)
    assert fit.ridge is not None
    p = task.prior[:, None]
    scale = float((p * task.X**2).sum() / task.X.shape[1])
    left = task.X.T @ (p * (task.base + task.X @ fit.V - targets)) + fit.ridge * scale * fit.V
    assert float(left.abs().max()) < 1e-10


def test_float32_weights_lose_little():
    table = small(N=10, T=90)
    for readout in ("exact", "convex", "joint"):
        H = 30 if readout == "exact" else 10
        kls = [
            build_distribution(table, d=4, H=H, readout=readout, dtype=t).construction.kl
            for t in ("float64", "float32")
        ]
        assert kls[1] == pytest.approx(kls[0], abs=2e-4)


def test_the_memory_is_the_papers_layer():
    """The literal forward pass, one head and position at a time, gives the same logits."""
    table = small(T=12)
    memory = build_distribution(table, d=3, H=2)
    weights = {name: w[None].double() for name, w in memory.weights.items()}
    spec = memory.spec
    assert isinstance(spec, bh.AttentionOnlySpec)
    f = literal_forward(spec, weights, memory.with_start(table.tokens))[0].numpy()
    np.testing.assert_allclose(f[:, table.support], memory.answer_logits(table), atol=1e-6)
    # Scores pass through M_0 and back: that is why its condition number is limited.
    assert (memory.construction.condition or math.inf) <= 1001


def test_answers_are_a_part_of_the_tokens():
    """Keys and answers may be different tokens: the softmax runs over the answers."""
    vocabulary = bh.Vocabulary(("x", "y", "tea", "milk", "rum"))
    table = Distributions.make(
        [[0], [1]], [[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]], vocabulary, support=[2, 3, 4]
    )
    memory = build_distribution(table)
    assert memory.recall("x").probabilities[0] == ("milk", pytest.approx(0.5))
    assert {token for token, _ in memory.recall("y").probabilities} == {"tea", "milk", "rum"}
    assert memory.recall("x").answer == "milk"


def test_wrong_sizes_and_names_are_refused():
    table = small(T=20)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"readout": "best"}, "`readout` must be one of auto"),
        ({"dtype": "float16"}, "`dtype` must be one of"),
        ({"d": 0}, "`d` must be at least 1"),
        ({"H": 0}, "`H` must be at least 1"),
        ({"slack": -1.0}, "`slack`"),
        ({"encoder": "sdv"}, "one of best, svd"),
        ({"d": 3, "encoder": encode(table, 2, "centred")}, "rank 2 disagree"),
        ({"d": 2, "d_h": 3, "H": 2}, "d_h <= d"),
    ]
    for options, message in cases:
        with pytest.raises(ByheartError, match=message):
            build_distribution(table, **options)
    with pytest.raises(CapacityError, match="square solve of Theorem 1"):
        build_distribution(table, d=4, H=20, readout="literal")


def test_a_saved_memory_is_the_same(tmp_path):
    table = small(T=20).smoothed(0.001)
    memory = build_distribution(table, d=4, H=3, dtype="float32")
    memory.save(tmp_path / "m")
    again: Any = bh.load(tmp_path / "m")
    assert again.distribution is not None
    assert again.distribution.digest() == table.digest()
    assert again.distribution.smoothing == table.smoothing
    assert memory_losses(again).mean() == memory_losses(memory).mean()
    memory.save(tmp_path / "bare", with_facts=False)
    bare: Any = bh.load(tmp_path / "bare")
    assert bare.distribution is None
    key = table.key(0)
    assert bare.recall(*key).probabilities == memory.recall(*key).probabilities
    with pytest.raises(ByheartError, match="saved without its facts"):
        memory_losses(bare)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t["probabilities"].mul_(0.5), "sum to 1"),
        (lambda t: t["probabilities"].sub_(1), "negative"),
        (lambda t: t.pop("support"), "'support' is missing"),
        (lambda t: t.pop("probabilities"), "'probabilities' is missing"),
        (lambda t: t.update(support=t["support"] + 99), "outside the vocabulary"),
        (lambda t: t.update(probabilities=t["probabilities"][:-1].clone()), "shape"),
    ],
)
def test_damaged_distributions_are_noticed(tmp_path, change, message):
    build_distribution(small(T=12), d=3, H=3).save(tmp_path / "m")
    path = tmp_path / "m" / "facts.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)
    with pytest.raises(MemoryFileError, match=message):
        bh.load(tmp_path / "m")


def test_losses_by_hand():
    """π = (1/2, 1/4, 1/4), q = (1/4, 1/4, 1/2): KL = (1/4) log 2, TV = 1/4, squares 1/8."""
    pi, f = np.array([[0.5, 0.25, 0.25]]), np.log([[0.25, 0.25, 0.5]]) + 3.0
    assert kl(pi, f)[0] == pytest.approx(0.25 * np.log(2))
    assert total_variation(pi, f)[0] == pytest.approx(0.25)
    assert squared_error(pi, f)[0] == pytest.approx(0.125)
    assert log_ratio(pi, f)[0] == pytest.approx(np.log(2))
    assert log_ratio([[1.0, 0.0]], [[0.0, -9.0]])[0] < 1e-3  # zeros of π do not count


def test_the_record_can_be_written(tmp_path):
    memory = build_distribution(small(T=20), d=4, H=3)
    json.dumps(memory.construction.to_json())
    assert memory.construction.theorem3 is not None
    assert memory.construction.theorem3.eps_log >= 0
