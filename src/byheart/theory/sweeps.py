"""One size varied, every bound asked: rows for a CSV file or a plot."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from byheart.errors import OptionError, did_you_mean
from byheart.specs import Spec
from byheart.theory.bound import Answer
from byheart.theory.registry import Options, bounds

if TYPE_CHECKING:
    from byheart.facts import Facts

Point = tuple[int, Answer]  # what one bound says at one value
MOST_POINTS = 10_000
NAMES = ("heads", "d-head", "d-model", "context", "vocab", "layers")


@dataclass(frozen=True)
class Sweep:
    """`heads=1:64`: the flag that varies and its values."""

    name: str
    values: range

    @classmethod
    def parse(cls, text: str) -> Sweep:
        """NAME=FIRST:LAST or NAME=FIRST:LAST:STEP, both ends included.

        >>> Sweep.parse("heads=1:7:3").values
        range(1, 8, 3)
        """
        name, _, interval = text.partition("=")
        parts = interval.split(":")
        try:
            first, last, step = (*map(int, parts), 1)[:3]
        except ValueError:
            first = last = step = 0
        if name not in NAMES or len(parts) not in (2, 3) or first < 1 or last < first or step < 1:
            expected = "NAME=FIRST:LAST[:STEP] with 1 <= FIRST <= LAST and NAME one of "
            hint = did_you_mean(name, NAMES) or "For instance heads=1:64."
            raise OptionError("sweep", expected + ", ".join(NAMES), text, hint)
        values = range(first, last + 1, step)
        if (last - first) // step >= MOST_POINTS:
            hint = f"Give a step: {name}={first}:{last}:{-(-(last - first) // 1000)}"
            raise OptionError("sweep", f"of at most {MOST_POINTS:,} points", text, hint)
        return cls(name, values)


def run(
    sweep: Sweep,
    spec_at: Callable[[int], Spec],
    facts: Facts | int | None = None,
    **options: Unpack[Options],
) -> list[Point]:
    """Every bound at every value; `spec_at` makes the spec for a value."""
    return [
        (value, answer)
        for value in sweep.values
        for answer in bounds(spec_at(value), facts, **options)
    ]


def as_csv(name: str, rows: Sequence[dict[str, object]]) -> str:
    """CSV text, one line a row; None is an empty cell. `name` is the first column."""
    out = io.StringIO()
    columns = [name, *(key for key in rows[0] if key != name)]
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def rows(sweep: Sweep, points: list[Point]) -> list[dict[str, object]]:
    """One dict a point and bound, the varied size first."""
    return [{sweep.name: value, **answer.to_json()} for value, answer in points]
