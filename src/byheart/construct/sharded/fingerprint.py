"""Fingerprints: how a memory that answers anything tells what it was never told.

An exact interpolant gives some answer to every key. With `check` = c further output coordinates,
W_O is solved so that a stored key t also yields φ(t), pseudo-random in [-1, 1)^c, a function of its
token ids and the seed. At recall, v(t) on these coordinates is compared with φ(t):

    stored key:  |v - φ| <= τ, the tolerance for rounding      -> answered
    other key:   φ is independent of v, so P(|v - φ| <= τ in all coordinates) <= (τ + 2^-24)^c

whatever v is: an interval of length 2τ holds at most that share of the 2^24 values of a coordinate.
The expected rate is lower, because v often lies outside [-1, 1]: with the measured v of unseen keys
it is the mean of Π_i |[v_i - τ, v_i + τ] ∩ [-1, 1]| / 2. Both are in `construction["abstain"]`.

τ = max(8 e, u cond): e the largest error of any stored fact in the stored arithmetic (8: other
orders of summation, alone or in a batch, round differently), u cond the size that perturbation
theory gives, since |F||W_O| <= cond |φ|. In float32 τ is 1e-4 to 2e-3: one coordinate would answer
one unseen key in 500 to 10,000, two answer one in a million or fewer for 2 stored numbers a fact.
In float64 one coordinate is enough (τ about 1e-12). Hence `coordinates`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from byheart.construct.sharded.changes import rows_of
from byheart.errors import ByheartError, CheckFailed
from byheart.facts import Facts
from byheart.models.memory import Memory
from byheart.models.sharded import residual, shard_of
from byheart.models.threads import one_thread
from byheart.specs import ShardedSpec

SAFETY = 8  # three bits between the largest error seen and the tolerance
WIDEST = 2.0**-6  # tolerance beyond which fingerprints say little
SAMPLE = 4000  # unseen keys whose check values are looked at


def coordinates(dtype: torch.dtype) -> int:
    """Check coordinates for a false-positive rate near one in a million or less, at the condition
    numbers of shards of some ten facts or more; what it came to is stated in the memory.

    >>> coordinates(torch.float32), coordinates(torch.float64)
    (2, 1)
    """
    return 1 if dtype == torch.float64 else 2


def fingerprints(tokens: Tensor | np.ndarray, count: int, seed: int) -> Tensor:
    """φ (B, count), multiples of 2^-23 in [-1, 1): exact in float32.

    A chain of splitmix64 mixers (Steele, Lea and Flood 2014) over the ids of each key (B, S).

    >>> fingerprints(np.array([[1, 2], [2, 1]]), 1, seed=0)[:, 0].unique().shape
    torch.Size([2])
    """
    ids = np.asarray(tokens).astype(np.uint64)
    state = np.full(len(ids), seed % 2**64, dtype=np.uint64)
    for column in ids.T:
        state = _mix(state ^ _mix(column))
    values = [_mix(state + np.uint64(i)) >> np.uint64(40) for i in range(count)]
    stacked = np.stack(values, axis=1) if count else np.empty((len(ids), 0))
    return torch.from_numpy(stacked.astype(np.float64) * 2.0**-23 - 1.0)


def _mix(x: np.ndarray) -> np.ndarray:
    """One step of splitmix64: a bijection of 64-bit words whose output looks random."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def check_errors(memory: Memory, tokens: Tensor, seed: int) -> Tensor:
    """max_i |v_i - φ_i| of each key (B,), float64; tokens as the model reads them."""
    spec = _spec(memory)
    with one_thread():
        values = residual(spec, dict(memory.weights), tokens)[:, spec.d_g :].double()
    return (values - fingerprints(tokens, spec.check, seed)).abs().amax(1)


