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
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from byheart.reports._translate_body import Body, Untranslatable, identifier

LONG = 200  # characters of a constant from which it gets a name of its own
RUNTIME = "py"  # the name of templates/python.js in the page
KEPT = {  # builtins and standard functions that the runtime has
    "abs", "all", "any", "bool", "dict", "enumerate", "float", "getattr", "int", "isinstance",
    "len", "list", "max", "min", "object", "range", "round", "set", "sorted", "str", "sum",
    "tuple", "type", "vars", "zip",
}  # fmt: skip


class Translation:
    """JavaScript declarations, in the order in which they can stand, and the names they give."""

    def __init__(self, skipped: Sequence[object] = ()) -> None:
        self.lines: list[str] = []
        self._names: dict[int, str] = {id(item): "(() => null)" for item in skipped}
        self._kept: list[object] = [*skipped]  # ids stay unique while the objects live

    def value(self, item: Any) -> str:
        """A JavaScript expression for `item`; functions and classes are declared once.

        >>> Translation().value((1, 2.0, "a", None, {"d": True}))
        '[1n, 2.0, "a", null, py.map([["d", true]])]'
        """
        if item is None or isinstance(item, (bool, int, float, str)):
            return literal(item)
        if id(item) in self._names:
            return self._names[id(item)]
        if isinstance(item, (tuple, list, set, frozenset)):
            text = "[" + ", ".join(self.value(one) for one in item) + "]"
            return text if len(text) < LONG else self._name(item, "table", text)
        if isinstance(item, dict):
            return f"{RUNTIME}.map([{', '.join(self._pair(*pair) for pair in item.items())}])"
        if item is math or item is dataclasses:
            return f"{RUNTIME}.{item.__name__}"
        if isinstance(item, types.BuiltinFunctionType) and item.__module__ == "math":
            return f"{RUNTIME}.math.{item.__name__}"
        if getattr(builtins, getattr(item, "__name__", ""), None) is item:
            return self._builtin(item)
        if getattr(item, "__module__", "") == "dataclasses" and hasattr(item, "__name__"):
            return f"{RUNTIME}.dataclasses.{item.__name__}"
        if isinstance(item, types.FunctionType):
            return self._declare(item, self._function)
        if isinstance(item, type):
            return self._declare(item, self._class)
        if dataclasses.is_dataclass(item):
            return self._name(item, type(item).__name__, self._instance(item))
        return missing(f"{type(item).__name__} {getattr(item, '__name__', '')}".strip())

    def _pair(self, key: Any, value: Any) -> str:
        return f"[{self.value(key)}, {self.value(value)}]"

    def _builtin(self, item: Any) -> str:
        if isinstance(item, type) and issubclass(item, BaseException):
            return f"{RUNTIME}.exception({json.dumps(item.__name__)})"
        return f"{RUNTIME}.{item.__name__}" if item.__name__ in KEPT else missing(item.__name__)

    def _declare(self, item: Any, write: Any) -> str:
        # Named before it is written: functions may call each other.
        name = self._names[id(item)] = f"{identifier(item.__name__)}_{len(self._names)}"
        self._kept.append(item)
        self.lines.append(f"const {name} = {write(item)};")
        return name

    def _name(self, item: Any, kind: str, text: str) -> str:
        """A constant that several functions may refer to, written once."""
        name = self._names[id(item)] = f"{identifier(kind)}_{len(self._names)}"
        self._kept.append(item)
        self.lines.append(f"const {name} = {text};")
        return name

    def _instance(self, item: Any) -> str:
        fields = [self.value(getattr(item, f.name)) for f in dataclasses.fields(item)]
        return f"{self.value(type(item))}({', '.join(fields)})"

    def _function(self, function: types.FunctionType) -> str:
        methods = getattr(function, "registry", None)
        if methods is not None:  # functools.singledispatch
            pairs = [self._pair(kind, method) for kind, method in methods.items()]
            return f"{RUNTIME}.dispatch([{', '.join(pairs)}])"
        return Body(self, function, node_of(function)).text

    def _class(self, item: type) -> str:
        """A dataclass with its methods and properties; any other class only has a name."""
        name = json.dumps(item.__name__)
        if issubclass(item, BaseException):
            return f"{RUNTIME}.exception({name})"
        if not dataclasses.is_dataclass(item):
            return f"{RUNTIME}.opaque({name})"
        methods, getters = [], []
        members = {k: v for base in reversed(item.__mro__) for k, v in vars(base).items()}
        for key, member in members.items():
            given = key.startswith("__") and key not in ("__getitem__", "__post_init__")
            if isinstance(member, property) and member.fget is not None:
                getters.append(self._member(key, member.fget))
            elif isinstance(member, types.FunctionType) and not given and own_source(member):
                methods.append(self._member(key, member))
            elif key.isidentifier() and not given and isinstance(member, (str, int)):
                getters.append(f"{json.dumps(key)}: () => {literal(member)}")
        fields = [self._field(f) for f in dataclasses.fields(item)]
        lists = ", ".join(fields), ", ".join(methods), ", ".join(getters)
        return f"{RUNTIME}.dataclass({name}, [{lists[0]}], {{{lists[1]}}}, {{{lists[2]}}})"

    def _default(self, field: Any) -> Any:
        if field.default_factory is not dataclasses.MISSING:
            return field.default_factory()
        return None if field.default is dataclasses.MISSING else field.default

    def _field(self, field: Any) -> str:
        made = field.default_factory is not dataclasses.MISSING
        known = made or field.default is not dataclasses.MISSING
        default = f", () => {self.value(self._default(field))}" if known else ""
        return f"[{json.dumps(field.name)}{default}]"

    def _member(self, name: str, function: Any) -> str:
        return f"{json.dumps(name)}: {self._function(function)}"

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


def literal(item: Any) -> str:
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


def own_source(function: types.FunctionType) -> bool:
    """Whether a person wrote it (dataclasses generate methods without source)."""
    return not function.__code__.co_filename.startswith("<")


@lru_cache
def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[module]))


Node = ast.FunctionDef | ast.Lambda


def node_of(function: types.FunctionType) -> Node:
    """The syntax tree of a function or lambda, found by line, name and arguments."""
    code = function.__code__
    lines = {line for *_, line in code.co_lines() if line} | {code.co_firstlineno}
    names = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    found = []
    for node in ast.walk(_tree(function.__module__)):
        if isinstance(node, ast.Lambda) != (code.co_name == "<lambda>"):
            continue
        if isinstance(node, ast.FunctionDef) and node.name != code.co_name:
            continue
        if not isinstance(node, Node) or [a.arg for a in arguments(node)] != names:
            continue
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        if first == code.co_firstlineno:
            found.append(node)
    if len(found) > 1:  # several lambdas in a line: by the columns of the code
        starts = {p[2] for p in code.co_positions() if p[0] in lines and p[2]}
        inside = [n for n in found if starts and n.body.col_offset in starts]  # type: ignore
        found = inside or found
    if len(found) != 1:
        raise Untranslatable(f"{function.__qualname__}: {len(found)} sources")
    return found[0]


def arguments(node: Node) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
