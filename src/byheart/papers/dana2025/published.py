"""What Dana et al. (2025) published at d = 10, N = 50: mean training-sample accuracy of 5 seeds.

From the data files that the authors released with their code; `REPRODUCED` are the means of an
independent re-run of their code (5 seeds).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byheart.studies.study import Row

PUBLISHED: dict[str, dict[int, float]] = {
    "exp1": {1: 0.1298, 6: 0.3243, 11: 0.5063, 16: 0.6852, 21: 0.8608, 26: 0.9634, 31: 0.9974},
    "exp2": {
        1: 0.0815,
        2: 0.1096,
        3: 0.1554,
        4: 0.2094,
        5: 0.2879,
        6: 0.3567,
        7: 0.4534,
        8: 0.5457,
        9: 0.6391,
        10: 0.8044,
    },
}
REPRODUCED: dict[str, dict[int, float]] = {
    "exp1": {1: 0.1248, 6: 0.3210, 11: 0.4985, 16: 0.6724, 21: 0.8523, 26: 0.9614, 31: 0.9974},
    "exp2": {
        1: 0.0836,
        2: 0.1053,
        3: 0.1538,
        4: 0.2101,
        5: 0.2804,
        6: 0.3619,
        7: 0.4448,
        8: 0.5435,
        9: 0.6466,
        10: 0.8146,
    },
    "exp2 per head": {
        1: 0.2453,
        2: 0.3931,
        3: 0.5233,
        4: 0.6128,
        5: 0.6974,
        6: 0.7492,
        7: 0.7791,
        8: 0.7972,
        9: 0.8078,
        10: 0.8146,
    },
}


def differences(rows: Sequence[Row], experiment: str, x: str) -> list[float]:
    """Mean training-sample accuracy minus the published one, as coded, d = 10, at each x there."""
    known = PUBLISHED[experiment]
    found: dict[int, list[float]] = {}
    for row in rows:
        if row.experiment == experiment and row.variant == "as-coded" and row["d"] == 10:
            found.setdefault(row[x], []).append(row["train_accuracy"])
    return [float(np.mean(v)) - known[at] for at, v in found.items() if at in known]
