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
    """Name -> module. No name is that of a module of the package (tests/test_layout.py): importing
    that module would put it in the name's place."""
    homes: dict[str, str] = {}
    for block in ast.parse(inspect.getsource(sys.modules[package])).body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            for node in block.body:
                if isinstance(node, ast.ImportFrom) and node.module:
                    homes |= {alias.name: node.module for alias in node.names}
    return homes
