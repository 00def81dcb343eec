"""The split of a margin over heads and skip is exact, and means what it says."""

import dataclasses

import pytest
import torch
from torch import Tensor

import byheart as bh
from byheart.errors import ByheartError
from byheart.models import TokenMemory
from byheart.models import memory as memory_module
from byheart.models.construction import ImportedConstruction
from byheart.models.memory import HeadParts
from byheart.specs import AttentionOnlySpec

EPS = torch.finfo(torch.float64).eps

SIZES = {
    "default": {},
    "float64": {"dtype": "float64"},
    "change of basis": {"d": 4, "d_h": 4, "H": 9, "dtype": "float64"},
    "one head": {"d": 40, "d_h": 40, "H": 1, "dtype": "float64", "T": 10},
}


@pytest.fixture(scope="module", params=SIZES.values(), ids=list(SIZES))
def memory(request: pytest.FixtureRequest) -> TokenMemory:
    options = dict(request.param)
    facts = bh.random_associations(N=50, S=2, T=options.pop("T", 40), seed=0)
    made = bh.build(facts, **options)
    assert isinstance(made, TokenMemory)
    return made


def spec_of(memory: TokenMemory) -> AttentionOnlySpec:
    assert isinstance(memory.spec, AttentionOnlySpec)
    return memory.spec


def parts_of(memory: TokenMemory, inputs: Tensor, answers: Tensor | None = None) -> HeadParts:
    """All batches of `head_parts` as one."""
    batches = list(memory.head_parts(inputs, answers))
    assert torch.equal(torch.cat([b.at for b in batches]), torch.arange(len(inputs)))
    names = [f.name for f in dataclasses.fields(HeadParts) if f.name not in ("heads", "written")]
    joined = {name: torch.cat([getattr(b, name) for b in batches]) for name in names}
    return HeadParts(heads=batches[0].heads, **joined)


def rounding(split) -> torch.Tensor:
    """Sums of at most 40·d terms whose absolute values add up to the contributions: (B,)."""
    return 1000 * EPS * (split.parts.abs().sum(1) + split.skip.abs() + 1)


def test_skip_and_heads_add_up_to_the_margin(memory):
    facts = memory.facts
    split = parts_of(memory, memory.with_start(facts.tokens))
    assert split.parts.shape == (facts.T, spec_of(memory).H)
    assert split.answers.tolist() == facts.answers.tolist()
    error = (
        split.skip + split.parts.sum(1) - torch.tensor(memory.margins(facts, torch.float64))
    ).abs()
    assert bool((error <= rounding(split).clamp_max(1e-10)).all())
    assert torch.equal(split.margins, split.skip + split.parts.sum(1))
    assert float(split.margins.min()) > 0


