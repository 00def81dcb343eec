"""Checks that every spec makes."""

from __future__ import annotations


def whole(owner: object, *names: str, least: int = 1) -> None:
    """Refuse what is not a whole number >= `least`, naming the field."""
    for name in names:
        value = getattr(owner, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name} must be a whole number >= {least}, found {value!r}")


def one_of(owner: object, name: str, *known: str) -> None:
    """Refuse an option that is not among the `known`, naming the field."""
    value = getattr(owner, name)
    if value not in known:
        choices = f"{', '.join(known[:-1])} or {known[-1]}"
        raise ValueError(f"{name} must be {choices}, found {value!r}")
