"""Any table of facts: recalled and certified, or refused by the theorem."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import byheart as bh
from byheart.errors import CapacityError
from byheart.facts import Facts
from byheart.theory import corollary1_capacity

SETTINGS = settings(max_examples=60, deadline=None, derandomize=True)

tables = st.fixed_dictionaries(
    {
        "N": st.integers(1, 30),
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
    assert memory.construction["recalled"] == facts.T
    assert memory.construction["lost"] == []
    assert bh.accuracy(memory, facts) == 1.0
    # What was verified is what is stored: the margin on record is the margin of the memory.
    smallest = float(memory.margins(facts).min())
    assert memory.construction["margin"] == (smallest if np.isfinite(smallest) else None)
    assert memory.facts is facts
    certificate = bh.certify(memory, arithmetic="rounding")
    assert certificate.certified and certificate.failed == 0


def covered(facts: Facts, d: int, d_h: int, H: int) -> bool:
    """Whether Corollary 1 covers the facts, with the two counts that its "generic" leaves out.

    The skip has as many directions as distinct last tokens. A head has d_h features, but no more
    than the span of its inputs (n tokens in S positions: n + S - c dimensions, c the connected
    parts of the graph "token stands at position"), and then one that all heads and the skip share.
    """
    tokens = facts.tokens
    if facts.S == 1:
        tokens = np.column_stack([np.full(facts.T, facts.N), tokens])
    T, S = tokens.shape
    incidence = np.zeros((T * S, tokens.max() + 1 + S))
    rows = np.arange(T * S)
    incidence[rows, tokens.T.flatten()] = 1
    incidence[rows, tokens.max() + 1 + np.repeat(np.arange(S), T)] = 1
    span = int(np.linalg.matrix_rank(incidence))
    skip = min(d, facts.last_tokens)
    if d_h < span:
        return facts.T <= H * d_h + skip
    return facts.T <= 1 + H * (span - 1) + (skip - 1)


@SETTINGS
@given(
    sizes=tables,
    d=st.integers(2, 8),
    narrower=st.integers(0, 7),
    H=st.integers(1, 20),
    at_boundary=st.booleans(),
)
@example(sizes=one(2, 2, 4, answers="distinct"), d=4, narrower=0, H=1, at_boundary=False)
def test_sizes_of_the_user_hold_the_facts_or_are_refused(
    make_table, sizes, d, narrower, H, at_boundary
):
    d_h = max(1, d - narrower)
    facts = make_table(**sizes)
    promised = H * d_h + min(d, facts.last_tokens)
    if at_boundary and promised < facts.T:
        cut = facts.subset(np.arange(promised))
        facts = cut if cut.last_tokens == facts.last_tokens else facts
    if covered(facts, d, d_h, H):
        memory = bh.build(facts, d=d, d_h=d_h, H=H, dtype="float64")
        assert memory.construction["recalled"] == facts.T
        assert memory.construction["capacity"] == corollary1_capacity(
            memory.spec,  # pyright: ignore[reportArgumentType]
            facts.last_tokens,
        )
        assert bh.accuracy(memory, facts) == 1.0
        assert bh.certify(memory).certified
    else:
        with pytest.raises(CapacityError):
            bh.build(facts, d=d, d_h=d_h, H=H, dtype="float64")