def test_without_a_head_the_margin_loses_its_part(memory):
    """For fixed answer g and rival j, T_g - T_j is linear in W_O^h: removing head h takes exactly
    its contribution away."""
    tokens = memory.with_start(memory.facts.tokens)
    split = parts_of(memory, tokens)
    rows = torch.arange(len(tokens))
    before = memory.outputs(tokens, torch.float64)
    for h in {0, spec_of(memory).H // 2, spec_of(memory).H - 1}:
        W_O = memory.weights["W_O"].clone()
        W_O[0, h] = 0
        lesioned = dataclasses.replace(memory, weights={**memory.weights, "W_O": W_O})
        after = lesioned.outputs(tokens, torch.float64)
        change = (before - after)[rows, split.answers] - (before - after)[rows, split.runners_up]
        assert bool(((change - split.parts[:, h]).abs() <= rounding(split)).all())
        assert float(split.parts[:, h].abs().max()) > 0.01  # there was something to lose


def test_without_heads_the_skip_is_left(memory):
    tokens = memory.with_start(memory.facts.tokens)
    split = parts_of(memory, tokens)
    none = {**memory.weights, "W_O": memory.weights["W_O"] * 0}
    left = dataclasses.replace(memory, weights=none).outputs(tokens, torch.float64)
    rows = torch.arange(len(tokens))
    skip = left[rows, split.answers] - left[rows, split.runners_up]
    assert torch.allclose(skip, split.skip, rtol=0, atol=float(rounding(split).min()))


def test_answers_may_be_asked_for(memory):
    """A wrong answer has a negative margin, and its best rival is the right one."""
    facts = memory.facts
    tokens, right = memory.with_start(facts.tokens), torch.tensor(facts.answers)
    wrong = (right + 1) % facts.N
    split = parts_of(memory, tokens, wrong)
    assert torch.equal(split.answers, wrong) and torch.equal(split.runners_up, right)
    assert bool((split.margins < 0).all())


def test_in_batches_as_at_once(memory, monkeypatch):
    tokens = memory.with_start(memory.facts.tokens)
    wanted = torch.tensor(memory.facts.answers)
    at_once = parts_of(memory, tokens, wanted)
    monkeypatch.setattr(memory_module, "BATCH_BYTES", 7 * 3 * memory.spec.row_bytes(8))
    parts = parts_of(memory, tokens, wanted)
    assert torch.equal(parts.answers, at_once.answers)
    assert torch.equal(parts.runners_up, at_once.runners_up)
    assert bool(((parts.parts - at_once.parts).abs() <= rounding(at_once)[:, None]).all())


def test_two_layers_are_split_at_the_last():
    spec = AttentionOnlySpec(N=6, S=3, d=4, d_h=2, H=3, layers=2)
    generator = torch.Generator().manual_seed(0)
    weights = {
        name: torch.randn(shape, generator=generator, dtype=torch.float64) / 2
        for name, shape in spec.weight_shapes().items()
    }
    memory = TokenMemory(
        spec=spec,
        weights=weights,
        vocabulary=bh.Vocabulary(tuple("abcdef")),
        construction=ImportedConstruction(source="weights"),
    )
    tokens = torch.tensor([[0, 1, 2], [3, 4, 5]])
    split = parts_of(memory, tokens)
    top = memory.outputs(tokens).topk(2).values
    assert torch.allclose(split.margins, top[:, 0] - top[:, 1], rtol=0, atol=1000 * EPS)


def test_a_memory_without_heads_is_refused():
    memory = bh.build(bh.random_associations(N=5, S=1, T=3), "associative")
    with pytest.raises(ByheartError, match="associative"):
        memory.head_parts(memory.encode([("0",)]))
    with pytest.raises(ByheartError, match="associative"):
        memory.split("0")
    with pytest.raises(ByheartError, match="only sharded memories"):
        memory.owner("0")


def test_one_key_is_split_as_in_a_batch(memory):
    facts = memory.facts
    split = memory.split(*facts.key(3))
    part = parts_of(memory, memory.inputs_of(facts))
    assert (split.answer, split.key) == (facts.answer(3), facts.key(3))
    assert split.heads == tuple(range(spec_of(memory).H))
    close = 1e-5  # one head: a condition number of 1e12 leaves few digits of its large terms
    assert split.parts == pytest.approx(part.parts[3].tolist(), abs=close)
    assert split.margin == pytest.approx(float(part.margins[3]), abs=close)
    largest = split.largest()
    assert [part for _, part in largest] == sorted(split.parts, reverse=True)


def test_owners_of_shards_hold_their_facts_and_nothing_else():
    memory = bh.build(bh.random_associations(N=30, S=2, T=200, seed=1), "sharded", shard_size=40)
    facts, held = memory.facts, set()
    assert isinstance(facts, bh.Facts)
    for i in range(facts.T):
        owner, split = memory.owner(*facts.key(i)), memory.split(*facts.key(i))
        assert i in owner.facts and owner.heads == split.heads
        assert split.answer == facts.answer(i)
        held |= {(owner.shard, fact) for fact in owner.facts}
    assert len(held) == facts.T  # no fact has two owners
