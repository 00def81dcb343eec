"""The body of one function, statement by statement, for `translate`."""

from __future__ import annotations

import ast
import json
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from byheart.reports.translate import Translation

OPERATORS = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv",
    ast.Mod: "mod", ast.Pow: "pow", ast.BitOr: "or", ast.BitAnd: "and", ast.RShift: "rshift",
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

    def __init__(self, owner: Translation, function: types.FunctionType, node: Any) -> None:
        self.owner, self.function = owner, function
        self.scopes: list[set[str]] = []
        self.text = self._function(node, self._defaults())

    def _defaults(self) -> dict[str, str]:
        """Defaults as they are, not as they are written."""
        code, f = self.function.__code__, self.function
        names = code.co_varnames[: code.co_argcount]
        given = f.__defaults__ or ()
        pairs = dict(zip(names[len(names) - len(given) :], given, strict=True))
        pairs |= f.__kwdefaults__ or {}
        return {name: self.owner.value(value) for name, value in pairs.items()}

    def _function(self, node: Any, defaults: dict[str, str]) -> str:
        args = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        names = [a.arg for a in args]
        rest = node.args.vararg.arg if node.args.vararg else None
        self.scopes.append({*names, *assigned(node), *([rest] if rest else [])})
        shown = [identifier(n) + (f" = {defaults[n]}" if n in defaults else "") for n in names] + (
            [f"...{identifier(rest)}"] if rest else []
        )
        if isinstance(node, ast.Lambda):
            body = f"return {self.expression(node.body)};"
        else:
            known = assigned(node) - set(names)
            declared = f"let {', '.join(sorted(map(identifier, known)))}; " if known else ""
            body = declared + self._block(node.body)
        self.scopes.pop()
        return f"py.def(({', '.join(shown)}) => {{ {body} }}, {json.dumps(names)})"

    # Statements

    def _block(self, statements: list[ast.stmt]) -> str:
        return " ".join(self._statement(s) for s in statements)

    def _statement(self, node: ast.stmt) -> str:
        write = getattr(self, f"_{type(node).__name__}", None)
        if write is None:
            return self._unknown(node)
        try:
            return write(node)
        except Untranslatable as why:
            return f"throw py.untranslated({json.dumps(str(why))});"

    def _unknown(self, node: ast.AST) -> str:
        where = f"{type(node).__name__} in {self.function.__qualname__}"
        return f"throw py.untranslated({json.dumps(where)});"

    def _Return(self, node: ast.Return) -> str:
        return f"return {self.expression(node.value) if node.value else 'null'};"

    def _Expr(self, node: ast.Expr) -> str:
        if isinstance(node.value, ast.Constant):  # a docstring
            return ""
        return f"{self.expression(node.value)};"

    def _Assign(self, node: ast.Assign) -> str:
        if len(node.targets) != 1:
            raise Untranslatable("several targets")
        return f"{self._target(node.targets[0])} = {self.expression(node.value)};"

    def _AnnAssign(self, node: ast.AnnAssign) -> str:
        if node.value is None:
            return ""
        return f"{self._target(node.target)} = {self.expression(node.value)};"

    def _AugAssign(self, node: ast.AugAssign) -> str:
        target = self._target(node.target)
        operator = OPERATORS.get(type(node.op))
        if operator is None:
            raise Untranslatable(ast.dump(node.op))
        return f"{target} = py.{operator}({target}, {self.expression(node.value)});"

    def _target(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name):
            return identifier(node.id)
        if isinstance(node, (ast.Tuple, ast.List)):
            return "[" + ", ".join(self._target(e) for e in node.elts) + "]"
        if isinstance(node, ast.Starred):
            return f"...{self._target(node.value)}"
        raise Untranslatable(f"assignment to {type(node).__name__}")

    def _If(self, node: ast.If) -> str:
        text = f"if (py.truth({self.expression(node.test)})) {{ {self._block(node.body)} }}"
        return text + (f" else {{ {self._block(node.orelse)} }}" if node.orelse else "")

    def _While(self, node: ast.While) -> str:
        return f"while (py.truth({self.expression(node.test)})) {{ {self._block(node.body)} }}"

    def _For(self, node: ast.For) -> str:
        target, items = self._target(node.target), self.expression(node.iter)
        if target.startswith("["):
            target = f"const item of py.iter({items})) {{ {target} = item; {self._block(node.body)}"
            return f"for ({target} }}"
        return f"for ({target} of py.iter({items})) {{ {self._block(node.body)} }}"

    def _Raise(self, node: ast.Raise) -> str:
        return f"throw {self.expression(node.exc) if node.exc else 'new Error()'};"

    def _Pass(self, node: ast.Pass) -> str:
        return ""

    def _Break(self, node: ast.Break) -> str:
        return "break;"

    def _Continue(self, node: ast.Continue) -> str:
        return "continue;"

    def _FunctionDef(self, node: ast.FunctionDef) -> str:
        defaults = [self.expression(d) for d in node.args.defaults]
        names = [a.arg for a in node.args.args]
        given = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
        return f"{identifier(node.name)} = {self._function(node, given)};"

    # Expressions

    def expression(self, node: ast.expr) -> str:
        write = getattr(self, f"_{type(node).__name__}", None)
        if write is None:
            raise Untranslatable(f"{type(node).__name__} in {self.function.__qualname__}")
        return write(node)

    def _Constant(self, node: ast.Constant) -> str:
        return self.owner.value(node.value)

    def _Name(self, node: ast.Name) -> str:
        if any(node.id in scope for scope in self.scopes):
            return identifier(node.id)
        return self.owner.reference(self.function, node.id)

    def _Attribute(self, node: ast.Attribute) -> str:
        return f"py.attr({self.expression(node.value)}, {json.dumps(node.attr)})"

    def _Subscript(self, node: ast.Subscript) -> str:
        item = node.slice
        if isinstance(item, ast.Slice):
            ends = (item.lower, item.upper, item.step)
            texts = ["null" if e is None else self.expression(e) for e in ends]
            return f"py.slice({self.expression(node.value)}, {', '.join(texts)})"
        return f"py.item({self.expression(node.value)}, {self.expression(item)})"

    def _BinOp(self, node: ast.BinOp) -> str:
        operator = OPERATORS.get(type(node.op))
        if operator is None:
            raise Untranslatable(ast.dump(node.op))
        return f"py.{operator}({self.expression(node.left)}, {self.expression(node.right)})"

    def _UnaryOp(self, node: ast.UnaryOp) -> str:
        inner = self.expression(node.operand)
        if isinstance(node.op, ast.Not):
            return f"!py.truth({inner})"
        return f"py.neg({inner})" if isinstance(node.op, ast.USub) else inner

    def _BoolOp(self, node: ast.BoolOp) -> str:
        operator = "either" if isinstance(node.op, ast.Or) else "both"
        parts = [f"() => {self.expression(v)}" for v in node.values]
        return f"py.{operator}({', '.join(parts)})"

    def _Compare(self, node: ast.Compare) -> str:
        parts, left = [], self.expression(node.left)
        for operator, right in zip(node.ops, node.comparators, strict=True):
            text = self.expression(right)
            parts.append(f"py.{COMPARISONS[type(operator)]}({left}, {text})")
            left = text
        return parts[0] if len(parts) == 1 else f"({' && '.join(parts)})"

    def _IfExp(self, node: ast.IfExp) -> str:
        texts = (self.expression(e) for e in (node.test, node.body, node.orelse))
        return "(py.truth({}) ? {} : {})".format(*texts)

    def _Call(self, node: ast.Call) -> str:
        args = ", ".join(self._element(a) for a in node.args)
        words = ", ".join(
            f"...py.words({self.expression(k.value)})"
            if k.arg is None
            else f"[{json.dumps(k.arg)}, {self.expression(k.value)}]"
            for k in node.keywords
        )
        if isinstance(node.func, ast.Attribute):
            owner = self.expression(node.func.value)
            return f"py.method({owner}, {json.dumps(node.func.attr)}, [{args}], [{words}])"
        function = self.expression(node.func)
        return f"py.call({function}, [{args}], [{words}])" if words else f"{function}({args})"

    def _element(self, node: ast.expr) -> str:
        if isinstance(node, ast.Starred):
            return f"...py.iter({self.expression(node.value)})"
        return self.expression(node)

    def _Tuple(self, node: ast.Tuple | ast.List | ast.Set) -> str:
        return "[" + ", ".join(self._element(e) for e in node.elts) + "]"

    _List = _Tuple

    def _Set(self, node: ast.Set) -> str:
        return f"py.set({self._Tuple(node)})"

    def _Dict(self, node: ast.Dict) -> str:
        pairs = [
            f"...py.words({self.expression(v)})"
            if k is None
            else f"[{self.expression(k)}, {self.expression(v)}]"
            for k, v in zip(node.keys, node.values, strict=True)
        ]
        return f"py.map([{', '.join(pairs)}])"

    def _Lambda(self, node: ast.Lambda) -> str:
        return self._function(node, {})

    def _comprehension(self, generators: list[ast.comprehension], inner: Any) -> str:
        """py.each(items, x => condition ? [value] : []) nested from the outside in."""
        first, *others = generators
        items = self.expression(first.iter)
        self.scopes.append(names_in(first.target))
        target = self._target(first.target)
        deeper = self._comprehension(others, inner) if others else f"[{inner()}]"
        for condition in reversed(first.ifs):
            deeper = f"py.truth({self.expression(condition)}) ? {deeper} : []"
        self.scopes.pop()
        return f"py.each({items}, ({target}) => {deeper})"

    def _ListComp(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> str:
        return self._comprehension(node.generators, lambda: self.expression(node.elt))

    _GeneratorExp = _ListComp

    def _SetComp(self, node: ast.SetComp) -> str:
        return f"py.set({self._ListComp(node)})"

    def _DictComp(self, node: ast.DictComp) -> str:
        pairs = self._comprehension(
            node.generators,
            lambda: f"[{self.expression(node.key)}, {self.expression(node.value)}]",
        )
        return f"py.map({pairs})"

    def _JoinedStr(self, node: ast.JoinedStr) -> str:
        return "py.text(" + ", ".join(self.expression(v) for v in node.values) + ")"

    def _FormattedValue(self, node: ast.FormattedValue) -> str:
        spec = self.expression(node.format_spec) if node.format_spec else '""'
        how = '"r"' if node.conversion == ord("r") else '""'
        return f"py.format({self.expression(node.value)}, {spec}, {how})"


def names_in(target: ast.expr) -> set[str]:
    return {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}


def assigned(node: Any) -> set[str]:
    """Names that a function assigns, not those of functions inside it."""
    found: set[str] = set()
    if isinstance(node, ast.Lambda):
        return found
    stack: list[ast.AST] = list(node.body)
    while stack:
        one = stack.pop()
        if isinstance(one, ast.FunctionDef):
            found.add(one.name)
            continue
        if isinstance(one, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            continue
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
            found.add(one.id)
        stack += ast.iter_child_nodes(one)
    return found
