"""The divergence bounds of Dana et al. 2025 and of the slides as objects; most need matrices."""

from __future__ import annotations

import math

from byheart.theory.bound import TOKENS, Capacity, Hypothesis, model_parameters
from byheart.theory.case import Case
from byheart.theory.dana2025 import random_coherence
from byheart.theory.statements import theorem


def _jl(case: Case) -> str | None:
    least = 128 * math.log(case["N"] + 1)
    if case["d"] > least:
        return None
    return f"needs C = sqrt(32 log(N+1)/d) < 1/2, so d > 128 log(N+1) = {least:.0f}: {case['d']}"


def _jl_factor(case: Case) -> float:
    C = random_coherence(case["N"], case["d"])
    return (1 + 2 * C) / (1 - 2 * C)


def _false(case: Case) -> str:
    return (
        "false: N = 50, orthonormal W, two sequences with 1 - π_g = 0.3, noise on one token and on "
        "all: KL = 0.95433 > 0.91737"
    )


BOUNDS = (
    theorem("dana2025.theorem2", hypotheses=(Hypothesis("||W W^T - I_N||_max = C < 1/2"),)),
    theorem("dana2025.theorem2_unit", hypotheses=(Hypothesis("unit rows, no two equal"),)),
    theorem(
        "dana2025.theorem2_random",
        ("d", "N"),
        (TOKENS, Hypothesis("d > 128 log(N+1)", _jl)),
        Capacity(
            _jl_factor,
            model_parameters,
            lambda case: (
                "vacuous: d >= N - 1, Proposition 2 gives KL = 0"
                if case["d"] >= case["N"] - 1
                else ""
            ),
        ),
    ),
    theorem("dana2025.theorem2_simplified", hypotheses=(Hypothesis("none: it is false", _false),)),
    theorem("dana2025.slides_ls"),
    theorem("dana2025.slides_wls"),
    theorem(
        "dana2025.bennett", hypotheses=(Hypothesis("every π_t has full support (Assumption 2)"),)
    ),
)
