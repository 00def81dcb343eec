"""The planner: every fact in one shard, the right column, and refusals before any work."""

import time
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import byheart as bh
from byheart.construct.frames import coherence, frame
from byheart.construct.sharded.plan import MAX_SHARD, plan
from byheart.construct.widths import frame_margin
from byheart.errors import ByheartError, CapacityError
from byheart.facts import Facts, Vocabulary
from byheart.models.sharded import shard_of


def facts_of(columns, answers=None) -> Facts:
    tokens = np.stack(columns, 1)
    N = int(tokens.max()) + 1
    answers = np.zeros(len(tokens), dtype=int) if answers is None else answers
    N = max(N, int(np.max(answers)) + 1)
    return Facts.make(tokens, answers, Vocabulary(tuple(str(i) for i in range(N))))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    N=st.integers(2, 40),
    S=st.integers(1, 4),
    T=st.integers(1, 300),
    seed=st.integers(0, 2**20),
    keys=st.sampled_from(["uniform", "geometric", "zipf", "few last", "repeated"]),
    shard=st.sampled_from([1, 3, 10, 100]),
)
def test_every_fact_is_in_one_shard_and_the_model_agrees(make_table, N, S, T, seed, keys, shard):
    facts = make_table(N, S, T, seed, keys)
    made = plan(facts, bh.Sharded(shard_size=shard))
    assert sorted(made.order(S)) == list(range(S))
    assert made.order(S)[-1] == made.deciding
    assert (np.bincount(made.shard, minlength=len(made.sizes)) == made.sizes).all()
    weights = {
        "group": torch.from_numpy(made.group),
        "level": torch.from_numpy(made.level),
        "first": torch.from_numpy(made.first),
    }
    if made.bits.shape[1]:
        weights["bits"] = torch.from_numpy(made.bits)
    read = torch.from_numpy(facts.tokens[:, made.order(S)])
    assert (shard_of(weights, read).numpy() == made.shard).all()
    # Facts with the same deciding token share a shard unless it is hot.
    cold = made.level[made.group[facts.tokens[:, made.deciding]]] == 0
    assert (made.first[made.group[facts.tokens[cold, made.deciding]]] == made.shard[cold]).all()


@pytest.mark.parametrize("shard", [100, 250])
def test_shards_of_rare_tokens_are_even(shard):
    facts = bh.random_associations(N=5000, S=2, T=20_000)
    sizes = plan(facts, bh.Sharded(shard_size=shard)).sizes
    assert sizes.max() <= 1.03 * shard and sizes.sum() == facts.T


