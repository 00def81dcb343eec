"""What a worker does: one stack of jobs, its measurements or its error, nothing else."""

from __future__ import annotations

import platform
import time
import traceback

from byheart._json import plain
from byheart._machine import keep_freed_memory
from byheart._version import __version__
from byheart.studies.cell import Jobs, Measurements
from byheart.studies.files import FileFunction, Function
from byheart.studies.store import Result

MOST_ERROR = 2000  # characters of an error that are kept


def compute(function: Function, stacked: bool, jobs: Jobs) -> list[Result]:
    """Results of one stack, in the order of its jobs; if one fails, all fail with its error.

    Errors are data here, so that the engine never sees one: what it retries is lost workers.
    """
    from byheart.models.threads import one_thread

    keep_freed_memory()
    began = time.process_time()  # CPU: a busy machine does not make a cell look slow
    with one_thread():
        try:
            answers = function(list(jobs)) if stacked else [function(p, seed) for p, seed in jobs]
            measured = [_measurements(answer) for answer in answers]
            if len(measured) != len(jobs):
                raise ValueError(f"{len(measured)} results were returned for {len(jobs)} jobs")
            error = None
        except Exception as caught:  # MemoryError too
            measured, error = [{} for _ in jobs], describe(caught)
    seconds = (time.process_time() - began) / len(jobs)
    versions = installed()
    if isinstance(function, FileFunction):
        versions |= function.version
    return [Result(m, error, seconds, versions, "cpu", 1, len(jobs)) for m in measured]


def describe(error: BaseException) -> str:
    """An error as text: its kind and message, and where it happened."""
    lines = traceback.format_exception_only(error)
    where = traceback.extract_tb(error.__traceback__)[-1:]
    line = "".join(f" ({frame.name}, line {frame.lineno})" for frame in where)
    return ("".join(lines).strip() + line)[:MOST_ERROR]


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


def _measurements(answer: object) -> Measurements:
    """Measurements as JSON keeps them; numbers that are not finite become null."""
    if not isinstance(answer, dict):
        kind = type(answer).__name__
        raise TypeError(f"a procedure returns a dict of measurements, found {kind}")
    return {str(name): plain(value) for name, value in answer.items()}
