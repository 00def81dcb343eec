"""Rows of answers that print themselves: a tuple with a short text, HTML, a data frame."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Protocol, TypeVar

from byheart._tables import data_frame, html_table
from byheart.theory.bound import Answer
from byheart.theory.case import Number

if TYPE_CHECKING:
    from pandas import DataFrame

SHOWN = 6  # rows of a repr, which has a line above and a line below them
SIGNS = {"lower bound": ">= ", "upper bound": "<= ", "necessary size": "<= ", "accuracy": ">= ",
         "measurement": "≈ "}  # fmt: skip


class Row(Protocol):
    def to_json(self) -> dict[str, object]: ...


R = TypeVar("R", bound=Row)


class Rows(tuple[R, ...]):
    """A tuple of rows, shown as a table: `header` names the columns, `cells` fills them."""

    header: tuple[str, ...]

    @abstractmethod
    def heading(self) -> str:
        """The line above the table."""

    @abstractmethod
    def cells(self, row: R) -> tuple[str, ...]:
        """One row as text."""

    def chosen(self) -> list[R]:
        """The rows worth showing."""
        return list(self)

    @property
    def rows(self) -> tuple[R, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        rows = self.chosen()
        lines = [self.cells(row) for row in rows[:SHOWN]]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        more = [f"... and {len(rows) - SHOWN} more"] if len(rows) > SHOWN else []
        return "\n".join([self.heading(), *text, *more])

    def _repr_html_(self) -> str:
        rows = [self.cells(row) for row in self.chosen()]
        return html_table(self.heading(), self.header, rows, len(rows), most=len(rows))

    def to_pandas(self) -> DataFrame:
        """All rows and all their fields as a data frame."""
        return data_frame(row.to_json() for row in self)


class Answers(Rows[Answer]):
    """What every bound says about one architecture; those that apply are shown."""

    header = ("theorem that applies", "says", "parameters", "facts/p", "bits/p")

    def heading(self) -> str:
        return f"{len(self.chosen())} of {len(self)} theorems apply"

    def chosen(self) -> list[Answer]:
        return [answer for answer in self if answer.applies]

    def cells(self, row: Answer) -> tuple[str, ...]:
        says = f"{SIGNS.get(row.kind, '')}{shown(row.capacity, row.unit)} {row.unit}"
        rates = row.facts_per_parameter, row.bits_per_parameter
        return (row.id, says, shown(row.parameters), *(shown(rate) for rate in rates))


def shown(value: Number | None, unit: str = "facts") -> str:
    """Whole numbers in full up to a billion, else three digits; nothing is "-".

    >>> shown(1234567), shown(10**15), shown(0.123456), shown(0.123456, "accuracy"), shown(None)
    ('1,234,567', '1e+15', '0.123', '0.1235', '-')
    """
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**12 else f"{float(value):.3g}"
    return f"{value:.4f}" if unit == "accuracy" else f"{value:.3g}"
