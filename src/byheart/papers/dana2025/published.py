"""What Dana et al. (2025) published at d = 10, N = 50: mean training-sample accuracy of 5 seeds.

From the data files that the authors released with their code; `REPRODUCED` are the means of an
independent re-run of their code (5 seeds).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byheart.papers.dana2025.settings import CODED
from byheart.studies import Row

HEADS = (1, 6, 11, 16, 21, 26, 31)
"""H of experiment 1; d_h of experiment 2 is 1..10."""


def _by_heads(*accuracies: float) -> dict[int, float]:
    return dict(zip(HEADS, accuracies, strict=True))


def _by_head_width(*accuracies: float) -> dict[int, float]:
    return dict(zip(range(1, 11), accuracies, strict=True))


PUBLISHED: dict[str, dict[int, float]] = {
    "exp1": _by_heads(0.1298, 0.3243, 0.5063, 0.6852, 0.8608, 0.9634, 0.9974),
    "exp2": _by_head_width(
        0.0815, 0.1096, 0.1554, 0.2094, 0.2879, 0.3567, 0.4534, 0.5457, 0.6391, 0.8044
    ),
}
REPRODUCED: dict[str, dict[int, float]] = {
    "exp1": _by_heads(0.1248, 0.3210, 0.4985, 0.6724, 0.8523, 0.9614, 0.9974),
    "exp2": _by_head_width(
        0.0836, 0.1053, 0.1538, 0.2101, 0.2804, 0.3619, 0.4448, 0.5435, 0.6466, 0.8146
    ),
    "exp2 per head": _by_head_width(
        0.2453, 0.3931, 0.5233, 0.6128, 0.6974, 0.7492, 0.7791, 0.7972, 0.8078, 0.8146
    ),
}


def mean_distance(rows: Sequence[Row], experiment: str, x: str) -> dict[str, float]:
    """{"mean |ours - published|": ...} of training-sample accuracies as coded at d = 10; nothing
    where there are no rows to compare."""
    accuracies: dict[int, list[float]] = {}
    for row in rows:
        if row.experiment == experiment and row.variant == CODED and row["d"] == 10:
            accuracies.setdefault(row[x], []).append(row["train_accuracy"])
    published = PUBLISHED[experiment]
    off = [float(np.mean(v)) - published[at] for at, v in accuracies.items() if at in published]
    return {"mean |ours - published|": float(np.mean(np.abs(off)))} if off else {}
