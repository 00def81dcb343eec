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
from byheart.certificates import ball, exact, rounding, sharded
from byheart.construct.outcome import finite
from byheart.errors import ByheartError, FactsError, MemoryFileError
from byheart.facts import Facts
from byheart.models import Memory
from byheart.models.exact import ExactMemory
from byheart.models.memory_files import inspect, weights_sha256
from byheart.specs import ShardedSpec

SCHEMA = 1
FILE = "certificate.json"
LISTED = 1000  # failures kept in a certificate; all are counted

INTEGERS = "exact integers"  # how the arithmetic of an exact memory's certificate begins
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
    the shards that changed are proved again (`update`).
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
    statement: str = field(init=False)

    def __post_init__(self) -> None:
        said = "proved" if self.certified else "NOT proved"
        text = (
            f"{said}: the Transformer with these weights, in exact real arithmetic, gives the "
            f"right answer of each of the {self.facts} facts the largest logit of all tokens"
        )
        if self.arithmetic.startswith(INTEGERS):
            text = (
                f"{said}: the network with these integer weights outputs the class of the right "
                f"answer for each of the {self.facts} facts, exactly"
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
    memory: Memory | ExactMemory,
    facts: Facts | None = None,
    arithmetic: str = "rounding",
    *,
    precision: int = 128,
    progress: Callable[[str], None] = lambda _: None,
) -> Certificate:
    """Prove that `memory`, as stored, recalls `facts` (its own by default).

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
    if isinstance(memory, ExactMemory) and arithmetic != "rounding":
        raise ByheartError(
            "this memory has integer weights and is proved in integers: leave out --interval, "
            "--float and --precision."
        )
    facts = facts if facts is not None else memory.facts
    if facts is None:
        raise FactsError(
            "the memory was saved without its facts: give the table with --facts FILE."
        )
    tokens, right, known = _in_vocabulary_of(memory, facts)
    if isinstance(memory, ExactMemory):
        return _certify_exact(memory, facts, tokens, right, known, started, progress)
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
    name = ARITHMETICS[arithmetic]
    if arithmetic == "ball":
        name += f", {precision} bits"
    passed = bool(held.all())
    return Certificate(
        certified=passed and arithmetic != "float",
        passed=passed,
        facts=facts.T,
        failed=int((~held).sum()),
        arithmetic=name,
        margin=float(margins[real].min()) if real.any() else None,
        error_bound=finite(float(bounds[real].max())) if real.any() else None,
        seconds=time.perf_counter() - started,
        weights_sha256=weights_sha256(memory),
        facts_digest=facts.digest(),
        failures=failures,
        shard_errors=None if worst is None or not passed else tuple(worst.tolist()),
    )


def _certify_exact(
    memory: ExactMemory,
    facts: Facts,
    tokens: np.ndarray,
    right: np.ndarray,
    known: np.ndarray,
    started: float,
    progress: Callable[[str], None],
) -> Certificate:
    """Outputs equal to the classes, in integers: there is no margin and no error bound."""
    outputs, literally = np.full(facts.T, -1, dtype=np.int64), 0
    if known.any():
        outputs[known], literally = exact.exact_outputs(memory, tokens[known], progress=progress)
    wrong = np.flatnonzero((outputs != memory.classes(right)) | ~known)
    failures = []
    for i in wrong[:LISTED]:
        said = memory.recall(*facts.key(i)).answer
        reason = f"the memory answers {said!r}" if known[i] else "a token is unknown to the memory"
        row = int(facts.rows[i])
        failures.append(Failure(row, facts.key(i), facts.answer(i), None, None, reason))
    return Certificate(
        certified=not len(wrong),
        passed=not len(wrong),
        facts=facts.T,
        failed=len(wrong),
        arithmetic=exact.arithmetic(facts.T, literally),
        margin=None,
        error_bound=0.0,
        seconds=time.perf_counter() - started,
        weights_sha256=weights_sha256(memory),
        facts_digest=facts.digest(),
        failures=tuple(failures),
    )


def certify_folder(
    folder: str | Path,
    facts: Facts | None = None,
    arithmetic: str = "rounding",
    *,
    precision: int = 128,
    write: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> Certificate:
    """Re-prove a memory from its files alone, and write `certificate.json` if that succeeds.

    Files that differ from their hashes make `certified` false, whatever the evaluation says; it
    still runs, to say which facts are lost.
    """
    loaded = inspect(folder)
    try:
        made = certify(loaded.memory, facts, arithmetic, precision=precision, progress=progress)
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
        return ball.ball_margins(
            spec, weights, ids.numpy(), right, precision=precision, progress=progress
        )
    margins, bounds = [], []
    for batch in memory.batches(len(ids), copies=3):  # values, bounds, and a bound in the making
        if arithmetic == "rounding":
            values = rounding.logits(spec, weights, ids[batch])
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
