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

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from byheart._progress import Report, quiet
from byheart._version import __version__
from byheart.certificates import sharded
from byheart.certificates.certificate import certify
from byheart.certificates.premises import premises
from byheart.certificates.proving import Margins, certificate
from byheart.certificates.statement import ARITHMETICS, AnswerCertificate, Certificate
from byheart.models import Memory
from byheart.models.sharded_memory import ShardedMemory


def valid_certificate(folder: str | Path, memory: Memory) -> Certificate | None:
    """The certificate in `folder` if it claims a proof about `memory` and its facts, else None. One
    that does not bind everything (schema 1, or changed by hand) bequeaths nothing to an edit."""
    found = Certificate.read(folder)
    if found is None or memory.facts is None or not found.names(memory):
        return None
    return found if found.about(memory) else replace(found, digest="")


def update_certificate(
    before: Certificate,
    memory: ShardedMemory,
    kept: np.ndarray,
    progress: Report = quiet,
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
    started = time.perf_counter()
    made = _short_proof(before, memory, kept, progress)
    if made is None:
        return certify(memory, progress=progress)
    return replace(made, seconds=time.perf_counter() - started)


def _inherited(before: AnswerCertificate, kept: np.ndarray, sums: tuple[str, ...]) -> np.ndarray:
    """`kept`, but -1 for shards whose W_O is not the one that the certificate before names."""
    known = before.shard_sha256 or ()
    same = [old < len(known) and known[old] == now for old, now in zip(kept, sums, strict=True)]
    return np.where(np.array(same, dtype=bool) & (kept >= 0), kept, -1)


def _short_proof(
    before: Certificate, memory: ShardedMemory, kept: np.ndarray, progress: Report
) -> Certificate | None:
    spec, facts, weights = memory.spec, memory.facts, memory.tensors
    errors = before.shard_errors if isinstance(before, AnswerCertificate) else None
    if (
        facts is None
        or not isinstance(before, AnswerCertificate)
        or errors is None
        or not before.digest
        or before.arithmetic != ARITHMETICS["rounding"]
        or before.byheart != __version__
        or kept.max(initial=-1) >= len(errors)
    ):
        return None
    told, sums = premises(spec, weights), sharded.shard_sums(weights)
    kept = _inherited(before, kept, sums)
    tokens = memory.in_order(facts.tokens)
    right = torch.from_numpy(facts.answers.copy())
    frame, longest = sharded.frame_margins(weights["W_U"].double(), right)
    leak = sharded.leaks(spec, weights, tokens)
    worst = np.where(kept >= 0, np.array(errors)[kept.clip(0)], 0.0)
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
        if bool((own < 0).any()):  # a subject that stands elsewhere
            return None
        np.maximum.at(worst, own.numpy(), distance.numpy())
    bounds = sharded.error_bounds(spec, torch.from_numpy(worst), leak, longest)[shards]
    found = Margins(frame.numpy(), bounds.numpy())
    if not found.held.all():
        return None
    return certificate(
        AnswerCertificate,
        memory,
        facts,
        before.arithmetic,
        found.held,
        found.extremes()
        | {
            "shard_errors": tuple(worst.tolist()),
            "shard_sha256": sums,
            "inherited": tuple(np.flatnonzero(kept >= 0).tolist()),
            "premises": told,
        },
    )
