"""Fits and verdicts that the studies of several papers share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byheart.studies.cell import Params, Value
from byheart.studies.figure import means
from byheart.studies.fits import RESAMPLES, fit
from byheart.studies.study import Finding, Row, Verdict

CEILING = 0.95  # lines are fitted up to and including the first accuracy above it
NEAR = 0.15  # an exponent this near the claimed one counts as the claimed one
WIDE = 0.5  # an interval wider than this says nothing
Interval = dict[str, float]
"""{"estimate", "low", "high"}."""


def below_ceiling(
    x: np.ndarray, y: np.ndarray, ceiling: float = CEILING, *, including: bool = True
) -> np.ndarray:
    """Points up to the first x whose mean is above the ceiling, that one included or not."""
    at, mean, _ = means(x, y)
    above = np.flatnonzero(mean > ceiling)
    last = at[above[0]] if len(above) else np.inf
    return x <= last if including else x < last


def slope(x: np.ndarray, y: np.ndarray) -> Interval:
    """b of y = a + b x by least squares, with its 95 % bootstrap interval over seeds."""
    return fit("linear", x, y, resamples=RESAMPLES, validate=False).interval("b")


def exponent(x: np.ndarray, y: np.ndarray) -> Interval:
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
    """Rows by variant, in the order in which the study has them."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.variant, []).append(row)
    return groups


def by(rows: Sequence[Row], name: str) -> dict[Value, list[Row]]:
    """Rows by the value of a parameter, in order."""
    groups: dict[Value, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[name], []).append(row)
    return dict(sorted(groups.items()))


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
