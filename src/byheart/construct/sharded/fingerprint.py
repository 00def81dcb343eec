"""Fingerprints: how a memory that answers anything tells what it was never told.

An exact interpolant gives some answer to every key. With `check` = c further output coordinates,
W_O is solved so that a stored key t also yields φ(t), pseudo-random in [-1, 1)^c, a function of its
token ids and the seed. At recall, v(t) on these coordinates is compared with φ(t):

    stored key:  |v - φ| <= τ, the tolerance for rounding      -> answered
    other key:   φ is independent of v, so P(|v - φ| <= τ in all coordinates) <= (τ + 2^-24)^c

whatever v is: an interval of length 2τ holds at most that share of the 2^24 values of a coordinate.
The expected rate is lower, because v often lies outside [-1, 1]: with the measured v of unseen keys
it is the mean of Π_i |[v_i - τ, v_i + τ] ∩ [-1, 1]| / 2. Both are in `construction.abstain`.

τ = max(8 e, u cond): e the largest error of any stored fact in the stored arithmetic (8: other
orders of summation, alone or in a batch, round differently), u cond the size that perturbation
theory gives, since |F||W_O| <= cond |φ|. In float32 τ is 1e-4 to 2e-3: one coordinate would answer
one unseen key in 500 to 10,000, two answer one in a million or fewer for 2 stored numbers a fact.
In float64 one coordinate is enough (τ about 1e-12). Hence `coordinates`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch

from byheart.construct.sharded.changes import rows_of
from byheart.errors import CheckFailed
from byheart.facts import Facts
from byheart.models.construction import Abstention
from byheart.models.sharded import residual
from byheart.models.sharded_memory import ShardedMemory
from byheart.models.threads import one_thread

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


def abstention(memory: ShardedMemory, facts: Facts, seed: int) -> Abstention:
    """Tolerance and false-positive rates of a memory that was solved with fingerprints."""
    error, tolerance = _tolerance(memory, facts, seed)
    return with_rates(memory, facts, tolerance, seed, error)


def _tolerance(memory: ShardedMemory, facts: Facts, seed: int) -> tuple[float, float]:
    """The largest error of the facts' fingerprints, and τ, a power of two."""
    stored = float(memory.check_errors(memory.in_order(facts.tokens), seed).max())
    u = torch.finfo(memory.dtype).eps / 2
    tolerance = 2.0 ** math.ceil(math.log2(max(SAFETY * stored, u * memory.construction.condition)))
    if tolerance > WIDEST:
        raise CheckFailed(
            f"fingerprints are off by up to {stored:.1e} in {memory.dtype}: too much to tell "
            "stored keys from others. Use a larger `d` or `dtype=float64`."
        )
    return stored, tolerance


def widened(memory: ShardedMemory, before: Abstention, solved: Facts) -> Abstention:
    """The record after an edit that solved the shards of the facts `solved`. The tolerance never
    shrinks, so facts of other shards stay known."""
    error, tolerance = _tolerance(memory, solved, before.seed)
    error = max(before.largest_error, error)
    if tolerance <= before.tolerance:
        return replace(before, largest_error=error)
    facts = memory.facts if memory.facts is not None else solved
    return with_rates(memory, facts, tolerance, before.seed, error)


def with_rates(
    memory: ShardedMemory, facts: Facts, tolerance: float, seed: int, error: float
) -> Abstention:
    """The proven bound on the false-positive rate, and the rate expected from measured values."""
    spec = memory.spec
    bound = (tolerance + 2.0**-24) ** spec.check
    keys = unseen_keys(facts, SAMPLE, seed)
    rate = bound  # where every key that could be asked is stored
    if len(keys):
        with one_thread():
            out = residual(spec, memory.tensors, memory.in_order(keys))
        v = out[:, spec.d_g :].double()
        overlap = (v + tolerance).clamp(-1, 1) - (v - tolerance).clamp(-1, 1)
        rate = float((overlap / 2).prod(1).mean())
    return Abstention(spec.check, seed, tolerance, error, bound, rate, len(keys))


def unseen_keys(facts: Facts, count: int, seed: int) -> np.ndarray:
    """At most `count` distinct keys (m, S) that are not stored, each token from its own column."""
    draw = np.random.default_rng([seed, 0x5EED])
    columns = [draw.choice(column, 2 * count) for column in facts.tokens.T]
    keys = np.unique(np.stack(columns, axis=1), axis=0)
    keys = keys[rows_of(facts, keys) < 0]
    return keys[draw.permutation(len(keys))[:count]]
