"""A cell: one point of a study's grid, named by its content; jobs and stacks of them."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from byheart.errors import ByheartError, did_you_mean
from byheart.studies.work import Function, shipped

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)
Value = Any
"""Of a parameter or a measurement: a number, text, true/false, null, or a list of them."""
Params = Mapping[str, Value]
"""Parameters of a cell."""
Measurements = dict[str, Value]
"""What was measured."""
Jobs = Sequence[tuple[Params, int]]
"""Parameters, and the seed, of each job of a stack."""


@dataclass(frozen=True)
class Procedure:
    """How a cell is computed: a pure function at the top level of a module (docs/studies.md).

    `function(params, seed)` returns a dict of measurements, or `stack([(params, seed), ...])` one
    each, at most `largest` at once, of jobs that agree in all parameters but those in `differ`.
    `name` is part of a cell's hash: the function's module and name, unless it is given. Give the
    old one when you move a function, another one when it computes something else. `seconds(params)`
    estimates the CPU seconds of one job. `defaults` are the parameters of cells that do not say
    otherwise, `complete` fills in those that follow from others. `paired` names parameters that
    have no part in the seed: cells that differ in these alone draw the same, and are compared on
    it.
    """

    function: Callable[[dict[str, Value], int], Measurements] | None = None
    stack: Callable[[list[tuple[dict[str, Value], int]]], Sequence[Measurements]] | None = None
    largest: int = 1
    differ: tuple[str, ...] = ()
    seconds: Callable[[Params], float] | None = None
    name: str = ""
    defaults: Params = field(default_factory=dict)
    complete: Callable[[Params], Params] = lambda params: params
    parameters: tuple[str, ...] | None = None
    paired: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.function is None) == (self.stack is None):
            raise TypeError("a procedure has either a `function` or a `stack`")
        work = self.work
        if not callable(work) or "<" in getattr(work, "__qualname__", "<"):
            raise ByheartError(
                f"a procedure's function must stand at the top level of a module, where workers "
                f"find it by its name: {work!r} does not."
            )
        if not self.name:
            object.__setattr__(self, "name", f"{work.__module__}:{work.__qualname__}")

    @property
    def work(self) -> Function:
        """The function that does it."""
        function = self.stack or self.function
        assert function is not None
        return function

    def cell(self, experiment: str = "", **settings: Value) -> Cell:
        """A cell: the defaults with some of them changed, completed. With `parameters`, every
        setting must be one of these or of the defaults."""
        if self.parameters is not None:
            known = {*self.defaults, *self.parameters}
            for name in settings.keys() - known:
                raise TypeError(f"no such setting: {name}. {did_you_mean(name, known)}".strip())
        return Cell(self, self.complete({**self.defaults, **settings}), experiment, settings)

    def grid(self, experiment: str = "", **settings: Value) -> list[Cell]:
        """A cell for every combination of settings: tuples and ranges vary, all else is fixed (a
        list is one value).

        >>> import operator
        >>> cells = Procedure(operator.pow).grid(x=(1, 2), y=range(3), z=[4, 5])
        >>> len(cells), dict(cells[1].params)
        (6, {'x': 1, 'y': 1, 'z': [4, 5]})
        """
        choices = [v if isinstance(v, (tuple, range)) else (v,) for v in settings.values()]
        return [
            self.cell(experiment, **dict(zip(settings, values, strict=True)))
            for values in itertools.product(*choices)
        ]


@dataclass(frozen=True)
class Cell:
    """One point of a grid: a procedure and its parameters. `experiment` labels it and is not
    hashed; `settings` are the parameters from which the others follow (all, unless given).

    >>> import operator
    >>> power = Procedure(operator.pow)
    >>> Cell(power, {"b": 1, "a": 2}).hash == Cell(power, {"a": 2, "b": 1}, "exp1").hash
    True
    """

    procedure: Procedure
    params: Params
    experiment: str = ""
    settings: Params | None = field(default=None, compare=False, repr=False)
    hash: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        params = dict(self.params)
        try:
            named = {"way": self.procedure.name, "params": params}
            text = canonical(named)
            if "\\ud" in text:  # half a surrogate pair is no text: it could not be written
                json.dumps(named, ensure_ascii=False).encode()
        except (TypeError, ValueError) as error:
            kinds = "numbers, text, true/false, null or lists of them"
            wrong = f"a cell's parameters must be {kinds}: {error} in {params!r}"
            raise ByheartError(wrong) from None
        object.__setattr__(self, "hash", hashlib.sha256(text.encode()).hexdigest()[:32])

    @property
    def draws(self) -> str:
        """The name from which seeds are derived: that of the cell, without what is `paired`."""
        paired = self.procedure.paired
        if not paired:
            return self.hash
        kept = {name: value for name, value in self.params.items() if name not in paired}
        return Cell(replace(self.procedure, paired=()), kept).hash

    @property
    def seconds(self) -> float:
        """Estimated CPU seconds of one job; 1 where nobody knows."""
        seconds = self.procedure.seconds
        return 1.0 if seconds is None else max(1e-6, seconds(self.params))

    @property
    def settable(self) -> set[str]:
        """The parameters that may be given other values: its own, and those of the procedure that
        it leaves out because they have no consequence as they are."""
        return {*self.params, *(self.procedure.defaults if self.settings is not None else ())}

    def with_settings(self, changes: Params) -> Cell:
        """The cell with some settings changed, and what follows from them."""
        if self.settings is None:
            return Cell(self.procedure, {**self.params, **changes}, self.experiment)
        return self.procedure.cell(self.experiment, **{**self.settings, **changes})


def together(jobs: Jobs) -> tuple[Params, list[int]]:
    """The parameters that the jobs of a stack share, and their seeds."""
    return jobs[0][0], [seed for _, seed in jobs]


def group(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Items by a key, in the order in which the keys occur."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def canonical(value: object) -> str:
    """JSON with sorted keys and no spaces: equal values have equal texts."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def derived_seed(cell: str, seed: int) -> int:
    """The seed of one job, from its cell and its number alone: not from order, stack or worker.

    >>> derived_seed("ab", 0) == derived_seed("ab", 0) != derived_seed("ab", 1)
    True
    """
    digest = hashlib.sha256(f"byheart:{cell}:{seed}".encode()).digest()
    return int.from_bytes(digest[:4], "little") >> 1


