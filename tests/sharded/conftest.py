"""Tables of every awkward shape, and the literal layer of a sharded memory in any arithmetic."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch
from oracles.literal import memory_logits
from torch import Tensor

from byheart.certificates.architectures import bounded_logits
from byheart.certificates.arithmetic import Bounded
from byheart.facts import Facts, Vocabulary
from byheart.models.sharded import to_dense
from byheart.models.sharded_memory import ShardedMemory


def table(
    N: int, S: int, T: int, seed: int, keys: str = "uniform", answers: str = "uniform"
) -> Facts:
    """At most T facts with distinct keys over N tokens.

    `keys`: "uniform", "geometric" (token i with probability ~ 2^-i: hot tokens), "zipf" (~ 1/i),
    "few last" (two last tokens), "repeated" (the last token stands first too), "roles" (columns
    share no token).
    `answers`: "uniform" over the N tokens, "equal" (one for all), "distinct" (one each).
    """
    rng = np.random.default_rng(seed)
    p = np.full(N, 1 / N)
    if keys in ("geometric", "zipf"):
        p = 0.5 ** np.arange(N) if keys == "geometric" else 1 / (1 + np.arange(N))
        p /= p.sum()
    tokens = rng.choice(N, size=(4 * T, S), p=p)
    if keys == "few last":
        tokens[:, -1] %= 2
    if keys == "repeated":
        tokens[:, 0] = tokens[:, -1]
    if keys == "roles":
        tokens += N * np.arange(S)
    _, first = np.unique(tokens, axis=0, return_index=True)
    tokens = tokens[np.sort(first)][:T]
    T = len(tokens)
    total = N * S if keys == "roles" else N
    names = [str(i) for i in range(total)]
    if answers == "distinct":
        names += [f"answer {i}" for i in range(T)]
        right = total + rng.permutation(T)
    elif answers == "equal":
        right = np.full(T, rng.integers(total))
    else:
        right = rng.integers(total, size=T)
    return Facts.make(tokens, right, Vocabulary(tuple(names)))


def relations(subjects: int, R: int, S: int = 2, seed: int = 0) -> Facts:
    """(subject, relation, ...) -> answer: every relation of every subject; roles have tokens of
    their own."""
    rng = np.random.default_rng(seed)
    T = subjects * R
    columns = [np.repeat(np.arange(subjects), R), subjects + np.tile(np.arange(R), subjects)]
    columns += [subjects + R + 10 * s + rng.integers(10, size=T) for s in range(S - 2)]
    N = subjects + R + 10 * (S - 2) + 50
    names = tuple(str(i) for i in range(N))
    return Facts.make(np.stack(columns, 1), N - 1 - rng.integers(50, size=T), Vocabulary(names))


class Literal(NamedTuple):
    """Every head of the layer, evaluated for every fact."""

    own64: Tensor
    own32: Tensor
    full64: Tensor
    full32: Tensor
    bounded: Bounded


def literal(memory: ShardedMemory, facts: Facts) -> Literal:
    dense, weights = to_dense(memory.spec, memory.tensors)
    full = memory.with_start(facts.tokens)
    w64 = {name: w.double() for name, w in weights.items()}
    return Literal(
        memory.outputs(full, torch.float64),
        memory.outputs(full, torch.float32),
        memory_logits(dense, weights, full, torch.float64),
        memory_logits(dense, weights, full, torch.float32),
        bounded_logits(dense, w64, full),
    )


@pytest.fixture(scope="session")
def make_table() -> Callable[..., Facts]:
    return table


@pytest.fixture(scope="session")
def make_relations() -> Callable[..., Facts]:
    return relations


@pytest.fixture(scope="session")
def make_literal() -> Callable[[ShardedMemory, Facts], Literal]:
    return literal
