"""Fact tables of every awkward shape, and what the constructions promise about them."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from byheart.facts import Facts, Vocabulary


def table(
    N: int, S: int, T: int, seed: int, keys: str = "uniform", answers: str = "uniform"
) -> Facts:
    """At most T facts with distinct keys over N tokens.

    `keys`: "uniform", "geometric" (token i with probability ~ 2^-i), "few last tokens" (two of
    them). `answers`: "uniform" over the N tokens, "equal" (one for all), "distinct" (one each).
    """
    rng = np.random.default_rng(seed)
    p = np.full(N, 1 / N)
    if keys == "geometric":
        p = 0.5 ** np.arange(N)
        p /= p.sum()
    tokens = rng.choice(N, size=(4 * T, S), p=p)
    if keys == "few last tokens":
        tokens[:, -1] = rng.integers(min(2, N), size=4 * T)
    _, first = np.unique(tokens, axis=0, return_index=True)
    tokens = tokens[np.sort(first)][:T]
    T = len(tokens)
    names = [str(i) for i in range(N)]
    if answers == "distinct":
        names += [f"answer {i}" for i in range(T)]
        right = N + rng.permutation(T)
    elif answers == "equal":
        right = np.full(T, rng.integers(N))
    else:
        right = rng.integers(N, size=T)
    return Facts.make(tokens, right, Vocabulary(tuple(names)))


@pytest.fixture(scope="session")
def make_table() -> Callable[..., Facts]:
    return table


@pytest.fixture(scope="session")
def binary_facts() -> Callable[[int, int], Facts]:
    """`binary_facts(S, T)`: the first T of the 2^S keys over two tokens, answers alternating."""

    def make(S: int, T: int) -> Facts:
        keys = list(itertools.islice(itertools.product(range(2), repeat=S), T))
        return Facts.make(keys, np.arange(T) % 2, Vocabulary(("off", "on")))

    return make