@dataclass(frozen=True)
class Job:
    """One cell and one seed number: one row of the store."""

    cell: Cell
    seed: int

    @property
    def key(self) -> tuple[str, int]:
        return self.cell.hash, self.seed


def stacks(cells: Sequence[Cell], seeds: Sequence[int]) -> list[list[Job]]:
    """All jobs, those of equal shape together: at most `procedure.largest` in a stack.

    The composition follows from the cells and seeds alone, never from the engine or from what is
    already there: a place in a stack decides how sums are rounded, so rows would differ otherwise.
    """
    groups: dict[str, list[Job]] = {}
    seen: set[tuple[str, int]] = set()
    for cell in cells:
        shape = {k: v for k, v in cell.params.items() if k not in cell.procedure.differ}
        name = canonical({"way": cell.procedure.name, "shape": shape})
        for seed in seeds:
            job = Job(cell, seed)
            if job.key not in seen:  # a cell that two experiments share
                seen.add(job.key)
                groups.setdefault(name, []).append(job)
    planned = []
    for jobs in groups.values():
        procedure = jobs[-1].cell.procedure
        size = max(1, procedure.largest) if procedure.stack else 1
        planned += [jobs[i : i + size] for i in range(0, len(jobs), size)]
    return planned


def work_of(stack: Sequence[Job]) -> tuple[Function, bool, Jobs]:
    """What a worker needs to compute a stack: the function, whether it takes all jobs at once, and
    the jobs with their derived seeds."""
    procedure = stack[0].cell.procedure
    jobs = [(dict(job.cell.params), derived_seed(job.cell.draws, job.seed)) for job in stack]
    return shipped(procedure.work), procedure.stack is not None, jobs
