"""How work says where it is: `progress` is called with a text, everywhere in byheart.

`progress=print` shows it. Long work passes a `Progress`, a text that also knows how much is done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

Report = Callable[[str], None]


class Progress(str):
    """A text with numbers: `done` of `total` pieces of work.

    >>> p = Progress("3 of 10 shards", done=3, total=10)
    >>> print(p, p.done / p.total)
    3 of 10 shards 0.3
    """

    done: int
    total: int

    def __new__(cls, text: str, *, done: int, total: int) -> Self:
        message = super().__new__(cls, text)
        message.done, message.total = done, total
        return message


def quiet(_: str) -> None:
    """The default of every `progress`: say nothing."""
