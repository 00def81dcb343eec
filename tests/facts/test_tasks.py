import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byheart.errors import FactsError
from byheart.facts import random_associations


@st.composite
def sizes(draw: st.DrawFn) -> tuple[int, int, int]:
    N, S = draw(st.integers(1, 12)), draw(st.integers(1, 3))
    return N, S, draw(st.integers(1, N**S))


@settings(max_examples=100, deadline=None)
@given(sizes=sizes(), seed=st.integers(0, 2**32))
def test_keys_are_distinct_and_in_range(sizes: tuple[int, int, int], seed: int):
    N, S, T = sizes
    facts = random_associations(N, S, T, seed)
    assert facts.tokens.shape == (T, S) and facts.N == N and facts.merged == 0
    assert len(np.unique(facts.tokens, axis=0)) == T
    assert facts.tokens.min() >= 0 and facts.tokens.max() < N
    assert facts.answers.min() >= 0 and facts.answers.max() < N
    assert facts.vocabulary.tokens == tuple(str(i) for i in range(N))
    assert facts.digest() == random_associations(N, S, T, seed).digest()


def test_seeds_differ():
    assert (
        random_associations(50, 2, 1000, 0).digest() != random_associations(50, 2, 1000, 1).digest()
    )


@pytest.mark.parametrize(("N", "S"), [(10, 3), (1000, 1), (2, 12), (1, 5)])
def test_every_key(N: int, S: int):
    facts = random_associations(N, S, N**S)
    assert facts.T == N**S
    # The order is random too.
    assert N == 1 or facts.tokens.tolist() != sorted(facts.tokens.tolist())


def test_more_keys_than_int64_holds():
    facts = random_associations(50_000, 32, 2000)
    assert facts.tokens.shape == (2000, 32)


@pytest.mark.parametrize("T", [6, 12])
def test_every_key_is_equally_likely(T: int):
    """4,000 draws of T of the 16 keys: each is there about 250 T times.

    The count of a key is binomial with deviation at most sqrt(4000 / 4) = 31.6; six deviations
    are exceeded with probability below 1e-8 for each of 16 keys (and the seeds are fixed).
    """
    counts = np.zeros(16)
    for seed in range(4000):
        tokens = random_associations(4, 2, T, seed).tokens
        counts[tokens[:, 0] * 4 + tokens[:, 1]] += 1
    assert np.abs(counts - 250 * T).max() < 6 * 31.6


def test_too_many_facts():
    with pytest.raises(FactsError, match=r"N\*\*S = 3\*\*2 = 9 distinct keys, found T = 10"):
        random_associations(3, 2, 10)


@pytest.mark.parametrize(("N", "S", "T", "seed"), [(0, 1, 1, 0), (1, 0, 1, 0), (1, 1, 0, 0)])
def test_sizes_are_positive(N: int, S: int, T: int, seed: int):
    with pytest.raises(FactsError, match="` to be an integer >= 1, found 0"):
        random_associations(N, S, T, seed)


def test_sizes_are_integers():
    with pytest.raises(FactsError, match=r"T` to be an integer >= 1, found 1\.5"):
        random_associations(2, 2, 1.5)  # type: ignore[arg-type]
    with pytest.raises(FactsError, match="seed` to be an integer >= 0, found -1"):
        random_associations(2, 2, 1, -1)


@pytest.mark.parametrize("sizes", [{"N": 10**12, "S": 2}, {"N": 10, "S": 10**12}])
def test_sizes_beyond_the_machine_are_refused_at_once(sizes):
    with pytest.raises(FactsError, match="smaller sizes"):
        random_associations(**sizes, T=5)
