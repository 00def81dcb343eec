"""The fingerprints by which a sharded memory tells what it was never told.

A key t counts as stored if c more coordinates v(t) of the output are within τ = max(8 e, u cond) of
its fingerprint φ(t): e the largest error of a stored fact, u cond what perturbation theory gives.
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
    numbers of shards of some ten facts or more; what it came to is stated in the memory."""
    return 1 if dtype == torch.float64 else 2


def abstention(
    memory: ShardedMemory, facts: Facts, seed: int, before: Abstention | None = None
) -> Abstention:
    """Tolerance (a power of two) and false-positive rates of a memory that was solved with
    fingerprints. `before`: an edit solved the shards of `facts` again. The tolerance never shrinks,
    so that facts of other shards stay known."""
    error = float(memory.check_errors(memory.in_order(facts.tokens), seed).max())
    u = torch.finfo(memory.dtype).eps / 2
    tolerance = 2.0 ** math.ceil(math.log2(max(SAFETY * error, u * memory.construction.condition)))
    if tolerance > WIDEST:
        raise CheckFailed(
            f"fingerprints are off by up to {error:.1e} in {memory.dtype}: too much to tell "
            "stored keys from others. Use a larger `d` or `dtype=float64`."
        )
    if before is not None:
        error = max(before.largest_error, error)
        if tolerance <= before.tolerance:
            return replace(before, largest_error=error)
        facts = memory.facts if memory.facts is not None else facts
    return with_rates(memory, facts, tolerance, seed, error)


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
