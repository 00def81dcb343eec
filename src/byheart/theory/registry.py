"""All bounds, and the question `bounds(spec, facts)`, whose answers are rows that print themselves.

A package adds bounds with an entry point of the group `byheart.bounds` that names one `Bound` or a
sequence of them:

    [project.entry-points."byheart.bounds"]
    mine = "my_package.bounds:BOUNDS"
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Protocol, TypedDict, TypeVar, Unpack

from byheart._plugins import leave_out, plugins
from byheart._tables import data_frame, html_table
from byheart.errors import ByheartError, did_you_mean
from byheart.specs import Spec
from byheart.theory import dana2025_bounds, kajitsuka2025_bounds, limits, mahdavi2024, related
from byheart.theory.bound import Answer, Bound
from byheart.theory.case import Case, Number, case_of

if TYPE_CHECKING:
    from pandas import DataFrame

    from byheart.facts import Facts

PAPERS = (dana2025_bounds, mahdavi2024, kajitsuka2025_bounds, limits, related)
BOUNDS: tuple[Bound, ...] = tuple(bound for paper in PAPERS for bound in paper.BOUNDS)


class Options(TypedDict, total=False):
    """What else `bounds` may be told."""

    kruskal: int | None
    bits: int | None
    answers: int | None
    spread: float | None


def bounds(spec: Spec, facts: Facts | int | None = None, **options: Unpack[Options]) -> Answers:
    """What every theorem says about `spec`: a number, or the hypothesis that fails.

    `facts`: a table (anything with T, S, N, last_tokens, prior, answer_ids), their number, or None.
    `kruskal`: Kruskal rank Q of the queries, where it was measured; `bits` of a parameter (default:
    32, or those of the integers of an exact memory); `answers`: how many different ones (default:
    those of the facts, else the vocabulary); `spread` = r/δ: largest norm over smallest distance of
    input tokens that are vectors.

    >>> from byheart.specs import AttentionOnlySpec
    >>> rows = {a.id: a for a in bounds(AttentionOnlySpec(N=50257, S=1024, d=768, d_h=64, H=12))}
    >>> rows["dana2025.corollary1"].capacity, rows["mahdavi2024.theorem1"].reason
    (1536, 'needs n <= d: 1024 > 768')
    """
    return Answers(ask(case_of(spec, facts, **options), tuple(all_bounds().values())))


def ask(case: Case, theorems: Sequence[Bound] = BOUNDS) -> list[Answer]:
    """What each of the `theorems` says about a case."""
    return [bound.answer(case) for bound in theorems]


@cache
def all_bounds() -> dict[str, Bound]:
    """Every bound by id, ours first, then those of other packages."""
    theorems = {bound.id: bound for bound in BOUNDS}
    sources = dict.fromkeys(theorems, "byheart")
    for plugin in plugins("byheart.bounds"):
        value = plugin.value
        for bound in value if isinstance(value, Sequence) else [value]:
            if not isinstance(bound, Bound):
                wrong = f"must name a Bound or a sequence of them, found {type(bound).__name__}."
                leave_out("byheart.bounds", f"{plugin.source} {wrong}")
            elif bound.id in theorems:
                twice = f"two bounds are called {bound.id!r}: one of {sources[bound.id]}, one of"
                leave_out("byheart.bounds", f"{twice} {plugin.source}. Rename one of them.")
            else:
                theorems[bound.id], sources[bound.id] = bound, plugin.source
    return theorems


def find(bound_id: str) -> Bound:
    """The bound with this id; a wrong one names the nearest.

    >>> find("dana2025.corollary1").statement.formula.split(" with")[0]
    'T0 = H d_h + d'
    """
    theorems = all_bounds()
    if bound_id in theorems:
        return theorems[bound_id]
    hint = did_you_mean(bound_id, theorems)
    raise ByheartError(f"there is no bound {bound_id!r}. {hint}".rstrip())


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
