"""Python functions that only compute sizes, as JavaScript: the explorer runs the theory itself.

`Translation.value(object)` writes any object of `byheart.theory` as a JavaScript expression.
Functions and dataclasses are translated from their source; what a function refers to (other
functions, constants, closures) is found in the live module and translated in turn, so that the page
holds no formula of its own. Whole numbers become BigInt and stay exact. What has no translation
(numpy, files) becomes a call that fails when it is reached; a test in a real browser compares the
results with Python's.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import inspect
import json
import math
import sys
import types
from collections.abc import Callable, Sequence
from functools import lru_cache

from byheart.reports._translate_body import Body, Function, identifier

Fields = tuple[dataclasses.Field[object], ...]
LONG = 200  # characters of a constant from which it gets a name of its own
RUNTIME = "py"  # the name of templates/python.js in the page
KEPT = {  # builtins and standard functions that the runtime has
    "bool", "dict", "float", "getattr", "int", "isinstance", "len", "max", "min", "object", "range",
    "round", "set", "sorted", "str", "vars",
}  # fmt: skip


class Translation:
    """JavaScript declarations, in the order in which they can stand, and the names they give."""

    def __init__(self, skipped: Sequence[object] = ()) -> None:
        self.lines: list[str] = []
        self._names: dict[int, str] = {id(item): "(() => null)" for item in skipped}
        self._kept: list[object] = [*skipped]  # ids stay unique while the objects live

    def value(self, item: object) -> str:
        """A JavaScript expression for `item`; functions and classes are declared once.

        >>> Translation().value((1, 2.0, "a", None, {"d": True}))
        '[1n, 2.0, "a", null, py.map([["d", true]])]'
        """
        name, module = getattr(item, "__name__", ""), getattr(item, "__module__", "")
        if item is None or isinstance(item, (bool, int, float, str)):
            return literal(item)
        if id(item) in self._names:
            return self._names[id(item)]
        if isinstance(item, (tuple, list, set, frozenset)):
            text = "[" + ", ".join(map(self.value, item)) + "]"
            return text if len(text) < LONG else self._declare(item, "table", lambda: text)
        if isinstance(item, dict):
            return f"{RUNTIME}.map([{', '.join(self._pair(*pair) for pair in item.items())}])"
        if item in (math, dataclasses) or module in ("math", "dataclasses"):
            return RUNTIME + (f".{module}" if module else "") + f".{name}"
        if isinstance(item, type) and issubclass(item, BaseException):
            return f"{RUNTIME}.exception({json.dumps(name)})"
        if getattr(builtins, name, None) is item:
            return f"{RUNTIME}.{name}" if name in KEPT else missing(name)
        if isinstance(item, types.FunctionType):
            return self._declare(item, name, lambda: self._function(item))
        if dataclasses.is_dataclass(item):
            fields = dataclasses.fields(item)
            if isinstance(item, type):
                return self._declare(item, name, lambda: self._class(item, fields))
            return self._declare(item, type(item).__name__, lambda: self._instance(item, fields))
        return missing(f"{type(item).__name__} {name}".strip())

    def _pair(self, key: object, value: object) -> str:
        return f"[{self.value(key)}, {self.value(value)}]"

    def _declare(self, item: object, kind: str, write: Callable[[], str]) -> str:
        """A declaration, written once; named before, for functions may call each other."""
        name = self._names[id(item)] = f"{identifier(kind)}_{len(self._names)}"
        self._kept.append(item)
        self.lines.append(f"const {name} = {write()};")
        return name

    def _instance(self, item: object, fields: Fields) -> str:
        values = [self.value(getattr(item, field.name)) for field in fields]
        return f"{self.value(type(item))}({', '.join(values)})"

    def _function(self, function: types.FunctionType) -> str:
        methods = getattr(function, "registry", None)
        if methods is not None:  # functools.singledispatch
            pairs = [self._pair(kind, method) for kind, method in methods.items()]
            return f"{RUNTIME}.dispatch([{', '.join(pairs)}])"
        return Body(self, function, node_of(function)).text

    def _class(self, item: type, fields: Fields) -> str:
        """A dataclass with its fields, methods and properties, the inherited ones too."""
        shown, methods, getters = [], [], []
        for field in fields:
            default = field.default
            known = "" if default is dataclasses.MISSING else f", () => {self.value(default)}"
            shown.append(f"[{json.dumps(field.name)}{known}]")
        members = {k: v for base in reversed(item.__mro__) for k, v in vars(base).items()}
        for key, member in members.items():
            name = json.dumps(key)
            special = key.startswith("__") and key not in ("__getitem__", "__post_init__")
            if isinstance(member, property) and isinstance(member.fget, types.FunctionType):
                getters.append(f"{name}: {self._function(member.fget)}")
            elif isinstance(member, types.FunctionType) and not special and has_source(member):
                methods.append(f"{name}: {self._function(member)}")
            elif isinstance(member, (str, int)) and not special:
                getters.append(f"{name}: () => {literal(member)}")
        parts = ", ".join(shown), ", ".join(methods), ", ".join(getters)
        return (
            f'{RUNTIME}.dataclass("{item.__name__}", [{parts[0]}], {{{parts[1]}}}, {{{parts[2]}}})'
        )

    def text(self) -> str:
        return "\n".join(self.lines)

    def reference(self, function: types.FunctionType, name: str) -> str:
        """What a global or closed-over `name` of `function` stands for."""
        free = function.__code__.co_freevars
        if name in free and function.__closure__ is not None:
            return self.value(function.__closure__[free.index(name)].cell_contents)
        for place in (function.__globals__, vars(builtins)):
            if name in place:
                return self.value(place[name])
        return missing(name)


def literal(item: bool | int | float | str | None) -> str:
    """A constant; whole numbers are BigInt.

    >>> literal(7), literal(1e300), literal(float("inf")), literal("</script>")
    ('7n', '1e+300', 'Infinity', '"\\\\u003c/script>"')
    """
    if item is None or isinstance(item, bool):
        return json.dumps(item)
    if isinstance(item, int):
        return f"{item}n" if item >= 0 else f"({item}n)"
    if isinstance(item, float):
        return repr(item).replace("inf", "Infinity").replace("nan", "NaN")
    return json.dumps(item).replace("<", "\\u003c")


def missing(what: str) -> str:
    return f"{RUNTIME}.missing({json.dumps(what)})"


def has_source(function: types.FunctionType) -> bool:
    """Whether a person wrote it (dataclasses generate methods without source)."""
    return not function.__code__.co_filename.startswith("<")


@lru_cache
def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[module]))


def node_of(function: types.FunctionType) -> Function:
    """The syntax tree of a function or lambda: the innermost that encloses all of its code."""
    spots = [
        ((line, start), (last, end))
        for line, last, start, end in function.__code__.co_positions()
        if None not in (line, last, start, end) and (line, start) != (last, end)
    ]
    first, last = min(spot[0] for spot in spots), max(spot[1] for spot in spots)
    around = [
        node
        for node in ast.walk(_tree(function.__module__))
        if isinstance(node, Function)
        and (node.lineno, node.col_offset) <= first
        and last <= (node.end_lineno, node.end_col_offset)
    ]
    return around[-1]  # ast.walk goes from the outside in
