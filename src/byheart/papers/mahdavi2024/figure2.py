"""The sweeps of the paper: Figure 2, its appendix with own contexts, and regression."""

from __future__ import annotations

from byheart.papers.mahdavi2024.sweeps import Points, Sweep, sweep_study
from byheart.studies import Study

HEADS = (1, 5, 10, 20, 30, 40, 50, 60)
CONTEXTS = HEADS
WIDTHS = (10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 64)
FEW = (1, 2, 4, 6, 8, 10, 12)  # heads of the quick profiles
SIZES = (2, 3, 4, 6, 8, 12, 16)  # contexts of the quick profiles
KEYS = (1, 2, 3, 4, 8, 12, 16)  # head widths of the quick profiles


def thousands(*T: int) -> tuple[int, ...]:
    return tuple(1000 * t for t in T)


SWEEPS = {
    "fig2a": Sweep(
        "H", Points(FEW, (1000, 1500), {"n": 8}),
        Points(HEADS, thousands(10, 20, 30, 40), {"n": 32}), "classes", "shared",
    ),
    "fig2b": Sweep(
        "n", Points(SIZES, (1000, 1500), {"H": 6}),
        Points(CONTEXTS, thousands(6, 10, 14, 18), {"H": 20}), "classes", "shared",
    ),
    "fig2c": Sweep(
        "d_h", Points(KEYS, (1000,), {"H": 10, "n": 4}, (0.02, 0.04)),
        Points(WIDTHS, thousands(10, 15, 20), {"H": 30, "n": 32, "least_steps": 300_000}),
        "classes", "shared",
    ),
    "heads-own-contexts": Sweep(
        "H", Points(FEW, (1000, 1500), {"n": 8}),
        Points(HEADS, thousands(30, 50, 70, 90, 110, 130), {"n": 32}), "classes", "own",
    ),
    "context-own-contexts": Sweep(
        "n", Points(SIZES, (500, 1000), {"H": 4}),
        Points(CONTEXTS, thousands(20, 30, 40, 50, 60), {"H": 20}), "classes", "own",
    ),
    "regression-heads": Sweep(
        "H", Points(FEW, (250, 500), {"n": 8}),
        Points(HEADS, thousands(10, 15, 20, 25, 30), {"n": 32}), "values", "shared",
    ),
    "regression-context": Sweep(
        "n", Points(SIZES, (250, 500), {"H": 6}),
        Points(CONTEXTS, thousands(10, 15, 20, 25), {"H": 20}), "values", "shared",
    ),
    "regression-heads-own": Sweep(
        "H", Points(FEW, (500, 1000), {"n": 8}),
        Points(HEADS, thousands(10, 30, 50, 70, 90), {"n": 32}), "values", "own",
    ),
    "regression-context-own": Sweep(
        "n", Points(SIZES, (500,), {"H": 4}),
        Points(CONTEXTS, thousands(10, 30, 50, 70, 90), {"H": 20}), "values", "own",
    ),
}  # fmt: skip
FIGURES: tuple[Study, ...] = tuple(sweep_study(name, sweep) for name, sweep in SWEEPS.items())
