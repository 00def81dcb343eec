"""Closed forms of editors against brute force, and the read-out against the memories themselves."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

import byheart as bh
from byheart.errors import ByheartError, FactsError
from byheart.interpret.editors import (
    ExactShards,
    LeastSquares,
    NullSpace,
    RankOne,
    Task,
    covariance,
    least_change,
)
from byheart.interpret.edits import benchmark_memory, draw_edits
from byheart.interpret.fine_tuning import Batch, FineTune
from byheart.interpret.readout import readout_of
from byheart.models import Memory, TokenMemory, attention_only

SIZES = {"sharded": 90, "dense": 60, "trained": 200}


@pytest.fixture(scope="module")
def memories() -> dict[str, Memory]:
    return {kind: benchmark_memory(kind, T, seed=3) for kind, T in SIZES.items()}


@pytest.fixture(scope="module", params=SIZES)
def memory(request, memories) -> TokenMemory:
    return memories[request.param]


def task_of(memory: TokenMemory, count: int) -> Task:
    assert memory.facts is not None
    return Task.of(memory, draw_edits(memory.facts, count, seed=1))


def test_the_readout_is_that_of_the_memory(memory):
    """y W_U, with W read off or replaced, is what the stored memory says."""
    readout, answers = readout_of(memory), memory.answers_of(memory.facts)
    exact = memory.margins(dtype=torch.float64)
    assert np.allclose(readout.margins(answers), exact, atol=1e-9 * np.abs(exact).max())
    other = readout.W + 0.1 * torch.randn(readout.W.shape, generator=torch.manual_seed(0)).double()
    written = readout.written(memory, other)
    stored = written.weights[readout.name].double().reshape(len(other), -1)[:, : other.shape[1]]
    said = written.margins(memory.facts, dtype=torch.float64)
    assert np.allclose(readout.margins(answers, stored), said, atol=1e-9 * np.abs(said).max())


def test_keys_of_shards_are_blocks_of_the_literal_layer(memories):
    """The outputs of all heads of the literal layer: those of the own shard, and nothing else."""
    memory = bh.build(memories["sharded"].facts, "sharded", shard_size=20)
    dense, readout = memory.to_dense(), readout_of(memory)
    assert isinstance(dense.spec, bh.AttentionOnlySpec) and memory.facts is not None
    weights = {name: w[None].double() for name, w in dense.weights.items()}
    _, F = attention_only.head_outputs(dense.spec, weights, dense.inputs_of(memory.facts))
    literal = F[0].flatten(1)
    blocks = torch.zeros_like(literal)
    for block in readout.blocks:
        blocks[block.facts, block.at] = block.K
    assert len(readout.blocks) > 2
    assert torch.allclose(literal, blocks, atol=1e-10)


def test_the_least_change_leads_by_the_margin_and_is_the_least():
    rng, W_U = torch.Generator().manual_seed(2), torch.eye(1)
    for answer in range(4):
        W_U = torch.randn(5, 9, generator=rng).double()
        y = torch.randn(5, generator=rng).double()
        delta = least_change(W_U, y, answer, 0.7)
        logits = (y + delta) @ W_U
        lead = logits[answer] - torch.cat([logits[:answer], logits[answer + 1 :]])
        assert lead.min() >= 0.7 - 1e-9
        contrasts = np.delete((W_U[:, [answer]] - W_U).numpy(), answer, axis=1)
        limits = {"type": "ineq", "fun": lambda x, A=contrasts, y=y: (y.numpy() + x) @ A - 0.7}
        found = minimize(lambda x: x @ x, delta.numpy() + 0.3, constraints=[limits])
        assert found.success and float(delta @ delta) <= found.fun + 1e-6
    assert not least_change(W_U, W_U[:, 0] * 50, 0, 0.7).any()  # it leads already


def test_an_answer_between_others_cannot_lead():
    W_U = torch.tensor([[1.0, -1.0, 0.0]], dtype=torch.float64)
    with pytest.raises(ByheartError, match="no stream gives token 2"):
        least_change(W_U, torch.zeros(1, dtype=torch.float64), 2, 0.1)


def test_a_rank_one_edit_gives_its_key_the_stream_and_moves_others_least(memories):
    memory = memories["trained"]
    task = task_of(memory, 1)
    change = RankOne().change(task, memory) - task.readout.W
    (block,) = task.readout.blocks
    change, k = change[block.at], block.K[task.rows[0]]
    (delta,) = task.changes()
    assert torch.allclose(k @ change, delta, atol=1e-9)  # W' k = v* exactly
    assert torch.linalg.matrix_rank(change, rtol=1e-9) == 1
    # Any other change with the same k Δ moves the others' streams further.
    moved = (block.K @ change).square().sum()
    for seed in range(5):
        other = torch.randn(change.shape, generator=torch.manual_seed(seed)).double()
        other -= torch.outer(k, k @ other) / (k @ k)
        assert (block.K @ (change + 1e-3 * other)).square().sum() > moved


def test_rank_one_edits_are_made_one_after_the_other(memories):
    memory = memories["trained"]
    task = task_of(memory, 6)
    W, readout = RankOne().change(task, memory), task.readout
    last = int(task.rows[-1])
    stream = readout.streams(W)[last]
    logits = stream @ readout.W_U
    answer = int(task.answers[-1])
    lead = logits[answer] - torch.cat([logits[:answer], logits[answer + 1 :]]).max()
    assert float(lead) >= task.margin - 1e-6  # nothing came after it


def test_least_squares_against_brute_force(memories):
    """The minimum of λ E|k Δ|² + |K_1 Δ - R|² as one stacked least-squares problem."""
    memory, weight = memories["trained"], 0.3
    task = task_of(memory, 7)
    change = LeastSquares(weight=weight).change(task, memory) - task.readout.W
    (block,) = task.readout.blocks
    K_0, K_1, R = block.K[task.others], block.K[task.rows], task.changes()
    stacked = torch.cat([weight**0.5 * K_0, K_1])
    wanted = torch.cat([torch.zeros(len(K_0), R.shape[1], dtype=R.dtype), R])
    brute, *_ = np.linalg.lstsq(stacked.numpy(), wanted.numpy(), rcond=None)
    assert np.allclose(change[block.at].numpy(), brute, atol=1e-7 * np.abs(brute).max())


def test_least_squares_interpolates_as_lambda_falls(memories):
    memory = memories["trained"]
    task = task_of(memory, 7)
    (block,) = task.readout.blocks
    K_1, R = block.K[task.rows], task.changes()
    missed = []
    for weight in (1.0, 1e-2, 1e-4, 1e-6):
        change = LeastSquares(weight=weight).change(task, memory) - task.readout.W
        missed.append(float((K_1 @ change[block.at] - R).abs().max()))
    assert missed == sorted(missed, reverse=True)
    assert missed[-1] < 1e-4 * float(R.abs().max()) < missed[0]


@pytest.mark.parametrize("editor", [RankOne(), LeastSquares()])
@pytest.mark.parametrize("kind", ["sharded", "dense"])
def test_independent_keys_make_closed_forms_exact(memories, kind, editor):
    """K C^+ K^T / T is the identity there: no other stream moves."""
    memory = memories[kind]
    task = task_of(memory, 20)
    for block in task.readout.blocks:
        hat = block.K @ torch.linalg.pinv(covariance(block.K), hermitian=True) @ block.K.T
        assert torch.allclose(hat / len(hat), torch.eye(len(hat)).double(), atol=1e-6)
    moved = task.readout.streams(editor.change(task, memory)) - task.readout.streams()
    assert moved[task.others].abs().max() < 1e-5 < moved[task.rows].abs().max()


def test_the_null_space_leaves_what_is_kept(memories):
    memory = memories["dense"]
    task = task_of(memory, 5)
    editor = NullSpace(threshold=1e-9, ridge=1e-12)
    moved = task.readout.streams(editor.change(task, memory)) - task.readout.streams()
    assert moved[task.others].abs().max() < 1e-4
    assert torch.allclose(moved[task.rows], task.changes(), atol=1e-2)
    # More facts than the keys have coordinates: nothing is free, and nothing is done.
    full = task_of(memories["trained"], 5)
    assert torch.equal(editor.change(full, memories["trained"]), full.readout.W)


def test_fine_tuning_stops_when_every_edit_has_its_margin(memory):
    task = task_of(memory, 3)
    tuned = FineTune(rate=0.02, steps=1000).change(task, memory)
    answers = memory.answers_of(memory.facts)
    answers[task.rows] = task.answers
    lead = task.readout.margins(answers, tuned)[task.rows]
    assert (lead > 0.999 * task.margin).all()
    again = FineTune(steps=0).change(task, memory)
    assert torch.equal(again, task.readout.W)


def test_batches_have_the_logits_of_the_readout(memories):
    memory = memories["sharded"]
    task = task_of(memory, 10)
    answers = memory.answers_of(memory.facts)
    batch = Batch.of(task, answers, others=True)
    assert len(batch.edited) == 10 and len(batch.kept) == memory.facts.T - 10
    logits = batch.logits(batch.W, batch.kept)
    right = task.readout.streams()[task.others] @ task.readout.W_U
    order = torch.cat([b.facts for b in task.readout.blocks])
    order = order[torch.isin(order, task.others)]
    inverse = torch.argsort(order)
    assert torch.allclose(logits[inverse].double(), right, atol=1e-4)


def test_what_editors_refuse(memories):
    with pytest.raises(ByheartError, match="only sharded memories"):
        ExactShards()(memories["dense"], {memories["dense"].facts.key(0): "1"})
    with pytest.raises(FactsError, match="only stored keys"):
        RankOne()(memories["dense"], {("no", "key"): "1"})
    with pytest.raises(ByheartError, match="has no read-out"):
        readout_of(bh.build({("a", "b"): "c", ("b", "a"): "d"}, "associative"))
    with pytest.raises(ByheartError, match="subject sink"):
        readout_of(bh.build("countries", "sharded", gate="subject-sink"))
