"""What Dana et al. (2025) published at d = 10, N = 50: mean training-sample accuracy of 5 seeds.

From the data files that the authors released with their code.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byheart.papers.dana2025.settings import CODED
from byheart.studies import Row

HEADS = (1, 6, 11, 16, 21, 26, 31)
"""H of experiment 1; d_h of experiment 2 is 1..10."""


BY_HEADS = (0.1298, 0.3243, 0.5063, 0.6852, 0.8608, 0.9634, 0.9974)
BY_WIDTH = (0.0815, 0.1096, 0.1554, 0.2094, 0.2879, 0.3567, 0.4534, 0.5457, 0.6391, 0.8044)
PUBLISHED: dict[str, dict[int, float]] = {
    "exp1": dict(zip(HEADS, BY_HEADS, strict=True)),
    "exp2": dict(enumerate(BY_WIDTH, start=1)),
}


def mean_distance(rows: Sequence[Row], experiment: str, x: str, of: str) -> dict[str, float]:
    """{"mean |ours - published|" + of: ...} of training-sample accuracies as coded at d = 10;
    nothing where there are no rows to compare."""
    accuracies: dict[int, list[float]] = {}
    for row in rows:
        if row.experiment == experiment and row.variant == CODED and row["d"] == 10:
            accuracies.setdefault(row[x], []).append(row["train_accuracy"])
    published = PUBLISHED[experiment]
    off = [float(np.mean(v)) - published[at] for at, v in accuracies.items() if at in published]
    return {f"mean |ours - published|{of}": float(np.mean(np.abs(off)))} if off else {}
