"""Fact tables of every awkward shape, and what the constructions promise about them."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch

from byheart.construct.attention_only import BETAS, SEED_STRIDE, features, random_attention
from byheart.facts import Facts, Vocabulary
from byheart.specs import AttentionOnlySpec


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
    """`binary_facts(S, T)`: T of the 2^S keys over two tokens, in random order, random answers."""

    def make(S: int, T: int) -> Facts:
        rng = np.random.default_rng(S)
        keys = rng.permutation(list(itertools.product(range(2), repeat=S)))[:T]
        return Facts.make(keys, rng.integers(2, size=T), Vocabulary(("off", "on")))

    return make


@pytest.fixture(scope="session")
def independence() -> Callable[[Facts, AttentionOnlySpec], float]:
    """σ_T / σ_1 of the system of Theorem 1, the best of the draws that `build` tries with seed 0.

    0 up to rounding (some T eps): the rows [F(t), x_S] are dependent, whatever H d_h + d says.
    """

    def best(facts: Facts, spec: AttentionOnlySpec) -> float:
        tokens = torch.tensor(facts.tokens)
        if spec.S > facts.S:
            tokens = torch.cat([torch.full((facts.T, 1), spec.N - 1), tokens], dim=1)
        found = 0.0
        for draw, beta in enumerate(BETAS):
            weights = random_attention(spec, SEED_STRIDE * draw, beta)
            x_S, F = features(spec, weights, tokens)
            s = torch.linalg.svdvals(torch.cat([F, x_S], 1))
            if len(s) >= facts.T:
                found = max(found, float(s[facts.T - 1] / s[0]))
        return found

    return best