@pytest.mark.parametrize("R", [1, 2, 10, 50])
@pytest.mark.parametrize("T", [1000, 20_000])
def test_the_subject_decides_in_tables_with_the_relation_last(make_relations, R, T):
    made = plan(make_relations(subjects=T // R, R=R))
    if T // R >= R:  # with fewer subjects than relations, these are the finer column
        assert made.deciding == 0
    assert made.sizes.max() <= 250 + R
    assert any("decides the shard" in reason for reason in made.why)


def test_all_facts_share_the_last_token():
    facts = facts_of([np.arange(2000), np.full(2000, 7)])
    made = plan(facts)
    assert made.deciding == 0 and made.sizes.max() <= 250


def test_hot_tokens_in_both_columns_are_split():
    rng = np.random.default_rng(0)
    zipf = np.unique(rng.zipf(1.3, size=(30_000, 2)) % 3000, axis=0)
    made = plan(facts_of([zipf[:, 0], zipf[:, 1]]))
    assert made.bits.shape[1] > 0
    assert made.sizes.max() <= 1.5 * 250
    assert any("hot tokens" in reason for reason in made.why)


def test_one_fact_one_shard():
    made = plan(facts_of([np.array([3]), np.array([3])]))
    assert made.sizes.tolist() == [1]


def test_one_column_decides_for_itself():
    made = plan(facts_of([np.arange(1000)]))
    assert made.order(1) == [0] and made.sizes.tolist() == [250] * 4


def test_longer_keys_look_for_a_column_without_hot_tokens():
    i = np.arange(20_000)
    assert plan(facts_of([i % 2, i, 20_000 + i % 3])).deciding == 1


def test_longer_keys_with_hot_tokens_everywhere():
    """Up to 4,000 facts: one shard each. Above: refused, with the token and a way out."""
    cube = np.stack(np.unravel_index(np.arange(9000), (30, 30, 10)), 1)
    made = plan(facts_of(list(cube.T)))
    assert made.deciding == 1 and made.sizes.tolist() == [300] * 30
    cube = np.stack(np.unravel_index(np.arange(2 * (MAX_SHARD + 1)), (2, 2, 2, 1001)), 1)
    wide = facts_of([cube[:, 0], cube[:, 1], cube[:, 2] * 1001 + cube[:, 3]])
    assert plan(wide).deciding == 2
    i = np.arange(3 * (MAX_SHARD + 1))
    columns = [i % 3, 3 + i // 3 % 2, 5 + i // 6 % 2, *(7 + (i // 12 >> j & 1) for j in range(10))]
    with pytest.raises(CapacityError, match=r"share the deciding token .*at most 4,000 fit one"):
        plan(facts_of(columns))


@pytest.mark.parametrize(("A", "d"), [(3000, 4), (3000, 8), (5000, 6), (20_000, 4)])
def test_margins_of_random_frames_are_foreseen(A, d):
    margin = 1 - coherence(frame(A, d))
    assert margin / 4 <= frame_margin(A, d) <= margin * 4


@pytest.mark.parametrize(("A", "d"), [(50, 3), (500, 4), (1000, 6), (2000, 8)])
def test_margins_of_optimised_frames_are_not_underestimated(A, d):
    """Refusals must not hit what works: the estimate is an upper bound, and not a wild one."""
    margin = 1 - coherence(frame(A, d))
    assert margin <= frame_margin(A, d) <= 5 * margin


def test_50_000_answers_in_4_dimensions_are_refused_at_once():
    facts = facts_of([np.arange(50_000)], answers=np.arange(50_000))
    started = time.perf_counter()
    with pytest.raises(CapacityError, match=r"50,000 distinct answers in d_g = 4 .*`d=6` or"):
        bh.build(facts, "sharded", d=4)
    assert time.perf_counter() - started < 1.0
    assert plan(facts).d_g == 22  # what the message recommends


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"gate": "door"}, "`gate` must be one of query, key, subject-sink, found 'door'"),
        ({"gate": "key", "S": 3}, "first of two key tokens .* found keys of 3"),
        ({"gate": "key", "S": 1}, "first of two key tokens .* found keys of 1"),
        ({"gate": "subject-sink", "S": 1}, "at least 2 tokens"),
        ({"gate": "subject-sink"}, "one role each: .* such as '"),
        ({"gate": "key", "shard_size": 2}, "the key gate cannot split them: at most 2 fit"),
        ({"gate": "key", "d_h": 8, "shard_size": 30}, r"`d_h` must be at most \d with `gate=key`"),
        ({"code": "lat3"}, "`code` must be one of lat1, lat2"),
        ({"shard_size": 0}, "`shard_size` must be at least 1, found 0"),
        ({"shard_size": 4001}, "`shard_size` must lie between 1 and 4,000"),
        ({"d": 1}, "`d` must be at least 2|`d=1` tells"),
        ({"d": 8, "d_h": 9}, "`d_h` must be at most the width d_g = 8"),
        ({"d_h": 0}, "`d_h` must be at least 1"),
        ({"slack": -0.1}, "`slack` must be between 0 and 10"),
        ({"slack": float("nan")}, "`slack` must be between 0 and 10"),
        ({"H": 3}, "`H` belongs to attention, .*; this is sharded"),
    ],
)
def test_bad_options_are_refused_with_the_way_out(make_table, options, said):
    facts = make_table(N=10, S=options.pop("S", 2), T=60, seed=0)
    with pytest.raises(ByheartError, match=said):
        bh.build(facts, "sharded", **options)


def test_options_of_shards_belong_to_shards(make_table):
    facts = make_table(N=10, S=2, T=60, seed=0)
    asked: list[dict[str, Any]] = [
        {"gate": "query"},
        {"shard_size": 9},
        {"untied": True},
        {"code": "lat1"},
    ]
    for options in asked:
        with pytest.raises(ByheartError, match="belongs to sharded; this is attention"):
            bh.build(facts, "attention", **options)
        assert bh.build(facts, **options).construction.method == "sharded"


def test_lat1_is_refused_above_4096_groups_with_the_number():
    facts = facts_of([np.arange(5000)])
    with pytest.raises(CapacityError, match=r"5,000 groups .*lat1 codes are exact up to 4,096"):
        plan(facts, bh.Sharded(shard_size=1, code="lat1"))
    assert plan(facts, bh.Sharded(shard_size=2, code="lat1")).k == 1
    assert plan(facts, bh.Sharded(shard_size=1)).k == 2


def test_key_gate_has_a_head_for_each_fact_of_a_first_token(make_relations):
    facts = make_relations(subjects=100, R=50)
    made = plan(facts, bh.Sharded(gate="key"))
    assert made.d_h * 50 * 1.5 <= made.sizes.min()
    assert made.order(2) == [0, 1]
    assert any("a shard needs more heads" in reason for reason in made.why)
