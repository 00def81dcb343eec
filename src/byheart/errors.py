"""The errors that byheart raises: each message says what was expected, what was found, where, and
what to do next.

A message names parameters in backticks and as Python spells them (`d`, `dtype=float64`). The
command line alone knows flags: it shows the same message with `--d-model` and `--dtype float64`.
"""

from __future__ import annotations

from collections.abc import Iterable

from byheart._words import nearest, quote, shown

Conflict = tuple[tuple[str, ...], list[tuple[int, str]]]  # (key, [(row, answer), ...])


class ByheartError(Exception):
    """Anything a user can put right. `exit_code` is what the command line returns."""

    exit_code = 2


class OptionError(ByheartError):
    """A parameter with a value it cannot have. `hint` says what to do next, in full sentences.

    >>> raise OptionError("d", "at least 1", 0, "Leave it out to let byheart choose.")
    Traceback (most recent call last):
    ...
    byheart.errors.OptionError: `d` must be at least 1, found 0. Leave it out to let byheart choose.
    """

    def __init__(self, parameter: str, expected: str, found: object, hint: str = "") -> None:
        super().__init__(parameter, expected, found, hint)  # so that it can be pickled
        self.parameter, self.expected, self.found, self.hint = parameter, expected, found, hint

    def __str__(self) -> str:
        text = f"`{self.parameter}` must be {self.expected}, found {shown(self.found)}."
        return f"{text} {self.hint}" if self.hint else text


class SpecError(ByheartError, ValueError):
    """A size or a word that a spec cannot have."""


class FactsError(ByheartError):
    """An input table that cannot be read as facts, or a token that no fact uses."""


class ConflictError(FactsError):
    """One key with several answers. `conflicts` lists all of them, the message the first ones."""

    def __init__(self, message: str, conflicts: Iterable[Conflict] = ()) -> None:
        super().__init__(message)  # unpickling passes this alone and restores the attribute
        self.conflicts: list[Conflict] = list(conflicts)


class CapacityError(ByheartError):
    """More facts than a theorem allows for the given size."""


class MemoryFileError(ByheartError):
    """A memory folder that is missing, truncated, changed by hand, or of a newer schema."""


class BusyError(ByheartError):
    """Something that another process is writing; the message names it."""


class CheckFailed(ByheartError):
    """A check ran and said no, for instance a certificate that does not hold."""

    exit_code = 1


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The known words most like `word` as a question, or nothing.

    >>> did_you_mean("shraded", ["attention", "sharded"])
    "Did you mean 'sharded'?"
    """
    near = nearest(word, known)
    return f"Did you mean {' or '.join(map(quote, near))}?" if near else ""


def check_choice(parameter: str, value: object, known: Iterable[str]) -> None:
    """Refuse a value that is not among the `known` names of `parameter`."""
    names = list(known)
    if value not in names:
        expected = f"one of {', '.join(names)}"
        raise OptionError(parameter, expected, value, did_you_mean(str(value), names))
