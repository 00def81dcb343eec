"""The door to all proofs: a memory in hand, or one on disk."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from byheart.certificates import rounding, sharded, stacks, stacks_ball
from byheart.certificates.kinds import certify_distribution, certify_exact, certify_vectors
from byheart.certificates.statement import (
    ARITHMETICS,
    LISTED,
    Certificate,
    Failure,
    arithmetic_name,
)
from byheart.construct.outcome import finite
from byheart.errors import ByheartError, FactsError, MemoryFileError
from byheart.facts import Distributions, Facts, VectorFacts
from byheart.models import Memory, VectorMemory
from byheart.models.exact import ExactMemory
from byheart.models.memory_files import inspect, weights_sha256
from byheart.specs import ShardedSpec


def certify(
    memory: Memory | VectorMemory | ExactMemory,
    facts: Facts | Distributions | VectorFacts | None = None,
    arithmetic: str = "rounding",
    *,
    precision: int = 128,
    tolerance: float | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Certificate:
    """Prove that `memory`, as stored, recalls `facts` (its own by default). `tolerance` (vector
    memories with numbers as labels): how far an output may be off; the memory's own by default.

    `arithmetic`: "rounding" (float64 with a proven error bound, vectorised), "ball" (Arb at
    `precision` bits) or "float" (a check, not a proof).

    >>> import byheart as bh
    >>> certificate = bh.certify(bh.build(bh.read_facts("elements")))
    >>> certificate.certified, certificate.facts, certificate.failed
    (True, 236, 0)
    """
    started = time.perf_counter()
    if arithmetic not in ARITHMETICS:
        raise ByheartError(
            f"arithmetic must be one of {', '.join(ARITHMETICS)}, found {arithmetic!r}"
        )
    if facts is None:
        facts = getattr(memory, "distribution", None) or memory.facts
    if isinstance(memory, ExactMemory) and arithmetic != "rounding":
        raise ByheartError(
            "this memory has integer weights and is proved in integers: leave out `arithmetic=ball`, "
            "`arithmetic=float` and `precision`."
        )
    if facts is None:
        raise FactsError("the memory was saved without its facts: give the table with `facts`.")
    if isinstance(memory, VectorMemory) or isinstance(facts, VectorFacts):
        return certify_vectors(memory, facts, arithmetic, precision, tolerance, progress, started)
    if tolerance is not None:
        raise ByheartError("`tolerance` is for vector memories with numbers as labels.")
    if isinstance(facts, Distributions):
        if isinstance(memory, ExactMemory):
            raise ByheartError("a memory of integers holds one answer a key, not distributions.")
        tokens, _, known = _in_vocabulary_of(memory, facts.facts)
        return certify_distribution(
            memory, facts, tokens, known, arithmetic, precision, progress, started
        )
    tokens, right, known = _in_vocabulary_of(memory, facts)
    if isinstance(memory, ExactMemory):
        return certify_exact(memory, facts, tokens, right, known, started, progress)
    margins, bounds = np.full(facts.T, np.nan), np.full(facts.T, np.nan)
    worst = None
    if isinstance(memory.spec, ShardedSpec) and arithmetic == "rounding":
        worst = np.zeros(memory.spec.shards)
    if known.any():
        margins[known], bounds[known] = _evaluate(
            memory, tokens[known], right[known], arithmetic, precision, progress, worst
        )
    held = margins > bounds  # false for NaN: what could not be evaluated is not proved
    failures = tuple(
        _failure(
            memory, facts, int(i), tokens[i], float(margins[i]), float(bounds[i]), bool(known[i])
        )
        for i in np.flatnonzero(~held)[:LISTED]
    )
    real = np.isfinite(margins)
    passed = bool(held.all())
    return Certificate(
        certified=passed and arithmetic != "float",
        passed=passed,
        facts=facts.T,
        failed=int((~held).sum()),
        arithmetic=arithmetic_name(arithmetic, precision, memory.spec),
        margin=float(margins[real].min()) if real.any() else None,
        error_bound=finite(float(bounds[real].max())) if real.any() else None,
        seconds=time.perf_counter() - started,
        weights_sha256=weights_sha256(memory),
        facts_digest=facts.digest(),
        failures=failures,
        shard_errors=None if worst is None or not passed else tuple(worst.tolist()),
    )


def certify_folder(
    folder: str | Path,
    facts: Facts | Distributions | VectorFacts | None = None,
    arithmetic: str = "rounding",
    *,
    precision: int = 128,
    tolerance: float | None = None,
    write: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> Certificate:
    """Re-prove a memory from its files alone, and write `certificate.json` if that succeeds.

    Files that differ from their hashes make `certified` false, whatever the evaluation says; it
    still runs, to say which facts are lost.
    """
    loaded = inspect(folder)
    try:
        made = certify(
            loaded.memory,
            facts,
            arithmetic,
            precision=precision,
            tolerance=tolerance,
            progress=progress,
        )
    except Exception as error:
        if not loaded.damage:
            raise
        raise MemoryFileError(
            f"{folder}: {'; '.join(loaded.damage)}, and cannot be evaluated any more ({error}). "
            "Restore it from a copy or build it again."
        ) from error
    if loaded.damage:
        made = replace(made, certified=False, passed=False, damage=loaded.damage)
    if write and made.certified:
        made.write(folder)
    return made


def _in_vocabulary_of(
    memory: Memory | ExactMemory, facts: Facts
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Token ids and answers as `memory` knows them; `known` is false where a token is new to it."""
    if facts.S != memory.key_length:
        raise FactsError(
            f"the facts have keys of {facts.S} tokens, the memory takes {memory.key_length}. "
            "Is it the right table, and are `keys` and `answer` the ones of the build?"
        )
    n = facts.N
    if memory.vocabulary.tokens[:n] == facts.vocabulary.tokens:
        return facts.tokens, facts.answers, np.ones(facts.T, dtype=bool)
    ids = {token: i for i, token in enumerate(memory.vocabulary.tokens)}
    table = np.array([ids.get(token, -1) for token in facts.vocabulary.tokens], dtype=np.int64)
    if facts.pad_id is not None and memory.pad_id is not None:
        table[facts.pad_id] = memory.pad_id
    tokens, right = table[facts.tokens], table[facts.answers]
    return tokens, right, (tokens >= 0).all(1) & (right >= 0)


