"""Measurements, not theorems: what trained models were seen to hold."""

from __future__ import annotations

import math

from byheart.theory.bound import (
    TWO_ANSWERS,
    Bound,
    Capacity,
    Hypothesis,
    layer_parameters,
    model_parameters,
)
from byheart.theory.case import Case
from byheart.theory.statements import theorem


def free_dimensions(d: int, d_h: int, H: int) -> int:
    """dof = 2 (2 d d_h - d_h²) H: a d x d matrix of rank r has 2dr - r² free numbers (W_QK, W_OV).

    >>> free_dimensions(d=10, d_h=5, H=20)
    3000
    """
    return 2 * (2 * d * d_h - d_h * d_h) * H


def trained_associations(d: int, d_h: int, H: int) -> float:
    """X = 215 + 0.465 dof: associations that training keeps, N = 50, d = 10 only (R² 0.990).

    35 settings below accuracy 0.9, largest residual 123 of 2,500; seeds of one task.

    >>> trained_associations(d=10, d_h=5, H=20)
    1610.0
    """
    return 215 + 0.465 * free_dimensions(d, d_h, H)


def _language_models(case: Case) -> str | None:
    if case.family == "transformer":
        return None
    return f"was measured on whole language models, not {case.family or 'this'}"


def _rate(bound_id: str, rate: float, remark: str) -> Bound:
    """So many bits a parameter: T = rate W / log2 A."""
    trained = f"a language model trained until it holds no more ({rate} bits a parameter seen)"
    return theorem(
        bound_id,
        ("parameters", "N"),
        (
            Hypothesis(trained, _language_models),
            TWO_ANSWERS,
            Hypothesis("answers uniform and independent: log2 A bits a fact"),
        ),
        Capacity(
            lambda case: math.floor(rate * case["parameters"] / math.log2(case.answer_count)),
            model_parameters,
            lambda case: remark,
        ),
    )


def _accurate(case: Case) -> bool:
    """Accuracy 0.9 stands for X = 2500 (0.9 - 0.02)/0.98 associations."""
    return trained_associations(case["d"], case["d_h"], case["H"]) > 2500 * (0.9 - 0.02) / 0.98


def _in_range(case: Case) -> str | None:
    """The range of the measurements: one task size, one width."""
    if case["N"] != 50 or case["d"] != 10 or case["n"] != 2:
        return (
            f"was measured at N = 50, d = 10, S = 2 only: N = {case['N']}, d = {case['d']}, "
            f"S = {case['n']}"
        )
    if not 1 <= case["d_h"] <= 10:
        return f"was measured for d_h = 1..10: {case['d_h']}"
    if _accurate(case):
        return "was measured below accuracy 0.9: this layer would be above"
    return None


BOUNDS = (
    _rate(
        "empirical.knowledge_capacity",
        2.0,
        "measured: 1000 exposures of each fact, down to int8 weights",
    ),
    _rate(
        "empirical.memorization_capacity",
        3.6,
        "measured on GPT-2-like models of up to 1.5 billion parameters",
    ),
    theorem(
        "empirical.free_dimensions",
        ("d", "d_h", "H", "n", "N"),
        (Hypothesis("N = 50, d = 10, S = 2, d_h <= 10, accuracy < 0.9", _in_range),),
        Capacity(
            lambda case: round(trained_associations(case["d"], case["d_h"], case["H"])),
            layer_parameters,
            lambda case: "largest residual 123; per-head projections; the slope differs with d",
        ),
    ),
)
