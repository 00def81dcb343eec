"""What all proofs share: how one is asked for, the dispatch on the class of the memory, and the one
place where certificates are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import singledispatch
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from byheart._progress import Report, quiet
from byheart.certificates.arithmetic import EXACT, FORMATS, Bounded, Format
from byheart.certificates.statement import (
    ARITHMETICS,
    LISTED,
    Certificate,
    EvaluationProof,
    Failure,
    binding,
)
from byheart.errors import ByheartError, FactsError
from byheart.facts import Facts
from byheart.models.construction import finite
from byheart.models.exact_memory import ExactMemory
from byheart.models.memory import FactTable, Memory
from byheart.models.token_memory import TokenMemory

NOT_EVALUATED = (
    "not evaluated: {} that are not finite, that overflow, or that the proof does not cover"
)
# Facts from which on the proof in exact arithmetic is left out where the one for every evaluation
# in the stored format, which implies it, holds.
MANY = 20_000

Kind = TypeVar("Kind", bound=Certificate)


@dataclass(frozen=True)
class Asked:
    """How a proof is asked for: "rounding" (float64 with a proven error bound, vectorised), "ball"
    (Arb at `precision` bits) or "float" (a check, not a proof). `tolerance`: how far an output may
    be off its label, where labels are numbers."""

    arithmetic: str = "rounding"
    precision: int = 128
    tolerance: float | None = None
    progress: Report = quiet

    def name(self, memory: Memory) -> str:
        """The arithmetic in words, as a certificate states it."""
        text = ARITHMETICS[self.arithmetic]
        if self.arithmetic == "ball":
            return f"{text}, {self.precision} bits"
        if self.arithmetic == "rounding" and getattr(memory.spec, "activation", None) == "gelu":
            return text.replace("exp within", "exp and erf within")
        return text

    def refuse_tolerance(self) -> None:
        if self.tolerance is not None:
            raise ByheartError("`tolerance` is for vector memories with numbers as labels.")


@singledispatch
def prove(memory: Memory, facts: FactTable, asked: Asked) -> Certificate:
    """The certificate of `memory` for `facts`, dispatched on the class of the memory.

    Another package adds the proof of its own memories with one call, `prove.register(MyMemory,
    my_proof)`; a token memory of a new architecture needs `bounded_logits.register(MySpec, ...)`
    only (`byheart.certificates.architectures`).
    """
    raise ByheartError(
        f"certificates do not cover {memory.name} memories: the package that makes them can "
        f"register a proof, `byheart.certificates.prove.register({type(memory).__name__}, ...)`."
    )


def certificate(
    kind: type[Kind],
    memory: Memory,
    facts: FactTable,
    arithmetic: str,
    held: np.ndarray,
    own: Mapping[str, object],
    failure: Callable[[int], Failure] | None = None,
    passed: bool | None = None,
) -> Kind:
    """A certificate of any kind: `held` (T,) says which facts are proved, `failure` why one is not,
    `own` are the fields that this kind has of its own. `passed`: whether all is well, where that is
    more than that all facts are held."""
    passed = bool(held.all()) if passed is None else passed
    tolerance = own.get("tolerance")
    identity, digest = memory.identity(), facts.digest()
    return kind(
        certified=passed and arithmetic != ARITHMETICS["float"],
        passed=passed,
        facts=facts.T,
        failed=int((~held).sum()),
        arithmetic=arithmetic,
        seconds=0.0,  # `certify` knows
        weights_sha256=identity[1],
        facts_digest=digest,
        digest=binding(identity, digest, arithmetic, tolerance),
        failures=tuple(failure(int(i)) for i in np.flatnonzero(~held)[:LISTED] if failure),
        **own,  # type: ignore[arg-type]
    )


@dataclass(frozen=True)
class Own:
    """Which of `count` shards owns each fact (T,), -1: none, and the error of its own heads."""

    shards: np.ndarray
    errors: np.ndarray
    count: int


def places_in(shards: np.ndarray) -> np.ndarray:
    """The place of each fact (T,) among those of its shard, in the order of the table."""
    order = np.argsort(shards, kind="stable")
    ordered, places = shards[order], np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    return places


@dataclass(frozen=True)
class Margins:
    """Margins and bounds on their errors (T,); NaN where a fact could not be evaluated. `own`: of
    sharded memories."""

    margins: np.ndarray
    bounds: np.ndarray
    own: Own | None = None

    @classmethod
    def nowhere(cls, T: int) -> Margins:
        return cls(np.full(T, np.nan), np.full(T, np.nan))

    @property
    def held(self) -> np.ndarray:
        return self.margins > self.bounds  # false for NaN: what could not be evaluated is no proof

    @property
    def real(self) -> np.ndarray:
        return np.isfinite(self.margins)

    def shard_errors(self) -> tuple[float, ...] | None:
        """The largest own error of the facts of each shard that are held."""
        if self.own is None:
            return None
        worst, held = np.zeros(self.own.count), self.held
        np.maximum.at(worst, self.own.shards[held], self.own.errors[held])
        return tuple(worst.tolist())

    def shard_failed(self) -> tuple[tuple[int, ...], ...]:
        """The places, among the facts of each shard, of those that are not held."""
        if self.own is None:
            return ()
        places: list[list[int]] = [[] for _ in range(self.own.count)]
        failed = ~self.held & (self.own.shards >= 0)
        pairs = (self.own.shards[failed].tolist(), places_in(self.own.shards)[failed].tolist())
        for shard, place in zip(*pairs, strict=True):
            places[shard].append(place)
        return tuple(map(tuple, places))

    def extremes(self) -> dict[str, float | None]:
        """The smallest margin and the largest bound, as the fields of a certificate."""
        if not self.real.any():
            return {"margin": None, "error_bound": None}
        largest = finite(float(self.bounds[self.real].max()))
        return {"margin": float(self.margins[self.real].min()), "error_bound": largest}

    def failure(
        self,
        i: int,
        row: int,
        key: tuple[str, ...],
        answer: str,
        wrong: Callable[[], str | None],
        numbers: str,
    ) -> Failure:
        """Why fact `i` is not proved: `wrong` says what is recalled instead, None where the plain
        evaluation is right; `numbers` are what the evaluation reads."""
        margin, bound = float(self.margins[i]), float(self.bounds[i])
        lost = wrong()
        if lost is not None:
            reason = f"lost: {lost}"
        elif np.isnan(margin) or np.isnan(bound):
            reason = f"undecided: {NOT_EVALUATED.format(numbers)}"
        else:
            reason = f"undecided: margin {margin:.1e} is not above the error bound {bound:.1e}"
        return Failure(row, key, answer, finite(margin), finite(bound), reason)


def both_statements(
    dtype: torch.dtype,
    asked: Asked,
    rows: np.ndarray,
    found_in: Callable[[Format], Margins],
    covers: str = "",
) -> tuple[Margins, EvaluationProof | None]:
    """Margins for exact real arithmetic, and what holds of every evaluation in the stored format.

    The second statement implies the first, so that large tables are evaluated once where it holds.
    """
    stored = FORMATS.get(dtype)
    if asked.arithmetic != "rounding" or stored is None:
        return found_in(EXACT), None
    run = found_in(stored)
    held = run.held
    failed = np.flatnonzero(~held)
    evaluation = EvaluationProof(
        format=stored.name,
        proved=int(held.sum()),
        failed=len(failed),
        margin=run.extremes()["margin"],
        error_bound=run.extremes()["error_bound"],
        covers=covers,
        rows=tuple(dict.fromkeys(int(rows[i]) for i in failed[:LISTED])),
        shard_errors=run.shard_errors(),
        shard_failed=run.shard_failed() if len(failed) else (),
    )
    if held.all() and len(rows) >= MANY:
        return run, evaluation
    return found_in(EXACT), evaluation


def in_batches(
    memory: Memory,
    T: int,
    copies: int,
    values: Callable[[slice], Bounded],
    margin: Callable[[Bounded, slice], tuple[Tensor, Tensor]],
    asked: Asked,
    unit: str,
) -> Margins:
    """`margin` of the `values` of all T inputs, in batches of bounded memory. The plain check has
    no bounds."""
    margins, bounds = [], []
    for batch in memory.batches(T, copies=copies):
        found, bound = margin(values(batch), batch)
        margins.append(found)
        bounds.append(bound if asked.arithmetic == "rounding" else torch.zeros_like(bound))
        asked.progress(f"{batch.stop:,} of {T:,} {unit}")
    return Margins(torch.cat(margins).numpy(), torch.cat(bounds).numpy())


def in_vocabulary_of(
    memory: TokenMemory | ExactMemory, facts: Facts
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Token ids and answers as `memory` knows them; `known` is false where a token is new to it."""
    if facts.S != memory.key_length:
        raise FactsError(
            f"the facts have keys of {facts.S} tokens, the memory takes {memory.key_length}. "
            "Is it the right table, and are `keys` and `answer` the ones of the build?"
        )
    if memory.vocabulary.tokens[: facts.N] == facts.vocabulary.tokens:
        return facts.tokens, facts.answers, np.ones(facts.T, dtype=bool)
    ids = {token: i for i, token in enumerate(memory.vocabulary.tokens)}
    table = np.array([ids.get(token, -1) for token in facts.vocabulary.tokens], dtype=np.int64)
    if facts.pad_id is not None and memory.pad_id is not None:
        table[facts.pad_id] = memory.pad_id
    tokens, right = table[facts.tokens], table[facts.answers]
    return tokens, right, (tokens >= 0).all(1) & (right >= 0)
