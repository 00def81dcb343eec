"""The largest number of facts that a spec memorizes, found by training: an interval, per seed.

Each seed is a task of its own: a random table whose first T rows are the facts, so that a larger T
asks for strictly more. A ladder of sizes brackets the largest T, then every seed's bracket is
divided, all seeds at once in one stack. Training is no proof of failure, and outcomes need not be
monotone: at the end each seed is tried again just above its bracket, from another start, and a
success there reopens the bracket and is reported.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field
from typing import Any

from byheart.engine import engine
from byheart.errors import ByheartError
from byheart.facts import Facts, random_associations
from byheart.specs import AttentionOnlySpec
from byheart.theory.bits import memorized_bits
from byheart.training.data import token_data
from byheart.training.recipe import Recipe
from byheart.training.trainer import Outcome, train_stack

STACK = 10  # models a stack: more leave the cache (docs/training.md)
SEED_STRIDE = 7919
GUARDS = 3  # how often a bracket may be reopened by a success above it
TABLE = 1 << 16  # rows of a seed's table


@dataclass(frozen=True)
class Trial:
    """One training run: `passed` None means that it crashed or diverged, which says nothing."""

    seed: int
    T: int
    start: int
    accuracy: float
    passed: bool | None
    steps: int
    seconds: float


@dataclass
class Bracket:
    """What is known of one seed: `lower` facts were memorized, `upper` were not (None: no failure
    seen, up to all facts there are)."""

    seed: int
    lower: int = 0
    upper: int | None = None
    inversions: list[tuple[int, int]] = field(default_factory=list)  # (failed at, passed above)


@dataclass(frozen=True)
class Capacity:
    """The outcome: `facts` is the median over seeds of the largest T that was memorized, `interval`
    runs from the smallest T memorized by a seed to the smallest at which none succeeded (None:
    not reached, the capacity is at least `facts`)."""

    spec: Any
    threshold: float
    facts: int
    interval: tuple[int, int | None]
    brackets: tuple[Bracket, ...]
    trials: tuple[Trial, ...]
    undecided: int
    all_facts: int
    seconds: float

    @property
    def parameters(self) -> int:
        return self.spec.parameters

    @property
    def per_parameter(self) -> float:
        """Facts per parameter."""
        return self.facts / self.parameters

    @property
    def bits_per_parameter(self) -> float:
        """T log2 N / parameters at threshold 1, the mutual information below."""
        return memorized_bits(self.facts, self.spec.N, self.threshold) / self.parameters

    def to_json(self) -> dict[str, Any]:
        return {
            "spec": {"family": self.spec.family, **self.spec.to_json()},
            "threshold": self.threshold,
            "facts": self.facts,
            "interval": list(self.interval),
            "all_facts": self.all_facts,
            "parameters": self.parameters,
            "facts_per_parameter": self.per_parameter,
            "bits_per_parameter": self.bits_per_parameter,
            "seeds": [asdict(bracket) for bracket in self.brackets],
            "undecided": self.undecided,
            "trials": [asdict(trial) for trial in self.trials],
            "seconds": self.seconds,
        }


def capacity(
    spec: Any,
    *,
    seeds: int = 3,
    threshold: float = 1.0,
    resolution: float = 0.05,
    restarts: int = 1,
    recipe: Recipe | None = None,
    first: int | None = None,
    seed: int = 0,
    workers: int | str = 1,
    device: str = "cpu",
    progress: Callable[[str], None] = lambda _: None,
) -> Capacity:
    """The largest T such that `spec`, trained on T random facts, gets the share `threshold` right.

    `resolution`: brackets are divided until upper/lower <= 1 + resolution. `restarts`: starts a
    trial may try; one success is enough. `first`: the first rung of the ladder (default
    H d_h + d, Corollary 1's promise). Runs that diverge are repeated from another start and never
    counted as failures.
    """
    if not 0 < threshold <= 1:
        raise ByheartError(f"threshold must lie in (0, 1], found {threshold}")
    if not 0 < resolution <= 1:
        raise ByheartError(f"resolution must lie in (0, 1], found {resolution}")
    if seeds < 1 or restarts < 1:
        raise ByheartError(f"seeds and restarts must be at least 1: found {seeds}, {restarts}")
    recipe = (recipe if recipe is not None else Recipe()).but(stop_at=threshold)
    with engine(workers) as executor:
        search = _Search(
            spec, [seed * 10_007 + i for i in range(seeds)], threshold, restarts, recipe, device,
            executor, progress,
        )  # fmt: skip
        search.ladder(first or _promise(spec))
        search.divide(resolution)
        for guard in range(1, GUARDS + 1):
            if not search.look_above(resolution, guard):
                break
            search.ladder(search.next_rung())
            search.divide(resolution)
    return search.result()


def _promise(spec: Any) -> int:
    heads = spec if isinstance(spec, AttentionOnlySpec) else getattr(spec, "heads", spec)
    return max(2, heads.H * heads.d_h + heads.d)


class _Search:
    def __init__(
        self,
        spec: Any,
        seeds: list[int],
        threshold: float,
        restarts: int,
        recipe: Recipe,
        device: str,
        executor: Executor,
        progress: Callable[[str], None],
    ) -> None:
        self.spec, self.threshold, self.restarts = spec, threshold, restarts
        self.recipe, self.device, self.executor, self.progress = recipe, device, executor, progress
        self.all_facts = spec.N**spec.S
        self.brackets = [Bracket(seed) for seed in seeds]
        self.trials: list[Trial] = []
        self.tables: dict[tuple[int, int], Facts] = {}
        self.undecided = 0

    def ladder(self, first: int) -> None:
        """Double T until every seed failed somewhere, or has all facts there are."""
        T = min(first, self.all_facts)
        while True:
            open_seeds = [b for b in self.brackets if b.upper is None and b.lower < T]
            self._try([(b, T) for b in open_seeds])
            if T == self.all_facts or not any(b.upper is None for b in self.brackets):
                return
            T = min(2 * T, self.all_facts)

    def divide(self, resolution: float) -> None:
        """Divide every bracket at its geometric mean until all are narrow."""
        while True:
            jobs = []
            for b in self.brackets:
                if b.upper is None or b.upper - b.lower <= max(1, resolution * b.lower):
                    continue
                middle = round(math.sqrt(max(1, b.lower) * b.upper))
                jobs.append((b, min(max(middle, b.lower + 1), b.upper - 1)))
            if not jobs:
                return
            if not self._try(jobs):
                return  # nothing was decided: every run diverged, however often it was repeated

    def next_rung(self) -> int:
        """Where to go on when a bracket was reopened: a quarter above what was memorized."""
        reopened = [b.lower for b in self.brackets if b.upper is None]
        return min(self.all_facts, max(1, *[n + n // 4 + 1 for n in reopened], 1))

    def look_above(self, resolution: float, guard: int) -> bool:
        """Guard against non-monotone outcomes: another start, a little above each bracket."""
        jobs = []
        for b in self.brackets:
            if b.upper is None:
                continue
            above = min(round(b.upper * (1 + 2 * resolution)), self.all_facts)
            if above > b.upper:
                jobs.append((b, above))
        before = [b.lower for b in self.brackets]
        self._try(jobs, start=guard * max(3, self.restarts))
        return any(b.lower > old for b, old in zip(self.brackets, before, strict=True))

    def _try(self, jobs: list[tuple[Bracket, int]], start: int = 0) -> int:
        """Train every (seed, T), repeat what diverged or failed as often as allowed, and narrow
        the brackets. Returns how many were decided."""
        waiting = {(b.seed, T): b for b, T in jobs}
        decided = 0
        for attempt in range(start, start + max(3, self.restarts)):
            if not waiting:
                break
            for trial in self._train(list(waiting), attempt):
                self.trials.append(trial)
                bracket = waiting[trial.seed, trial.T]
                last = attempt - start >= self.restarts - 1
                if trial.passed is None or (not trial.passed and not last):
                    continue
                del waiting[trial.seed, trial.T]
                _narrow(bracket, trial.T, trial.passed)
                decided += 1
        self.undecided += len(waiting)
        return decided

    def _train(self, jobs: list[tuple[int, int]], attempt: int) -> Iterable[Trial]:
        futures = []
        for group in _stacks(sorted(jobs, key=lambda job: job[1])):
            tables = [self._facts(seed, T) for seed, T in group]
            starts = [seed + SEED_STRIDE * attempt for seed, _ in group]
            self.progress(
                f"training {len(group)} models on {group[0][1]:,} to {group[-1][1]:,} facts; "
                + ", ".join(_bracket_text(b) for b in self.brackets)
            )
            task = self.executor.submit(_run, self.spec, tables, self.recipe, starts, self.device)
            futures.append((group, task))
        for group, task in futures:
            for (seed, T), outcome in zip(group, task.result(), strict=True):
                passed: bool | None = outcome.accuracy >= self.threshold
                if outcome.diverged is not None and not passed:
                    passed = None
                yield Trial(
                    seed, T, attempt, outcome.accuracy, passed, outcome.steps, outcome.seconds
                )

    def _facts(self, seed: int, T: int) -> Facts:
        """The first T rows of the seed's table (65,536 rows, or more if need be)."""
        size = TABLE  # one long table: the rows of a shorter one would be other rows
        while size < T:
            size *= 2
        size = min(size, self.all_facts)
        if (seed, size) not in self.tables:
            self.tables[seed, size] = random_associations(self.spec.N, self.spec.S, size, seed)
        keep = [True] * T + [False] * (size - T)
        return self.tables[seed, size].subset(keep)

    def result(self) -> Capacity:
        lowers = [b.lower for b in self.brackets]
        uppers = [b.upper for b in self.brackets]
        top = None if None in uppers else max(u for u in uppers if u is not None)
        return Capacity(
            spec=self.spec,
            threshold=self.threshold,
            facts=int(statistics.median_low(lowers)),
            interval=(min(lowers), top),
            brackets=tuple(self.brackets),
            trials=tuple(self.trials),
            undecided=self.undecided,
            all_facts=self.all_facts,
            seconds=sum(trial.seconds for trial in self.trials),
        )


def _narrow(bracket: Bracket, T: int, passed: bool) -> None:
    """Take one outcome in; a success above a failure reopens the bracket and is remembered."""
    if passed:
        bracket.lower = max(bracket.lower, T)
        if bracket.upper is not None and bracket.upper <= T:
            bracket.inversions.append((bracket.upper, T))
            bracket.upper = None
    elif (bracket.upper is None or T < bracket.upper) and T > bracket.lower:
        bracket.upper = T


def _stacks(jobs: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Jobs sorted by T in stacks of at most `STACK` models, none padded to more than double."""
    stacks: list[list[tuple[int, int]]] = []
    for job in jobs:
        if stacks and len(stacks[-1]) < STACK and job[1] <= 2 * stacks[-1][0][1]:
            stacks[-1].append(job)
        else:
            stacks.append([job])
    return stacks


def _run(
    spec: Any, tables: list[Facts], recipe: Recipe, seeds: list[int], device: str
) -> tuple[Outcome, ...]:
    """One stack, each model on its own table."""
    return train_stack(spec, token_data(tables), recipe, seeds, device=device).outcomes


def _bracket_text(b: Bracket) -> str:
    return f"{b.lower:,}-{'?' if b.upper is None else format(b.upper, ',')}"
