"""The body of one function, statement by statement, for `translate`."""

from __future__ import annotations

import ast
import json
import types
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from byheart.reports.translate import Translation

Function = ast.FunctionDef | ast.Lambda
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
        self.text = self._function(node, self._defaults())

    def _defaults(self) -> dict[str, str]:
        """Defaults as they are, not as they are written."""
        code, f = self.function.__code__, self.function
        names, values = code.co_varnames[: code.co_argcount], f.__defaults__ or ()
        pairs = dict(zip(names[len(names) - len(values) :], values, strict=True))
        pairs |= f.__kwdefaults__ or {}
        return {name: self.owner.value(value) for name, value in pairs.items()}

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
                return (
                    f"({self._truth(test)} ? {self.expression(body)} : {self.expression(orelse)})"
                )
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
            case ast.JoinedStr(values):
                return "py.text(" + ", ".join(map(self.expression, values)) + ")"
            case ast.FormattedValue(value, conversion, spec):
                how = '"r"' if conversion == ord("r") else '""'
                shape = self.expression(spec) if spec else '""'
                return f"py.format({self.expression(value)}, {shape}, {how})"
        return None

    def _call(self, node: ast.Call) -> str:
        args = self._elements(node.args)
        words = self._pairs([k.arg and json.dumps(k.arg) for k in node.keywords],
                            [k.value for k in node.keywords])  # fmt: skip
        if isinstance(node.func, ast.Attribute):
            owner = self.expression(node.func.value)
            return f"py.method({owner}, {json.dumps(node.func.attr)}, [{args}], [{words}])"
        function = self.expression(node.func)
        return f"py.call({function}, [{args}], [{words}])" if words else f"{function}({args})"

    def _elements(self, nodes: list[ast.expr]) -> str:
        return ", ".join(
            f"...py.iter({self.expression(node.value)})"
            if isinstance(node, ast.Starred)
            else self.expression(node)
            for node in nodes
        )

    def _pairs(self, keys: list[str | None], values: list[ast.expr]) -> str:
        """[key, value] pairs; without a key, those of a mapping (** in Python)."""
        return ", ".join(
            f"...py.words({self.expression(value)})"
            if key is None
            else f"[{key}, {self.expression(value)}]"
            for key, value in zip(keys, values, strict=True)
        )

    def _collection(self, node: ast.expr) -> str | None:
        match node:
            case ast.Tuple(elements) | ast.List(elements):
                return f"[{self._elements(elements)}]"
            case ast.Dict(keys, values):
                names = [None if key is None else self.expression(key) for key in keys]
                return f"py.map([{self._pairs(names, values)}])"
            case ast.ListComp(element, loops) | ast.GeneratorExp(element, loops):
                return self._each(loops, lambda: self.expression(element))
            case ast.SetComp(element, loops):
                return f"py.set({self._each(loops, lambda: self.expression(element))})"
            case ast.DictComp(key, value, loops):
                pairs = self._each(
                    loops, lambda: f"[{self.expression(key)}, {self.expression(value)}]"
                )
                return f"py.map({pairs})"
        return None

    def _each(self, loops: list[ast.comprehension], inner: Callable[[], str]) -> str:
        """py.each(items, x => condition ? [value] : []) nested from the outside in."""
        first, *others = loops
        items = self.expression(first.iter)
        names = {n.id for n in ast.walk(first.target) if isinstance(n, ast.Name)}
        self.scopes.append(names)
        deeper = self._each(others, inner) if others else f"[{inner()}]"
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
