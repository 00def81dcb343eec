"""A cell: one point of a study's grid, named by its content; jobs and stacks of them."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from byheart.errors import ByheartError

Params = Mapping[str, Any]
Measurements = dict[str, Any]


@dataclass(frozen=True)
class Way:
    """How a cell is computed: the importable name of a pure function, "package.module:function".

    `function(params, seed)` returns a dict of measurements (numbers, text, None, lists of them).
    With `stack`, the name of `function([(params, seed), ...])` that returns one dict each, jobs
    that agree in all parameters but those in `differ` are computed together, at most `largest` at
    once. The name is part of a cell's hash: rename the function when it computes something else.
    `seconds(params)`, if given, estimates the CPU seconds of one job, for `--list`, the order of
    work and the time left; it changes no result.
    """

    function: str
    stack: str | None = None
    largest: int = 1
    differ: tuple[str, ...] = ()
    seconds: Callable[[Params], float] | None = None


@dataclass(frozen=True)
class Cell:
    """One point of a grid: a way and its parameters. `experiment` labels it and is not hashed.

    >>> way = Way("math:pow")
    >>> Cell(way, {"b": 1, "a": 2}).hash == Cell(way, {"a": 2, "b": 1}, "exp1").hash
    True
    """

    way: Way
    params: Params
    experiment: str = ""
    hash: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        try:
            text = canonical({"way": self.way.function, "params": dict(self.params)})
        except (TypeError, ValueError) as error:
            raise ByheartError(
                f"a cell's parameters must be numbers, text, true/false, null or lists of them: "
                f"{error} in {dict(self.params)!r}"
            ) from None
        object.__setattr__(self, "hash", hashlib.sha256(text.encode()).hexdigest()[:32])

    @property
    def seconds(self) -> float:
        """Estimated CPU seconds of one job; 1 where nobody knows."""
        return 1.0 if self.way.seconds is None else max(1e-6, self.way.seconds(self.params))


def canonical(value: Any) -> str:
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
    """All jobs, those of equal shape together: at most `way.largest` in a stack.

    The composition follows from the cells and seeds alone, never from the engine or from what is
    already there: a place in a stack decides how sums are rounded, so rows would differ otherwise.
    """
    groups: dict[str, list[Job]] = {}
    ways: dict[str, Way] = {}
    seen: set[tuple[str, int]] = set()
    for cell in cells:
        shape = {k: v for k, v in cell.params.items() if k not in cell.way.differ}
        name = canonical({"way": cell.way.function, "shape": shape})
        ways[name] = cell.way
        for seed in seeds:
            job = Job(cell, seed)
            if job.key not in seen:  # a cell that two experiments share
                seen.add(job.key)
                groups.setdefault(name, []).append(job)
    made = []
    for name, jobs in groups.items():
        size = max(1, ways[name].largest) if ways[name].stack else 1
        made += [jobs[i : i + size] for i in range(0, len(jobs), size)]
    return made


def find_function(name: str) -> Callable[..., Any]:
    """The function that "package.module:function" names."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ByheartError(
            f"{name!r} names no function: {error}. Workers must have the same byheart installed."
        ) from None
    return found
