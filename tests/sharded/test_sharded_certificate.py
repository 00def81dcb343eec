"""The certificate that scales: its hypotheses are checked, and it agrees with full evaluation."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import byheart as bh
from byheart.certificates.premises import premises
from byheart.certificates.sharded import leaks, sharded_margins
from byheart.errors import ByheartError
from byheart.facts import Facts, Vocabulary
from byheart.specs import ShardedSpec

GATES = ["query", "key", "subject-sink"]


@pytest.fixture(scope="module")
def memories(make_relations):
    facts = make_relations(subjects=60, R=4)
    return {
        (gate, untied): bh.build(facts, "sharded", gate=gate, untied=untied, shard_size=40)
        for gate in GATES
        for untied in (False, True)
    }


@pytest.fixture(scope="module")
def hot(make_table):
    facts = make_table(N=40, S=2, T=300, seed=1, keys="zipf")
    memory = bh.build(facts, "sharded", shard_size=20)
    assert isinstance(memory.spec, ShardedSpec) and memory.spec.bits
    return memory


def all_margins(memory, tokens=None):
    facts = memory.facts
    ids = memory.in_order(facts.tokens if tokens is None else tokens)
    right = torch.tensor(facts.answers)
    found = sharded_margins(memory.spec, dict(memory.weights), ids, right, lambda _: None)
    return found.margins, found.bounds


def proved(memory, arithmetic="rounding") -> tuple[float, float]:
    """Smallest margin and largest error bound of a certificate that holds."""
    certificate = bh.certify(memory, arithmetic=arithmetic)
    assert certificate.certified and certificate.failed == 0
    assert certificate.margin is not None and certificate.error_bound is not None
    return certificate.margin, certificate.error_bound


@pytest.mark.parametrize("untied", [False, True])
@pytest.mark.parametrize("gate", GATES)
def test_it_holds_for_every_gate(memories, gate, untied):
    margin, error = proved(memories[gate, untied])
    # float32 weights move logits by 1e-6 or so: the bound is of that size, not of the margin's.
    assert error < 1e-3 < 0.1 < margin


@pytest.mark.parametrize("gate", GATES)
def test_ball_arithmetic_on_the_literal_layer_says_the_same(make_relations, gate):
    facts = make_relations(subjects=6, R=2)
    memory = bh.build(facts, "sharded", gate=gate, shard_size=4)
    margin, error = proved(memory)
    truth, radius = proved(memory, "ball")
    # The frame's margin and the layer's own differ by the bound, whichever is larger.
    assert margin - error <= truth + radius and truth - radius <= margin + error


def test_hot_sub_shards_in_ball_arithmetic():
    keys = np.stack([np.arange(12), np.full(12, 12)], 1)
    keys = np.concatenate([keys, keys[:, ::-1]])
    facts = Facts.make(keys, np.arange(24) % 5, Vocabulary(tuple(str(i) for i in range(13))))
    memory = bh.build(facts, "sharded", shard_size=5)
    assert memory.spec.bits  # pyright: ignore[reportAttributeAccessIssue]
    margin, error = proved(memory)
    truth, radius = proved(memory, "ball")
    assert margin - error <= truth + radius and truth - radius <= margin + error


def tampered(memory, name, change):
    weights = {k: w.clone() for k, w in memory.weights.items()}
    change(weights[name])
    return replace(memory, weights=weights)


def set_to(place, value):
    def change(w):
        w[place] = value

    return change


@pytest.mark.parametrize(
    ("name", "place", "value", "said"),
    [
        ("point", 1, 0, "share a lattice point"),
        ("point", 0, 10_000, "too far out"),
        ("W_E", -1, 0.5, "start token is not the zero vector"),
        ("W_pos", 0, 0.5, "start token is not the zero vector"),
        ("bits", (0, 0), 0, r"bits other than \+1 and -1"),
        ("level", 0, 99, "level must lie between"),
        ("first", 0, 1, "groups share a shard"),
        ("first", 0, 10_000, "groups share a shard"),
        ("head_start", -1, 7, "head_start does not run"),
        ("head_start", 1, 10_000, "head_start does not run"),
        ("group", 0, 10_000, "group must lie between"),
        ("group", -1, 0, "group must lie between"),
    ],
)
def test_tampered_codes_are_refused(hot, name, place, value, said):
    if name == "point" and value == 0:
        value = hot.weights["point"][0]
    broken = tampered(hot, name, set_to(place, value))
    with pytest.raises(ByheartError, match=said):
        premises(broken.spec, dict(broken.weights))
    with pytest.raises(ByheartError, match=said):
        bh.certify(broken)


def test_a_code_at_the_reserved_point_is_refused(hot):
    broken = tampered(hot, "point", set_to(0, hot.weights["far"]))
    with pytest.raises(ByheartError, match="share a lattice point"):
        premises(broken.spec, dict(broken.weights))


@pytest.mark.parametrize("name", ["lam", "s1", "s2"])
@pytest.mark.parametrize("value", [48.0, -2.0, float("nan"), float("inf"), 0.3])
def test_scales_that_are_not_powers_of_two_are_refused(hot, name, value):
    with pytest.raises(ByheartError, match=f"{name} = .* is not a power of two"):
        premises(replace(hot.spec, **{name: value}), dict(hot.weights))


def test_too_few_stored_heads_are_refused(hot):
    weights = dict(hot.weights) | {"u": hot.weights["u"][:1]}
    with pytest.raises(ByheartError, match="heads u, w, V are stored"):
        premises(hot.spec, weights)


def test_other_gates_check_their_own_tables(memories):
    key, sink = memories["key", False], memories["subject-sink", False]
    broken = tampered(key, "deciding", set_to(0, 1))
    with pytest.raises(ByheartError, match="reads the first token"):
        premises(broken.spec, dict(broken.weights))
    for place, value in ((0, 3), (-1, 1)):
        broken = tampered(sink, "subject", set_to(place, value))
        with pytest.raises(ByheartError, match="subject marks"):
            premises(broken.spec, dict(broken.weights))


def test_the_builder_bounds_all_leaks_together(memories):
    """TOTAL_LEAK, whatever the norms; a subject sink adds the rounding of its cancelling heads."""
    for (gate, _), memory in memories.items():
        found = leaks(memory.spec, dict(memory.weights), memory.in_order(memory.facts.tokens))
        assert found.foreign <= (1e-9 if gate != "subject-sink" else 1e-7)


def test_a_subject_sink_with_shards_of_one_fact(make_table):
    """Heads that attend to the subject alone have no feature; several heads a shard make up."""
    facts = make_table(N=38, S=2, T=53, seed=62137, keys="roles")
    for dtype in ("float32", "float64"):
        memory = bh.build(facts, "sharded", gate="subject-sink", shard_size=1, dtype=dtype)
        assert bh.certify(memory).certified


def test_a_weak_gate_proves_nothing(memories):
    """λ below s_max: a power of two, exact, and useless. The leak bound says so."""
    for gate in GATES:
        memory = memories[gate, False]
        weak = replace(memory, spec=replace(memory.spec, lam=8.0))
        assert not bh.certify(weak).certified


def test_a_wrong_cancelling_head_is_noticed(memories):
    memory = memories["subject-sink", False]
    off = tampered(memory, "cancel", lambda w: w[0].mul_(2.0))
    assert leaks(off.spec, dict(off.weights), off.in_order(off.facts.tokens)).foreign > 1.0
    assert not bh.certify(off).certified
    # And rightly so: sparse recall does not see it, the literal layer does.
    assert off.recall(*off.facts.key(0)).answer == off.facts.answer(0)
    assert not bh.certify(off, arithmetic="float").passed


def test_a_subject_that_stands_elsewhere_is_not_proved(memories):
    memory = memories["subject-sink", False]
    tokens = memory.facts.tokens.copy()
    tokens[0, 1] = tokens[1, 0]
    margins, bounds = all_margins(memory, tokens)
    assert not margins[0] > bounds[0] and (margins[1:] > bounds[1:]).all()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e38])
def test_weights_beyond_the_error_bounds_prove_nothing(hot, value):
    broken = tampered(hot, "W_O", set_to((0, 0, 0), value))
    certificate = bh.certify(broken)
    assert not certificate.certified and certificate.failed == hot.facts.T


def test_one_changed_number_loses_the_proof_of_its_shard_only(hot):
    g = int(torch.diff(hot.weights["head_start"]).argmax())
    a = int(hot.weights["head_start"][g])
    broken = tampered(hot, "W_O", lambda w: w[a].add_(5.0))
    own = hot.shards_of(hot.facts) == g
    margins, bounds = all_margins(broken)
    held = margins > bounds
    assert held[~own].all() and not held[own].all()
