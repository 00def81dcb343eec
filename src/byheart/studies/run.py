"""The coordinator: hands stacks of missing jobs to an engine and writes what comes back; how far
it is, as a text for people that also carries its numbers."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from dataclasses import dataclass, replace

from byheart import _progress
from byheart._progress import Report as Tell
from byheart._progress import quiet
from byheart.engine import engine, places
from byheart.errors import ByheartError, check_choice
from byheart.studies.cell import Cell, Job, group, stacks, work_of
from byheart.studies.expression import Expression
from byheart.studies.speed import calibrate, factor
from byheart.studies.store import Store, coordinating
from byheart.studies.study import PROFILES, Row, Study
from byheart.studies.work import Result, compute, describe

LONG = 10.0  # CPU seconds of a run that is worth an estimate


def duration(seconds: float | None) -> str:
    """Seconds for people.

    >>> duration(3.2), duration(75), duration(7300), duration(None)
    ('3 s', '1 min 15 s', '2 h 2 min', 'unknown')
    """
    if seconds is None:
        return "unknown"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min"


class Progress(_progress.Progress):
    """Where a run is: jobs `done` of `total`, `failed` ones, `seconds` gone, an estimate of those
    `left`, jobs of this run a minute (`rate`), and the `last` row; `words` leaves out the counts.
    """

    failed: int
    seconds: float
    left: float | None
    rate: float
    last: Row | None
    words: str


def in_a_few_words(row: Row) -> str:
    """The sizes that vary most, and what counts: the share held, the accuracy or the error."""
    names = ("N", "d", "d_h", "H", "T")
    sizes = ", ".join(f"{name}={row.params[name]}" for name in names if name in row.params)
    if row.error is not None:
        return f"{sizes}: failed, {row.error.splitlines()[0][:60]}"
    for name in ("share", "accuracy", "facts", *row.measurements):
        value = row.get(name)
        if isinstance(value, (int, float)):
            return f"{sizes}: {name} {value:.4g}"
    return sizes


class Stopped(ByheartError):
    """A run that was interrupted: what is done is kept, and the message says how to go on."""

    exit_code = 130  # 128 + SIGINT


@dataclass(frozen=True)
class Report:
    """What a run did. `missing`: jobs not computed for want of time; `there`: computed before."""

    total: int
    there: int
    computed: int
    failed: int
    missing: int
    seconds: float

    @property
    def complete(self) -> bool:
        return self.missing == 0 and self.failed == 0


Seeds = int | Sequence[int] | None
"""How many seeds, or which; None: as many as the profile has."""


def plan(
    study: Study, variant: str, profile: str, seeds: Seeds, only: str | None
) -> tuple[list[Cell], list[list[Job]]]:
    """The cells and stacks of a study, restricted by an expression in the parameters."""
    check_choice("profile", profile, PROFILES)
    cells = study.cells(variant, profile)
    if only is not None:
        wanted = Expression(only)
        cells = [cell for cell in cells if wanted(cell.params)]
    return cells, stacks(cells, study.seed_numbers(profile, seeds))


def run(
    studies: Study | Sequence[Study], store: str | os.PathLike[str], *,
    variant: str | None = None, profile: str = "quick", seeds: Seeds = None,
    only: str | None = None, workers: int | str = 1, time_budget: float | None = None,
    retry_failed: bool = False, fresh: bool = False, device: str = "cpu", progress: Tell = quiet,
) -> Report:  # fmt: skip
    """Compute what is missing of one study, or of several at once, and keep it in the store.

    Rows that come with the package are taken into the store, unless everything is to be `fresh`.

    `device`: where trainings run ("auto": a GPU where there is one); its rows say so, and differ
    from those of the CPU as another order of summation does.

    Rows are the same whatever the engine, the order, and how often the run was cut off. After
    `time_budget` wall seconds no new stack is begun. Ctrl-C raises `Stopped`; every row is there
    completely or not at all.
    """
    chosen = [studies] if isinstance(studies, Study) else list(studies)
    plans = [
        (study.name, v, *plan(study, v, profile, seeds, only))
        for study in chosen
        for v in study.chosen_variants(variant)
    ]
    names = ", ".join(study.name for study in chosen)
    if only is not None and not any(cells for _, _, cells, _ in plans):
        known = {name for study in chosen for name in study.parameter_names(profile, variant)}
        there = ", ".join(sorted(known))
        raise ByheartError(f"`only={only}` leaves no cell of {names}; parameters: {there}.")
    if device != "cpu" and "://" not in str(workers):  # a cluster's devices are not here
        from byheart.training.devices import check_device

        check_device(device)
    with coordinating(store) as opened:
        for name, v, cells, _ in plans:
            opened.add_members(name, v, profile, cells)
        if not fresh:
            from byheart.studies.recorded import take_up

            for name, _, _, found in plans:
                keys = {job.key for stack in found for job in stack}
                take_up(opened, name.partition("/")[0], keys)
        planned = [((name, v), stack) for name, v, _, found in plans for stack in found]
        title = chosen[0].name if len(chosen) == 1 else chosen[0].paper
        c = _Coordinator(title, opened, planned, retry_failed, device, progress)
        began = time.perf_counter()
        try:
            if c.waiting:
                if c.foreseen and c.cost > LONG and factor() is None:
                    progress("measuring how fast this machine is")
                    calibrate()
                with engine(workers) as executor:
                    c.work(executor, time_budget)
        except KeyboardInterrupt:
            raise Stopped(
                f"stopped: {c.there + c.done} of {c.total} rows of {names} are in {store}, "
                "none of them half. Run the same command again to go on from there."
            ) from None
        finally:
            seconds = time.perf_counter() - began
            if c.done:
                opened.add_run(names, profile, str(workers), c.done, c.failed, seconds)
        return c.report(seconds)


class _Coordinator:
    def __init__(
        self, name: str, store: Store, planned: Sequence[tuple[tuple[str, str], list[Job]]],
        retry_failed: bool, device: str, progress: Tell,
    ) -> None:  # fmt: skip
        self.name, self.store, self.device, self.tell = name, store, device, progress
        there = store.keys(failed=False if retry_failed else None)
        self.waiting: list[list[Job]] = []
        self.owner: dict[tuple[str, int], tuple[str, str]] = {}  # study and variant of a job
        for owner, stack in planned:
            new = [job for job in stack if job.key not in self.owner]
            self.owner |= {job.key: owner for job in new}
            missing = [job for job in new if job.key not in there]
            if missing:
                self.waiting.append(missing)
        self.total = len(self.owner)
        self.there = len(self.owner.keys() & there)
        self.done = self.failed = 0
        self.lost: set[tuple[str, int]] = set()  # first jobs of stacks whose worker died
        self.cost_done = 0.0
        self.cost = sum(job.cell.seconds for stack in self.waiting for job in stack)
        cells = [job.cell for stack in self.waiting for job in stack]
        self.foreseen = all(cell.procedure.seconds is not None for cell in cells)
        self.began, self.slots = time.perf_counter(), 1

    def work(self, executor: Executor, time_budget: float | None) -> None:
        """Longest stacks first, so that workers finish together; at most twice the places ahead."""
        slots = self.slots = places(executor)
        if slots > 1:
            self.waiting.sort(key=lambda stack: -sum(job.cell.seconds for job in stack))
        running: dict[Future[list[Result]], list[Job]] = {}
        self.began = time.perf_counter()
        self.tell(self._progress())  # the longest stacks come first: nothing else for a while
        try:
            while self.waiting or running:
                while self.waiting and len(running) < (1 if slots == 1 else 2 * slots):
                    if time_budget is not None and self._seconds() >= time_budget:
                        break
                    stack = self.waiting.pop(0)
                    running[executor.submit(compute, *work_of(stack), self.device)] = stack
                if not running:
                    return  # no time left
                finished, _ = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
                for future in finished:
                    self._finish(running.pop(future), future)
                if slots > 1 and not finished:
                    slots = max(slots, places(executor))  # workers may join a cluster
        finally:
            for future in running:
                future.cancel()

    def _finish(self, stack: list[Job], future: Future[list[Result]]) -> None:
        try:
            results = future.result()
        except (CancelledError, OSError) as error:
            raise ByheartError(
                f"the engine was lost ({type(error).__name__}: {error}). Rows written so far are "
                "kept; run the same command again to go on."
            ) from None
        except Exception as error:  # the worker died with this stack, as often as Dask allows
            if stack[0].key not in self.lost:
                self.lost.add(stack[0].key)
                self.waiting.insert(0, stack)
                return
            lost = Result({}, f"worker lost: {describe(error)}", 0.0, {}, "cpu", 1, len(stack))
            results = [lost] * len(stack)
        pieces = smaller(stack)
        if results[0].error is not None and len(pieces) > 1:
            self.waiting[:0] = pieces  # find out which of them fails
            return
        self.store.add(list(zip(stack, results, strict=True)))
        self.done += len(stack)
        self.failed += sum(r.error is not None for r in results)
        self.cost_done += sum(job.cell.seconds for job in stack)
        self.tell(self._progress((stack[-1], results[-1])))

    def _seconds(self) -> float:
        return time.perf_counter() - self.began

    def _progress(self, last: tuple[Job, Result] | None = None) -> Progress:
        gone, done = self._seconds(), self.there + self.done
        if self.cost_done:
            left = gone * (self.cost - self.cost_done) / self.cost_done
        else:
            speed = factor() if self.foreseen else None
            left = None if speed is None else self.cost * speed / self.slots
        rate = 60 * self.done / max(gone, 1e-9)
        row, words = None, "computing the others"
        words += "" if left is None else f", about {duration(left)}"
        text = f"{self.name}: {done} of {self.total} rows are there; {words}"
        if last is not None:
            job, r = last
            (study, variant), cell = self.owner[job.key], job.cell
            measured = r.measurements, r.error, r.seconds
            row = Row(study, cell.experiment, variant, *job.key, cell.params, *measured)
            pace = f"{rate:.0f} a minute" if rate >= 1 else f"{60 * rate:.0f} an hour"
            words = f"{pace}, {duration(left)} left; {in_a_few_words(row)}"
            failures = f", {self.failed} failed" if self.failed else ""
            text = f"{study}: {done} of {self.total} rows{failures}, {words}"
        message = Progress(text, done=done, total=self.total)
        message.failed, message.seconds, message.left = self.failed, gone, left
        message.rate, message.last, message.words = rate, row, words
        return message

    def report(self, seconds: float) -> Report:
        failed = len(self.store.keys(failed=True) & self.owner.keys())
        missing = sum(len(stack) for stack in self.waiting)
        return Report(self.total, self.there, self.done, failed, missing, seconds)


def smaller(stack: list[Job]) -> list[list[Job]]:
    """A failed stack in pieces: by cell, or job by job where it is one cell."""
    cells = group(stack, lambda job: job.cell.hash)
    return list(cells.values()) if len(cells) > 1 else [[job] for job in stack]


@dataclass(frozen=True)
class Status:
    """How far a study is: its rows, those that are done, failed, missing."""

    study: str
    profile: str
    rows: int
    done: int
    failed: int
    missing: int


def status(study: Study, store: Store, profile: str, seeds: Seeds = None) -> Status:
    """How far a study is, all variants together."""
    done, failed = store.keys(failed=False), store.keys(failed=True)
    keys: set[tuple[str, int]] = set()
    for variant in study.variants:
        _, planned = plan(study, variant, profile, seeds, None)
        keys |= {job.key for stack in planned for job in stack}
    missing = len(keys - done - failed)
    return Status(study.name, profile, len(keys), len(keys & done), len(keys & failed), missing)


def rows_of(
    study: Study, store: Store, profile: str, *, variant: str | None = None,
    only: str | None = None, seeds: Seeds = None,
) -> tuple[list[Row], list[Row]]:  # fmt: skip
    """The study's rows that are there, and those that failed, in the order of its grid."""
    good: list[Row] = []
    bad: list[Row] = []
    numbers = set(study.seed_numbers(profile, seeds))
    for chosen in study.chosen_variants(variant):
        cells, _ = plan(study, chosen, profile, seeds, only)
        rows = [r for r in store.rows(study.name, chosen, profile) if r.seed in numbers]
        there = group(rows, lambda row: (row.cell, row.experiment))
        for cell in cells:
            for row in there.get((cell.hash, cell.experiment), []):
                (good if row.error is None else bad).append(replace(row, params=cell.params))
    return good, bad
