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
from collections.abc import Iterable
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field

import numpy as np

from byheart._progress import Report, quiet
from byheart.engine import engine
from byheart.errors import ByheartError, OptionError
from byheart.facts import Facts, random_associations
from byheart.theory.bits import memorized_bits
from byheart.training.data import token_data
from byheart.training.recipe import Recipe, TrainableSpec
from byheart.training.trainer import Outcome, train_stack

STACK = 10  # models a stack: more leave the cache (docs/training.md)
# From one `seed` to the next, so that no two of them share a table: more than any search has.
SEED_STRIDE = 10_007
# From one start of a table to the next, so that no start is the first one of another table.
START_STRIDE = 7919
GUARDS = 3  # how often a bracket may be reopened by a success above it
REPEATS = 2  # how often a run that diverged or crashed is repeated
TABLE = 1 << 16  # rows of a seed's table; it grows when more are asked for


@dataclass(frozen=True)
class Trial:
    """One training run: `passed` None means that it diverged or crashed (`crash` says how), which
    is no evidence about capacity."""

    seed: int
    T: int
    start: int
    accuracy: float
    passed: bool | None
    steps: int
    seconds: float
    crash: str | None = None


@dataclass
class Bracket:
    """What is known of one seed: `lower` facts were memorized, `upper` were not (None: no failure
    seen, up to all facts there are or the first that stayed undecided). `undecided`: every T at
    which all runs diverged or crashed, however often they were repeated."""

    seed: int
    lower: int = 0
    upper: int | None = None
    inversions: list[tuple[int, int]] = field(default_factory=list)  # (failed at, passed above)
    undecided: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Capacity:
    """The outcome: `facts` is the median over seeds of the largest T that was memorized. `interval`
    joins the seeds' brackets: its lower end was memorized by every seed, its upper end by none
    (None: a seed had no failure). `undecided` counts the T at which no run of a seed came to an
    end."""

    spec: TrainableSpec
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

    def to_json(self) -> dict[str, object]:
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
    spec: TrainableSpec,
    *,
    seeds: int = 3,
    threshold: float = 1.0,
    resolution: float = 0.05,
    restarts: int = 3,
    recipe: Recipe | None = None,
    first: int | None = None,
    seed: int = 0,
    workers: int | str = 1,
    device: str = "cpu",
    progress: Report = quiet,
) -> Capacity:
    """The largest T such that `spec`, trained on T random facts, gets the share `threshold` right.

    `resolution`: brackets are divided until upper/lower <= 1 + resolution. `restarts`: starts a
    trial may try; one success is enough. `first`: the first rung of the ladder (default
    H d_h + d, Corollary 1's promise). Runs that diverge or crash are repeated from another start
    and never counted as failures.
    """
    if not isinstance(spec, TrainableSpec):
        raise ByheartError(
            f"expected a Transformer over token keys (attention-only, MLP, as-coded), found {spec}"
        )
    for name, share in (("threshold", threshold), ("resolution", resolution)):
        if not 0 < share <= 1:
            raise OptionError(name, "in (0, 1]", share)
    for name, count in (("seeds", seeds), ("restarts", restarts), ("first", first)):
        if count is not None and count < 1:
            raise OptionError(name, "at least 1", count)
    recipe = (recipe if recipe is not None else Recipe()).but(stop_at=threshold)
    with engine(workers) as executor:
        brackets = [Bracket(seed * SEED_STRIDE + i) for i in range(seeds)]
        search = _Search(spec, brackets, threshold, restarts, recipe, device, executor, progress)
        promised = spec.heads.H * spec.heads.d_h + spec.heads.d
        search.ladder(first or max(2, promised))
        search.divide(resolution)
        for guard in range(1, GUARDS + 1):
            if not search.look_above(resolution, guard):
                break
            # On from a quarter above what was memorized.
            opened = [b.lower + b.lower // 4 + 1 for b in search.open()]
            search.ladder(max(opened, default=1))
            search.divide(resolution)
    return search.result()


@dataclass
class _Search:
    spec: TrainableSpec
    brackets: list[Bracket]
    threshold: float
    restarts: int
    recipe: Recipe
    device: str
    executor: Executor
    progress: Report
    trials: list[Trial] = field(default_factory=list)
    tables: dict[int, Facts] = field(default_factory=dict)

    @property
    def all_facts(self) -> int:
        return self.spec.N**self.spec.S

    def ladder(self, first: int) -> None:
        """Double T until every seed failed somewhere, has all facts there are, or is stuck where
        no run came to an end."""
        T = min(first, self.all_facts)
        while still := self.open():
            self._try([(b, T) for b in still if b.lower < T])
            T = min(2 * T, self.all_facts)

    def open(self) -> list[Bracket]:
        return [
            b
            for b in self.brackets
            if b.upper is None
            and b.lower < self.all_facts
            and not any(T > b.lower for T in b.undecided)
        ]

    def divide(self, resolution: float) -> None:
        """Divide every bracket at its geometric mean until all are narrow."""
        while True:
            jobs = []
            for b in self.brackets:
                if b.upper is None or b.upper - b.lower <= max(1, resolution * b.lower):
                    continue
                middle = round(math.sqrt(max(1, b.lower) * b.upper))
                middle = min(max(middle, b.lower + 1), b.upper - 1)
                if middle not in b.undecided:
                    jobs.append((b, middle))
            if not jobs:
                return
            self._try(jobs)

    def look_above(self, resolution: float, guard: int) -> bool:
        """Guard against non-monotone outcomes: another start, a little above each bracket."""
        jobs = [
            (b, min(max(b.upper + 1, round(b.upper * (1 + 2 * resolution))), self.all_facts))
            for b in self.brackets
            if b.upper is not None and b.upper < self.all_facts
        ]
        before = [b.lower for b in self.brackets]
        self._try(jobs, start=guard * (self.restarts + REPEATS))
        return any(b.lower > old for b, old in zip(self.brackets, before, strict=True))

    def _try(self, jobs: list[tuple[Bracket, int]], start: int = 0) -> None:
        """Train every (seed, T), repeat what failed, diverged or crashed as often as allowed, and
        narrow the brackets."""
        waiting = {(b.seed, T): b for b, T in jobs}
        failures = dict.fromkeys(waiting, 0)
        for attempt in range(start, start + self.restarts + REPEATS):
            if not waiting:
                break
            for trial in self._train(list(waiting), attempt):
                self.trials.append(trial)
                job = trial.seed, trial.T
                failures[job] += trial.passed is False
                if trial.passed or failures[job] == self.restarts:
                    _narrow(waiting.pop(job), trial.T, bool(trial.passed))
        for (_, T), bracket in waiting.items():
            bracket.undecided.append(T)

    def _train(self, jobs: list[tuple[int, int]], attempt: int) -> Iterable[Trial]:
        futures = []
        # Padding is for full batches and free draws: other epochs depend on the rows of a table.
        mixed = self.recipe.sampling in ("full", "with-replacement")
        for group in _stacks(sorted(jobs, key=lambda job: job[1]), mixed):
            tables = [self._facts(seed, T) for seed, T in group]
            starts = [seed + START_STRIDE * attempt for seed, _ in group]
            self.progress(_stack_text([T for _, T in group], self.brackets))
            task = self.executor.submit(_run, self.spec, tables, self.recipe, starts, self.device)
            futures.append((group, task))
        for group, task in futures:
            try:
                outcomes = task.result()
            except Exception as error:
                if not _crashed(error):
                    raise
                crash = f"{type(error).__name__}: {error}"
                for seed, T in group:
                    yield Trial(seed, T, attempt, 0.0, None, 0, 0.0, crash)
                continue
            for (seed, T), outcome in zip(group, outcomes, strict=True):
                passed: bool | None = outcome.accuracy >= self.threshold
                if outcome.diverged is not None and not passed:
                    passed = None
                yield Trial(
                    seed, T, attempt, outcome.accuracy, passed, outcome.steps, outcome.seconds
                )

    def _facts(self, seed: int, T: int) -> Facts:
        """The first T rows of the seed's table."""
        spec = self.spec
        if seed not in self.tables:
            size = min(TABLE, self.all_facts)
            self.tables[seed] = random_associations(spec.N, spec.S, size, seed)
        while (table := self.tables[seed]).T < T:
            self.tables[seed] = _longer(table, min(2 * table.T, self.all_facts), seed)
        return self.tables[seed].subset(np.arange(T))

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
            undecided=sum(len(b.undecided) for b in self.brackets),
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


def _longer(table: Facts, size: int, seed: int) -> Facts:
    """The table with new rows below its own, `size` in all: a larger T keeps the facts of a
    smaller one (a longer random table would have other rows)."""
    more = random_associations(table.N, table.S, size, seed + size)
    tokens = np.concatenate([table.tokens, more.tokens])
    _, first = np.unique(tokens, axis=0, return_index=True)
    kept = np.sort(first)[:size]
    answers = np.concatenate([table.answers, more.answers])
    return Facts.make(tokens[kept], answers[kept], table.vocabulary, name=table.name)


def _stacks(jobs: list[tuple[int, int]], mixed: bool = True) -> list[list[tuple[int, int]]]:
    """Jobs sorted by T in stacks of at most `STACK` models, none padded to more than double (not
    `mixed`: none padded)."""
    stacks: list[list[tuple[int, int]]] = []
    for job in jobs:
        most = stacks[-1][0][1] * (2 if mixed else 1) if stacks else 0
        if job[1] <= most and len(stacks[-1]) < STACK:
            stacks[-1].append(job)
        else:
            stacks.append([job])
    return stacks


def _run(
    spec: TrainableSpec, tables: list[Facts], recipe: Recipe, seeds: list[int], device: str
) -> tuple[Outcome, ...]:
    """One stack, each model on its own table."""
    return train_stack(spec, token_data(tables), recipe, seeds, device=device).outcomes


def _crashed(error: Exception) -> bool:
    """Out of memory, or a worker that died: the run says nothing. All else is an error."""
    lost_worker = type(error).__name__ == "KilledWorker"  # distributed's, which is optional
    return lost_worker or isinstance(error, (RuntimeError, MemoryError))


def _stack_text(sizes: list[int], brackets: list[Bracket]) -> str:
    """What is being trained, and what is known of each seed."""
    models = f"{len(sizes)} model{'s'[: len(sizes) > 1]}"
    facts = f"{sizes[0]:,}" if sizes[0] == sizes[-1] else f"{sizes[0]:,} to {sizes[-1]:,}"
    known = ", ".join(
        f"{b.lower:,}-{'?' if b.upper is None else format(b.upper, ',')}" for b in brackets
    )
    return f"training {models} on {facts} facts; brackets so far: {known}"
