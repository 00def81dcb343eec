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
import re
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

Function = ast.FunctionDef | ast.Lambda
Fields = tuple[dataclasses.Field[object], ...]
LONG = 200  # characters of a constant from which it gets a name of its own
KEPT = {  # builtins that templates/python.js has, which is `py` in the page
    "bool", "dict", "float", "getattr", "int", "isinstance", "len", "max", "min", "object", "range",
    "round", "set", "sorted", "str", "vars",
}  # fmt: skip
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
OPERATORS = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv",
    ast.Mod: "mod", ast.Pow: "pow", ast.BitOr: "or", ast.Not: "not", ast.USub: "neg",
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne",
    ast.Is: "is", ast.IsNot: "isnt", ast.In: "isin", ast.NotIn: "notin", ast.And: "both",
    ast.Or: "either",
}  # fmt: skip
TEMPLATES = {  # <name> is a field of the node, translated
    ast.Return: "return <value>;", ast.Raise: "throw <exc>;", ast.Continue: "continue;",
    ast.Expr: "<value>;", ast.Assign: "<targets> = <value>;", ast.AnnAssign: "<target> = <value>;",
    ast.AugAssign: "<target> = py.<op>(<target>, <value>);",
    ast.If: "if (py.truth(<test>)) { <body> } else { <orelse> }",
    ast.While: "while (py.truth(<test>)) { <body> }",
    ast.For: "for (const item of py.iter(<iter>)) { <target> = item; <body> }",
    ast.UnaryOp: "py.<op>(<operand>)", ast.BinOp: "py.<op>(<left>, <right>)",
    ast.IfExp: "(py.truth(<test>) ? <body> : <orelse>)", ast.Starred: "...py.iter(<value>)",
    ast.Attribute: 'py.attr(<value>, "<attr>")', ast.Subscript: "py.item(<value>, <slice>)",
    ast.JoinedStr: "py.text(<values>)", ast.Tuple: "[<elts>]", ast.List: "[<elts>]",
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
            return f"py.map([{', '.join(self._pair(*pair) for pair in item.items())}])"
        if item in (math, dataclasses) or module in ("math", "dataclasses"):
            return f"py.{module}.{name}" if module else f"py.{name}"
        if isinstance(item, type) and issubclass(item, BaseException):
            return f"py.exception({json.dumps(name)})"
        if getattr(builtins, name, None) is item:
            return f"py.{name}" if name in KEPT else missing(name)
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
            return f"py.dispatch([{', '.join(pairs)}])"
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
            elif isinstance(member, types.FunctionType) and not special and written(member):
                methods.append(f"{name}: {self._function(member)}")
            elif isinstance(member, (str, int)) and not special:
                getters.append(f"{name}: () => {literal(member)}")
        names, functions, properties = map(", ".join, (shown, methods, getters))
        parts = f"[{names}], {{{functions}}}, {{{properties}}}"
        return f'py.dataclass("{item.__name__}", {parts})'

    def text(self) -> str:
        return "\n".join(self.lines)

    def reference(self, function: types.FunctionType, name: str) -> str:
        """What a global or closed-over `name` of `function` stands for."""
        free = function.__code__.co_freevars
        if name in free and function.__closure__ is not None:
            return self.value(function.__closure__[free.index(name)].cell_contents)
        place = function.__globals__ if name in function.__globals__ else vars(builtins)
        return self.value(place[name]) if name in place else missing(name)


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
    return f"py.missing({json.dumps(what)})"


def written(function: types.FunctionType) -> bool:
    """By a person: dataclasses generate methods without source."""
    return not function.__code__.co_filename.startswith("<")


@lru_cache
def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[module]))


def node_of(function: types.FunctionType) -> Function:
    """The syntax tree of a function or lambda: the innermost that encloses all of its code."""
    found = [spot for spot in function.__code__.co_positions() if None not in spot]
    spots = [((a, c), (b, d)) for a, b, c, d in found if (a, c) != (b, d)]
    functions = [n for n in ast.walk(_tree(function.__module__)) if isinstance(n, Function)]
    if not spots:
        return _constant_lambda(function.__code__, functions)
    first, last = min(start for start, _ in spots), max(end for _, end in spots)
    around = [
        node for node in functions
        if (node.lineno, node.col_offset) <= first
        and last <= (node.end_lineno, node.end_col_offset)
    ]  # fmt: skip
    return around[-1]  # ast.walk goes from the outside in


