"""Bounds of other papers, from the comparison tables, and the information limit."""

from __future__ import annotations

import math

from byheart.theory.bound import (
    TOKENS,
    TWO_ANSWERS,
    Capacity,
    Hypothesis,
    Size,
    at_least,
    ceil_div,
    model_parameters,
    requires,
)
from byheart.theory.case import Case
from byheart.theory.kajitsuka2025 import memorizer_depth
from byheart.theory.statements import theorem


def information_parameters(T: int, answers: int, bits: int) -> int:
    """ceil(T log2 A / bits): fewer parameters cannot tell the A^T tables apart.

    >>> information_parameters(1000, answers=1024, bits=32)
    313
    """
    return math.ceil(T * math.log2(answers) / bits)


def bubeck_neurons(T: int, d: int) -> int:
    """4 ceil(T/d) ReLU neurons fit T real labels of points in general position in R^d.

    Source: Bubeck, Eldan, Lee, Mikulincer 2020 (Baum 1988: ceil(T/d) threshold units, two labels).

    >>> bubeck_neurons(1000, d=64), bubeck_neurons(1000, d=64) * (64 + 2)
    (64, 4224)
    """
    return 4 * ceil_div(T, d)


def vardi_parameters(T: int, d: int, spread: float, C: int) -> int:
    """12·13 depth + 13 d: Lemma C.1 with V = T, R = 20 r T² δ^{-1} sqrt(πd); dense.

    Source: Vardi, Yehudai, Shamir 2022, as extended by Kajitsuka and Sato 2025, Lemma C.1.

    >>> vardi_parameters(10**4, d=4, spread=2**11, C=2)
    741520
    """
    R = math.log2(20 * math.sqrt(math.pi * d)) + math.log2(spread) + 2 * math.log2(T)
    return 12 * 13 * memorizer_depth(T, R, math.log2(C)) + 13 * d


def _relu(case: Case) -> str | None:
    if not case.d_ff:
        return "needs feed-forward units: this one has attention only"
    return None if case.activation == "relu" else f"needs ReLU, found {case.activation}"


def _bubeck_size(case: Case) -> Size:
    d = case.d if case.d is not None else 64
    neurons = bubeck_neurons(case["T"], d)
    return Size(neurons * (d + 2), {"d": d, "neurons": neurons}, "real labels, points given")


def _vardi_size(case: Case) -> Size:
    d = 1 if case.d_in is None else case.d_in
    spread = float(case["N"] ** case["S"]) if case.spread is None else case.spread
    count = vardi_parameters(max(2, case["T"]), d, spread, max(2, case.answer_count))
    return Size(count, {"width": 12}, "keys as integers 1..N^S")


BOUNDS = (
    theorem(
        "related.information",
        ("parameters", "N"),
        (TWO_ANSWERS, Hypothesis("answers uniform and independent")),
        Capacity(
            lambda case: math.floor(case["parameters"] * case.bits / math.log2(case.answer_count)),
            model_parameters,
            lambda case: f"{case.bits} bits a parameter, {case.answer_count:,} answers",
        ),
        size=lambda case: Size(
            information_parameters(case["T"], max(2, case.answer_count), case.bits),
            {"bits": case.bits},
            "no fewer, whatever the architecture",
        ),
    ),
    theorem(
        "related.bubeck2020",
        ("d", "d_ff"),
        (
            Hypothesis("ReLU", _relu),
            at_least("d_ff", 4, text="4 units or more"),
            Hypothesis("points in general position"),
        ),
        Capacity(
            lambda case: case["d"] * (case["d_ff"] // 4),
            lambda case: case["d_ff"] * (case["d"] + 2),  # weights, a bias, an output weight
        ),
        size=_bubeck_size,
    ),
    theorem(
        "related.vardi2022",
        ("T", "N"),
        (
            at_least("T", 2),
            Hypothesis(
                "a plain ReLU network, not a Transformer",
                lambda case: (
                    f"is about plain ReLU networks of width 12, not {case.family}"
                    if case.family
                    else None
                ),
            ),
        ),
        size=_vardi_size,
    ),
    theorem("related.park2021"),
    theorem("related.kim2023"),
    theorem("related.kajitsuka2023"),
    theorem(
        "related.madden2024",
        ("parameters", "N"),
        (TOKENS, Hypothesis("generic distributions, real parameters, a smooth model")),
        Capacity(lambda case: case["parameters"] // (case["N"] - 1), model_parameters),
        size=lambda case: Size(case["T"] * (case["N"] - 1), {}, "no fewer, for distributions"),
    ),
    theorem(
        "related.sontag1997",
        ("parameters",),
        (
            Hypothesis("analytic or piecewise analytic networks; all generic T-sets shattered"),
            requires(
                "points are real vectors, not tokens",
                lambda case: case.N is None,
                "needs real vectors in general position: tokens are separated",
            ),
        ),
        Capacity(lambda case: 2 * case["parameters"] + 1, model_parameters),
        size=lambda case: Size(ceil_div(case["T"] - 1, 2), {}, "no fewer, for real vectors"),
    ),
    theorem("related.vc_dimension"),
)
