"""The certificate of an edited memory: only the shards that changed are evaluated again.

For a fact of shard g the proof of `certificates.sharded` is

    frame margin of its answer  >  2 max|w| (own error + leak of all foreign heads).

The own error depends on the shard's own weights and the key only, so for shards that are the same
bit for bit the largest one, which the old certificate holds in `shard_errors`, is still a bound.
Frame margins and the leak are global: they are computed again, for all facts at once.
A shut position adds at most 3 `Leak.shut` Σ_h ||W_O^h|| to an own error; since λ or s_max may have
changed it is added once more (in practice below 1e-60, less than one rounding).

The second statement, about every evaluation in the stored format, is proved in the same way, with
the own errors that hold for all of them; where the old certificate has none, the new one has none.
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
from byheart.certificates.arithmetic import EXACT, FORMATS, Format
from byheart.certificates.certificate import certify
from byheart.certificates.premises import premises
from byheart.certificates.proving import (
    Asked,
    Margins,
    Own,
    both_statements,
    certificate,
    places_in,
)
from byheart.certificates.statement import (
    ARITHMETICS,
    AnswerCertificate,
    Certificate,
    EvaluationProof,
)
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


def _stated(before: AnswerCertificate, memory: ShardedMemory) -> EvaluationProof | None:
    """The second statement before, if it is whole and about what is proved now."""
    found, stored = before.evaluation, FORMATS.get(memory.dtype)
    if found is None or stored is None or found.shard_errors is None or not before.shard_errors:
        return None
    failed = found.shard_failed or ((),) * len(before.shard_errors)
    whole = len(found.shard_errors) == len(failed) == len(before.shard_errors)
    whole = whole and sum(map(len, failed)) == found.failed
    # Errors that hold of more evaluations are larger.
    parts = zip(found.shard_errors, before.shard_errors, failed, strict=False)
    whole = whole and all(a >= b or (lost and a >= 0) for a, b, lost in parts)
    same = (found.format, found.covers) == (stored.name, sharded.covers(memory.spec))
    return found if whole and same and found.proved + found.failed == before.facts else None


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
        or min(errors, default=0.0) < 0
        or kept.max(initial=-1) >= len(errors)
    ):
        return None
    told, sums = premises(spec, weights), sharded.shard_sums(weights)
    kept = _inherited(before, kept, sums)
    tokens = memory.in_order(facts.tokens)
    right = torch.from_numpy(facts.answers.copy())
    frame, longest = sharded.frame_margins(weights["W_U"].double(), right)
    shards = sharded.shard_of(weights, tokens)
    if bool((shards < 0).any()):
        return None
    was = kept[shards.numpy()]  # the old shard of each fact
    changed, stated = torch.from_numpy(np.flatnonzero(was < 0)), _stated(before, memory)

    def found_in(format: Format) -> Margins:
        """Facts of inherited shards with the error that is known of it, the others evaluated."""
        leak = sharded.leaks(spec, weights, tokens, format)
        known = errors if format is EXACT or stated is None else stated.shard_errors
        distance = torch.from_numpy(np.array(known, dtype=np.float64)[was.clip(0)])
        if leak.shut:
            norms = weights["W_O"].double().flatten(1).norm(dim=1).cumsum(0)
            upper = torch.cat([torch.zeros(1, dtype=torch.float64), norms])
            distance += 3 * leak.shut * upper[weights["head_start"][1:]][shards]
        if stated is not None and format is not EXACT:
            distance[torch.from_numpy(_unproved(stated, was, shards.numpy()))] = torch.nan
        if len(changed):
            distance[changed], _ = sharded.own_distances(
                spec, weights, tokens[changed], right[changed], leak, progress, format
            )
        bounds = sharded.error_bounds(spec, distance, leak, longest, format)
        return Margins(
            frame.numpy(), bounds.numpy(), Own(shards.numpy(), distance.numpy(), spec.shards)
        )

    if stated is None:
        found, evaluation = found_in(EXACT), None
    else:
        asked, covers = Asked(progress=progress), sharded.covers(spec)
        found, evaluation = both_statements(memory.dtype, asked, facts.rows, found_in, covers)
    if not found.held.all():
        return None
    own = {
        "evaluation": evaluation,
        "shard_errors": found.shard_errors(),
        "shard_sha256": sums,
        "inherited": tuple(np.flatnonzero(kept >= 0).tolist()),
        "premises": told,
    }
    return certificate(
        AnswerCertificate, memory, facts, before.arithmetic, found.held, found.extremes() | own
    )


def _unproved(stated: EvaluationProof, was: np.ndarray, shards: np.ndarray) -> np.ndarray:
    """Facts (T,) of inherited shards of which the second statement did not hold before. A shard
    that is kept has the same facts in the same order."""
    T = len(was)
    listed = [
        g * T + place
        for g, places in enumerate(stated.shard_failed)
        for place in places
        if 0 <= place < T
    ]
    return (was >= 0) & np.isin(was * T + places_in(shards), listed)
