"""Sizes by candidate, crossings, and the counts of the new specs."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import byheart as bh
from byheart.errors import ByheartError
from byheart.specs import FeedForwardTransformerSpec, MultiHeadSpec, TransformerSpec
from byheart.theory import CANDIDATES
from byheart.theory.candidates import Candidate, crossings, decades, facts_case, sweep
from byheart.theory.kajitsuka2025 import theorem41


def test_every_family_by_hand_at_a_thousand_facts():
    """T = 1,000, N = 50, S = 2, 50 answers, 32 bits."""
    rows = {row.family: row for row in bh.size(T=1000, N=50, S=2)}
    # 1000 (1/d² + 1/(50 d)) 2 log 50 <= 1 from d = 197 on.
    assert rows["associative"].parameters == 197 * (2 * 50 + 197 + 50)
    assert rows["attention-2"].parameters == 2 * (2 + 100 + 4 * 2 * 499)
    assert rows["attention-64"].parameters == 64 * (2 + 100 + 4 * 64 * 15)  # 15 · 64 + 64 >= 1000
    assert rows["rank1-64"].parameters == 64 * (2 + 100 + 2 * 65 * 15)
    assert rows["multi-head"].parameters == 11 * 999
    assert rows["multi-head-64"].parameters == 33 * (2 * 64 * 32 + 64 + 1)  # 33 · 31 + 1 >= 1000
    assert rows["sqrt"].parameters == theorem41(1000, 2, 2, math.hypot(50, 2), 50).parameters
    assert rows["trained"].parameters == math.ceil(1000 * math.log2(50) / 2)
    assert {name for name, row in rows.items() if row.practical} == {
        "trained", "associative", "attention-64", "rank1-64", "sharded"}  # fmt: skip
    assert rows["information"].parameters == math.ceil(1000 * math.log2(50) / 32)
    assert set(rows) == {family.id for family in CANDIDATES}
    # k = 11 (m = 91), w = 20, t = ceil(9.97 + 3.46 - 1.5) = 12, c = 6, b = 18: the table has
    # 1 + 540 + 48 + 77 + 540 + 24 + 48 + 2 = 1,280; the best k is at most that. FF1 42 + 52, sums
    # of 7 + 8 + 5 bits, 2 to clear z, 3 for E_in and E_out, 2 for the attention.
    assert rows["sqrt-sparse"].parameters <= 1280 + 94 + 2 + 3 + 2


def test_sizes_come_smallest_first_and_can_be_chosen():
    rows = bh.size(T=1000, N=50, S=2)
    assert [row.parameters for row in rows] == sorted(row.parameters for row in rows)
    assert [row.family for row in bh.size(T=9, N=9, S=1, families=["sqrt"])] == ["sqrt"]
    one = bh.size(T=9, N=9, S=1, families=["attention-2"])[0]
    assert "start token" in one.note


def test_size_of_a_table_of_facts():
    facts = bh.read_facts("countries")
    table = {row.family: row for row in bh.size(facts)}
    answers, last_tokens = len(facts.answer_ids), facts.last_tokens
    sizes = bh.size(T=facts.T, N=facts.N, S=facts.S, answers=answers, last_tokens=last_tokens)
    assert {row.family: row.parameters for row in sizes} == {
        name: row.parameters for name, row in table.items()
    }


@settings(max_examples=60, deadline=None)
@given(T=st.integers(1, 10**9), N=st.integers(50_000, 10**6))
def test_more_facts_never_need_fewer_parameters(T, N):
    case = facts_case(None, 2 * T, N, 2)
    for family in CANDIDATES:
        small, large = (row.parameters for row in sweep(case, [T, 2 * T], [family.id]))
        # The sparse construction rounds t and w up to whole bits: half a per cent of play.
        assert large >= small * (0.995 if family.id == "sqrt-sparse" else 1)


def test_crossings_are_where_the_sign_changes():
    case = facts_case(None, 10**9, 50_000, 2)
    found = crossings(case, 100, 10**9)
    named = {(c.winner, c.loser): c.T for c in found}
    assert {("sqrt", "attention-2"), ("sqrt", "multi-head"), ("sqrt-sparse", "information")} <= set(
        named
    )
    by_id = {family.id: family for family in CANDIDATES}

    def parameters(family: Candidate, T: int) -> float:
        return sweep(case, [T], [family.id])[0].parameters

    for crossing in found:
        winner, loser = by_id[crossing.winner], by_id[crossing.loser]
        assert parameters(winner, crossing.T) < parameters(loser, crossing.T)
        assert parameters(winner, crossing.T - 1) >= parameters(loser, crossing.T - 1)


def test_a_crossing_by_hand():
    """11(T-1) against 2(2 + 2N + 4(T-2)), N = 50,000: 3T = 200,004 - 16 + 11, T = 66,666.3; heads
    come whole (T even): from 66,670 on, for good."""
    case = facts_case(None, 10**6, 50_000, 2)
    (crossing,) = crossings(case, 10**4, 10**6, ["attention-2", "multi-head"])
    assert abs(crossing.T - 200_000 / 3) < 6


@pytest.mark.parametrize(("low", "high"), [(100, 10**9), (7, 7), (3, 5), (1, 10)])
def test_decades_hold_both_ends(low, high):
    counts = decades(low, high)
    assert (counts[0], counts[-1]) == (low, high)
    assert counts == sorted(set(counts))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"T": 0, "N": 9, "S": 2}, "`T` must be a whole number of at least 1, found 0"),
        ({"T": -5, "N": 9, "S": 2}, "found -5"),
        ({"T": 9, "N": 1, "S": 2}, "`N` must be a whole number of at least 2"),
        ({"T": 9, "N": 9, "S": 0}, "`S` must be"),
        ({"T": 9, "N": 9, "S": 2, "bits": 0}, "`bits` must be"),
        ({"T": 9, "N": 9, "S": 2, "answers": 0}, "`answers` must be"),
        ({"T": 9, "N": 9, "S": 2, "answers": 10}, "10 answers are more"),
        ({"T": 82, "N": 9, "S": 2}, "82 facts are more than the 9.2 = 81 .* `N=10`"),
        ({"T": 9, "N": 9}, "`S` missing"),
        ({"facts": 9}, "needs a vocabulary"),
        ({"T": 9, "N": 9, "S": 2, "families": ["magic"]}, "`families` must be one of .* 'magic'"),
        ({"T": 1.5, "N": 9, "S": 2}, "found 1.5"),
    ],
)
def test_bad_sizes(options, message):
    with pytest.raises(ByheartError, match=message):
        bh.size(**options)


def test_a_table_and_sizes_contradict():
    with pytest.raises(ByheartError, match="not both"):
        bh.size(bh.read_facts("elements"), T=5)


def test_huge_sizes_neither_overflow_nor_take_long():
    for row in bh.size(T=10**12, N=10**12, S=10**12):
        assert math.isfinite(row.parameters) and row.parameters > 0


def test_new_specs_count_their_weights():
    """Parameters are the numbers in the weight matrices, listed one by one."""
    m = MultiHeadSpec(d=5, n=4, d_h=3, H=2, d_v=2, d_out=7)
    shapes = [(5, 3), (5, 3), (5, 2), (2, 7)]  # W_Q, W_K, W_V, W_O of one head
    assert m.parameters == 2 * sum(int(np.prod(shape)) for shape in shapes)
    f = FeedForwardTransformerSpec(d=6, n=10, m=2, q=8, blocks=4, s=3)
    block = [(8, 2), (8,), (2, 8), (2,)]
    around = [(2, 6), (2,), (3, 2), (3, 2), (3, 2), (2, 3)]  # E_in, E_out, W_K, W_Q, W_V, W_O
    assert f.parameters == sum(int(np.prod(s)) for s in [*block * 4, *around])
    t = TransformerSpec(d=8, H=4, kv_heads=2, d_h=3, S=5, N=11, layers=3, d_ff=16, gated=True,
                        norm="rms", positions="rotary")  # fmt: skip
    block = [(8, 12), (8, 6), (8, 6), (12, 8), (8, 16), (8, 16), (16, 8), (8,), (8,)]
    assert t.parameters == 3 * sum(int(np.prod(s)) for s in block) + 2 * 11 * 8


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MultiHeadSpec(d=0, n=4, d_h=3, H=2), "d must be a whole number >= 1"),
        (lambda: MultiHeadSpec(d=4, n=4, d_h=3, H=2.5), "H must be"),  # pyright: ignore
        (lambda: FeedForwardTransformerSpec(d=4, n=1, m=1, q=1, blocks=-1), "blocks must be"),
        (lambda: FeedForwardTransformerSpec(d=4, n=1, m=1, q=1, blocks=1, attention="linear"),  # pyright: ignore
         "softmax or hardmax"),
        (lambda: TransformerSpec(d=4, H=3, kv_heads=2, d_h=1, S=1, N=2, layers=1), "divide"),
    ],
)  # fmt: skip
def test_impossible_specs(make, message):
    with pytest.raises(ValueError, match=message):
        make()