def knows(memory: Memory, tokens: Tensor) -> Tensor:
    """Which keys (B, S), as the model reads them, are stored: (B,) bool.

    True for every stored key; for another key with the stated false-positive rate. Keys whose
    deciding token decides for no shard are never known.

    >>> import byheart as bh
    >>> memory = bh.build(bh.read_facts("countries"), "sharded", abstain=True)
    >>> knows(memory, memory.encode([("France", "capital"), ("capital", "France")])).tolist()
    [True, False]
    """
    spec, said = _spec(memory), memory.construction.get("abstain")
    housed = shard_of(dict(memory.weights), tokens) >= 0
    if not spec.check or said is None:
        raise ByheartError(
            "this memory has no fingerprints, so it cannot tell stored keys from others. "
            "Build it with `byheart build FACTS --abstain`."
        )
    return housed & (check_errors(memory, tokens, said["seed"]) <= said["tolerance"])


def abstention(memory: Memory, facts: Facts, seed: int) -> dict[str, Any]:
    """Tolerance and false-positive rates of a memory that was solved with fingerprints."""
    error, tolerance = _tolerance(memory, facts, seed)
    said = {
        "coordinates": _spec(memory).check,
        "seed": seed,
        "tolerance": tolerance,
        "largest_error": error,
    }
    return said | rates(memory, facts, tolerance, seed)


def _tolerance(memory: Memory, facts: Facts, seed: int) -> tuple[float, float]:
    """The largest error of the facts' fingerprints, and τ, a power of two."""
    stored = float(check_errors(memory, memory.with_start(facts.tokens), seed).max())
    u = torch.finfo(memory.dtype).eps / 2
    tolerance = 2.0 ** math.ceil(
        math.log2(max(SAFETY * stored, u * memory.construction["condition"]))
    )
    if tolerance > WIDEST:
        raise CheckFailed(
            f"fingerprints are off by up to {stored:.1e} in {memory.dtype}: too much to tell "
            "stored keys from others. Use a larger --d-model or --dtype float64."
        )
    return stored, tolerance


def widened(memory: Memory, solved: Facts) -> dict[str, Any]:
    """The record after an edit that solved the shards of the facts `solved`. The tolerance never
    shrinks, so facts of other shards stay known."""
    said = memory.construction["abstain"]
    error, tolerance = _tolerance(memory, solved, said["seed"])
    said = said | {"largest_error": max(said["largest_error"], error)}
    if tolerance <= said["tolerance"]:
        return said
    facts = memory.facts if memory.facts is not None else solved
    return said | {"tolerance": tolerance} | rates(memory, facts, tolerance, said["seed"])


def rates(memory: Memory, facts: Facts, tolerance: float, seed: int) -> dict[str, Any]:
    """The proven bound on the false-positive rate, and the rate expected from measured values."""
    spec = _spec(memory)
    bound = (tolerance + 2.0**-24) ** spec.check
    keys = unseen_keys(facts, SAMPLE, seed)
    if not len(keys):  # every key that could be asked is stored
        return {"false_positive_bound": bound, "false_positive_rate": bound, "sampled_keys": 0}
    with one_thread():
        out = residual(spec, dict(memory.weights), memory.with_start(keys))
    v = out[:, spec.d_g :].double()
    overlap = (v + tolerance).clamp(-1, 1) - (v - tolerance).clamp(-1, 1)
    return {
        "false_positive_bound": bound,
        "false_positive_rate": float((overlap / 2).prod(1).mean()),
        "sampled_keys": len(keys),
    }


def unseen_keys(facts: Facts, count: int, seed: int) -> np.ndarray:
    """At most `count` distinct keys (m, S) that are not stored, each token from its own column."""
    draw = np.random.default_rng([seed, 0x5EED])
    columns = [draw.choice(column, 2 * count) for column in facts.tokens.T]
    keys = np.unique(np.stack(columns, axis=1), axis=0)
    keys = keys[rows_of(facts, keys) < 0]
    return keys[draw.permutation(len(keys))[:count]]


def _spec(memory: Memory) -> ShardedSpec:
    if not isinstance(memory.spec, ShardedSpec):
        raise ByheartError(
            f"only sharded memories have fingerprints, this one is {memory.spec.family}. "
            "Build it with `byheart build FACTS --method sharded --abstain`."
        )
    return memory.spec
