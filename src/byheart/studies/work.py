"""What a worker does: one stack of jobs, its measurements or its error, nothing else."""

from __future__ import annotations

import math
import platform
import time
import traceback
from collections.abc import Sequence
from typing import Any

from byheart._machine import keep_freed_memory
from byheart._version import __version__
from byheart.studies.cell import Params, find_function
from byheart.studies.store import Result

MOST_ERROR = 2000  # characters of an error that are kept


def compute(function: str, stack: str | None, jobs: Sequence[tuple[Params, int]]) -> list[Result]:
    """Results of one stack, in the order of its jobs; if one fails, all fail with its error.

    Errors are data here, so that the engine never sees one: what it retries is lost workers.
    """
    from byheart.models.threads import one_thread

    keep_freed_memory()
    began = time.process_time()  # CPU: a busy machine does not make a cell look slow
    with one_thread():
        try:
            if stack is not None:
                found = list(find_function(stack)(list(jobs)))
            else:
                found = [find_function(function)(params, seed) for params, seed in jobs]
            if len(found) != len(jobs):
                raise ValueError(f"{stack} returned {len(found)} results for {len(jobs)} jobs")
            found = [_plain(measured) for measured in found]
            error = None
        except Exception as caught:  # MemoryError too
            found, error = [{} for _ in jobs], describe(caught)
    seconds = (time.process_time() - began) / len(jobs)
    versions = installed()
    return [Result(m, error, seconds, versions, "cpu", 1, len(jobs)) for m in found]


def describe(error: BaseException) -> str:
    """An error as text: its kind and message, and where it happened."""
    lines = traceback.format_exception_only(error)
    where = traceback.extract_tb(error.__traceback__)[-1:]
    place = "".join(f" ({frame.name}, line {frame.lineno})" for frame in where)
    return ("".join(lines).strip() + place)[:MOST_ERROR]


def installed() -> dict[str, str]:
    """Versions that can change a result."""
    import numpy
    import torch

    return {
        "byheart": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }


def _plain(measured: Any) -> dict[str, Any]:
    """Measurements as JSON keeps them; numbers that are not finite become null."""
    if not isinstance(measured, dict):
        raise TypeError(f"a way returns a dict of measurements, found {type(measured).__name__}")
    return {str(name): _value(value) for name, value in measured.items()}


def _value(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_value(v) for v in value]
    if isinstance(value, dict):
        return {str(k): _value(v) for k, v in value.items()}
    if value is None or isinstance(value, (bool, str, int)):
        return value
    number = value.item() if hasattr(value, "item") else value
    if isinstance(number, float):
        return number if math.isfinite(number) else None
    if isinstance(number, (bool, int)):
        return number
    raise TypeError(f"a measurement must be a number, text or a list of them, found {value!r}")
