"""Memories live on the CPU: they are solved for, asked and proved there, in the format they are
stored in and in float64, whatever device torch makes tensors on by default (docs/devices.md)."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
Result = TypeVar("Result")


def on_cpu(function: Callable[P, Result]) -> Callable[P, Result]:
    """`function`, whose tensors are made on the CPU also after `torch.set_default_device("cuda")`.

    >>> with torch.device("meta"):
    ...     on_cpu(torch.zeros)(2).device.type
    'cpu'
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> Result:
        if torch.get_default_device().type == "cpu":
            return function(*args, **kwargs)
        with torch.device("cpu"):
            return function(*args, **kwargs)

    return run
