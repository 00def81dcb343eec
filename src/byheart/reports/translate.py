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
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Function = ast.FunctionDef | ast.Lambda
LONG = 200  # characters of a constant from which it gets a name of its own
RUNTIME = "py"  # the name of templates/python.js in the page
KEPT = {  # builtins and standard functions that the runtime has
    "bool", "dict", "float", "getattr", "int", "isinstance", "len", "max", "min", "object", "range",
    "round", "set", "sorted", "str", "vars",
}  # fmt: skip
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
OPERATORS = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv",
    ast.Mod: "mod", ast.Pow: "pow", ast.BitOr: "or",
}  # fmt: skip
COMPARISONS = {
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne",
    ast.Is: "is", ast.IsNot: "isnt", ast.In: "isin", ast.NotIn: "notin",
}  # fmt: skip
RESERVED = {"default", "new", "function", "var", "let", "const", "case", "this", "delete", "py"}


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
            if isinstance(item, type):
                return self._declare(item, name, lambda: self._class(item))
            return self._declare(item, type(item).__name__, lambda: self._instance(item))
        return missing(f"{type(item).__name__} {name}".strip())

    def _pair(self, key: object, value: object) -> str:
        return f"[{self.value(key)}, {self.value(value)}]"

    def _declare(self, item: object, kind: str, write: Callable[[], str]) -> str:
        """A declaration, written once; named before, for functions may call each other."""
        name = self._names[id(item)] = f"{identifier(kind)}_{len(self._names)}"
        self._kept.append(item)
        self.lines.append(f"const {name} = {write()};")
        return name

    def _instance(self, item: DataclassInstance) -> str:
        values = [self.value(getattr(item, field.name)) for field in dataclasses.fields(item)]
        return f"{self.value(type(item))}({', '.join(values)})"

    def _function(self, function: types.FunctionType) -> str:
        methods = getattr(function, "registry", None)
        if methods is not None:  # functools.singledispatch
            pairs = [self._pair(kind, method) for kind, method in methods.items()]
            return f"{RUNTIME}.dispatch([{', '.join(pairs)}])"
        return Body(self, function, node_of(function)).text

    def _class(self, item: type[DataclassInstance]) -> str:
        """A dataclass with its fields, methods and properties, the inherited ones too."""
        shown, methods, getters = [], [], []
        for field in dataclasses.fields(item):
            default = field.default
            known = "" if default is dataclasses.MISSING else f", () => {self.value(default)}"
            shown.append(f"[{json.dumps(field.name)}{known}]")
        members = {k: v for base in reversed(item.__mro__) for k, v in vars(base).items()}
        for key, member in members.items():
            name = json.dumps(key)
            special = key.startswith("__") and key not in ("__getitem__", "__post_init__")
            if isinstance(member, property) and isinstance(member.fget, types.FunctionType):
                getters.append(f"{name}: {self._function(member.fget)}")
            elif isinstance(member, types.FunctionType) and not special and written(member):
                methods.append(f"{name}: {self._function(member)}")
            elif isinstance(member, (str, int)) and not special:
                getters.append(f"{name}: () => {literal(member)}")
        fields, functions, properties = map(", ".join, (shown, methods, getters))
        parts = f"[{fields}], {{{functions}}}, {{{properties}}}"
        return f'{RUNTIME}.dataclass("{item.__name__}", {parts})'

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


def written(function: types.FunctionType) -> bool:
    """By a person: dataclasses generate methods without source."""
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


class Untranslatable(Exception):
    """A construct that the translation does not know."""


def identifier(name: str) -> str:
    """A name that JavaScript accepts: letters of the papers are fine, its own words are not.

    >>> identifier("case"), identifier("<lambda>"), identifier("σ")
    ('case_', 'f_lambda_', 'σ')
    """
    plain = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    if plain != name:
        plain = f"f{plain}"
    return f"{plain}_" if plain in RESERVED else plain


