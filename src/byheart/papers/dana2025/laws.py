"""Fits and verdicts that several figures of Dana et al. (2025) share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from byheart.studies.figure import means
from byheart.studies.study import Finding, Row, Verdict
from byheart.theory.dana2025 import phi

RESAMPLES = 400  # bootstrap resamples of an interval
CEILING = 0.95  # the authors fit up to and including the first accuracy above it
NEAR = 0.15  # an exponent this near the claimed one counts as the claimed one
WIDE = 0.5  # an interval wider than this says nothing


def measure_of(variant: str) -> str:
    """The accuracy a variant speaks of: the authors' (training sample), or over all facts."""
    return "accuracy" if variant == "corrected" else "train_accuracy"


def below_ceiling(
    x: np.ndarray, y: np.ndarray, ceiling: float = CEILING, *, including: bool = True
) -> np.ndarray:
    """Points up to the first x whose mean is above the ceiling, that one included (as coded)."""
    at, mean, _ = means(x, y)
    above = np.flatnonzero(mean > ceiling)
    last = at[above[0]] if len(above) else np.inf
    return x <= last if including else x < last


def exponent_verdict(p: dict[str, float], claimed: float) -> Verdict:
    """Confirmed: the interval of p meets claimed ± 0.15; undecided: it is wider than 0.5 and
    meets it; not confirmed: it does not.

    >>> exponent_verdict({"estimate": 1.02, "low": 0.97, "high": 1.06}, 1.0)
    'confirmed'
    >>> exponent_verdict({"estimate": 0.5, "low": 0.4, "high": 0.6}, 2.0)
    'not confirmed'
    """
    meets = p["low"] <= claimed + NEAR and p["high"] >= claimed - NEAR
    if not meets:
        return "not confirmed"
    return "confirmed" if p["high"] - p["low"] <= WIDE else "undecided"


RULE = (
    "Exponent p of a + b x^p with its 95 % bootstrap interval over seeds: confirmed if the "
    f"interval meets the claimed value ± {NEAR}, undecided if it does and is wider than {WIDE}, "
    "not confirmed otherwise."
)


def lower_bound(row: Row) -> float:
    """φ(H d_h + d): what Corollary 2 promises of the best weights."""
    return phi(row["H"] * row["d_h"] + row["d"], row["N"], row["N"] ** row["S"])


def below_bound(rows: Sequence[Row]) -> int:
    """Cells whose mean accuracy over all facts is below the bound of Corollary 2."""
    return sum(
        float(np.mean([r["accuracy"] for r in same])) < lower_bound(same[0])
        for same in cells_of(rows).values()
    )


def cells_of(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by cell; a row of two variants counts once."""
    cells: dict[str, dict[int, Row]] = {}
    for row in rows:
        cells.setdefault(row.cell, {})[row.seed] = row
    return {cell: list(found.values()) for cell, found in cells.items()}


def most(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict of more than half; undecided where there is none.

    >>> most(["confirmed", "confirmed", "undecided"]), most(["confirmed", "not confirmed"])
    ('confirmed', 'undecided')
    """
    for verdict in dict.fromkeys(verdicts):
        if 2 * list(verdicts).count(verdict) > len(verdicts):
            return verdict
    return "undecided"


def too_few(what: str) -> Finding:
    return Finding("undecided", f"Too few rows for a fit: {what}.")


def variants_of(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.variant for row in rows))


def by(rows: Sequence[Row], name: str) -> dict[Any, list[Row]]:
    """Rows by the value of a parameter, in order."""
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(row[name], []).append(row)
    return dict(sorted(found.items()))
