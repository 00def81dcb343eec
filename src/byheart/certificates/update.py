"""The certificate of an edited memory: only the shards that changed are evaluated again.

For a fact of shard g the proof of `certificates.sharded` is

    frame margin of its answer  >  2 max|w| (own error + leak of all foreign heads).

The own error depends on the shard's own weights and the key only, so for shards that are the same
bit for bit the largest one, which the old certificate holds in `shard_errors`, is still a bound.
Frame margins and the leak are global: they are computed again, for all facts at once.
A shut position adds at most 3 `Leak.shut` Σ_h ||W_O^h|| to an own error; since λ or s_max may have
changed it is added once more (in practice below 1e-60, less than one rounding).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

import numpy as np
import torch

from byheart._version import __version__
from byheart.certificates import sharded
from byheart.certificates.certificate import certify
from byheart.certificates.rounding import admissible
from byheart.certificates.statement import ARITHMETICS, FILE, SCHEMA, Certificate
from byheart.models import Memory
from byheart.models.memory_files import weights_sha256
from byheart.specs import ShardedSpec


def valid_certificate(folder: str | Path, memory: Memory) -> Certificate | None:
    """The certificate in `folder` if it is a proof about `memory` and its facts, else None."""
    record = None
    with suppress(OSError, ValueError):
        record = json.loads((Path(folder) / FILE).read_text(encoding="utf-8"))
    if not isinstance(record, dict) or memory.facts is None:
        return None
    expected = {
        "certified": True,
        "schema": SCHEMA,
        "facts_digest": memory.facts.digest(),
        "weights_sha256": weights_sha256(memory),
    }
    if any(record.get(name) != value for name, value in expected.items()):
        return None
    names = {f.name for f in fields(Certificate) if f.init} - {"failures", "damage"}
    errors = record.get("shard_errors")
    record["shard_errors"] = tuple(errors) if isinstance(errors, list) else None
    with suppress(TypeError):
        return Certificate(**{name: record[name] for name in names & record.keys()})
    return None


def update_certificate(
    before: Certificate,
    memory: Memory,
    kept: np.ndarray,
    progress: Callable[[str], None] = lambda _: None,
) -> Certificate:
    """The certificate of `memory`, an edit of the memory that `before` certifies.

    `kept` (shards,): which old shard each shard is bit for bit, -1 for those that changed. Where
    this short proof does not succeed or does not apply, everything is proved again.

    >>> import byheart as bh
    >>> from byheart.construct.sharded.edit import edit_shards
    >>> memory = bh.build(bh.read_facts("countries"), "sharded")
    >>> done = edit_shards(memory, set={("Peru", "capital"): "Cusco"})
    >>> update_certificate(bh.certify(memory), done.memory, done.kept).certified
    True
    """
    made = _short_proof(before, memory, kept, progress)
    return certify(memory, progress=progress) if made is None else made


def _short_proof(
    before: Certificate, memory: Memory, kept: np.ndarray, progress: Callable[[str], None]
) -> Certificate | None:
    started = time.perf_counter()
    spec, facts, weights = memory.spec, memory.facts, dict(memory.weights)
    known = before.shard_errors
    if (
        not isinstance(spec, ShardedSpec)
        or facts is None
        or known is None
        or before.arithmetic != ARITHMETICS["rounding"]
        or before.byheart != __version__
        or kept.max(initial=-1) >= len(known)
    ):
        return None
    sharded.exact_gates(spec, weights)
    if not admissible({k: w for k, w in weights.items() if w.is_floating_point()}):
        return None
    tokens = memory.with_start(facts.tokens)
    right = torch.from_numpy(facts.answers.copy())
    frame, longest = sharded.frame_margins(weights["W_U"].double(), right)
    leak = sharded.leaks(spec, weights, tokens)
    worst = np.where(kept >= 0, np.array(known)[kept.clip(0)], 0.0)
    if leak.shut:
        start = weights["head_start"]
        norms = weights["W_O"].double().flatten(1).norm(dim=1).cumsum(0)
        upper = torch.cat([torch.zeros(1, dtype=torch.float64), norms])[start[1:]]
        worst = worst + 3 * leak.shut * upper.numpy()
    shards = sharded.shard_of(weights, tokens)
    if bool((shards < 0).any()):
        return None
    changed = torch.nonzero(torch.from_numpy(kept)[shards] < 0)[:, 0]
    if len(changed):
        distance, own = sharded.own_distances(
            spec, weights, tokens[changed], right[changed], leak, progress
        )
        np.maximum.at(worst, own.numpy(), distance.numpy())
    bounds = sharded.error_bounds(torch.from_numpy(worst), leak, longest)[shards]
    if not bool((frame > bounds).all()):
        return None
    return Certificate(
        certified=True,
        passed=True,
        facts=facts.T,
        failed=0,
        arithmetic=before.arithmetic,
        margin=float(frame.min()),
        error_bound=float(bounds.max()),
        seconds=time.perf_counter() - started,
        weights_sha256=weights_sha256(memory),
        facts_digest=facts.digest(),
        shard_errors=tuple(worst.tolist()),
    )
