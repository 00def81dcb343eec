"""How far a run is: a text for people that also carries its numbers."""

from __future__ import annotations

from typing import Self

from byheart import _progress
from byheart.studies.study import Row


def duration(seconds: float | None) -> str:
    """Seconds for people.

    >>> duration(3.2), duration(75), duration(7300), duration(None)
    ('3 s', '1 min 15 s', '2 h 2 min', 'unknown')
    """
    if seconds is None:
        return "unknown"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min"


class Progress(_progress.Progress):
    """Where a run is: jobs `done` of `total`, `failed` ones, `seconds` gone, an estimate of those
    `left`, jobs of this run a minute (`rate`), and the `last` row; `words` leaves out the counts.
    """

    failed: int
    seconds: float
    left: float | None
    rate: float
    last: Row | None
    words: str

    @classmethod
    def of(
        cls, name: str, done: int, total: int, *, failed: int = 0, seconds: float = 0.0,
        left: float | None = None, rate: float = 0.0, last: Row | None = None,
    ) -> Self:  # fmt: skip
        if last is None:
            words = "computing the others"
            text = f"{name}: {done} of {total} rows are there; {words}"
        else:
            words = f"{rate:.0f} a minute, {duration(left)} left; {in_a_few_words(last)}"
            failures = f", {failed} failed" if failed else ""
            text = f"{last.study}: {done} of {total} rows{failures}, {words}"
        message = cls(text, done=done, total=total)
        message.failed, message.seconds, message.left = failed, seconds, left
        message.rate, message.last, message.words = rate, last, words
        return message


def in_a_few_words(row: Row) -> str:
    """The sizes that vary most, and the accuracy or the error."""
    names = ("N", "d", "d_h", "H", "T")
    sizes = ", ".join(f"{name}={row.params[name]}" for name in names if name in row.params)
    if row.error is not None:
        return f"{sizes}: failed, {row.error.splitlines()[0][:60]}"
    for name in ("accuracy", "facts", *row.measurements):
        value = row.get(name)
        if isinstance(value, (int, float)):
            return f"{sizes}: {name} {value:.4g}"
    return sizes
