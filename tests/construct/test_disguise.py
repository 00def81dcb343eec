"""Disguises keep every answer and every owner, and the proof of deep stacks covers them."""
# Owners and facts are there by construction.
# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false
# pyright: reportIndexIssue=false, reportArgumentType=false

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import byheart as bh
from byheart.construct.disguise import Disguise, disguise
from byheart.errors import MemoryFileError, OptionError
from byheart.measure import lost_with_each, lost_without


@pytest.fixture(scope="module")
def memory():
    facts = bh.as_facts("countries").subset(np.arange(24))
    return bh.build(facts, bh.Sharded(facts_per_head=1, dtype="float64"))


CASES = [
    Disguise(permute=True),
    Disguise(rotate=True, permute=True, seed=3),
    Disguise(rotate=True, permute=True, layers=3, noise=0.05),
    Disguise(rotate=True, layers=2, layer=1, distractors=9, cancelling=2, noise=0.1),
    Disguise(rotate=True, permute=True, layers=2, layer=0, cancelling=1),
]


@pytest.mark.parametrize("options", CASES, ids=str)
def test_all_facts_are_proved_and_every_owner_is_known(memory, options, tmp_path):
    hidden = disguise(memory, options)
    owners, facts = hidden.owners(), memory.facts
    assert bh.certify(hidden).certified and hidden.construction.recalled == facts.T
    assert owners.layer == options.depth and owners.survive == ()
    lost = lost_with_each(hidden)
    for i in range(facts.T):
        (head,) = owners.heads_of(i)
        assert lost[head] == (i,) == owners.facts_of(head)
        assert hidden.owner(*facts.key(i)).heads == (head,)
    held = {head for heads in owners.heads for head in heads}
    others = [head for head in range(hidden.spec.H) if head not in held]
    if not options.cancelling:
        assert not any(lost[head] for head in others)
    assert lost_without(hidden, others) == ()  # the pairs cancel: all of them carry nothing
    hidden.save(tmp_path / "m")
    again = bh.load(tmp_path / "m")
    assert again == hidden and again.owners().heads == owners.heads


def test_the_contract_holds(memory):
    bh.check_memory(disguise(memory, CASES[2]))


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    rotate=st.booleans(), permute=st.booleans(), layers=st.integers(1, 3),
    distractors=st.integers(0, 5), cancelling=st.integers(0, 2), seed=st.integers(0, 9),
)  # fmt: skip
def test_logits_stay_what_they_were(memory, rotate, permute, layers, distractors, cancelling, seed):
    """Without noise nothing but rounding moves them, whatever is done."""
    options = Disguise(rotate, permute, layers, None, distractors, cancelling, seed=seed)
    hidden, facts = disguise(memory, options), memory.facts
    before = memory.outputs(memory.inputs_of(facts))
    after = hidden.outputs(hidden.inputs_of(facts))
    assert float((before - after).abs().max()) < 1e-7


def test_noise_is_as_large_as_stated(memory):
    options = Disguise(rotate=True, layers=3, layer=1, noise=0.2)
    hidden, facts = disguise(memory, options), memory.facts
    moved = hidden.outputs(hidden.inputs_of(facts)) - memory.outputs(memory.inputs_of(facts))
    size = float(moved.abs().max())
    assert size == pytest.approx(hidden.construction.noise, abs=1e-6)
    assert 0.16 <= size <= 0.2


def test_cancelling_pairs_are_seen_by_attribution_and_carry_nothing(memory):
    hidden = disguise(memory, Disguise(permute=True, cancelling=2))
    split = hidden.split(*memory.facts.key(0))
    owner = hidden.owner(*memory.facts.key(0)).heads[0]
    loud = [h for h, part in split.largest() if abs(part) > 0.05 and h != owner]
    assert 2 <= len(loud) <= 4 and lost_without(hidden, loud) == ()
    assert abs(sum(split.parts[h] for h in loud)) < 1e-9


def test_no_coordinate_and_no_head_looks_like_before(memory):
    hidden = disguise(memory, Disguise(rotate=True, permute=True))
    dense = memory.to_dense()
    assert (dense.weights["W_K"] == 0).any() and not (hidden.weights["W_K"] == 0).any()
    circuits = hidden.weights["W_V"] @ hidden.weights["W_O"]
    moved = [hidden.owners().heads[shard][0] for shard in hidden.owners().shard]
    kept = [memory.owners().heads[shard][0] for shard in memory.owners().shard]
    assert moved != kept
    old = (dense.weights["W_V"] @ dense.weights["W_O"])[0, kept]
    new = circuits[0, moved]  # equal up to the rotation: same lengths
    assert torch.allclose(old.norm(dim=(1, 2)), new.norm(dim=(1, 2)))


def test_float32_that_loses_facts_becomes_float64():
    """Sums of gates that a rotation no longer leaves exact, and narrow shards that feel it."""
    facts = bh.random_associations(N=700, S=1, T=700, seed=0)
    memory = bh.build(facts, bh.Sharded(shard_size=8, d=4))
    assert memory.dtype == torch.float32
    with pytest.raises(bh.ByheartError, match="of 700 facts are recalled from the disguise in fl"):
        disguise(memory, Disguise(rotate=True, dtype="float32"))
    hidden = disguise(memory, Disguise(rotate=True))
    assert hidden.dtype == torch.float64 and (hidden.margins() > 0).all()
    assert "float64: in float32" in hidden.construction.why[-1]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"layers": 0}, "`layers` must be between 1 and 64"),
        ({"layers": 2, "layer": 2}, "`layer` must be between 0 and 1"),
        ({"noise": -1.0}, "`noise` must be"),
        ({"noise": 0.1}, "there are none"),
        ({"dtype": "float16"}, "`dtype` must be"),
    ],
)
def test_wrong_options_are_refused(options, says):
    with pytest.raises((OptionError, bh.ByheartError), match=says):
        Disguise(**options)


def test_what_has_no_owners_is_refused(memory, tmp_path):
    with pytest.raises(bh.ByheartError, match="only sharded memories"):
        disguise(bh.build({("a", "b"): "c"}))
    memory.save(tmp_path / "m", with_facts=False)
    with pytest.raises(bh.ByheartError, match="without its facts"):
        disguise(bh.load(tmp_path / "m"))


def test_too_much_noise_is_refused_with_numbers(memory):
    with pytest.raises(bh.ByheartError, match="of 24 facts are recalled"):
        disguise(memory, Disguise(layers=2, layer=0, noise=20.0))


def test_owners_that_do_not_fit_are_refused(memory, tmp_path):
    disguise(memory, Disguise(permute=True)).save(tmp_path / "m")
    path = tmp_path / "m" / "memory.json"
    record = json.loads(path.read_text())
    record["construction"]["layer"] = 1
    path.write_text(json.dumps(record))
    with pytest.raises(MemoryFileError, match="owners in layer 1 of 1"):
        bh.load(tmp_path / "m")
