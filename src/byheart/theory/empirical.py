"""Measurements, not theorems: what trained models were seen to hold."""

from __future__ import annotations

import math

from byheart.theory.bound import Bound, Case, Hypothesis


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


def _bits(rate: float) -> Hypothesis:
    return Hypothesis(
        f"a language model trained until it holds no more ({rate} bits a parameter seen)",
        lambda case: (
            f"was measured on whole language models, not {case.family or 'this'}"
            if case.family not in ("transformer",)
            else None
        ),
    )


def _capacity(rate: float):
    def capacity(case: Case) -> int:
        A = case.answers if case.answers is not None else case["N"]
        return math.floor(rate * case["parameters"] / math.log2(A))

    return capacity


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


def _model(case: Case) -> int | None:
    return case.parameters


ANSWERS = Hypothesis("answers uniform and independent: log2 A bits a fact")
TWO = Hypothesis("at least 2 answers", lambda case: (
    None if (case.answers or case["N"]) >= 2 else "needs at least 2 answers: 1"))  # fmt: skip

BOUNDS = (
    Bound(
        id="empirical.knowledge_capacity",
        title="2 bits a parameter",
        statement="Trained language models store about 2 bits of knowledge a parameter.",
        formula="T log2 A ≈ 2 W",
        source="Allen-Zhu and Li 2025, Physics of Language Models 3.3 (ICLR; arXiv 2404.05405)",
        kind="measurement",
        exactness="measured",
        scope="whole model",
        reads=("parameters", "N"),
        hypotheses=(_bits(2.0), TWO, ANSWERS),
        capacity=_capacity(2.0),
        parameters=_model,
        remark=lambda case: "measured: 1000 exposures of each fact, down to int8 weights",
    ),
    Bound(
        id="empirical.memorization_capacity",
        title="3.6 bits a parameter",
        statement="GPT-style models memorize about 3.6 bits of random data a parameter.",
        formula="T log2 A ≈ 3.6 W",
        source="Morris et al. 2025, How much do language models memorize? (arXiv 2505.24832)",
        kind="measurement",
        exactness="measured",
        scope="whole model",
        reads=("parameters", "N"),
        hypotheses=(_bits(3.6), TWO, ANSWERS),
        capacity=_capacity(3.6),
        parameters=_model,
        remark=lambda case: "measured on GPT-2-like models of up to 1.5 billion parameters",
    ),
    Bound(
        id="empirical.free_dimensions",
        title="law of free dimensions",
        statement="Associations that training keeps grow with the free numbers of W_QK and W_OV.",
        formula="X = 215 + 0.465 dof, dof = 2 (2 d d_h - d_h²) H",
        source="byheart prototype, post hoc (35 settings, R² 0.990)",
        kind="measurement",
        exactness="measured",
        reads=("d", "d_h", "H", "n", "N"),
        hypotheses=(Hypothesis("N = 50, d = 10, S = 2, d_h <= 10, accuracy < 0.9", _in_range),),
        capacity=lambda case: round(trained_associations(case["d"], case["d_h"], case["H"])),
        parameters=lambda case: case.layer_parameters,
        remark=lambda case: "largest residual 123; per-head projections; the slope differs with d",
    ),
)