class Body:
    """`text` is a JavaScript function (`py.def`) with the names and defaults of its arguments."""

    def __init__(self, owner: Translation, function: types.FunctionType, node: Function) -> None:
        self.owner, self.function = owner, function
        self.scopes: list[set[str]] = []
        # Defaults as they are, not as they are written.
        given = inspect.signature(function).parameters.values()
        defaults = {p.name: owner.value(p.default) for p in given if p.default is not p.empty}
        self.text = self._function(node, defaults)

    def _function(self, node: Function, defaults: dict[str, str]) -> str:
        names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        rest = [node.args.vararg.arg] if node.args.vararg else []
        local = set() if isinstance(node, ast.Lambda) else assigned(node)
        self.scopes.append({*names, *rest, *local})
        shown = [identifier(n) + (f" = {defaults[n]}" if n in defaults else "") for n in names]
        shown += [f"...{identifier(name)}" for name in rest]
        if isinstance(node, ast.Lambda):
            body = f"return {self.expression(node.body)};"
        else:
            fresh = ", ".join(sorted(map(identifier, local - set(names))))
            body = (f"let {fresh}; " if fresh else "") + self._block(node.body)
        self.scopes.pop()
        return f"py.def(({', '.join(shown)}) => {{ {body} }}, {json.dumps(names)})"

    def _block(self, statements: list[ast.stmt]) -> str:
        return " ".join(self._reachable(statement) for statement in statements)

    def _reachable(self, node: ast.stmt) -> str:
        """A statement that has no translation fails when it is reached."""
        try:
            return self._statement(node)
        except Untranslatable as why:
            return f"throw py.untranslated({json.dumps(str(why))});"

    def _statement(self, node: ast.stmt) -> str:
        match node:
            case ast.Return(value):
                return f"return {self.expression(value) if value else 'null'};"
            case ast.Expr(ast.Constant()):  # a docstring
                return ""
            case ast.Expr(value):
                return f"{self.expression(value)};"
            case ast.Assign([target], value) | ast.AnnAssign(target, _, ast.expr() as value):
                return f"{self._target(target)} = {self.expression(value)};"
            case ast.AugAssign(target, op, value) if type(op) in OPERATORS:
                name = self._target(target)
                return f"{name} = py.{OPERATORS[type(op)]}({name}, {self.expression(value)});"
            case ast.If(test, body, orelse):
                text = f"if ({self._truth(test)}) {{ {self._block(body)} }}"
                return text + (f" else {{ {self._block(orelse)} }}" if orelse else "")
            case ast.While(test, body):
                return f"while ({self._truth(test)}) {{ {self._block(body)} }}"
            case ast.For(target, items, body):
                step = f"{self._target(target)} = item; {self._block(body)}"
                return f"for (const item of py.iter({self.expression(items)})) {{ {step} }}"
            case ast.Raise(ast.expr() as error):
                return f"throw {self.expression(error)};"
            case ast.Continue():
                return "continue;"
        raise self._unknown(node)

    def _unknown(self, node: ast.AST) -> Untranslatable:
        return Untranslatable(f"{type(node).__name__} in {self.function.__qualname__}")

    def _target(self, node: ast.expr) -> str:
        match node:
            case ast.Name(name):
                return identifier(name)
            case ast.Tuple(parts):
                return "[" + ", ".join(map(self._target, parts)) + "]"
        raise self._unknown(node)

    def _truth(self, node: ast.expr) -> str:
        return f"py.truth({self.expression(node)})"

    def expression(self, node: ast.expr) -> str:
        """A JavaScript expression for a Python one."""
        text = self._operation(node) or self._reference(node) or self._collection(node)
        if text is None:
            raise self._unknown(node)
        return text

    def _operation(self, node: ast.expr) -> str | None:
        match node:
            case ast.BinOp(left, op, right) if type(op) in OPERATORS:
                sides = f"{self.expression(left)}, {self.expression(right)}"
                return f"py.{OPERATORS[type(op)]}({sides})"
            case ast.UnaryOp(ast.Not(), operand):
                return f"!{self._truth(operand)}"
            case ast.UnaryOp(ast.USub(), operand):
                return f"py.neg({self.expression(operand)})"
            case ast.BoolOp(op, values):
                parts = ", ".join(f"() => {self.expression(value)}" for value in values)
                return f"py.{'either' if isinstance(op, ast.Or) else 'both'}({parts})"
            case ast.Compare(left, operators, rights):
                sides = [self.expression(side) for side in (left, *rights)]
                names = [COMPARISONS[type(operator)] for operator in operators]
                pairs = zip(names, sides, sides[1:], strict=False)
                return "(" + " && ".join(f"py.{name}({a}, {b})" for name, a, b in pairs) + ")"
            case ast.IfExp(test, body, orelse):
                sides = f"{self.expression(body)} : {self.expression(orelse)}"
                return f"({self._truth(test)} ? {sides})"
        return None

    def _reference(self, node: ast.expr) -> str | None:
        match node:
            case ast.Constant(value):
                return self.owner.value(value)
            case ast.Name(name) if any(name in scope for scope in self.scopes):
                return identifier(name)
            case ast.Name(name):
                return self.owner.reference(self.function, name)
            case ast.Attribute(value, name):
                return f"py.attr({self.expression(value)}, {json.dumps(name)})"
            case ast.Subscript(value, item):
                return f"py.item({self.expression(value)}, {self.expression(item)})"
            case ast.Call():
                return self._call(node)
            case ast.Lambda():
                return self._function(node, {})
            case ast.Starred(value):
                return f"...py.iter({self.expression(value)})"
            case ast.JoinedStr(values):
                return "py.text(" + ", ".join(map(self.expression, values)) + ")"
            case ast.FormattedValue(value, conversion, spec):
                how = '"r"' if conversion == ord("r") else '""'
                shape = self.expression(spec) if spec else '""'
                return f"py.format({self.expression(value)}, {shape}, {how})"
        return None

    def _call(self, node: ast.Call) -> str:
        args = ", ".join(map(self.expression, node.args))
        words = self._pairs((k.arg and json.dumps(k.arg), k.value) for k in node.keywords)
        if isinstance(node.func, ast.Attribute):
            owner = self.expression(node.func.value)
            return f"py.method({owner}, {json.dumps(node.func.attr)}, [{args}], [{words}])"
        function = self.expression(node.func)
        return f"py.call({function}, [{args}], [{words}])" if words else f"{function}({args})"

    def _pairs(self, items: Iterable[tuple[str | None, ast.expr]]) -> str:
        """[key, value] pairs; without a key, those of a mapping (** in Python)."""
        pairs = [(key, self.expression(value)) for key, value in items]
        return ", ".join(f"[{k}, {v}]" if k is not None else f"...py.words({v})" for k, v in pairs)

    def _collection(self, node: ast.expr) -> str | None:
        match node:
            case ast.Tuple(elements) | ast.List(elements):
                return "[" + ", ".join(map(self.expression, elements)) + "]"
            case ast.Dict(keys, values):
                names = [None if key is None else self.expression(key) for key in keys]
                return f"py.map([{self._pairs(zip(names, values, strict=True))}])"
            case ast.ListComp(element, loops) | ast.GeneratorExp(element, loops):
                return self._each(loops, element)
            case ast.SetComp(element, loops):
                return f"py.set({self._each(loops, element)})"
            case ast.DictComp(key, value, loops):
                return f"py.map({self._each(loops, ast.Tuple([key, value]))})"
        return None

    def _each(self, loops: list[ast.comprehension], element: ast.expr) -> str:
        """py.each(items, x => condition ? [value] : []) nested from the outside in."""
        first, *others = loops
        items = self.expression(first.iter)
        names = {n.id for n in ast.walk(first.target) if isinstance(n, ast.Name)}
        self.scopes.append(names)
        deeper = self._each(others, element) if others else f"[{self.expression(element)}]"
        for condition in reversed(first.ifs):
            deeper = f"{self._truth(condition)} ? {deeper} : []"
        self.scopes.pop()
        return f"py.each({items}, ({self._target(first.target)}) => {deeper})"


def assigned(node: ast.FunctionDef) -> set[str]:
    """Names that a function assigns, not those of comprehensions inside it."""
    names: set[str] = set()
    stack: list[ast.AST] = list(node.body)
    while stack:
        one = stack.pop()
        if isinstance(one, (ast.Lambda, *COMPREHENSIONS)):
            continue
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
            names.add(one.id)
        stack += ast.iter_child_nodes(one)
    return names
