"""Accuracy against the width of the heads: is it quadratic? Figures 1b, 6, 9 and the dh-law."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from byheart.papers.dana2025 import published, settings
from byheart.papers.dana2025.experiment import TRAIN
from byheart.papers.dana2025.settings import CODED, CORRECTED
from byheart.papers.declare import declare
from byheart.studies import Axes, Cell, Finding, Row, choose, figure, fit, laws
from byheart.studies.study import Record
from byheart.theory.dana2025 import phi

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARED, OWN = CODED, CORRECTED  # the variants: the code's model, and the paper's
NAMES = {SHARED: "one bottleneck for all heads", OWN: "projections of each head"}
FITS = 0.9  # R² from which a power is called a law
BELOW = 0.9  # accuracies at which saturation does not yet bend the law


def family(variant: str) -> str:
    return "shared" if variant == SHARED else "attention"


def grid_1b(variant: str, profile: str) -> list[Cell]:
    """N = 50, d = 10, H = 20, d_h = 1..10."""
    widths = range(1, 11) if profile != "quick" else (1, 2, 4, 5, 7, 10)
    return TRAIN.grid("exp2", family=family(variant), d=10, d_h=widths, H=20)


def grid_large(variant: str, profile: str) -> list[Cell]:
    """N = 200, d = 50, H = 11, d_h = 1, 5, 10, ..., 50."""
    widths = (1, *range(5, 51, 5)) if profile != "quick" else (1, 5, 10, 20)
    if variant == OWN and profile == "full":
        widths = (1, 5, 10, 20, 30, 50)  # five times as many weights as the shared bottleneck
    how = settings.large(profile)
    return TRAIN.grid("exp2 dim", family=family(variant), d=50, d_h=widths, H=11, **how)


def grid_deep(variant: str, profile: str) -> list[Cell]:
    """Three layers, N = 70, d = 10, H = 21 a layer, d_h = 1..10."""
    widths = range(1, 11) if profile != "quick" else (1, 3, 6, 10)
    how = settings.deep(profile)
    return TRAIN.grid("exp2 depth", family=family(variant), d=10, d_h=widths, H=21, **how)


def grid_law(variant: str, profile: str) -> list[Cell]:
    """Experiment 2 at H = 20 and, further from saturation, at H = 8."""
    few = range(1, 11) if profile != "quick" else (1, 2, 4, 5, 7, 10)
    low = TRAIN.grid("dh-law", family=family(variant), d=10, d_h=few, H=8)
    return grid_1b(variant, profile) + low


def exponents(rows: list[Row], measure: str) -> list[Record]:
    """p of a + b d_h^p for every variant and number of heads, below 0.9, with intervals: over all
    widths, and over d_h <= d/2, where heads do not yet span everything."""
    table = []
    chosen = [
        (variant, H, half, [r for r in same if not half or 2 * r["d_h"] <= r["d"]])
        for variant, mine in laws.by_variant(rows).items()
        for H, same in laws.by(mine, "H").items()
        for half in (False, True)
    ]
    for variant, H, half, same in chosen:
        x, y = figure.series(same, "d_h", measure)
        keep = laws.below_ceiling(x, y, BELOW)
        x, y = x[keep], y[keep]
        if len(np.unique(x)) >= 4:
            power = fit("power", x, y, resamples=laws.RESAMPLES, validate=False)
            compared = choose(x, y, ("linear", "quadratic", "power", "saturating"), resamples=0)
            p = power.interval("p")
            table.append(
                {
                    "variant": variant,
                    "H": H,
                    "widths": "d_h <= d/2" if half else "all",
                    "accuracy": measure,
                    **laws.columns("p", p),
                    "R2": power.r2,
                    "R2_quadratic": next(f.r2 for f in compared.fits if f.law == "quadratic"),
                    "law": compared.best or "cannot tell",
                    "verdict": laws.exponent_verdict(p, 2.0),
                }
            )
    return table


def analyse(rows: list[Row]) -> Finding:
    """Quadratic as coded and not with projections of each head: an artefact of the code."""
    table = exponents(rows, "train_accuracy") + exponents(rows, "accuracy")
    shared = [r for r in table if r["variant"] == SHARED]
    own = [r for r in table if r["variant"] == OWN]
    if not shared:
        return laws.too_few("four head widths of the shared bottleneck are needed")
    as_coded = laws.most([r["verdict"] for r in shared if r["widths"] == "all"])
    corrected = laws.most([r["verdict"] for r in own])
    verdict = as_coded
    if own and corrected == "not confirmed" and as_coded != "not confirmed":
        verdict = "artefact" if all(r["p_high"] < 2 - laws.NEAR for r in own) else "undecided"
    numbers: Record = {
        f"p, {NAMES[row['variant']]}, H={row['H']}, {row['widths']}": laws.column(row, "p")
        for row in table
        if row["accuracy"] == "train_accuracy"
    }
    numbers |= published.mean_distance(rows, "exp2", "d_h", ", one bottleneck")
    return Finding(verdict, sentence(shared, own), numbers, {"a + b d_h^p": table})


def sentence(shared: list[Record], own: list[Record]) -> str:
    def span(exponents: list[Record]) -> str:
        worst = min(r["R2"] for r in exponents)
        if worst < FITS:
            return f"for no p (R² of the best power {worst:.2f})"
        return (
            f"p = {min(r['p'] for r in exponents):.2f} to {max(r['p'] for r in exponents):.2f} "
            f"(95 %: {min(r['p_low'] for r in exponents):.2f} to "
            f"{max(r['p_high'] for r in exponents):.2f})"
        )

    shared = [r for r in shared if r["widths"] == "all"]
    words = f"With one bottleneck for all heads accuracy grows as d_h^p, {span(shared)}"
    if not own:
        return words + "."
    words += f"; with projections of each head, as the paper writes them, {span(own)}"
    highest = max(r["p_high"] for r in own)
    if highest < 2 - laws.NEAR:
        words += ": concave" if highest < 1 else ": not quadratic"
        if laws.most([r["verdict"] for r in shared]) != "not confirmed":
            words += ". The quadratic law comes from the shared bottleneck"
    return words + "."


def draw(rows: list[Row], finding: Finding) -> Figure:
    """Accuracy against d_h for both models, fits and the bound φ(H d_h + d)."""
    drawn, panel = figure.axes(
        "Accuracy against the width of the heads", "head width d_h", "accuracy (training sample)"
    )
    i = 0
    for variant, mine in laws.by_variant(rows).items():
        for H, same in laws.by(mine, "H").items():
            x, y = figure.series(same, "d_h", "train_accuracy")
            figure.points(panel, x, y, f"{NAMES[variant]}, H = {H}", i, line=False)
            keep = laws.below_ceiling(x, y, BELOW)
            if len(np.unique(x[keep])) >= 4:
                power = fit("power", x[keep], y[keep], validate=False)
                at = np.linspace(x[keep].min(), x[keep].max(), 60)
                figure.curve(panel, at, power(at), f"p = {power.values['p']:.2f}", i, "-")
            N, S, d = (same[0][name] for name in ("N", "S", "d"))
            if same[0]["layers"] == 1 and variant == OWN:
                at = np.linspace(x.min(), x.max(), 50)
                bound = np.array([phi(H * v + d, N, N**S) for v in at])
                figure.curve(panel, at, bound, f"Corollary 2, H = {H}", i, "--")
            i += 1
    if any(r.experiment == "exp2" for r in rows):
        known = published.PUBLISHED["exp2"]
        panel.plot(list(known), list(known.values()), "kx", ms=6, label="published, H = 20")
    panel.set_ylim(0, 1.03)
    figure.legend(panel)
    return drawn


AXES = Axes("d_h", "train_accuracy", "variant", "head width d_h", "accuracy")
GRIDS = {"fig1b": grid_1b, "fig6": grid_large, "fig9": grid_deep, "dh-law": grid_law}
STUDIES = tuple(
    declare(f"dana2025/{name}", grid, analyse, AXES, draw, LESS=2 - laws.NEAR)
    for name, grid in GRIDS.items()
)
