"""What users ask of a grid: cells for which `only='H<=16'` holds, values such as "1:31:5"."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from byheart._files import parse_json
from byheart.errors import ByheartError, OptionError
from byheart.studies.cell import Params

LONGEST = 500  # characters of an expression
MOST = 10_000  # values of one parameter
# Names, numbers, text, comparisons, + - * / and the words and, or, not, in: nothing is ever called.
ALLOWED = (
    ast.Expression, ast.Name, ast.Load, ast.Constant, ast.Tuple, ast.List, ast.Compare, ast.Lt,
    ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq, ast.In, ast.NotIn, ast.BinOp, ast.Add, ast.Sub,
    ast.Mult, ast.Div, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub,
)  # fmt: skip


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
        expected = "`only` takes comparisons such as 'H<=16 and d==10', found"
        try:
            if len(text) > LONGEST:
                raise SyntaxError(f"more than {LONGEST} characters")
            tree = ast.parse(text.strip(), mode="eval")
            for node in ast.walk(tree):
                if not isinstance(node, ALLOWED):
                    raise ByheartError(f'{expected} {type(node).__name__} in "{text}"')
            self.code = compile(tree, "only", "eval")
        except (SyntaxError, RecursionError, MemoryError, ValueError) as error:
            raise ByheartError(f"{expected} {text!r}: {error}") from None

    def __call__(self, params: Params) -> bool:
        try:
            return bool(eval(self.code, {"__builtins__": {}}, dict(params)))
        except NameError as error:
            raise ByheartError(
                f"`only={self.text}`: there is no parameter {error.name!r}; there are "
                f"{', '.join(sorted(params))}"
            ) from None
        except (TypeError, ZeroDivisionError, OverflowError) as error:
            raise ByheartError(f"`only={self.text}`: {error}") from None


def read_values(text: str) -> list[object]:
    """Values with commas between them; `start:stop:step` counts, `stop` included where it is met.

    >>> read_values("12,16"), read_values("1:31:10"), read_values("0:1:0.5,true,mse")
    ([12, 16], [1, 11, 21, 31], [0.0, 0.5, 1.0, True, 'mse'])
    """
    values: list[object] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        numbers = [_value(number) for number in part.split(":")]
        values += numbers if len(numbers) == 1 else _count(part, numbers)
    if not values:
        raise OptionError("set", "NAME=VALUE,VALUE or NAME=START:STOP:STEP", text)
    return values


def read_assignments(texts: Iterable[str]) -> dict[str, list[object]]:
    """NAME=VALUES, several of them.

    >>> read_assignments(["d=12,16", "H=1:3"])
    {'d': [12, 16], 'H': [1, 2, 3]}
    """
    assignments: dict[str, list[object]] = {}
    for text in texts:
        name, sign, values = text.partition("=")
        if not sign or not name.strip():
            raise OptionError("set", "NAME=VALUE,VALUE or NAME=START:STOP:STEP", text)
        assignments[name.strip()] = read_values(values)
    return assignments


def _value(text: str) -> object:
    try:
        return parse_json(text)
    except ByheartError:
        return text


def _count(part: str, numbers: list[object]) -> list[object]:
    """start, start + step, ..., up to stop."""
    real = [x for x in numbers if isinstance(x, (int, float)) and not isinstance(x, bool)]
    if len(real) < len(numbers) or len(real) > 3:
        raise OptionError("set", "START:STOP or START:STOP:STEP in numbers", part)
    start, stop, step = (*real, 1)[:3]
    if step == 0 or (stop - start) / step < 0 or (stop - start) / step >= MOST:
        raise OptionError("set", f"a range of 1 to {MOST:,} values", part)
    if isinstance(step, float):
        start = float(start)
    return [start + i * step for i in range(int((stop - start) / step + 1e-9) + 1)]
