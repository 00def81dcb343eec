"""What a worker does: one stack of jobs, its measurements or its error, nothing else.

Functions of installed packages travel to it by their names. Other processes cannot import a
study's own file (`STUDY = Study(...)`, or `STUDIES`), so its text travels with the work: a worker
runs the text it is sent.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from byheart._files import read_regular
from byheart._json import Json, plain
from byheart._machine import keep_freed_memory
from byheart._version import __version__
from byheart._words import written
from byheart.errors import ByheartError

if TYPE_CHECKING:
    from byheart.studies.cell import Jobs, Measurements

Function = Callable[..., Any]
LONGEST_TEXT = 10**7  # bytes of a study's file
MOST_ERROR = 2000  # characters of an error that are kept


@dataclass(frozen=True)
class FileFunction:
    """A function of a study's file as workers get it: the file's text and the function's name."""

    path: str
    text: str
    name: str

    def __call__(self, *arguments: object) -> object:
        return getattr(run_text(self.path, self.text), self.name)(*arguments)

    @property
    def version(self) -> dict[str, str]:
        """The file's name and a digest of its text: rows say by which text they were computed."""
        return {written(Path(self.path).name): hashlib.sha256(self.text.encode()).hexdigest()[:12]}


def shipped(function: Function) -> Function:
    """`function` as another process can call it."""
    module = sys.modules.get(function.__module__)
    text = getattr(module, "__byheart_text__", None)
    if text is None:
        return function
    return FileFunction(str(getattr(module, "__file__", "")), text, function.__qualname__)


def run_text(path: str, text: str) -> ModuleType:
    """The module of a study's file, run once for each text. Its name is the file's ("line.py"),
    which no import can mean, and its folder is searched for the modules beside it."""
    name, folder = written(Path(path).name), str(Path(path).parent)
    before = sys.modules.get(name)
    if before is not None and getattr(before, "__byheart_text__", None) == text:
        return before
    module = sys.modules[name] = ModuleType(name)
    module.__dict__.update(__file__=path, __byheart_text__=text)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        exec(compile(text, path, "exec"), module.__dict__)
    except BaseException:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before
        raise
    return module


def module_of(path: str | os.PathLike[str]) -> ModuleType:
    """The module of a study's file; what is wrong with the file is said with its line."""
    location = Path(path).resolve()
    try:
        return run_text(str(location), read_regular(location, LONGEST_TEXT).decode())
    except UnicodeDecodeError as error:
        raise ByheartError(f"{path} cannot be read: {error}.") from None
    except ByheartError:
        raise
    except Exception as error:
        lines = [error.lineno] if isinstance(error, SyntaxError) else []
        frames = traceback.extract_tb(error.__traceback__)
        lines += [frame.lineno for frame in frames if frame.filename == str(location)]
        where = f", line {lines[-1]}" if lines and lines[-1] is not None else ""
        raise ByheartError(f"{path}{where}: {type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class Result:
    """What a worker hands back for one job; `seconds` is its share of the CPU time, `curve` the
    training curve that a procedure gave: it is drawn, not measured, and no part of the row."""

    measurements: Measurements
    error: str | None
    seconds: float
    versions: dict[str, str]
    device: str
    threads: int
    stack: int
    curve: Json = None


def compute(function: Function, stacked: bool, jobs: Jobs, device: str = "cpu") -> list[Result]:
    """Results of one stack, in the order of its jobs; if one fails, all fail with its error.

    `device`: where the trainings of the procedure run; all else is computed on the CPU.

    Errors are data here, so that the engine never sees one: what it retries is lost workers.
    """
    import numpy
    import torch

    from byheart.models.threads import one_thread
    from byheart.training.devices import training_on

    keep_freed_memory()
    began = time.process_time()  # CPU: a busy machine does not make a cell look slow
    used: set[str] = set()
    with one_thread():
        try:
            with training_on(device) as used:
                answers = function(list(jobs)) if stacked else [function(p, s) for p, s in jobs]
            measured = [_measurements(answer) for answer in answers]
            if len(measured) != len(jobs):
                raise ValueError(f"{len(measured)} results were returned for {len(jobs)} jobs")
            error = None
        except Exception as caught:  # MemoryError too
            measured, error = [{} for _ in jobs], describe(caught)
    seconds = (time.process_time() - began) / len(jobs)
    versions = {  # all that can change a result
        "byheart": __version__, "python": platform.python_version(),
        "torch": torch.__version__, "numpy": numpy.__version__,
    }  # fmt: skip
    if isinstance(function, FileFunction):
        versions |= function.version
    where = ", ".join(sorted(used)) or "cpu"
    rest = error, seconds, versions, where, 1, len(jobs)
    return [Result(m, *rest, curve=_curve(m)) for m in measured]


def _curve(measured: Measurements) -> Json:
    """Take the training curve out of the measurements; another thing of that name stays."""
    found = measured.get("curve")
    names = {"steps", "loss", "accuracy"}
    return measured.pop("curve") if isinstance(found, dict) and found.keys() == names else None


def describe(error: BaseException) -> str:
    """An error as text: its kind and message, and where it happened."""
    lines = traceback.format_exception_only(error)
    where = traceback.extract_tb(error.__traceback__)[-1:]
    line = "".join(f" ({frame.name}, line {frame.lineno})" for frame in where)
    return written("".join(lines).strip() + line)[:MOST_ERROR]


def _measurements(answer: object) -> Measurements:
    """Measurements as JSON keeps them; numbers that are not finite become null."""
    if not isinstance(answer, dict):
        kind = type(answer).__name__
        raise TypeError(f"a procedure returns a dict of measurements, found {kind}")
    return {str(name): plain(value) for name, value in answer.items()}
