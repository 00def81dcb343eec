"""Attribution methods by name: byheart's own, and those of a user's module or file."""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
from torch import Tensor

from byheart.errors import ByheartError, did_you_mean
from byheart.interpret.attribution import METHODS, Method
from byheart.interpret.subject import Subject
from byheart.studies.work import describe, module_of

WHERE = "module:function or file.py:function"
SIGNATURE = "a function (model, key, answer) -> scores (docs/localise.md)"


@dataclass(frozen=True)
class Attribution:
    """A method under its name. `source`: a digest of the text that a user's method stands in, so
    that rows of an earlier text are not taken for those of this one; empty for byheart's own."""

    name: str
    function: Method = field(repr=False)
    source: str = ""

    def scores(self, model: Subject, key: Tensor, answer: int) -> np.ndarray:
        """The scores (layers, H), float64, checked."""
        return checked(self.function(model, key, answer), (model.layers, model.H), self.name)


def methods_named(names: Sequence[str | Callable[..., object]] | None = None) -> list[Attribution]:
    """Methods by name (`zero`), by place (`mine.py:find`) or as they are, each once; all of
    byheart's where none are given."""
    found = [method_named(name) for name in (METHODS if names is None else names)]
    return list({method.name: method for method in found}.values())


def method_named(name: str | Callable[..., object]) -> Attribution:
    """One method.

    >>> method_named("zero").name
    'zero'
    """
    if callable(name):
        return Attribution(_kept(name), name, digest(name))
    if name in METHODS:
        return Attribution(name, METHODS[name])
    if name in _given:
        return Attribution(name, _given[name], digest(_given[name]))
    place, colon, function = name.rpartition(":")
    if not (place and colon and function):
        names = ", ".join(METHODS)
        raise ByheartError(
            f"there is no method {name!r}: expected one of {names}, or your own as {WHERE}. "
            f"{did_you_mean(name, METHODS)}".rstrip()
        )
    method = getattr(_module(place), function, None)
    if not callable(method):
        raise ByheartError(f"{place} has no function {function!r}: expected {SIGNATURE}.")
    return Attribution(name, method, digest(method))


_given: dict[str, Method] = {}  # functions that were given as they are, in this process


def _kept(function: Callable[..., object]) -> str:
    """The name of a function that was given as it is; this process finds it by that name."""
    name = f"{function.__module__}:{getattr(function, '__qualname__', repr(function))}"
    _given[name] = function
    return name


def _module(place: str) -> ModuleType:
    if place.endswith(".py"):
        return module_of(place)
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(place)
    except Exception as error:  # whatever a user's module raises
        raise ByheartError(
            f"the module {place!r} of your method cannot be imported: {describe(error)}. A file is "
            f"given with its ending: {Path(place).name}.py:function."
        ) from error


def digest(function: Callable[..., object]) -> str:
    """A digest of the text of the module that a function stands in; of the function's own where
    there is no file (a notebook)."""
    module = sys.modules.get(function.__module__)
    text = getattr(module, "__byheart_text__", None)
    for thing in (module, function):
        if text is None and thing is not None:
            try:
                text = inspect.getsource(thing)
            except (OSError, TypeError):
                continue
    return hashlib.sha256((text or "").encode()).hexdigest()[:12]


def checked(values: object, shape: tuple[int, int], name: str) -> np.ndarray:
    """Scores as a method returned them, as float64; what is no finite number for each head is
    refused."""
    kind = f"the method {name!r} must return a number for each (layer, head), shape {shape}"
    try:
        plain = values.detach() if isinstance(values, Tensor) else values
        scores = np.asarray(plain, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ByheartError(f"{kind}; found {type(values).__name__}: {error}.") from None
    if scores.shape != shape:
        raise ByheartError(f"{kind}; found shape {scores.shape}.")
    if not np.isfinite(scores).all():
        layer, head = np.argwhere(~np.isfinite(scores))[0].tolist()
        wrong = f"found {scores[layer, head]} at layer {layer}, head {head}"
        raise ByheartError(f"{kind}, all of them finite; {wrong}.")
    return scores
