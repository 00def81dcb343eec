"""Where a training runs: the device that is asked for, or the first one there is ("auto"), and the
device of trainings that nobody gave one to, those inside a study for instance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch

from byheart.errors import ByheartError, OptionError
from byheart.training.recipe import DEVICES

AUTO, CPU, *KINDS = DEVICES
_default: ContextVar[str] = ContextVar("_default", default=CPU)
_used: ContextVar[set[str] | None] = ContextVar("_used", default=None)


def check_device(device: torch.device | str | None, kinds: Sequence[str] = KINDS) -> str:
    """The device to compute on: "auto" is the first of `kinds` that torch finds here, else the CPU;
    None the device of the `training_on` around. One that is not here is refused.

    >>> check_device("cpu"), check_device(None)
    ('cpu', 'cpu')
    """
    name = _default.get() if device is None else str(device)
    kind, _, number = name.partition(":")
    if name == AUTO:
        return next((k for k in kinds if _count(k)), CPU)
    if kind not in (CPU, *kinds) or not (number or "0").isdigit():
        known = (AUTO, CPU, *kinds)
        raise OptionError("device", f"{', '.join(known[:-1])} or {known[-1]}", name)
    if kind != CPU and int(number or 0) >= _count(kind):
        raise ByheartError(f"`device={name}`: torch finds no such device here. Use `device=cpu`.")
    return name


def training_device(device: torch.device | str | None, dtype: torch.dtype) -> str:
    """`check_device`, told to the `training_on` around."""
    name = check_device(device)
    if name == "mps" and dtype == torch.float64:
        raise ByheartError("`device=mps` has no float64: use `dtype=float32`, or `device=cpu`.")
    used = _used.get()
    if used is not None:
        used.add(name)
    return name


@contextmanager
def training_on(device: str) -> Iterator[set[str]]:
    """Trainings of the block that are given no device run on this one; the devices that trainings
    of the block did run on."""
    used: set[str] = set()
    tokens = _default.set(check_device(device)), _used.set(used)
    try:
        yield used
    finally:
        _default.reset(tokens[0])
        _used.reset(tokens[1])


def _count(kind: str) -> int:
    return int(getattr(torch, kind).device_count())
