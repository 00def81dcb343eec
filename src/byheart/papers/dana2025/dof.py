"""One law for all one-layer models: associations against the free dimensions of the products."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from byheart.papers.dana2025 import head_width
from byheart.papers.dana2025.experiment import TRAIN
from byheart.papers.dana2025.published import HEADS
from byheart.papers.declare import declare
from byheart.studies import Axes, Cell, Finding, Row, choose, figure, fit, laws

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CEILING, GOOD = 0.9, 0.97
MEASURES = {"train_accuracy": "train_associations", "accuracy": "associations"}


def grid(variant: str, profile: str) -> list[Cell]:
    """Experiments 1 (d = 10) and 2 with both architectures, H = 8, and one narrow rank alone."""
    one = TRAIN.grid("dof-law, H", d=10, H=HEADS if profile != "quick" else HEADS[:5:2])
    two = [
        cell
        for architecture in (head_width.SHARED, head_width.OWN)
        for cell in head_width.grid_law(architecture, profile)
    ]
    ranks = [
        TRAIN.cell("dof-law, rank 2 in W_QK", d=10, d_h=10, qk_rank=2, H=20),
        TRAIN.cell("dof-law, rank 2 in W_OV", d=10, d_h=2, qk_rank=10, H=20),
    ]
    return one + two + ranks


def free_dimensions(row: Row) -> int:
    """Free numbers of all W_QK and W_OV: 2dr - r² for a d x d matrix of rank r, for each head;
    with a shared bottleneck the heads' products are d_h x d_h.

    Source: a law written down after the fact (docs/studies/dana2025-dof-law.md).
    """
    d, d_h, H = row["d"], row["d_h"], row["H"]
    if row["family"] == "shared":
        return 2 * d_h**2 * H
    rank = min(row["qk_rank"] or d_h, d)
    value = min(d_h, d)
    return H * (2 * d * rank - rank**2 + 2 * d * value - value**2)


def points(rows: list[Row], measure: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Free dimensions, parameters and associations of the settings below the ceiling."""
    cells = laws.by_cell(rows).values()
    kept = [r for same in cells if np.mean([r[measure] for r in same]) < CEILING for r in same]
    x = np.array([float(free_dimensions(r)) for r in kept])
    raw = np.array([float(r["parameters"]) for r in kept])
    return x, raw, np.array([r[MEASURES[measure]] for r in kept])


def analyse(rows: list[Row]) -> Finding:
    table, numbers, tables = [], {}, {}
    for measure in MEASURES:
        x, raw, y = points(rows, measure)
        if len(np.unique(x)) < 4:
            continue
        line = fit("linear", x, y, resamples=laws.RESAMPLES)
        plain = fit("linear", raw, y)
        bent = choose(x, y, ("linear", "power", "saturating"), resamples=0)
        numbers[f"κ, {measure}"] = line.interval("b")
        numbers[f"X0, {measure}"] = line.interval("a")
        worst = float(np.abs(figure.means(x, y - line(x))[1]).max())
        table.append(
            {"accuracy": measure, "kappa": line.values["b"], "X0": line.values["a"],
             "R2": line.r2, "R2_parameters": plain.r2, "largest_residual": worst,
             "settings": len(np.unique(x)), "law": bent.best or "cannot tell"}
        )  # fmt: skip
        tables[f"laws in dof, {measure}"] = bent.table()
    if not table:
        return laws.too_few("four settings below accuracy 0.9 are needed")
    good = [r["R2"] >= GOOD and r["R2"] > r["R2_parameters"] for r in table]
    verdict = laws.judged(all(good), not any(good))
    first = table[0]
    sentence = (
        f"X = {first['X0']:.0f} + {first['kappa']:.3f} dof explains {first['R2']:.3f} of the "
        f"variance over {first['settings']} different dof (parameters: {first['R2_parameters']:.3f}"
        f"); largest residual {first['largest_residual']:.0f} of 2,500."
    )
    return Finding(verdict, sentence, numbers, {"X = X0 + κ dof": table, **tables})


def draw(rows: list[Row], finding: Finding) -> Figure:
    drawn, panels = figure.panels(
        "Associations against free dimensions of W_QK and W_OV", "dof", "associations", 2
    )
    for panel, (measure, name) in zip(panels, MEASURES.items(), strict=True):
        for i, (family, same) in enumerate(laws.by(rows, "family").items()):
            x, y = figure.series(same, lambda r: float(free_dimensions(r)), name)
            variant = head_width.SHARED if family == "shared" else head_width.OWN
            figure.points(panel, x, y, head_width.NAMES[variant], i, line=False)
        x, _, y = points(rows, measure)
        if len(np.unique(x)) >= 2:
            line = fit("linear", x, y, validate=False)
            at = np.array([0, x.max()])
            figure.curve(panel, at, line(at), "X0 + κ dof, below accuracy 0.9", 7, "-")
        panel.set_title(measure, fontsize=9)
        figure.legend(panel)
    return drawn


AXES = Axes("parameters", "associations", "family")
STUDIES = (declare("dana2025/dof-law", grid, analyse, AXES, draw, GOOD=GOOD, CEILING=CEILING),)
