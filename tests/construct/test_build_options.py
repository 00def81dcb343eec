"""What `build` promises besides Corollary 1: the same bytes, honest records, early refusals."""

import dataclasses
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import byheart as bh
from byheart.construct.attention_only import associative_weights
from byheart.construct.choice import choose_attention_only
from byheart.construct.solve import leads
from byheart.construct.widths import smallest_width
from byheart.errors import ByheartError, CapacityError
from byheart.facts import Facts, Vocabulary
from byheart.models import TokenMemory
from byheart.models.associative import keys
from byheart.specs import AssociativeSpec, AttentionOnlySpec
from byheart.theory import corollary1_capacity

WAYS = {
    "exact": {},
    "exact, change of basis": {"d": 4, "d_h": 4, "H": 4, "dtype": "float64"},
    "convex": {"readout": "convex"},
    "associative": {"method": "associative"},
}


@pytest.fixture(scope="module")
def facts() -> Facts:
    return bh.random_associations(N=12, S=2, T=20, seed=5)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_same_seed_same_bytes(facts, way):
    first, second = (bh.build(facts, seed=3, **way) for _ in range(2))
    assert first.weights_sha256() == second.weights_sha256()
    without_time = [replace(m.construction, seconds=0) for m in (first, second)]
    assert without_time[0] == without_time[1]


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_other_seed_other_bytes(facts, way):
    first, second = (bh.build(facts, seed=seed, **way) for seed in (3, 4))
    assert first.weights_sha256() != second.weights_sha256()


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_verified_as_stored(facts, way, dtype):
    memory = bh.build(facts, **(way | {"dtype": dtype}))
    made = memory.construction
    assert memory.dtype == getattr(torch, dtype) and made.dtype == dtype
    assert {w.dtype for w in memory.weights.values()} == {memory.dtype}
    assert memory.facts is not None
    assert made.margin == float(memory.margins(memory.facts).min()) > 0
    assert made.recalled == memory.facts.T == facts.T - len(made.lost)
    assert (made.facts, made.seed) == (facts.T, 0)
    assert made.seconds > 0 and made.why


