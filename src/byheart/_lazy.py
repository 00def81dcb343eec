"""Packages whose public names are imported when first used, so that importing one loads nothing.

A package lists its names once, where type checkers read them:

    if TYPE_CHECKING:
        from byheart.measure.rank import exact_rank, numerical_rank
    __all__ = ["exact_rank", "numerical_rank"]
    __getattr__, __dir__ = attach(__name__)
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable
from importlib import import_module


def attach(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package, from the imports below its `if TYPE_CHECKING:`."""
    homes = _imports(package)

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted(sys.modules[package].__all__)


def _imports(package: str) -> dict[str, str]:
    """Name -> module. A name may not be that of a module of the package: importing that module
    would put it in the name's place."""
    blocks = [
        node.body
        for node in ast.parse(inspect.getsource(sys.modules[package])).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    homes = {
        alias.name: node.module
        for body in blocks
        for node in body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    shadowed = [name for name, module in homes.items() if module == f"{package}.{name}"]
    assert not shadowed, f"{package}: names of modules and of what is in them: {shadowed}"
    return homes
