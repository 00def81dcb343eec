"""Studies from a file of one's own: `STUDY = Study(...)`, or `STUDIES`, a list of them.

Other processes cannot import such a file, so its text travels with the work: a worker runs the
text it is sent. Functions of installed packages travel by their names.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from byheart.errors import ByheartError

Function = Callable[..., Any]


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
        digest = hashlib.sha256(self.text.encode()).hexdigest()[:12]
        return {Path(self.path).name: digest}


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
    name = Path(path).name
    module = sys.modules.get(name)
    if module is not None and getattr(module, "__byheart_text__", None) == text:
        return module
    module = ModuleType(name)
    module.__dict__.update(__file__=path, __byheart_text__=text)
    folder = str(Path(path).parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    before, sys.modules[name] = sys.modules.get(name), module
    try:
        exec(compile(text, path, "exec"), module.__dict__)
    except BaseException:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        raise
    return module


def module_of(path: str | os.PathLike[str]) -> ModuleType:
    """The module of a study's file; what is wrong with the file is said with its line."""
    location = Path(path).resolve()
    try:
        return run_text(str(location), location.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ByheartError(f"{path} cannot be read: {reason}.") from None
    except ByheartError:
        raise
    except Exception as error:
        frame = error.__traceback__
        line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else None
        while frame is not None:  # the innermost line that is the file's own
            if frame.tb_frame.f_code.co_filename == str(location):
                line = frame.tb_lineno
            frame = frame.tb_next
        where = "" if line is None else f", line {line}"
        raise ByheartError(f"{path}{where}: {type(error).__name__}: {error}") from error
