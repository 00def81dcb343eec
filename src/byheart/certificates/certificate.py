"""Certificates: what was proved about which weights and which facts, in which arithmetic."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from byheart._folders import write_text
from byheart._version import __version__
from byheart.certificates import distribution, rounding, sharded, stacks, stacks_ball, vectors
from byheart.certificates.distribution import DistributionProof
from byheart.construct.outcome import finite
from byheart.errors import ByheartError, FactsError, MemoryFileError
from byheart.facts import Distributions, Facts, VectorFacts
from byheart.models import Memory, VectorMemory
from byheart.models.memory_files import inspect, weights_sha256
from byheart.specs import ShardedSpec

SCHEMA = 1
FILE = "certificate.json"
LISTED = 1000  # failures kept in a certificate; all are counted

ARITHMETICS = {
    "rounding": "float64 with a proven rounding-error bound (u = 2^-53, exp within 2^-47)",
    "ball": "ball arithmetic (Arb)",
    "float": "plain float64: a check, not a proof",
}


@dataclass(frozen=True)
class Failure:
    """A fact that is not proved, and why."""

    row: int
    key: tuple[str, ...]
    answer: str
    margin: float | None
    error_bound: float | None
    reason: str


@dataclass(frozen=True)
class Certificate:
    """The statement: in exact real arithmetic on the stored weights, argmax T(t) = g(t) for every
    fact t, because margin(t) > error_bound(t).

    `margin` is the smallest computed margin, `error_bound` the largest bound on its error
    (null: no other token to compete with). `certified` is never true for the plain float check.
    `shard_errors` (sharded memories) is the largest own error of each shard: after an edit only
    the shards that changed are proved again (`update`). `distribution` (memories of
    distributions): bounds on d_KL and on the log ratios; the statement is then about these.
    Vector memories with numbers as labels: `margin` is `tolerance` minus the error of an output,
    and `largest_error` a proven bound on that error over all examples.
    """

    certified: bool
    passed: bool
    facts: int
    failed: int
    arithmetic: str
    margin: float | None
    error_bound: float | None
    seconds: float
    weights_sha256: str
    facts_digest: str
    failures: tuple[Failure, ...] = ()
    damage: tuple[str, ...] = ()
    schema: int = SCHEMA
    byheart: str = __version__
    shard_errors: tuple[float, ...] | None = None
    distribution: DistributionProof | None = None
    tolerance: float | None = None
    largest_error: float | None = None
    competitors: str = "tokens"
    statement: str = field(init=False)

    def __post_init__(self) -> None:
        said = "proved" if self.certified else "NOT proved"
        text = (
            f"{said}: the Transformer with these weights, in exact real arithmetic, gives the "
            f"right answer of each of the {self.facts} facts the largest logit of all "
            f"{self.competitors}"
        )
        proof = self.distribution
        if proof is not None:
            text = (
                f"{said}: the Transformer with these weights, in exact real arithmetic, has "
                f"d_KL(π, softmax T) <= {proof.kl:.9g} nats over the {self.facts} sequences, and "
                f"|log π - log softmax T| <= {proof.max_log_ratio:.9g} wherever π > 0 (softmax "
                f"over the {proof.answers} answers)"
            )
        if self.tolerance is not None:
            text = (
                f"{said}: the layer with these weights, in exact real arithmetic, gives every "
                f"label of the {self.facts} examples within {self.tolerance:.3g}"
            )
        object.__setattr__(self, "statement", text)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def write(self, folder: str | Path) -> Path:
        """Write `certificate.json` into a memory folder, atomically."""
        path = Path(folder) / FILE
        try:
            write_text(path, json.dumps(self.to_json(), ensure_ascii=False, indent=1) + "\n")
        except OSError as error:
            raise MemoryFileError(f"{path} cannot be written: {error.strerror}.") from None
        return path


def certify(
    memory: Memory | VectorMemory,
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
    if facts is None:
        raise FactsError(
            "the memory was saved without its facts: give the table with --facts FILE."
        )
    if isinstance(memory, VectorMemory) or isinstance(facts, VectorFacts):
        return _certify_vectors(memory, facts, arithmetic, precision, tolerance, progress, started)
    if isinstance(facts, Distributions):
        return _certify_distribution(memory, facts, arithmetic, precision, progress, started)
    if tolerance is not None:
        raise ByheartError("--tolerance is for vector memories with numbers as labels.")
    tokens, right, known = _in_vocabulary_of(memory, facts)
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
        arithmetic=_arithmetic(arithmetic, precision, memory.spec),
        margin=float(margins[real].min()) if real.any() else None,
        error_bound=finite(float(bounds[real].max())) if real.any() else None,
        seconds=time.perf_counter() - started,
        weights_sha256=weights_sha256(memory),
        facts_digest=facts.digest(),
        failures=failures,
        shard_errors=None if worst is None or not passed else tuple(worst.tolist()),
    )


def _arithmetic(name: str, precision: int, spec: object) -> str:
    text = ARITHMETICS[name]
    if name == "ball":
        return f"{text}, {precision} bits"
    if name == "rounding" and getattr(spec, "activation", None) == "gelu":
        return text.replace("exp within", "exp and erf within")
    return text


def _certify_distribution(
    memory: Memory,
    table: Distributions,
    arithmetic: str,
    precision: int,
    progress: Callable[[str], None],
    started: float,
) -> Certificate:
    """Every sequence within the log ratio that the memory claims, and d_KL within its claim."""
    tokens, _, known = _in_vocabulary_of(memory, table.facts)
    ids = {token: i for i, token in enumerate(memory.vocabulary.tokens)}
    support = np.array([ids.get(table.vocabulary.token(int(j)), -1) for j in table.support])
    if not known.all() or (support < 0).any():
        raise FactsError(
            "the distributions have tokens that the memory does not know. Is it the right table?"
        )
    found = distribution.evaluate(memory, table, tokens, support, arithmetic, precision, progress)
    proof, within = distribution.summarise(memory, table, found)
    failures = tuple(
        Failure(
            row=int(table.facts.rows[i]),
            key=table.key(int(i)),
            answer=table.facts.answer(int(i)),
            margin=None,
            error_bound=None,
            reason=_log_ratio_reason(float(found.log_ratio[i]), proof),
        )
        for i in np.flatnonzero(~within)[:LISTED]
    )
    passed = bool(within.all()) and proof.kl <= distribution.allowed(proof.claimed_kl or 0.0)
    return Certificate(
        certified=passed and arithmetic != "float",
        passed=passed,
        facts=table.T,
        failed=int((~within).sum()),
        arithmetic=_arithmetic(arithmetic, precision, memory.spec),
        margin=None,
        error_bound=None,
        seconds=time.perf_counter() - started,
        weights_sha256=weights_sha256(memory),
        facts_digest=table.digest(),
        failures=failures,
        distribution=proof,
    )


def _log_ratio_reason(found: float, proof: DistributionProof) -> str:
    if np.isnan(found):
        return "could not be evaluated: weights that are not finite or not below 2^60"
    return f"log ratio up to {found:.3g}, claimed {proof.claimed_max_log_ratio:.3g}"


def _certify_vectors(
    memory: Memory | VectorMemory,
    facts: Facts | Distributions | VectorFacts,
    arithmetic: str,
    precision: int,
    tolerance: float | None,
    progress: Callable[[str], None],
    started: float,
) -> Certificate:
    if not isinstance(memory, VectorMemory) or not isinstance(facts, VectorFacts):
        raise FactsError(
            "a vector memory holds vector facts (.safetensors, .npz) and a token memory tables: "
            "memory and facts do not belong together."
        )
    allowed = tolerance if tolerance is not None else memory.tolerance
    if not allowed > 0 or (tolerance is not None and memory.classes is not None):
        raise ByheartError("--tolerance is a positive number, for labels that are numbers.")
    memory.check_fits(facts)
    margins, bounds = vectors.vector_margins(
        memory, facts, arithmetic, allowed, precision=precision, progress=progress
    )
    held = margins > bounds
    real = np.isfinite(margins)
    numbers = facts.classes is None
    worst = (allowed - margins + bounds)[real]  # an upper bound on the error of each example
    passed = bool(held.all())
    return Certificate(
        certified=passed and arithmetic != "float",
        passed=passed,
        facts=facts.T,
        failed=int((~held).sum()),
        arithmetic=_arithmetic(arithmetic, precision, memory.spec),
        margin=float(margins[real].min()) if real.any() else None,
        error_bound=finite(float(bounds[real].max())) if real.any() else None,
        seconds=time.perf_counter() - started,
        weights_sha256=weights_sha256(memory),
        facts_digest=facts.digest(),
        failures=tuple(
            _vector_failure(facts, int(i), float(margins[i]), float(bounds[i]))
            for i in np.flatnonzero(~held)[:LISTED]
        ),
        tolerance=allowed if numbers else None,
        competitors="classes",
        largest_error=float(worst.max() * (1 + 2.0**-40)) if numbers and real.all() else None,
    )


def _vector_failure(facts: VectorFacts, i: int, margin: float, bound: float) -> Failure:
    if np.isnan(margin):
        reason = "could not be evaluated: numbers that are not finite or not below 2^60"
    elif margin > 0:
        reason = f"margin {margin:.1e} is not above the error bound {bound:.1e}"
    elif facts.classes is None:
        reason = "further from the label than the tolerance"
    else:
        reason = "another class has a logit at least as large"
    label = str(facts.label[i].tolist())
    row = int(facts.rows[i])
    return Failure(row, (f"example {row}",), label, finite(margin), finite(bound), reason)


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


def _in_vocabulary_of(memory: Memory, facts: Facts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Token ids and answers as `memory` knows them; `known` is false where a token is new to it."""
    if facts.S != memory.key_length:
        raise FactsError(
            f"the facts have keys of {facts.S} tokens, the memory takes {memory.key_length}. "
            "Is it the right table, and are --keys and --answer the ones of the build?"
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
