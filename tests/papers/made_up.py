"""Rows of a study's grid with measurements that follow a law, for testing verdicts."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from byheart.studies import Cell, Finding, Row, Study

Law = Callable[[dict[str, Any]], dict[str, Any]]

# Every procedure on data so small that a row takes a fraction of a second.
SMALL: dict[str, Any] = {
    "least_steps": 12, "epochs": 4, "steps": 12, "starts": 1, "draws": 4, "batch": 16,
    "rates": [0.01], "sizes": [1, 2],
}  # fmt: skip


def noise(cell: Cell, seed: int, size: float) -> float:
    return random.Random(f"{cell.hash}:{seed}").gauss(0, size)


def rows_of_law(
    study: Study, law: Law, *, profile: str = "paper", seeds: int = 4, scatter: float = 0.003
) -> list[Row]:
    """`law(params)` gives the measurements; numbers (not whole, not true or false) get noise."""
    rows = []
    for variant in study.variants:
        for cell in study.cells(variant, profile):
            for seed in range(seeds):
                measured = {}
                for name, value in law(dict(cell.params)).items():
                    if type(value) is float:
                        value *= math.exp(noise(cell, seed, scatter))
                    measured[name] = value
                rows.append(
                    Row(study.name, cell.experiment, variant, cell.hash, seed,
                        dict(cell.params), measured)
                )  # fmt: skip
    return rows


def finding(study: Study, law: Law, **options: Any) -> Finding:
    """What the study finds in such rows, and that it can draw them."""
    rows = rows_of_law(study, law, **options)
    found = study.find(rows)
    study.draw(rows, found)
    return found


def verdicts(found: Finding) -> dict[str, str]:
    """Every claim's verdict, by the last words of what it states."""
    return {claim.statement: claim.verdict for claim in found.claims}


def tiny(study: Study, cells: int = 4, **changes: Any) -> Study:
    """The study with the first cells of its quick grid, each made small."""

    def grid(variant: str, profile: str) -> list[Cell]:
        made = []
        for cell in study.cells(variant, "quick")[:cells]:
            small = {k: v for k, v in SMALL.items() if k in cell.params}
            extra = {k: v for k, v in changes.items() if k in cell.params}
            made.append(replace(cell, params={**cell.params, **small, **extra}))
        return made

    return replace(study, grid=grid)
