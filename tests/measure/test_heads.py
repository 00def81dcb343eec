"""The split of a margin over heads and skip is exact, and means what it says."""

import dataclasses

import pytest
import torch

import byheart as bh
from byheart.errors import ByheartError
from byheart.measure import head_split
from byheart.models import Memory
from byheart.models import memory as memory_module
from byheart.specs import AttentionOnlySpec

EPS = torch.finfo(torch.float64).eps

SIZES = {
    "default": {},
    "float64": {"dtype": "float64"},
    "change of basis": {"d": 4, "d_h": 4, "H": 9, "dtype": "float64"},
    "one head": {"d": 40, "d_h": 40, "H": 1, "dtype": "float64"},
}


@pytest.fixture(scope="module", params=SIZES.values(), ids=list(SIZES))
def memory(request: pytest.FixtureRequest) -> Memory:
    return bh.build(bh.random_associations(N=50, S=2, T=40, seed=0), **request.param)


def spec_of(memory: Memory) -> AttentionOnlySpec:
    assert isinstance(memory.spec, AttentionOnlySpec)
    return memory.spec


def rounding(split) -> torch.Tensor:
    """Sums of at most 40·d terms whose absolute values add up to the contributions: (B,)."""
    return 1000 * EPS * (split.heads.abs().sum(1) + split.skip.abs() + 1)


def test_skip_and_heads_add_up_to_the_margin(memory):
    facts = memory.facts
    split = head_split(memory, memory.with_start(facts.tokens))
    assert split.heads.shape == (facts.T, spec_of(memory).H)
    assert split.answers.tolist() == facts.answers.tolist()
    error = (split.skip + split.heads.sum(1) - memory.margins(facts, torch.float64)).abs()
    assert bool((error <= rounding(split).clamp_max(1e-10)).all())
    assert torch.equal(split.margins, split.skip + split.heads.sum(1))
    assert float(split.margins.min()) > 0


def test_without_a_head_the_margin_loses_its_part(memory):
    """For fixed answer g and rival j, T_g - T_j is linear in W_O^h: removing head h takes exactly
    its contribution away."""
    tokens = memory.with_start(memory.facts.tokens)
    split = head_split(memory, tokens)
    rows = torch.arange(len(tokens))
    before = memory.logits(tokens, torch.float64)
    for h in {0, spec_of(memory).H // 2, spec_of(memory).H - 1}:
        W_O = memory.weights["W_O"].clone()
        W_O[0, h] = 0
        lesioned = dataclasses.replace(memory, weights={**memory.weights, "W_O": W_O})
        after = lesioned.logits(tokens, torch.float64)
        change = (before - after)[rows, split.answers] - (before - after)[rows, split.runners_up]
        assert bool(((change - split.heads[:, h]).abs() <= rounding(split)).all())
        assert float(split.heads[:, h].abs().max()) > 0.01  # there was something to lose


def test_without_heads_the_skip_is_left(memory):
    tokens = memory.with_start(memory.facts.tokens)
    split = head_split(memory, tokens)
    none = {**memory.weights, "W_O": memory.weights["W_O"] * 0}
    left = dataclasses.replace(memory, weights=none).logits(tokens, torch.float64)
    rows = torch.arange(len(tokens))
    skip = left[rows, split.answers] - left[rows, split.runners_up]
    assert torch.allclose(skip, split.skip, rtol=0, atol=float(rounding(split).min()))


def test_answers_may_be_asked_for(memory):
    """A wrong answer has a negative margin, and its best rival is the right one."""
    facts = memory.facts
    tokens, right = memory.with_start(facts.tokens), torch.tensor(facts.answers)
    wrong = (right + 1) % facts.N
    split = head_split(memory, tokens, wrong)
    assert torch.equal(split.answers, wrong) and torch.equal(split.runners_up, right)
    assert bool((split.margins < 0).all())


def test_in_batches_as_at_once(memory, monkeypatch):
    tokens = memory.with_start(memory.facts.tokens)
    wanted = torch.tensor(memory.facts.answers)
    at_once = head_split(memory, tokens, wanted)
    monkeypatch.setattr(memory_module, "BATCH_BYTES", 7 * memory.spec.row_bytes(8))
    parts = head_split(memory, tokens, wanted)
    assert torch.equal(parts.answers, at_once.answers)
    assert torch.equal(parts.runners_up, at_once.runners_up)
    assert bool(((parts.heads - at_once.heads).abs() <= rounding(at_once)[:, None]).all())


def test_two_layers_are_split_at_the_last():
    spec = AttentionOnlySpec(N=6, S=3, d=4, d_h=2, H=3, layers=2)
    generator = torch.Generator().manual_seed(0)
    weights = {
        name: torch.randn(shape, generator=generator, dtype=torch.float64) / 2
        for name, shape in spec.weight_shapes().items()
    }
    memory = Memory(spec, weights, bh.Vocabulary(tuple("abcdef")))
    tokens = torch.tensor([[0, 1, 2], [3, 4, 5]])
    split = head_split(memory, tokens)
    top = memory.logits(tokens).topk(2).values
    assert torch.allclose(split.margins, top[:, 0] - top[:, 1], rtol=0, atol=1000 * EPS)


def test_a_memory_without_heads_is_refused():
    memory = bh.build(bh.random_associations(N=5, S=1, T=3), "associative")
    with pytest.raises(ByheartError, match="associative"):
        head_split(memory, torch.tensor([[0]]))
