"""The sweeps of the paper: Figure 2, its appendix with own contexts, and regression."""

from __future__ import annotations

from byheart.papers.mahdavi2024.sweeps import Points, Sweep, sweep_study
from byheart.studies import Study

SEEDS = {"quick": 3, "full": 6, "paper": 6}
FEWER = {**SEEDS, "quick": 2}
HEADS = (1, 5, 10, 20, 30, 40, 50, 60)
CONTEXTS = HEADS
WIDTHS = (10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 64)
FEW = (1, 2, 4, 6, 8, 10, 12)  # heads of the quick profiles
SIZES = (2, 3, 4, 6, 8, 12, 16)  # contexts of the quick profiles
KEYS = (1, 2, 3, 4, 8, 12, 16)  # head widths of the quick profiles


def thousands(*T: int) -> tuple[int, ...]:
    return tuple(1000 * t for t in T)


CLAIMS = {
    "H": "What is memorized grows linearly with the number of heads.",
    "n": "What is memorized grows with the context size n.",
    "d_h": "What is memorized grows with d_h while d_h <= n; beyond, more width buys nothing.",
}
SHORT = (
    "Short trainings favour wide heads: at one learning rate (.01, 3,000 steps) the accuracy went "
    "on rising beyond n, and three times the steps halved that gain. Narrow heads want a higher "
    "rate, so quick takes the better of two at each d_h; the authors train six times longer here "
    "than elsewhere."
)

# Name, what is swept in the quick and the full profile, the task and the contexts; title, source,
# claim, seeds, disagreements.
FIGURES: tuple[Study, ...] = tuple(
    sweep_study(
        sweep, name=name, title=f"{what} contexts" if sweep.context == "own" else f"{what} context",
        source=source, claim=CLAIMS[sweep.x], seeds=seeds, disagreements=notes,
    )
    for name, what, source, seeds, sweep, notes in (
        ("fig2a", "Accuracy against heads, shared", "Figure 2a", SEEDS,
         Sweep("H", Points(FEW, (1000, 1500), {"n": 8}),
               Points(HEADS, thousands(10, 20, 30, 40), {"n": 32}), "classes", "shared"), ()),
        ("fig2b", "Accuracy against context size, shared", "Figure 2b", SEEDS,
         Sweep("n", Points(SIZES, (1000, 1500), {"H": 6}),
               Points(CONTEXTS, thousands(6, 10, 14, 18), {"H": 20}), "classes", "shared"), ()),
        ("fig2c", "Accuracy against head width, shared", "Figure 2c", SEEDS,
         Sweep("d_h", Points(KEYS, (1000,), {"H": 10, "n": 4}, (0.02, 0.04)),
               Points(WIDTHS, thousands(10, 15, 20), {"H": 30, "n": 32, "least_steps": 300_000}),
               "classes", "shared"), (SHORT,)),
        ("heads-own-contexts", "Accuracy against heads, own", "appendix, random contexts", FEWER,
         Sweep("H", Points(FEW, (1000, 1500), {"n": 8}),
               Points(HEADS, thousands(30, 50, 70, 90, 110, 130), {"n": 32}), "classes", "own"),
         ()),
        ("context-own-contexts", "Accuracy against context, own", "appendix, random contexts",
         FEWER,
         Sweep("n", Points(SIZES, (500, 1000), {"H": 4}),
               Points(CONTEXTS, thousands(20, 30, 40, 50, 60), {"H": 20}), "classes", "own"),
         ("With own contexts the generic rank is H d whatever n >= 2 (derived here): growth in n, "
          "if any, is not the rank's.",)),
        ("regression-heads", "Regression against heads, shared", "appendix, regression", FEWER,
         Sweep("H", Points(FEW, (250, 500), {"n": 8}),
               Points(HEADS, thousands(10, 15, 20, 25, 30), {"n": 32}), "values", "shared"), ()),
        ("regression-context", "Regression against context, shared", "appendix, regression", FEWER,
         Sweep("n", Points(SIZES, (250, 500), {"H": 6}),
               Points(CONTEXTS, thousands(10, 15, 20, 25), {"H": 20}), "values", "shared"), ()),
        ("regression-heads-own", "Regression against heads, own",
         "appendix, regression, random contexts", FEWER,
         Sweep("H", Points(FEW, (500, 1000), {"n": 8}),
               Points(HEADS, thousands(10, 30, 50, 70, 90), {"n": 32}), "values", "own"), ()),
        ("regression-context-own", "Regression against context, own",
         "appendix, regression, random contexts", FEWER,
         Sweep("n", Points(SIZES, (500,), {"H": 4}),
               Points(CONTEXTS, thousands(10, 30, 50, 70, 90), {"H": 20}), "values", "own"), ()),
    )
)  # fmt: skip
