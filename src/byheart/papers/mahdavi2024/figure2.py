"""The sweeps of the paper: Figure 2, its appendix with own contexts, and regression."""

from __future__ import annotations

from byheart.papers.mahdavi2024.sweeps import Points, Sweep, sweep_study
from byheart.studies.study import Study

SEEDS = {"quick": 3, "full": 6, "paper": 6}
HEADS = (1, 5, 10, 20, 30, 40, 50, 60)
CONTEXTS = HEADS
WIDTHS = (10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 64)
FEW = (1, 2, 4, 6, 8, 10, 12)  # heads of the quick profiles
SIZES = (2, 3, 4, 6, 8, 12, 16)  # contexts of the quick profiles
KEYS = (1, 2, 3, 4, 8, 12, 16)  # head widths of the quick profiles


def thousands(*T: int) -> tuple[int, ...]:
    return tuple(1000 * t for t in T)


LINEAR = "What is memorized grows linearly with the number of heads."
MONOTONE = "What is memorized grows with the context size n."
FLAT = "What is memorized grows with d_h while d_h <= n; beyond, more width buys nothing."
SHORT = (
    "Short trainings favour wide heads: at one learning rate (.01, 3,000 steps) the accuracy went "
    "on rising beyond n, and three times the steps halved that gain. Narrow heads want a higher "
    "rate, so quick takes the better of two at each d_h; the authors train six times longer here "
    "than elsewhere."
)

FIGURES: tuple[Study, ...] = (
    sweep_study(
        Sweep("H", Points(FEW, (1000, 1500), {"n": 8}),
              Points(HEADS, thousands(10, 20, 30, 40), {"n": 32}), "classes", "shared"),
        name="mahdavi2024/fig2a", title="Accuracy against heads, shared context",
        source="Figure 2a", claim=LINEAR, seeds=SEEDS,
    ),
    sweep_study(
        Sweep("n", Points(SIZES, (1000, 1500), {"H": 6}),
              Points(CONTEXTS, thousands(6, 10, 14, 18), {"H": 20}), "classes", "shared"),
        name="mahdavi2024/fig2b", title="Accuracy against context size, shared context",
        source="Figure 2b", claim=MONOTONE, seeds=SEEDS,
    ),
    sweep_study(
        Sweep("d_h", Points(KEYS, (1000,), {"H": 10, "n": 4}, (0.02, 0.04)),
              Points(WIDTHS, thousands(10, 15, 20), {"H": 30, "n": 32, "least_steps": 300_000}),
              "classes", "shared"),
        name="mahdavi2024/fig2c", title="Accuracy against head width, shared context",
        source="Figure 2c", claim=FLAT, seeds=SEEDS,
        disagreements=(SHORT,),
    ),
    sweep_study(
        Sweep("H", Points(FEW, (1000, 1500), {"n": 8}),
              Points(HEADS, thousands(30, 50, 70, 90, 110, 130), {"n": 32}), "classes", "own"),
        name="mahdavi2024/heads-own-contexts", title="Accuracy against heads, own contexts",
        source="appendix, random contexts", claim=LINEAR, seeds={**SEEDS, "quick": 2},
    ),
    sweep_study(
        Sweep("n", Points(SIZES, (500, 1000), {"H": 4}),
              Points(CONTEXTS, thousands(20, 30, 40, 50, 60), {"H": 20}), "classes", "own"),
        name="mahdavi2024/context-own-contexts", title="Accuracy against context, own contexts",
        source="appendix, random contexts", claim=MONOTONE, seeds={**SEEDS, "quick": 2},
        disagreements=("With own contexts the generic rank is H d whatever n >= 2 (derived here): "
                       "growth in n, if any, is not the rank's.",),
    ),
    sweep_study(
        Sweep("H", Points(FEW, (250, 500), {"n": 8}),
              Points(HEADS, thousands(10, 15, 20, 25, 30), {"n": 32}), "values", "shared"),
        name="mahdavi2024/regression-heads", title="Regression against heads, shared context",
        source="appendix, regression", claim=LINEAR, seeds={**SEEDS, "quick": 2},
    ),
    sweep_study(
        Sweep("n", Points(SIZES, (250, 500), {"H": 6}),
              Points(CONTEXTS, thousands(10, 15, 20, 25), {"H": 20}), "values", "shared"),
        name="mahdavi2024/regression-context", title="Regression against context, shared context",
        source="appendix, regression", claim=MONOTONE, seeds={**SEEDS, "quick": 2},
    ),
    sweep_study(
        Sweep("H", Points(FEW, (500, 1000), {"n": 8}),
              Points(HEADS, thousands(10, 30, 50, 70, 90), {"n": 32}), "values", "own"),
        name="mahdavi2024/regression-heads-own", title="Regression against heads, own contexts",
        source="appendix, regression, random contexts", claim=LINEAR,
        seeds={**SEEDS, "quick": 2},
    ),
    sweep_study(
        Sweep("n", Points(SIZES, (500,), {"H": 4}),
              Points(CONTEXTS, thousands(10, 30, 50, 70, 90), {"H": 20}), "values", "own"),
        name="mahdavi2024/regression-context-own", title="Regression against context, own contexts",
        source="appendix, regression, random contexts", claim=MONOTONE,
        seeds={**SEEDS, "quick": 2},
    ),
)  # fmt: skip