def test_progress_is_told():
    said: list[str] = []
    bh.build(bh.random_associations(N=5, S=2, T=5), progress=said.append)
    assert any("solving for 5 facts" in line for line in said)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "magic"}, "`method` must be one of auto, .*found 'magic'"),
        ({"readout": "magic"}, "`readout` must be one of exact, convex, found 'magic'"),
        ({"dtype": "float16"}, "`dtype` must be one of float32, float64, found 'float16'"),
        ({"slack": -0.1}, "`slack` must be between 0 and 10, found -0.1"),
        ({"slack": 11}, "`slack` must be between 0 and 10, found 11"),
        ({"slack": math.nan}, "`slack` must be between 0 and 10, found nan"),
        ({"d": 1}, "`d=1` tells at most 2 answers apart, found 9"),
        ({"d": 0}, "`d` must be at least 1, found 0"),
        ({"H": 0}, "`H` must be at least 1, found 0"),
        ({"H": -3}, "`H` must be at least 1, found -3"),
        ({"d_h": 0}, "`d_h` must be at least 1, found 0"),
        ({"qk_rank": 0}, "`qk_rank` must be at least 1, found 0"),
        ({"d": 4, "d_h": 5}, "d_h <= d .*5 > 4.*`d_h=4`"),
        ({"d": 4, "d_h": 5, "readout": "convex"}, "d_h <= d .*5 > 4.*`d_h=4`"),
        ({"method": "associative", "d": 0}, "`d` must be at least 1, found 0"),
        ({"method": "associative", "d": -1}, "`d` must be at least 1, found -1"),
        ({"method": "associative", "d": 1}, "`d=1` tells at most 2 answers apart"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_arguments_are_refused_by_name(facts, options, message):
    assert len(facts.answer_ids) == 9
    with pytest.raises(ByheartError, match=message):
        bh.build(facts, **options)


def test_width_one_tells_two_answers_apart():
    facts = Facts.make([[0, 0], [0, 1], [1, 0]], [0, 1, 0], Vocabulary(("no", "yes")))
    memory = bh.build(facts, d=1)
    assert memory.spec.to_json()["d"] == 1 and memory.construction.recalled == 3


def test_choice_follows_corollary_1():
    facts = bh.random_associations(N=50, S=2, T=1000, seed=0)
    A = len(facts.answer_ids)
    choice = choose_attention_only(facts)
    spec = choice.spec
    assert (spec.d, spec.d_h, spec.qk_rank) == (smallest_width(A), spec.d, 1)
    assert spec.H == math.ceil(1050 / spec.d_h)  # 5 % slack
    assert corollary1_capacity(spec, facts.last_tokens) >= 1050
    fixed = choose_attention_only(facts, bh.AttentionOnly(H=99, d=10, d_h=10))
    assert fixed.spec == AttentionOnlySpec(N=50, S=2, d=10, d_h=10, H=99)
    # Rank-1 scores are a choice of ours; a layer of the user's sizes is the layer of the paper.
    heads = choose_attention_only(facts, bh.AttentionOnly(H=99)).spec
    assert heads.qk_rank == heads.d
    assert choose_attention_only(facts, bh.AttentionOnly(H=99, qk_rank=2)).spec.qk_rank == 2
    assert choose_attention_only(facts, bh.AttentionOnly(d_h=40)).spec.d == 40


@pytest.mark.parametrize("slack", [0.0, 0.3, 10.0])
def test_slack_buys_heads(slack):
    facts = bh.random_associations(N=50, S=2, T=100, seed=0)
    memory = bh.build(facts, slack=slack, dtype="float64")
    spec = memory.spec
    assert isinstance(spec, AttentionOnlySpec)
    assert spec.H * spec.d_h >= 100 * (1 + slack)
    assert memory.construction.recalled == 100


def test_convex_holds_more_than_the_corollary():
    """m = H d_h + d = 100 at N = 50, d = 10: 120 facts, all of them."""
    facts = bh.random_associations(N=50, S=2, T=120, seed=0)
    memory = bh.build(facts, d=10, d_h=10, H=9, readout="convex")
    assert memory.construction.capacity == 100
    assert memory.construction.recalled == 120 and memory.construction.lost == ()
    assert bh.accuracy(memory, facts) == 1.0
    assert bh.certify(memory, facts).certified
    with pytest.raises(CapacityError, match="`readout=convex`"):
        bh.build(facts, d=10, d_h=10, H=9)


def assert_holds_exactly_what_it_recalls(memory: bh.Memory, facts: Facts) -> None:
    """`lost` names the facts that are lost, and `memory.facts` are the others."""
    assert isinstance(memory, TokenMemory)
    _, held = leads(memory, facts)
    assert (memory.margins(facts)[held] > 0).all()
    made, own = memory.construction, memory.facts
    assert isinstance(own, Facts)
    assert made.recalled == own.T == held.sum() < facts.T
    assert own.tokens.tolist() == facts.tokens[held].tolist()
    assert own.answers.tolist() == facts.answers[held].tolist()
    assert own.rows.tolist() == facts.rows[held].tolist()
    assert np.allclose(own.prior, facts.prior[held] / facts.prior[held].sum(), rtol=1e-12)
    lost = [(entry.row, entry.key, entry.answer) for entry in made.lost]
    assert lost == [
        (int(facts.rows[i]), facts.key(i), facts.answer(i)) for i in np.flatnonzero(~held).tolist()
    ]
    assert bh.accuracy(memory) == 1.0
    assert bh.accuracy(memory, facts) >= facts.prior[held].sum() * (1 - 1e-12)
    assert made.margin == pytest.approx(float(memory.margins(own).min()), rel=1e-3)


def test_overloaded_convex_readout_says_what_it_lost():
    facts = bh.random_associations(N=50, S=2, T=600, seed=0)
    memory = bh.build(facts, d=10, d_h=10, H=9, readout="convex")
    assert_holds_exactly_what_it_recalls(memory, facts)
    assert memory.construction.recalled > 100  # more than the corollary holds


def test_convex_readout_takes_a_prior():
    random = bh.random_associations(N=50, S=2, T=400, seed=0)
    weights = np.r_[np.full(40, 100.0), np.ones(360)]
    facts = Facts.make(random.tokens, random.answers, random.vocabulary, weights)
    memory = bh.build(facts, d=10, d_h=10, H=9, readout="convex")
    assert_holds_exactly_what_it_recalls(memory, facts)
    # 92 % of the prior lies on 40 facts, fewer than the 100 that any read-out holds.
    assert bh.accuracy(memory, facts) > 0.9


AWKWARD = {
    "single fact": ([[0, 0]], [1]),
    "one answer": ([[0, 0], [1, 0], [2, 0]], [1, 1, 1]),
    "one last token": ([[0, 0], [1, 0], [2, 0]], [1, 2, 0]),
    "one-token keys": ([[0], [1], [2]], [2, 0, 0]),
}


@pytest.mark.parametrize("readout", ["exact", "convex"])
@pytest.mark.parametrize("table", AWKWARD.values(), ids=AWKWARD.keys())
def test_awkward_tables(table, readout):
    tokens, answers = table
    facts = Facts.make(tokens, answers, Vocabulary(("a", "b", "c")))
    memory = bh.build(facts, readout=readout)
    assert memory.construction.recalled == facts.T
    assert bh.certify(memory).certified


def test_convex_facts_of_zero_weight_may_be_all_that_is_held():
    """A prior that is zero on some facts is a prior: no crash, whichever of them are held."""
    random = bh.random_associations(N=20, S=2, T=200, seed=0)
    facts = Facts.make(random.tokens, random.answers, random.vocabulary, np.r_[1.0, np.zeros(199)])
    memory = bh.build(facts, d=4, d_h=4, H=2, readout="convex")
    assert bh.accuracy(memory, facts) == 1.0


def test_associative_doubles_until_all_is_recalled():
    facts = bh.random_associations(N=30, S=2, T=60, seed=0)
    memory = bh.build(facts, "associative")
    assert isinstance(memory.spec, AssociativeSpec)
    width = memory.spec.d
    assert width > 16 and math.log2(width).is_integer()
    assert memory.construction.recalled == 60
    # The first power of two: at half the width something is lost.
    half = bh.build(facts, "associative", d=width // 2)
    assert half.construction.lost
    assert bh.certify(memory).certified


def test_associative_lists_what_it_lost():
    facts = bh.random_associations(N=30, S=2, T=60, seed=0)
    memory = bh.build(facts, "associative", d=16)
    assert_holds_exactly_what_it_recalls(memory, facts)


def test_facts_from_one_row_are_lost_one_by_one():
    """With melt several facts share a row: one that is lost must not take the others along."""
    random = bh.random_associations(N=30, S=2, T=60, seed=0)
    facts = Facts.make(
        random.tokens, random.answers, random.vocabulary, rows=np.arange(60) // 3 + 2
    )
    assert_holds_exactly_what_it_recalls(bh.build(facts, "associative", d=16), facts)


def test_nothing_held_is_an_error():
    """d = 1 with the answers +1 and -1 whose facts share one key vector up to sign."""
    facts = Facts.make([[0], [1]], [0, 1], Vocabulary(("a", "b")))
    seeds = [s for s in range(20) if _opposite_keys(facts, s)]
    assert seeds  # each token is +1 or -1: half of the seeds give both the same sign
    with pytest.raises(CapacityError, match="none of the 2 facts"):
        bh.build(facts, "associative", d=1, seed=seeds[0])


def _opposite_keys(facts: Facts, seed: int) -> bool:
    """Equal keys, opposite answers: W = w_0 - w_0 = 0 recalls neither."""
    weights = associative_weights(facts, AssociativeSpec(N=2, S=1, d=1), seed)
    return bool((weights["W"] == 0).all())


def test_associative_keys_are_unit_vectors_and_the_matrix_their_sum():
    facts = bh.random_associations(N=8, S=3, T=20, seed=0)
    spec = AssociativeSpec(N=8, S=3, d=32)
    weights = associative_weights(facts, spec)
    w_e = keys(spec, {"W_E": weights["W_E"][None]}, torch.tensor(facts.tokens))[0]
    # 32 squares of 1/sqrt(32), rounded.
    assert torch.allclose(w_e.norm(dim=1), torch.ones(20, dtype=torch.float64), rtol=0, atol=1e-14)
    total = torch.zeros(32, 32, dtype=torch.float64)
    for i in range(20):
        total += torch.outer(w_e[i], weights["W_U"][:, facts.answers[i]])
    assert torch.allclose(weights["W"], total, rtol=0, atol=1e-14)


def test_why_is_about_the_memory_that_is_returned():
    """Where the number of heads grew, the reasons end with the number that was taken."""
    facts = bh.random_associations(N=50, S=2, T=600, seed=0)
    memory = bh.build(facts, readout="convex", d=3, d_h=3)
    spec = memory.spec
    assert isinstance(spec, AttentionOnlySpec)
    raised = [reason for reason in memory.construction.why if reason.startswith("H")]
    assert f"H raised to {spec.H}:" in raised[-1] or f"H = {spec.H}:" in raised[-1]


def test_a_memory_is_a_value(facts):
    memory = bh.build(facts)
    with pytest.raises(dataclasses.FrozenInstanceError):
        memory.facts = None  # pyright: ignore[reportAttributeAccessIssue]
