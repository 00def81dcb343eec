"""Values as JSON keeps them."""

from __future__ import annotations

import math
from collections.abc import Mapping

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def plain(value: object) -> Json:
    """JSON's own types only: text as keys, lists, numbers of numpy and torch as Python's, and null
    for what is not finite.

    >>> plain({2: (float("inf"), 1)})
    {'2': [None, 1]}
    """
    if value is None or isinstance(value, (bool, str, int)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    for convert in ("item", "tolist"):  # a scalar, an array
        if hasattr(value, convert) and (convert == "tolist" or getattr(value, "ndim", 0) == 0):
            return plain(getattr(value, convert)())
    raise TypeError(f"expected a number, text, or lists and mappings of them, found {value!r}")