def _constant_lambda(code: types.CodeType, functions: Sequence[Function]) -> ast.Lambda:
    """The lambda that compiles to `code`: of one that returns a constant Python 3.12 does not say
    where in its line it stands."""
    for node in functions:
        if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno:
            made = compile(ast.Expression(node), "<lambda>", "eval").co_consts[0]
            if (made.co_code, made.co_consts) == (code.co_code, code.co_consts):
                return node
    raise Untranslatable(f"a function of line {code.co_firstlineno} without a place in its source")


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
            body = f"return {self.code(node.body)};"
        else:
            fresh = ", ".join(sorted(map(identifier, local - set(names))))
            body = (f"let {fresh}; " if fresh else "") + self._field(node, [*node.body])
        self.scopes.pop()
        return f"py.def(({', '.join(shown)}) => {{ {body} }}, {json.dumps(names)})"

    def _reachable(self, node: ast.AST) -> str:
        """A statement that has no translation fails when it is reached."""
        try:
            return self.code(node)
        except Untranslatable as why:
            return f"throw py.untranslated({json.dumps(str(why))});"

    def code(self, node: ast.AST) -> str:
        """JavaScript for an expression or a statement."""
        text = self._leaf(node) or self._compound(node)
        if text is not None:
            return text
        item = isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Store)
        chain = isinstance(node, ast.Assign) and len(node.targets) > 1
        if item or chain or type(node) not in TEMPLATES:
            raise self._unknown(node)
        fill = TEMPLATES[type(node)]
        return re.sub(r"<(\w+)>", lambda name: self._field(node, getattr(node, name[1])), fill)

    def _unknown(self, node: ast.AST) -> Untranslatable:
        return Untranslatable(f"{type(node).__name__} in {self.function.__qualname__}")

    def _field(self, node: ast.AST, value: ast.AST | list[ast.AST] | str | None) -> str:
        match value:
            case None:
                return "null"
            case str():
                return value
            case [ast.stmt(), *_]:
                return " ".join(map(self._reachable, value))
            case list():
                return ", ".join(map(self.code, value))
            case ast.operator() | ast.unaryop() if type(value) not in OPERATORS:
                raise self._unknown(node)
            case ast.operator() | ast.unaryop():
                return OPERATORS[type(value)]
        return self.code(value)

    def _leaf(self, node: ast.AST) -> str | None:
        match node:
            case ast.Constant(value):
                return self.owner.value(value)
            case ast.Name(name) if any(name in scope for scope in self.scopes):
                return identifier(name)
            case ast.Name(name):
                return self.owner.reference(self.function, name)
            case ast.Lambda():
                return self._function(node, {})
            case ast.Expr(ast.Constant()):  # a docstring
                return ";"
            case ast.FormattedValue(value, conversion, spec):
                how = '"r"' if conversion == ord("r") else '""'
                shape = self.code(spec) if spec else '""'
                return f"py.format({self.code(value)}, {shape}, {how})"
        return None

    def _compound(self, node: ast.AST) -> str | None:
        match node:
            case ast.BoolOp(op, values):
                parts = ", ".join(f"() => {self.code(value)}" for value in values)
                return f"py.{OPERATORS[type(op)]}({parts})"
            case ast.Compare(left, operators, rights):
                sides = [self.code(side) for side in (left, *rights)]
                pairs = zip(operators, sides, sides[1:], strict=False)
                tests = (f"py.{OPERATORS[type(op)]}({a}, {b})" for op, a, b in pairs)
                return "(" + " && ".join(tests) + ")"
            case ast.Call(function, args, keywords):
                given = ", ".join(map(self.code, args))
                words = self._pairs((k.arg and json.dumps(k.arg), k.value) for k in keywords)
                if isinstance(function, ast.Attribute):
                    owner = f"{self.code(function.value)}, {json.dumps(function.attr)}"
                    return f"py.method({owner}, [{given}], [{words}])"
                name = self.code(function)
                return f"py.call({name}, [{given}], [{words}])" if words else f"{name}({given})"
            case ast.Dict(keys, values):
                names = [None if key is None else self.code(key) for key in keys]
                return f"py.map([{self._pairs(zip(names, values, strict=True))}])"
            case ast.ListComp(element, loops) | ast.GeneratorExp(element, loops):
                return self._each(loops, element)
            case ast.SetComp(element, loops):
                return f"py.set({self._each(loops, element)})"
            case ast.DictComp(key, value, loops):
                return f"py.map({self._each(loops, ast.Tuple([key, value]))})"
        return None

    def _pairs(self, items: Iterable[tuple[str | None, ast.expr]]) -> str:
        """[key, value] pairs; without a key, those of a mapping (** in Python)."""
        pairs = [(key, self.code(value)) for key, value in items]
        return ", ".join(f"[{k}, {v}]" if k is not None else f"...py.words({v})" for k, v in pairs)

    def _each(self, loops: list[ast.comprehension], element: ast.expr) -> str:
        """py.each(items, x => condition ? [value] : []) nested from the outside in."""
        first, *others = loops
        items = self.code(first.iter)
        self.scopes.append({n.id for n in ast.walk(first.target) if isinstance(n, ast.Name)})
        deeper = self._each(others, element) if others else f"[{self.code(element)}]"
        for condition in reversed(first.ifs):
            deeper = f"py.truth({self.code(condition)}) ? {deeper} : []"
        target = self.code(first.target)
        self.scopes.pop()
        return f"py.each({items}, ({target}) => {deeper})"


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