def _evaluate(
    memory: Memory,
    tokens: np.ndarray,
    right: np.ndarray,
    arithmetic: str,
    precision: int,
    progress: Callable[[str], None],
    worst: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    spec = memory.spec
    ids = memory.with_start(tokens)
    answers = torch.from_numpy(right.copy())
    if isinstance(spec, ShardedSpec):
        if arithmetic == "rounding":
            return sharded.sharded_margins(
                spec, dict(memory.weights), ids, answers, progress, worst
            )
        spec, dense, ids = sharded.literal(spec, dict(memory.weights), ids)
        memory = replace(memory, spec=spec, weights=dense, order=None)
    weights = {name: w.to(torch.float64) for name, w in memory.weights.items()}
    if not rounding.admissible(weights):
        return np.full(len(ids), np.nan), np.full(len(ids), np.nan)
    if arithmetic == "ball":
        return stacks_ball.ball_margins(
            spec, weights, ids.numpy(), right, precision=precision, progress=progress
        )
    margins, bounds = [], []
    for batch in memory.batches(len(ids), copies=3):  # values, bounds, and a bound in the making
        if arithmetic == "rounding":
            values = stacks.logits(spec, weights, ids[batch])
        else:
            values = rounding.exact(memory.logits(ids[batch], torch.float64))
        margin, bound = rounding.margins(values, answers[batch])
        margins.append(margin)
        bounds.append(bound if arithmetic == "rounding" else torch.zeros_like(bound))
        progress(f"{batch.stop:,} of {len(ids):,} facts")
    return torch.cat(margins).numpy(), torch.cat(bounds).numpy()


def _failure(
    memory: Memory,
    facts: Facts,
    i: int,
    tokens: np.ndarray,
    margin: float,
    bound: float,
    known: bool,
) -> Failure:
    key, answer = facts.key(i), facts.answer(i)
    if not known:
        missing = [t for t in (*key, answer) if t not in memory.vocabulary]
        reason = f"unknown to the memory: {', '.join(map(repr, missing))}"
    elif np.isnan(margin):
        reason = "could not be evaluated: weights that are not finite or not below 2^60"
    elif margin <= 0:
        ids = memory.with_start(tokens[None])
        said = memory.vocabulary.token(int(memory.logits(ids, torch.float64)[0].argmax()))
        reason = f"the memory answers {said!r}" if said != answer else "tied with another answer"
    else:
        reason = f"margin {margin:.1e} is not above the error bound {bound:.1e}"
    return Failure(
        row=int(facts.rows[i]),
        key=key,
        answer=answer,
        margin=finite(margin),
        error_bound=finite(bound),
        reason=reason,
    )
