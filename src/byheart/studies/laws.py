"""Fits and verdicts that the studies of several papers share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from byheart.studies.cell import Params, Value, group
from byheart.studies.figure import Array, means, series
from byheart.studies.fits import RESAMPLES, Fit, fit
from byheart.studies.study import Finding, Row, Verdict

CEILING = 0.95  # lines are fitted up to and including the first accuracy above it
NEAR = 0.15  # an exponent this near the claimed one counts as the claimed one
WIDE = 0.5  # an interval wider than this says nothing
Interval = dict[str, float]
"""{"estimate", "low", "high"}."""


def below_ceiling(
    x: Array, y: Array, ceiling: float = CEILING, *, including: bool = True
) -> tuple[Array, Array]:
    """Points up to the first x whose mean is above the ceiling, that one included or not."""
    at, mean, _ = means(x, y)
    above = np.flatnonzero(mean > ceiling)
    last = at[above[0]] if len(above) else np.inf
    keep = x <= last if including else x < last
    return x[keep], y[keep]


def fitted(law: str, x: Array, y: Array) -> Fit:
    """A law by least squares, with 95 % bootstrap intervals over seeds."""
    return fit(law, x, y, resamples=RESAMPLES, validate=False)


def slope(x: Array, y: Array) -> Interval:
    """b of y = a + b x with its interval."""
    return fitted("linear", x, y).interval("b")


def exponent(x: Array, y: Array) -> Interval:
    """p of y ~ x^p: the slope of the logarithms."""
    return slope(np.log(x), np.log(y))


def exponent_verdict(p: Interval, claimed: float) -> Verdict:
    """Confirmed: the interval of p meets claimed ± 0.15; undecided: it is wider than 0.5 and
    meets it; not confirmed: it does not.

    >>> exponent_verdict({"estimate": 1.02, "low": 0.97, "high": 1.06}, 1.0)
    'confirmed'
    >>> exponent_verdict({"estimate": 0.5, "low": 0.4, "high": 0.6}, 2.0)
    'not confirmed'
    """
    meets = p["low"] <= claimed + NEAR and p["high"] >= claimed - NEAR
    return judged(meets and p["high"] - p["low"] <= WIDE, not meets)


EXPONENT_RULE = (
    "Exponent p of a + b x^p with its 95 % bootstrap interval over seeds: confirmed if the "
    f"interval meets the claimed value ± {NEAR}, undecided if it does and is wider than {WIDE}, "
    "not confirmed otherwise."
)


def judged(confirmed: bool, refuted: bool) -> Verdict:
    """Confirmed, else not confirmed, else undecided.

    >>> judged(False, True), judged(False, False)
    ('not confirmed', 'undecided')
    """
    return "confirmed" if confirmed else "not confirmed" if refuted else "undecided"


def most(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict of more than half; undecided where there is none.

    >>> most(["confirmed", "confirmed", "undecided"]), most(["confirmed", "not confirmed"])
    ('confirmed', 'undecided')
    """
    for verdict in dict.fromkeys(verdicts):
        if 2 * list(verdicts).count(verdict) > len(verdicts):
            return verdict
    return "undecided"


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """Not confirmed if any is not, undecided if any is or there is none, else confirmed.

    >>> worst(["confirmed", "undecided"]), worst(["confirmed"]), worst([])
    ('undecided', 'confirmed', 'undecided')
    """
    for verdict in ("not confirmed", "undecided"):
        if verdict in verdicts:
            return verdict
    return "confirmed" if verdicts else "undecided"


def too_few(what: str) -> Finding:
    return Finding("undecided", f"Too few rows for a fit: {what}.")


def by_variant(rows: Sequence[Row]) -> dict[str, list[Row]]:
    return group(rows, lambda row: row.variant)


def by(rows: Sequence[Row], name: str) -> dict[Value, list[Row]]:
    """Rows by the value of a parameter, in order."""
    return dict(sorted(group(rows, lambda row: row[name]).items()))


def lines(rows: Sequence[Row], name: str) -> list[tuple[str, Value, list[Row]]]:
    """Rows by variant and, within it, by the value of a parameter."""
    variants = by_variant(rows).items()
    return [(v, value, same) for v, mine in variants for value, same in by(mine, name).items()]


def enough(
    groups: Mapping[Value, list[Row]], x: str, y: str, least: int
) -> Iterator[tuple[Value, list[Row], Array, Array]]:
    """The groups of rows that have `least` different x or more: key, rows, x and y."""
    for key, rows in groups.items():
        at, values = series(rows, x, y)
        if len(np.unique(at)) >= least:
            yield key, rows, at, values


def mean(rows: Sequence[Row], name: str) -> float | None:
    """The mean of a measurement over the rows that have it; None where none has."""
    values = [row[name] for row in rows if row[name] is not None]
    return float(np.mean(values)) if values else None


def by_cell(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by cell; a row of two variants counts once."""
    cells: dict[str, dict[int, Row]] = {}
    for row in rows:
        cells.setdefault(row.cell, {})[row.seed] = row
    return {cell: list(same.values()) for cell, same in cells.items()}


def span(value: float, low: float, high: float) -> Interval:
    """A number with its interval, as findings keep it."""
    return {"estimate": value, "low": low, "high": high}


def columns(name: str, p: Interval) -> Interval:
    """A number with its interval as three columns of a table; `column` reads them back.

    >>> column(columns("p", span(1.0, 0.9, 1.1)), "p")
    {'estimate': 1.0, 'low': 0.9, 'high': 1.1}
    """
    return {name: p["estimate"], f"{name}_low": p["low"], f"{name}_high": p["high"]}


def column(line: Params, name: str) -> Interval:
    return span(line[name], line[f"{name}_low"], line[f"{name}_high"])
