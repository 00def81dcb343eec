"""Primitives and tables do what they say, on every key there is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byheart.exact.literal import run
from byheart.exact.primitives import clear, fold, mod, step
from byheart.exact.table import GROUPINGS, Table, TableOptions, best_size, encode, make_table
from byheart.theory.kajitsuka2025 import Table as Counted

few = settings(deadline=None, max_examples=25)  # a busy machine is slow at times

NOTHING = np.zeros(0, dtype=np.int64)


def ask(table: Table, keys: np.ndarray) -> np.ndarray:
    """The table through its blocks, in exact integers."""
    state = [keys.copy(), np.zeros_like(keys), np.zeros_like(keys)]
    return run(table.blocks(0, 1, 2), state)[1]


@few
@given(A=st.integers(1, 1000), x=st.lists(st.integers(0, 2000), min_size=1))
def test_step_and_fold(A, x):
    keys = np.array(x)
    after = run([step(0, A, {1: 7})], [keys, np.zeros_like(keys)])
    assert (after[1] == 7 * (keys >= A)).all()
    assert (run([fold(0, A)], [keys])[0] == np.where(keys > A, 2 * A - keys, keys)).all()
    assert (run([clear(0)], [keys])[0] == 0).all()


@few
@given(M=st.integers(1, 10**6), x=st.lists(st.integers(0, 10**9), min_size=1))
def test_mod_and_quotient(M, x):
    keys = np.array(x)
    rest, quotient = run(mod(0, M, int(keys.max()), quotient=1), [keys, np.zeros_like(keys)])
    assert (rest == keys % M).all()
    assert (quotient == keys // M).all()


@pytest.mark.parametrize("grouping", GROUPINGS)
@few
@given(data=st.data())
def test_a_table_gives_every_key_its_value_and_the_others_zero(grouping, data):
    """All 2^9 keys: members by both evaluators, named others 0, and both agree on the rest."""
    keys = np.array(data.draw(st.lists(st.integers(0, 511), min_size=1, unique=True)))
    c = data.draw(st.integers(1, 5))
    values = np.array(
        data.draw(st.lists(st.integers(0, 2**c - 1), min_size=len(keys), max_size=len(keys)))
    )
    every = np.arange(512)
    rest = np.setdiff1d(every, keys)
    others = rest if data.draw(st.booleans()) else NOTHING
    table = make_table(keys, values, others, c, 511, TableOptions(grouping))
    said = ask(table, every)
    assert (said[keys] == values).all()
    assert (said == table.look_up(every)).all()
    assert (said[others] == 0).all()
    assert table.hits() == np.count_nonzero(said)


@pytest.mark.parametrize("grouping", GROUPINGS)
@few
@given(K=st.integers(1, 400), seed=st.integers(0, 99), c=st.integers(1, 8))
def test_the_count_is_the_formula(grouping, K, seed, c):
    rng = np.random.default_rng(seed)
    keys = rng.choice(1 << 20, K, replace=False)
    table = make_table(
        keys, rng.integers(0, 2**c, K), NOTHING, c, (1 << 20) - 1, TableOptions(grouping)
    )
    blocks = table.blocks(0, 1, 2)
    weights = [w for block in blocks for w in block.weights()]
    # Equal codes side by side leave a zero weight: two fewer, or one where a kink is missing.
    steps = np.diff(np.array(table.codes, dtype=object))
    if table.grouping == "sorted":
        zeros = 2 * int((steps == 0).sum())
    else:
        zeros = int((np.diff(np.concatenate([[0], steps])) == 0).sum()) if len(steps) else 0
    assert len(weights) == table.parameters - zeros
    if table.grouping == "sorted":
        counted = Counted(K=K, w=20, c=c, k=table.k, t=table.t)
        if table.m == -(-K // table.k):
            assert counted.parameters == table.parameters
            assert counted.largest_weight_bits == table.T
    assert max(abs(w).bit_length() for w in weights) <= max(table.T + 2, 21)


def test_the_group_size_is_near_the_closed_form():
    rng = np.random.default_rng(0)
    keys = rng.choice(1 << 26, 10**4, replace=False)
    table = make_table(keys, rng.integers(0, 2, 10**4), NOTHING, 1, (1 << 26) - 1, TableOptions())
    assert abs(table.k - best_size(10**4, table.b)) < 10
    assert table.parameters <= 3900  # the recipes: 3,864 at k = 31


@pytest.mark.parametrize("limit", [30, 60, 120, 300])
def test_fewer_bits_more_parameters(limit):
    """Theorem F.1's trade-off: the limit is kept, and the next smaller one costs more."""
    rng = np.random.default_rng(0)
    keys, values = rng.choice(1 << 20, 2000, replace=False), rng.integers(0, 2, 2000)
    made = [
        make_table(keys, values, NOTHING, 1, (1 << 20) - 1, TableOptions(max_bits=bits))
        for bits in (limit, limit // 2 + 8, None)
    ]
    weights = [w for block in made[0].blocks(0, 1, 2) for w in block.weights()]
    assert max(abs(w).bit_length() for w in weights) <= limit
    assert made[1].parameters >= made[0].parameters >= made[2].parameters


def test_records_survive_the_reflection():
    rng = np.random.default_rng(3)
    low, values = rng.permutation(64)[:9].tolist(), rng.integers(0, 8, 9).tolist()
    code = encode(low, values, t=6, c=3, k=12)
    table = Table("sorted", 6, 3, 12, 63, (0,), (code,))
    _, found, held = table.records
    assert found[:9].tolist() == low
    assert held.tolist() == [*values, 0, 0, 0]
    assert code % 2 == 1
    assert code < 1 << table.T
