"""One suite for every bound: it explains itself, and gives no number without its hypotheses."""

import math
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import byheart as bh
from byheart.errors import ByheartError
from byheart.specs import (
    AssociativeSpec,
    AttentionOnlySpec,
    FeedForwardTransformerSpec,
    MultiHeadSpec,
    ShardedSpec,
    TransformerSpec,
)
from byheart.theory import BOUNDS, find
from byheart.theory.bound import explanation

IDS = [bound.id for bound in BOUNDS]
HUGE = 10**12
ROW = {"id", "applies", "reason", "capacity", "parameters", "kind", "exactness"}
SPECS = [
    AttentionOnlySpec(N=50257, S=1024, d=768, d_h=64, H=12),
    AttentionOnlySpec(N=50, S=2, d=10, d_h=10, H=20, layers=3),
    AssociativeSpec(N=10, S=2, d=64),
    ShardedSpec(N=51, S=2, d_g=16, d_h=16, H=70, groups=10, shards=10, lam=64.0, s1=0.25),
    MultiHeadSpec(d=64, n=32, d_h=64, H=20),
    MultiHeadSpec(d=64, n=32, d_h=64, H=20, shared=True),
    FeedForwardTransformerSpec(d=4, n=10, m=14, q=14, blocks=10**4),
    TransformerSpec(d=768, H=12, d_h=64, S=1024, N=50257, layers=12, d_ff=3072, bias=True),
    TransformerSpec(d=768, H=12, d_h=64, S=197, N=None, layers=12, d_ff=3072),
    AttentionOnlySpec(N=HUGE, S=HUGE, d=HUGE, d_h=HUGE, H=HUGE),
    MultiHeadSpec(d=HUGE, n=HUGE, d_h=HUGE, H=HUGE),
    FeedForwardTransformerSpec(d=HUGE, n=HUGE, m=HUGE, q=HUGE, blocks=HUGE),
    TransformerSpec(d=HUGE, H=HUGE, d_h=HUGE, S=HUGE, N=HUGE, layers=HUGE, d_ff=HUGE),
    AttentionOnlySpec(N=2, S=1, d=1, d_h=1, H=1),
]


def test_there_are_many_bounds_with_different_names():
    assert len(IDS) == len(set(IDS)) >= 25


@pytest.mark.parametrize("bound_id", IDS)
def test_a_bound_explains_itself(bound_id):
    said = explanation(find(bound_id))
    for name in ("statement", "formula", "source", "kind", "exactness"):
        assert said[name]
    assert find(bound_id).capacity is None or find(bound_id).reads or find(bound_id).hypotheses


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("facts", [None, 1, 1000, HUGE])
def test_a_number_comes_only_with_the_hypotheses(spec, facts):
    N, n = getattr(spec, "N", None), getattr(spec, "S", 1)
    if facts and N and n * math.log(N) < math.log(facts):
        with pytest.raises(ByheartError, match="different keys"):
            bh.bounds(spec, facts)
        return
    answers = bh.bounds(spec, facts)
    assert [answer.id for answer in answers] == IDS
    for answer in answers:
        assert (answer.capacity is not None) == (answer.applies is True), answer
        assert bool(answer.reason) == (answer.applies is not True), answer
        if answer.capacity is not None:
            assert math.isfinite(answer.capacity) and answer.capacity > 0
            if answer.unit == "accuracy":
                assert answer.capacity <= 1
        if answer.parameters is not None:
            assert answer.parameters > 0
        assert set(answer.to_json()) >= ROW


@settings(max_examples=60, deadline=None)
@given(N=st.integers(2, HUGE), S=st.integers(2, HUGE), d=st.integers(1, HUGE),
       d_h=st.integers(1, HUGE), H=st.integers(1, HUGE), T=st.integers(1, HUGE))  # fmt: skip
def test_no_lower_bound_exceeds_an_upper_bound(N, S, d, d_h, H, T):
    """What a theorem promises for facts, the information limit allows, at enough bits.

    Real numbers have no limit: the promise is for real parameters, so 64 bits are not always
    enough for a layer that holds a fact for each of 4 d parameters: here they are.
    """
    spec = AttentionOnlySpec(N=N, S=S, d=d, d_h=d_h, H=H)
    rows = {answer.id: answer for answer in bh.bounds(spec, bits=64)}
    promised = rows["dana2025.corollary1"].capacity
    allowed = rows["related.information"].capacity
    assert allowed is not None
    assert promised is None or promised <= allowed


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: find("dana2025.corolary1"), r"Did you mean .*dana2025\.corollary1"),
        (lambda: find(""), "there is no bound"),
        (lambda: bh.bounds(SPECS[0], 0), "at least 1, found 0"),
        (lambda: bh.bounds(SPECS[0], True), "at least 1, found True"),
        (lambda: bh.bounds(SPECS[0], "many"), "a table .* or a number"),  # pyright: ignore
        (lambda: bh.bounds(SPECS[0], kruskal=0), "kruskal"),
        (lambda: bh.bounds(SPECS[0], bits=0), "bits"),
        (lambda: bh.bounds(SPECS[0], answers=1), "`answers` must be at least 2, found 1"),
        (lambda: bh.bounds(SPECS[0], spread=0.5), "`spread` must be at least 1"),
        (lambda: bh.bounds(SPECS[0], spread=math.nan), "`spread` must be at least 1"),
        (lambda: bh.bounds(AttentionOnlySpec(N=10, S=2, d=2, d_h=2, H=1), 101), "10.2 = 100"),
    ],
)
def test_bad_questions(call, message):
    with pytest.raises(ByheartError, match=message):
        call()


def test_facts_that_the_model_cannot_read_are_a_contradiction():
    facts = bh.read_facts("countries")
    small = AttentionOnlySpec(N=10, S=2, d=4, d_h=4, H=9)
    with pytest.raises(ByheartError, match=f"`N={facts.N}`"):
        bh.bounds(small, facts)
    short = AttentionOnlySpec(N=facts.N, S=1, d=4, d_h=4, H=9)
    with pytest.raises(ByheartError, match="`n=2`"):
        bh.bounds(short, facts)


def test_bounds_of_a_real_table_say_whether_it_is_held():
    """countries: T facts; H d_h + d >= T from the heads that Corollary 1 asks for."""
    facts = bh.read_facts("countries")
    heads = -(-(facts.T - 8) // 8)
    for H, holds in ((heads, True), (heads - 1, None)):
        spec = AttentionOnlySpec(N=facts.N, S=facts.S, d=8, d_h=8, H=H)
        rows = {answer.id: answer for answer in bh.bounds(spec, facts)}
        assert rows["dana2025.corollary1"].holds is holds
    assert rows["dana2025.corollary2"].applies is True


def test_limits_of_huge_models_are_not_cut_off():
    """W of about 10^36 parameters: T <= 16 W (W + 1) is far beyond 2^200, and exact."""
    spec = FeedForwardTransformerSpec(d=HUGE, n=1, m=HUGE, q=HUGE, blocks=HUGE)
    answer = {a.id: a for a in bh.bounds(spec)}["kajitsuka2025.theorem42"]
    assert answer.capacity is not None and answer.parameters is not None
    W = int(answer.parameters)
    assert answer.capacity == 16 * W * (W + 1)


def test_theory_does_not_load_torch():
    program = (
        "import byheart as bh; from byheart.specs import AttentionOnlySpec as A;"
        "bh.bounds(A(N=9, S=2, d=2, d_h=2, H=2)); bh.size(T=9, N=9, S=2);"
        "import sys; print([m for m in ('torch', 'matplotlib', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
