"""Fits and claims that the studies of several papers share."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from byheart.studies.cell import Params, Value, group
from byheart.studies.figure import Array, means, series
from byheart.studies.fits import Fit, combined, fit, span
from byheart.studies.study import Claim, Finding, Interval, Row

CEILING = 0.95  # lines are fitted up to and including the first accuracy above it
NEAR = 0.15  # an exponent this near the claimed one counts as the claimed one


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
    """A law by least squares, with 95 % intervals over seeds."""
    return fit(law, x, y, intervals=True, validate=False)


def slope(x: Array, y: Array) -> Interval:
    """b of y = a + b x with its interval."""
    return fitted("linear", x, y).interval("b")


def exponent(x: Array, y: Array) -> Interval:
    """p of y ~ x^p: the slope of the logarithms."""
    return slope(np.log(x), np.log(y))


def slope_weights(x: Array) -> Array:
    """The slope against these x is Σ weight x mean: what `combined` needs to compare slopes.

    >>> slope_weights(np.array([1.0, 2.0, 3.0])).tolist()
    [-0.5, 0.0, 0.5]
    """
    off = x - x.mean()
    return off / (off @ off)


def at_each(x: Array, y: Array) -> tuple[Array, list[Array]]:
    """Different x in order, and the y at each: the groups of `combined`."""
    values = np.unique(x)
    return values, [y[x == value] for value in values]


def unknown(found: Interval) -> Interval:
    """The estimate without its interval, where that would say nothing: no claim is decided by it.

    >>> unknown(span(1.0, 0.9, 1.1))
    {'estimate': 1.0, 'low': nan, 'high': nan}
    """
    return span(found["estimate"], math.nan, math.nan)


def counted(number: float) -> Interval:
    """What was counted, not estimated: an interval without width."""
    return span(number, number, number)


def exponent_claim(statement: str, p: Interval, claimed: float) -> Claim:
    """That an exponent is the claimed one, ± 0.15.

    >>> exponent_claim("linear in H", {"estimate": 1.02, "low": 0.97, "high": 1.06}, 1.0).verdict
    'confirmed'
    """
    return Claim(f"{statement}: p = {claimed:g}", p, claimed - NEAR, claimed + NEAR)


EXPONENT_RULE = (
    "Exponent p of a + b x^p with its 95 % interval over seeds: confirmed if the interval lies "
    f"within {NEAR} of the claimed value, refuted if outside, undecided otherwise."
)


def least(groups: Sequence[Sequence[float]], promised: Sequence[float]) -> Interval:
    """The smallest of mean minus promise over groups of seeds, with its interval.

    Its low end is the lowest of all; high ends allow for one of many coming out low by chance.

    >>> least([[0.6, 0.7, 0.8], [0.5, 0.6, 0.7]], [0.0, 0.5])["estimate"]
    0.09999999999999998
    """
    margins = []
    for values, bound in zip(groups, promised, strict=True):
        one, wide = (combined([values], [1.0], chosen_of=n) for n in (1, len(groups)))
        margins.append([one["estimate"] - bound, one["low"] - bound, wide["high"] - bound])
    return span(*np.min(margins, axis=0).tolist())


def extent(values: Sequence[float]) -> str:
    """From the smallest to the largest.

    >>> extent([1.0, 0.5]), extent([1.0])
    ('0.50 to 1.00', '1.00')
    """
    return " to ".join(dict.fromkeys(f"{end(values):.2f}" for end in (min, max)))


def tally(claims: Sequence[Claim], what: str) -> str:
    """How the claims were judged, in words; `what` names several of them.

    >>> good, open_ = (Claim("", span(1.0, low, 1.1), 0.0) for low in (0.9, -0.1))
    >>> tally([good, open_, open_], "widths"), tally([good], "widths"), tally([good] * 2, "widths")
    ('confirmed for 1 of 3 widths, undecided for 2', 'confirmed', 'confirmed for both widths')
    """
    verdicts = [claim.verdict for claim in claims]
    (first, count), *others = [
        (name, verdicts.count(name))
        for name in ("confirmed", "refuted", "undecided")
        if name in verdicts
    ]
    if len(claims) == 1:
        return first
    if not others:
        return f"{first} for {'both' if count == 2 else f'all {count}'} {what}"
    rest = ", ".join(f"{name} for {number}" for name, number in others)
    return f"{first} for {count} of {len(claims)} {what}, {rest}"


def too_few(what: str) -> Finding:
    return Finding(f"Too few rows for a fit: {what}.")


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


def columns(name: str, p: Interval) -> Interval:
    """A number with its interval as three columns of a table; `column` reads them back.

    >>> column(columns("p", span(1.0, 0.9, 1.1)), "p")
    {'estimate': 1.0, 'low': 0.9, 'high': 1.1}
    """
    return {name: p["estimate"], f"{name}_low": p["low"], f"{name}_high": p["high"]}


def column(line: Params, name: str) -> Interval:
    return span(line[name], line[f"{name}_low"], line[f"{name}_high"])
