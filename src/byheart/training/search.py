"""How much a model learns, found by training: the largest table of a spec, the smallest model of a
table. Training is no proof of failure, and outcomes need not be monotone (docs/training.md).
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field, replace
from functools import partial

import numpy as np

from byheart._progress import Report, quiet
from byheart._search import bisect
from byheart.engine import InProcess, engine
from byheart.errors import ByheartError, OptionError, check_choice
from byheart.facts import Facts, random_associations
from byheart.facts.distinct import group_equal_rows
from byheart.facts.tasks import MAX_KEY
from byheart.theory.related import memorized_bits
from byheart.training.choose import check_planned
from byheart.training.data import token_data
from byheart.training.method import fitting
from byheart.training.recipe import Recipe, TrainableSpec
from byheart.training.trainer import Outcome, train_stack

STACK = 10  # models a stack: more leave the cache (docs/training.md)
# From one `seed` to the next, so that no two of them share a table: more than any search has.
SEED_STRIDE = 10_007
# From one start of a table to the next, so that no start is the first one of another table.
START_STRIDE = 7919
GUARDS = 3  # how often a bracket may be reopened by a success above it
REPEATS = 2  # how often a run is repeated that diverged or crashed, which says nothing
TABLE = 1 << 16  # rows of a seed's table; it grows when more are asked for
CELLS = 1 << 22  # tokens of such a table: fewer rows where a key has more than 64 tokens
SIZES: tuple[str, ...] = ("H", "d_h", "d", "w", "layers")
Job = tuple[int, int]  # seed and T


@dataclass(frozen=True)
class Trial:
    """One training run: `passed` None means that it diverged or crashed (`crash` says how), which
    is no evidence about capacity."""

    seed: int
    T: int
    start: int
    accuracy: float = 0.0
    passed: bool | None = None
    steps: int = 0
    seconds: float = 0.0
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

    def middle(self, resolution: float) -> int | None:
        """Where to divide; None: it is narrow enough, has no upper end, or cannot be decided."""
        if self.upper is None or self.upper - self.lower <= max(1, resolution * self.lower):
            return None
        middle = round(math.sqrt(max(1, self.lower) * self.upper))
        middle = min(max(middle, self.lower + 1), self.upper - 1)
        return None if middle in self.undecided else middle

    def narrow(self, T: int, passed: bool) -> None:
        """Take one outcome in; a success above a failure reopens the bracket and is remembered."""
        if passed:
            self.lower = max(self.lower, T)
            if self.upper is not None and self.upper <= T:
                self.inversions.append((self.upper, T))
                self.upper = None
        elif (self.upper is None or T < self.upper) and T > self.lower:
            self.upper = T


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
            "threshold": self.threshold, "facts": self.facts, "interval": list(self.interval),
            "all_facts": self.all_facts if self.spec.S <= MAX_KEY else None,
            "parameters": self.parameters,
            "facts_per_parameter": self.per_parameter,
            "bits_per_parameter": self.bits_per_parameter,
            "seeds": [asdict(bracket) for bracket in self.brackets], "undecided": self.undecided,
            "trials": [asdict(trial) for trial in self.trials], "seconds": self.seconds,
        }  # fmt: skip


def capacity(
    spec: TrainableSpec, *, seeds: int = 3, threshold: float = 1.0, resolution: float = 0.05,
    restarts: int = 3, recipe: Recipe | None = None, first: int | None = None, seed: int = 0,
    workers: int | str = 1, device: str = "cpu", progress: Report = quiet,
) -> Capacity:  # fmt: skip
    """The largest T such that `spec`, trained on T random facts, gets the share `threshold` right.

    Each of the `seeds` has a random table, whose first T rows are the facts. A ladder of sizes
    brackets its largest T, the bracket is divided, and at the end tried just above.
    `resolution`: brackets are divided until upper/lower <= 1 + resolution. `restarts`: starts a
    trial may try; one success is enough. `first`: the first rung of the ladder (default
    H d_h + d, Corollary 1's promise). Runs that diverge or crash are repeated from another start
    and never counted as failures.
    """
    if not isinstance(spec, TrainableSpec):
        kinds = "attention-only, MLP, as-coded"
        raise ByheartError(f"expected a Transformer over token keys ({kinds}), found {spec}")
    for name, share in (("threshold", threshold), ("resolution", resolution)):
        if not 0 < share <= 1:
            raise OptionError(name, "in (0, 1]", share)
    _at_least_1(seeds=seeds, restarts=restarts, first=first)
    recipe = (recipe or Recipe()).but(stop_at=threshold)
    rung = min(first or max(2, spec.heads.H * spec.heads.d_h + spec.heads.d), _all_facts(spec))
    check_planned(spec, rung, recipe, min(seeds, STACK), device)
    with engine(workers) as executor:
        brackets = [Bracket(seed * SEED_STRIDE + i) for i in range(seeds)]
        search = _Search(spec, brackets, threshold, restarts, recipe, device, executor, progress)
        search.ladder(rung)
        search.divide(resolution)
        for guard in range(1, GUARDS + 1):
            if not search.look_above(resolution, guard):
                break
            # On from a quarter above what was memorized.
            opened = [b.lower + b.lower // 4 + 1 for b in search.open()]
            search.ladder(max(opened, default=1))
            search.divide(resolution)
    lowers = [b.lower for b in brackets]
    failed = [b.upper for b in brackets if b.upper is not None]
    return Capacity(
        spec, threshold, facts=int(statistics.median_low(lowers)),
        interval=(min(lowers), max(failed) if len(failed) == seeds else None),
        brackets=tuple(brackets), trials=tuple(search.trials),
        undecided=sum(len(b.undecided) for b in brackets), all_facts=search.all_facts,
        seconds=sum(trial.seconds for trial in search.trials),
    )  # fmt: skip


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

    def __post_init__(self) -> None:
        self.all_facts = _all_facts(self.spec)

    def ladder(self, first: int) -> None:
        """Double T until every seed failed somewhere, has all facts there are, or is stuck where
        no run came to an end."""
        T = min(first, self.all_facts)
        while still := self.open():
            self._try([(b, T) for b in still if b.lower < T])
            T = min(2 * T, self.all_facts)

    def open(self) -> list[Bracket]:
        unfailed = [b for b in self.brackets if b.upper is None and b.lower < self.all_facts]
        return [b for b in unfailed if max(b.undecided, default=0) <= b.lower]

    def divide(self, resolution: float) -> None:
        """Divide every bracket at its geometric mean until all are narrow."""
        while jobs := [(b, T) for b in self.brackets if (T := b.middle(resolution))]:
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
            for trial in self._train(list(waiting), attempt):
                self.trials.append(trial)
                job = trial.seed, trial.T
                failures[job] += trial.passed is False
                if trial.passed or failures[job] == self.restarts:
                    waiting.pop(job).narrow(trial.T, bool(trial.passed))
        for (_, T), bracket in waiting.items():
            bracket.undecided.append(T)

    def _train(self, jobs: list[Job], attempt: int) -> Iterable[Trial]:
        futures = []
        # Padding is for full batches and free draws: other epochs depend on the rows of a table.
        mixed = self.recipe.sampling in ("full", "with-replacement")
        for group in _stacks(sorted(jobs, key=lambda job: job[1]), mixed):
            tables = [self._facts(seed, T) for seed, T in group]
            starts = [seed + START_STRIDE * attempt for seed, _ in group]
            text = _stack_text([T for _, T in group], self.brackets)
            self.progress(text)
            task = partial(_run, self.spec, tables, self.recipe, starts, self.device)
            if isinstance(self.executor, InProcess):  # workers cannot tell how far they are
                task = partial(task, progress=_told(self.progress, text))
            futures.append((group, self.executor.submit(task)))
        for group, task in futures:
            try:
                outcomes = task.result()
            except Exception as error:
                # Out of memory, or a worker that died (distributed's error, which is optional): the
                # run says nothing. All else is an error.
                lost_worker = type(error).__name__ == "KilledWorker"
                if not (lost_worker or isinstance(error, (RuntimeError, MemoryError))):
                    raise
                crash = f"{type(error).__name__}: {error}"
                yield from (Trial(seed, T, attempt, crash=crash) for seed, T in group)
                continue
            for (seed, T), o in zip(group, outcomes, strict=True):
                memorized = o.accuracy >= self.threshold
                passed = None if o.diverged is not None and not memorized else memorized
                yield Trial(seed, T, attempt, o.accuracy, passed, o.steps, o.seconds)

    def _facts(self, seed: int, T: int) -> Facts:
        """The first T rows of the seed's table."""
        spec = self.spec
        if seed not in self.tables:
            size = min(TABLE, max(CELLS // spec.S, 1), self.all_facts)
            self.tables[seed] = random_associations(spec.N, spec.S, size, seed)
        while (table := self.tables[seed]).T < T:
            self.tables[seed] = _longer(table, min(2 * table.T, self.all_facts), seed)
        return self.tables[seed].subset(np.arange(T))


def _all_facts(spec: TrainableSpec) -> int:
    """N^S, whose digits nobody waits for: of longer keys, more than any table has."""
    return spec.N ** min(spec.S, MAX_KEY)


def _longer(table: Facts, size: int, seed: int) -> Facts:
    """The table with new rows below its own, `size` in all: a larger T keeps the facts of a
    smaller one (a longer random table would have other rows)."""
    more = random_associations(table.N, table.S, size, seed + size)
    tokens = np.concatenate([table.tokens, more.tokens])
    order, starts = group_equal_rows(tokens, table.N)
    kept = np.sort(order[starts])[:size]
    answers = np.concatenate([table.answers, more.answers])
    return Facts.make(tokens[kept], answers[kept], table.vocabulary, name=table.name)


def _stacks(jobs: list[Job], mixed: bool = True) -> list[list[Job]]:
    """Jobs sorted by T in stacks of at most `STACK` models, none padded to more than double (not
    `mixed`: none padded)."""
    stacks: list[list[Job]] = []
    for job in jobs:
        most = stacks[-1][0][1] * (2 if mixed else 1) if stacks else 0
        if job[1] <= most and len(stacks[-1]) < STACK:
            stacks[-1].append(job)
        else:
            stacks.append([job])
    return stacks


def _run(
    spec: TrainableSpec, tables: list[Facts], recipe: Recipe, seeds: list[int], device: str,
    progress: Report = quiet,
) -> tuple[Outcome, ...]:  # fmt: skip
    """One stack, each model on its own table."""
    data = token_data(tables)
    return train_stack(spec, data, recipe, seeds, device=device, progress=progress).outcomes


def _told(report: Report, text: str) -> Report:
    """Reports where a stack is, and how long its run may still take at the speed so far."""
    began = time.monotonic()

    def tell(at: str) -> None:
        done, total = (getattr(at, name) for name in ("done", "total"))
        left = (time.monotonic() - began) / done * (total - done)
        report(f"{text}; step {done:,} of at most {total:,}, at most {left:,.0f} s left")

    return tell


def _stack_text(sizes: list[int], brackets: list[Bracket]) -> str:
    """What is being trained, and what is known of each seed."""
    models = f"{len(sizes)} model{'s'[: len(sizes) > 1]}"
    facts = f"{sizes[0]:,}" if sizes[0] == sizes[-1] else f"{sizes[0]:,} to {sizes[-1]:,}"
    ends = [(b.lower, "?" if b.upper is None else f"{b.upper:,}") for b in brackets]
    known = ", ".join(f"{lower:,}-{upper}" for lower, upper in ends)
    return f"training {models} on {facts} facts; brackets so far: {known}"


def _at_least_1(**counts: int | None) -> None:
    for name, count in counts.items():
        if count is not None and count < 1:
            raise OptionError(name, "at least 1", count)


@dataclass(frozen=True)
class SizeTried:
    """What became of the `seeds` starts at one size."""

    size: int
    parameters: int
    passed: int
    diverged: int
    seeds: int
    accuracy: float


@dataclass(frozen=True)
class Smallest:
    """The smallest size at which training memorized given facts: `size` of `vary` (null: none up
    to `tried`), `interval` from the largest size at which no start succeeded to the smallest at
    which every start did (null: not seen)."""

    vary: str
    size: int | None
    spec: TrainableSpec | None
    interval: tuple[int | None, int | None]
    tried: tuple[SizeTried, ...]

    def to_json(self) -> dict[str, object]:
        spec = None if self.spec is None else {"family": self.spec.family, **self.spec.to_json()}
        return {
            "vary": self.vary, "size": self.size, "interval": list(self.interval), "spec": spec,
            "parameters": None if self.spec is None else self.spec.parameters,
            "tried": [asdict(row) for row in self.tried],
        }  # fmt: skip


def smallest(
    facts: Facts, spec: TrainableSpec, *, vary: str = "H", limit: int = 4096, seeds: int = 3,
    threshold: float = 1.0, recipe: Recipe | None = None, seed: int = 0, device: str = "cpu",
    progress: Report = quiet,
) -> Smallest:  # fmt: skip
    """The smallest `vary` (H, d_h, d, w, layers) for which one of `seeds` models, trained on
    `facts`, gets the share `threshold` right; the other sizes are those of `spec`, except that a
    rank of W_QK equal to d_h stays equal to it.

    Doubles, then bisects; a size is taken as too small when no start succeeds. Diverged starts are
    no evidence: a size at which all diverge is tried again from other starts, and never counts as
    too small.
    """
    recipe = (recipe or Recipe()).but(stop_at=threshold)
    check_choice("vary", vary, [name for name in SIZES if hasattr(spec, name)])
    _at_least_1(seeds=seeds, limit=limit)
    _, start_id = fitting(facts, spec)
    data = token_data(facts, start_id)
    tried: dict[int, SizeTried] = {}

    def resized(size: int) -> TrainableSpec:
        follows = vary == "d_h" and getattr(spec, "qk_rank", None) == spec.d_h
        return replace(spec, **({vary: size} | ({"qk_rank": size} if follows else {})))

    def passes(size: int) -> bool:
        progress(f"{vary} = {size}: training {seeds} models on {facts.T:,} facts")
        model, outcomes = resized(size), ()
        for attempt in range(1 + REPEATS):
            first = seed * SEED_STRIDE + seeds * attempt
            starts = range(first, first + seeds)
            outcomes = train_stack(model, data, recipe, starts, device=device).outcomes
            if any(o.diverged is None for o in outcomes):
                break
        passed = sum(o.accuracy >= threshold for o in outcomes)
        diverged = sum(o.diverged is not None for o in outcomes)
        best = max(o.accuracy for o in outcomes)
        tried[size] = SizeTried(size, model.parameters, passed, diverged, seeds, best)
        return passed > 0

    start = getattr(spec, vary)
    low, high = 0, start if 0 < start <= limit else 1
    while not (found := passes(high)) and high < limit:
        low, high = high, min(2 * high, limit)
    size = bisect(passes, low, high) if found else None
    failed = [n for n, row in tried.items() if not row.passed and row.diverged < seeds]
    sure = [n for n, row in tried.items() if row.passed == seeds]
    interval = max(failed, default=None), min(sure, default=None)
    model = None if size is None else resized(size)
    return Smallest(vary, size, model, interval, tuple(tried[n] for n in sorted(tried)))
