"""Values of a parameter as people write them: "12,16", "1:31:5", "mse,hinge"."""

from __future__ import annotations

import json
from collections.abc import Iterable

from byheart.errors import OptionError

MOST = 10_000  # values of one parameter


def read_values(text: str) -> list[object]:
    """Values with commas between them; `start:stop:step` counts, `stop` included where it is met.

    >>> read_values("12,16"), read_values("1:31:10"), read_values("0:1:0.5,true,mse")
    ([12, 16], [1, 11, 21, 31], [0.0, 0.5, 1.0, True, 'mse'])
    """
    values: list[object] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        numbers = [_value(number) for number in part.split(":")]
        if len(numbers) == 1:
            values.append(numbers[0])
        else:
            values += _count(part, numbers)
    if not values:
        raise OptionError("set", "NAME=VALUE,VALUE or NAME=START:STOP:STEP", text)
    return values


def read_assignments(texts: Iterable[str]) -> dict[str, list[object]]:
    """NAME=VALUES, several of them.

    >>> read_assignments(["d=12,16", "H=1:3"])
    {'d': [12, 16], 'H': [1, 2, 3]}
    """
    assignments: dict[str, list[object]] = {}
    for text in texts:
        name, sign, values = text.partition("=")
        if not sign or not name.strip():
            raise OptionError("set", "NAME=VALUE,VALUE or NAME=START:STOP:STEP", text)
        assignments[name.strip()] = read_values(values)
    return assignments


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _count(part: str, numbers: list[object]) -> list[object]:
    """start, start + step, ..., up to stop."""
    real = [x for x in numbers if isinstance(x, (int, float)) and not isinstance(x, bool)]
    if len(real) < len(numbers) or len(real) > 3:
        raise OptionError("set", "START:STOP or START:STOP:STEP in numbers", part)
    start, stop, step = (*real, 1)[:3]
    if step == 0 or (stop - start) / step < 0 or (stop - start) / step >= MOST:
        raise OptionError("set", f"a range of 1 to {MOST:,} values", part)
    if isinstance(step, float) or isinstance(start, float):
        start = float(start)
    return [start + i * step for i in range(int((stop - start) / step + 1e-9) + 1)]
