"""The errors that byheart raises: each message says what was expected, what was found, where, and
what to do next.

Example:
    >>> raise FactsError("capitals.csv, row 3: expected 2 cells, found 1. Add the missing cell.")
    Traceback (most recent call last):
    ...
    byheart.errors.FactsError: capitals.csv, row 3: expected 2 cells, found 1. Add the missing cell.
"""

from __future__ import annotations

__all__ = [
    "ByheartError",
    "CapacityError",
    "CheckFailed",
    "Conflict",
    "ConflictError",
    "FactsError",
    "MemoryFileError",
]

Conflict = tuple[tuple[str, ...], list[tuple[int, str]]]
"""A key with its differing answers: `(key, [(row, answer), ...])`."""


class ByheartError(Exception):
    """Anything a user can put right. `exit_code` is what the command line returns."""

    exit_code = 2


class FactsError(ByheartError):
    """An input table that cannot be read as facts, or a token that no fact uses."""


class ConflictError(FactsError):
    """One key with several answers. `conflicts` lists all of them, the message the first ones."""

    # The default lets the error be pickled between processes: unpickling passes the message only
    # and restores the attribute afterwards.
    def __init__(self, message: str, conflicts: list[Conflict] | None = None) -> None:
        super().__init__(message)
        self.conflicts: list[Conflict] = [] if conflicts is None else conflicts


class CapacityError(ByheartError):
    """More facts than a theorem allows for the given size."""


class MemoryFileError(ByheartError):
    """A memory folder that is missing, truncated, changed by hand, or of a newer schema."""


class CheckFailed(ByheartError):
    """A check ran and said no, for instance a certificate that does not hold."""

    exit_code = 1
