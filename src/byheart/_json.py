"""Values as JSON keeps them, and the typed objects that they are read as."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from byheart._words import written

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
Kind = TypeVar("Kind")


def plain(value: object) -> Json:
    """JSON's own types only: text as keys, lists, numbers of numpy and torch as Python's, and null
    for what is not finite; text as UTF-8 can write it.

    >>> plain({2: (float("inf"), 1)})
    {'2': [None, 1]}
    """
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return written(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {written(str(k)): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    for convert in ("item", "tolist"):  # a scalar, an array
        if hasattr(value, convert) and (convert == "tolist" or getattr(value, "ndim", 0) == 0):
            return plain(getattr(value, convert)())
    raise TypeError(f"expected a number, text, or lists and mappings of them, found {value!r}")


def typed(value: object, hint: Any, name: str) -> Any:
    """A JSON value as what the type `hint` says, or a `ValueError` that names it: int, float (a
    whole number will do), bool, str, Literal, X | None, tuple[X, ...], Mapping[str, X], object (any
    value) or a dataclass, whose fields are the names of an object (`record`).

    >>> typed([1, 2], tuple[int, ...], "order")
    (1, 2)
    >>> typed({"order": [1, "2"]}, Mapping[str, tuple[int, ...]], "record")
    Traceback (most recent call last):
    ...
    ValueError: record.order[1]: expected int, found '2'
    """
    origin, inner = get_origin(hint), get_args(hint)
    if hint is object or hint is Any:
        return value
    if origin in (Union, UnionType):
        if value is None and NoneType in inner:
            return None
        kinds = [kind for kind in inner if kind is not NoneType]
        if len(kinds) == 1:
            return typed(value, kinds[0], name)
        if type(value) in kinds:
            return value
    elif origin is tuple and isinstance(value, (list, tuple)):
        return tuple(_items(value, inner, name))
    elif origin is Literal:
        if any(type(value) is type(word) and value == word for word in inner):
            return value
        hint = f"one of {', '.join(map(repr, inner))}"
    elif origin is not None and issubclass(origin, Mapping) and isinstance(value, Mapping):
        return {str(k): typed(v, inner[1], f"{name}.{k}") for k, v in value.items()}
    elif is_dataclass(hint) and isinstance(value, Mapping):
        return record(value, hint, name)  # type: ignore[arg-type] not an instance
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and hint is float:
        if math.isfinite(value):
            return value
    elif type(value) is hint:
        return value
    raise ValueError(f"{name}: expected {_said(hint)}, found {reprlib.repr(value)}")


def record(values: Mapping[str, object], kind: type[Kind], name: str = "") -> Kind:
    """The dataclass of a JSON object, its fields `typed`. Names that it does not have are left out,
    and so is null where a field has a default: there is nothing to say."""
    known, dot, read = _hints(kind), f"{name}." if name else "", {}
    for field in fields(kind):  # type: ignore[arg-type] a dataclass
        needed = field.default is field.default_factory is MISSING
        if field.name in values and (needed or values[field.name] is not None):
            read[field.name] = typed(values[field.name], known[field.name], dot + field.name)
        elif needed:
            raise ValueError(f"{dot}{field.name}: missing")
    return kind(**read)


_hints = cache(get_type_hints)


def _items(values: list | tuple, kinds: tuple[Any, ...], name: str) -> list[object]:
    if kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(values)
    if len(kinds) != len(values):
        raise ValueError(f"{name}: expected {len(kinds)} values, found {len(values)}")
    # Long lists of one plain type are looked at all at once.
    if kinds and kinds[0] in (int, str) and set(map(type, values)) <= {kinds[0]} == set(kinds):
        return list(values)
    each = zip(values, kinds, strict=True)
    return [typed(v, kind, f"{name}[{i}]") for i, (v, kind) in enumerate(each)]


def _said(hint: Any) -> str:
    return hint if isinstance(hint, str) else getattr(hint, "__name__", str(hint))
