"""Any table of facts: recalled and certified, or refused by the theorem."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import byheart as bh
from byheart.errors import CapacityError
from byheart.specs import AttentionOnlySpec

SETTINGS = settings(max_examples=60, deadline=None, derandomize=True)

tables = st.fixed_dictionaries(
    {
        "N": st.integers(1, 3) | st.integers(1, 30),
        "S": st.integers(1, 6),
        "T": st.integers(1, 60),
        "seed": st.integers(0, 2**20),
        "keys": st.sampled_from(["uniform", "geometric", "few last tokens"]),
        "answers": st.sampled_from(["uniform", "equal", "distinct"]),
    }
)


def one(N: int, S: int, T: int, keys: str = "uniform", answers: str = "uniform") -> dict:
    return {"N": N, "S": S, "T": T, "seed": 0, "keys": keys, "answers": answers}


@SETTINGS
@given(sizes=tables)
@example(sizes=one(1, 1, 1))
@example(sizes=one(1, 6, 1))
@example(sizes=one(1, 1, 1, answers="distinct"))
@example(sizes=one(30, 6, 1))
@example(sizes=one(2, 6, 60, answers="distinct"))
@example(sizes=one(2, 5, 32, answers="distinct"))
@example(sizes=one(3, 2, 9, answers="distinct"))
@example(sizes=one(2, 2, 4, answers="distinct"))
@example(sizes=one(30, 1, 30, answers="distinct"))
@example(sizes=one(30, 1, 30, answers="equal"))
@example(sizes=one(30, 2, 60, "few last tokens", "equal"))
@example(sizes=one(30, 2, 60, "geometric", "distinct"))
def test_every_table_is_recalled_and_certified(make_table, sizes):
    facts = make_table(**sizes)
    memory = bh.build(facts)
    assert memory.construction.recalled == facts.T
    assert memory.construction.lost == ()
    assert bh.accuracy(memory, facts) == 1.0
    # What was verified is what is stored: the margin on record is the margin of the memory.
    smallest = float(memory.margins(facts).min())
    assert memory.construction.margin == (smallest if np.isfinite(smallest) else None)
    assert memory.facts is facts
    certificate = bh.certify(memory, arithmetic="rounding")
    assert certificate.certified and certificate.failed == 0


@SETTINGS
@given(
    sizes=tables,
    d=st.integers(2, 8),
    narrower=st.integers(0, 7),
    H=st.integers(1, 20),
    at_boundary=st.booleans(),
)
@example(sizes=one(3, 2, 4, answers="equal"), d=2, narrower=0, H=1, at_boundary=False)
@example(sizes=one(2, 2, 4, "geometric"), d=4, narrower=0, H=1, at_boundary=False)
def test_sizes_of_the_user_hold_the_facts_or_are_refused(
    make_table, independence, sizes, d, narrower, H, at_boundary
):
    """T <= H d_h + min(d, last tokens) and independent rows (Lemma 2): recalled. Else refused.

    Rows are called independent when σ_T/σ_1 > 1e-8, dependent below 1e-14; in between float64
    leaves it open which of the two it is.
    """
    d_h = max(1, d - narrower)
    facts = make_table(**sizes)
    if at_boundary:  # exactly as many as are promised, where the table has so many
        promised = H * d_h + min(d, facts.last_tokens)
        facts = facts.subset(np.arange(min(facts.T, promised)))
    S, N = (2, facts.N + 1) if facts.S == 1 else (facts.S, facts.N)
    gap = independence(facts, AttentionOnlySpec(N=N, S=S, d=d, d_h=d_h, H=H))
    if facts.T > H * d_h + min(d, facts.last_tokens) or gap < 1e-14:
        with pytest.raises(CapacityError):
            bh.build(facts, d=d, d_h=d_h, H=H, dtype="float64")
    elif gap > 1e-8:
        memory = bh.build(facts, d=d, d_h=d_h, H=H, dtype="float64")
        assert memory.construction.recalled == facts.T
        assert bh.accuracy(memory, facts) == 1.0
