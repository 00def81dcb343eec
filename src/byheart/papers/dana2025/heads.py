"""Experiment 1: accuracy against the number of heads (Figure 1a)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from byheart.papers.dana2025 import laws
from byheart.papers.dana2025.ways import train_cell
from byheart.studies import figure
from byheart.studies.cell import Cell
from byheart.studies.fits import fit
from byheart.studies.study import Finding, Row, Study
from byheart.theory.dana2025 import phi

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADS = (1, 6, 11, 16, 21, 26, 31)
WIDTHS = tuple(range(3, 14))


def grid(variant: str, profile: str) -> list[Cell]:
    """d = d_h = 3..13, H = 1, 6, ..., 31; as published (0.1 -> 0.05, batches of 1024): d = 10."""
    widths = WIDTHS if profile != "quick" and variant != "as-published" else (10,)
    how: dict[str, Any] = {}
    if variant == "as-published":
        how = {"schedule": "as-published", "batch": 1024, "positions": "input", "scale": False}
    return [train_cell("exp1", d=d, H=H, **how) for d in widths for H in HEADS]


def analyse(rows: list[Row]) -> Finding:
    """Linear in H below the ceiling, for each d, in the first variant that has rows."""
    variants = laws.variants_of(rows)
    if not variants:
        return laws.too_few("none")
    table, verdicts = [], []
    numbers: dict[str, Any] = {}
    for variant in variants:
        mine = [row for row in rows if row.variant == variant]
        for d, same in laws.by(mine, "d").items():
            x, y = figure.series(same, "H", laws.measure_of(variant))
            keep = laws.below_ceiling(x, y)
            x, y = x[keep], y[keep]
            if len(np.unique(x)) < 4:
                continue
            line = fit("linear", x, y, resamples=laws.RESAMPLES)
            power = fit("power", x, y, resamples=laws.RESAMPLES)
            p = power.interval("p")
            verdict = laws.exponent_verdict(p, 1.0)
            if variant == variants[0]:
                verdicts.append(verdict)
            table.append(
                {
                    "variant": variant,
                    "d": d,
                    "slope": line.values["b"],
                    "slope_low": line.intervals["b"][0],
                    "slope_high": line.intervals["b"][1],
                    "R2": line.r2,
                    "p": p["estimate"],
                    "p_low": p["low"],
                    "p_high": p["high"],
                    "verdict": verdict,
                }
            )
            if d == 10:
                numbers[f"slope at d=10, {variant}"] = line.interval("b")
                numbers[f"exponent at d=10, {variant}"] = p
    if not table:
        return laws.too_few("at least four numbers of heads below the ceiling are needed")
    below = laws.below_bound([row for row in rows if row.variant != "as-published"])
    verdict = laws.worst(verdicts)
    agree = sum(v == "confirmed" for v in verdicts)
    return Finding(
        verdict,
        f"Accuracy grows linearly in H for {agree} of {len(verdicts)} widths; {below} settings lie "
        "below the bound of Corollary 2 (accuracy over all facts).",
        numbers,
        {"linear in H": table},
    )


def draw(rows: list[Row], finding: Finding) -> Figure:
    """Accuracy against H, one line a width; the bound φ(H d_h + d) dashed."""
    variants = laws.variants_of(rows) or ["as-coded"]
    made, axes = figure.axes(
        "Accuracy against the number of heads", "heads H", "accuracy", columns=len(variants)
    )
    for one, variant in zip(np.atleast_1d(axes), variants, strict=True):
        mine = [row for row in rows if row.variant == variant]
        for i, (d, same) in enumerate(laws.by(mine, "d").items()):
            x, y = figure.series(same, "H", laws.measure_of(variant))
            figure.points(one, x, y, f"d = {d}", i)
            N, S = same[0]["N"], same[0]["S"]
            H = np.linspace(1, x.max(), 50)
            figure.curve(one, H, np.array([phi(h * d + d, N, N**S) for h in H]), None, i, "--")
        one.set_title(f"{variant} (dashed: Corollary 2)", fontsize=9)
        one.set_ylim(0, 1.03)
        one.legend(fontsize=8, ncols=2)
    return made


FIG1A = Study(
    name="dana2025/fig1a",
    title="Accuracy against the number of heads",
    source="Figure 1a (experiment 1)",
    claim="Accuracy is linear in H until it saturates, and above the bound of Corollary 2.",
    measurement="accuracy over the last 100 training batches (corrected: over all 2,500 facts)",
    rule=laws.RULE + " Claimed: p = 1, for every d; points up to the first accuracy above 0.95.",
    grid=grid,
    analyse=analyse,
    draw=draw,
    variants=("as-coded", "corrected", "as-published"),
    settings="N = 50, S = 2, d = d_h = 3..13 (quick, as published: 10), H = 1, 6, ..., 31; "
    "a fixed sample of 256 x 64 pairs, 64 epochs, Adam .01 -> .0005 in effect.",
    disagreements=(
        "Learning rate: paper .1 -> .05, code .01 -> .0005 in effect (a factor passed as a rate).",
        "Batches: paper 64 of 1,024, code 64 of 256.",
        "Accuracy: measured on the training sample, where pairs drawn often count more; the bound "
        "is about the uniform prior.",
    ),
)
