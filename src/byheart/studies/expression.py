"""`only='H<=16'`: comparisons of parameters with constants, joined by and, or, not.

The text is parsed by Python's parser and evaluated node by node; anything but names, numbers,
text, comparisons, + - * / and the three words is refused. Nothing is ever called.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable

from byheart.errors import ByheartError
from byheart.studies.cell import Params, Value

Operation = Callable[[Value, Value], Value]
COMPARE: dict[type[ast.cmpop], Operation] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
ARITHMETIC: dict[type[ast.operator], Operation] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
LONGEST = 500


class Expression:
    """A condition on parameters.

    >>> small = Expression("H <= 16 and family == 'attention' and d in (5, 10)")
    >>> small({"H": 6, "family": "attention", "d": 10}), small({"H": 31, "family": "x", "d": 5})
    (True, False)
    >>> Expression("__import__('os')")
    Traceback (most recent call last):
    ...
    byheart.errors.ByheartError: `only` takes comparisons such as 'H<=16 and d==10', found Call in \
"__import__('os')"
    """

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            if len(text) > LONGEST:
                raise SyntaxError(f"more than {LONGEST} characters")
            self.body = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ByheartError(
                f"`only` takes comparisons such as 'H<=16 and d==10', found {text!r}: {error}"
            ) from None
        self._check(self.body)

    def _check(self, node: ast.AST) -> None:
        fine = (ast.BoolOp, ast.Compare, ast.Name, ast.Constant, ast.Tuple, ast.List, ast.Load,
                ast.And, ast.Or, ast.Not, ast.USub)  # fmt: skip
        operators = (*COMPARE, *ARITHMETIC)
        if isinstance(node, (ast.BinOp, ast.UnaryOp, *fine, *operators)):
            for child in ast.iter_child_nodes(node):
                self._check(child)
            return
        raise ByheartError(
            f"`only` takes comparisons such as 'H<=16 and d==10', found {type(node).__name__} in "
            f'"{self.text}"'
        )

    def __call__(self, params: Params) -> bool:
        try:
            return bool(self._value(self.body, params))
        except (TypeError, ZeroDivisionError, OverflowError) as error:
            raise ByheartError(f"`only={self.text}`: {error}") from None

    def _value(self, node: ast.AST, params: Params) -> Value:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                if name not in params:
                    raise ByheartError(
                        f"`only={self.text}`: there is no parameter {name!r}; there are "
                        f"{', '.join(sorted(params))}"
                    )
                return params[name]
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return tuple(self._value(part, params) for part in parts)
            case ast.BoolOp(op=ast.And(), values=parts):
                return all(self._value(part, params) for part in parts)
            case ast.BoolOp(values=parts):
                return any(self._value(part, params) for part in parts)
            case ast.UnaryOp(op=ast.Not(), operand=part):
                return not self._value(part, params)
            case ast.UnaryOp(operand=part):
                return -self._value(part, params)
            case ast.BinOp(left=a, op=op, right=b):
                return ARITHMETIC[type(op)](self._value(a, params), self._value(b, params))
            case ast.Compare(left=left, ops=ops, comparators=others):
                value = self._value(left, params)
                for op, other in zip(ops, others, strict=True):
                    following = self._value(other, params)
                    if not COMPARE[type(op)](value, following):
                        return False
                    value = following
                return True
        raise AssertionError(node)
