"""Bounds of other papers, from the comparison tables, and the information limit."""

from __future__ import annotations

import math

from byheart.theory.bound import Bound, Case, Hypothesis, Size, at_least, ceil_div
from byheart.theory.kajitsuka2025 import memorizer_depth


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


def _answers(case: Case) -> int:
    return case.answers if case.answers is not None else case["N"]


def _information(case: Case) -> int:
    return math.floor(case["parameters"] * case.bits / math.log2(_answers(case)))


def _model(case: Case) -> int | None:
    return case.parameters


def _bubeck_parameters(case: Case, neurons: int) -> int:
    """d weights, a bias and an output weight each."""
    return neurons * (case["d"] + 2)


def _bubeck_size(case: Case) -> Size:
    d = case.d if case.d is not None else 64
    neurons = bubeck_neurons(case["T"], d)
    return Size(neurons * (d + 2), {"d": d, "neurons": neurons}, "real labels, points given")


def _vardi_size(case: Case) -> Size:
    d = 1 if case.d_in is None else case.d_in
    spread = float(case["N"] ** case["S"]) if case.spread is None else case.spread
    count = vardi_parameters(max(2, case["T"]), d, spread, max(2, _answers(case)))
    return Size(count, {"width": 12}, "keys as integers 1..N^S")


TWO = Hypothesis("at least 2 answers", lambda case: (
    None if _answers(case) >= 2 else f"needs at least 2 answers: {_answers(case)}"))  # fmt: skip

BOUNDS = (
    Bound(
        id="related.information",
        title="information limit",
        statement="W parameters of b bits hold at most W b bits.",
        formula="T log2 A <= W b, A answers (the whole vocabulary unless given)",
        source="counting",
        kind="upper bound",
        exactness="exact count",
        scope="whole model",
        reads=("parameters", "N"),
        hypotheses=(TWO, Hypothesis("answers uniform and independent")),
        capacity=_information,
        parameters=_model,
        size=lambda case: Size(
            information_parameters(case["T"], max(2, _answers(case)), case.bits),
            {"bits": case.bits},
            "no fewer, whatever the architecture",
        ),
        remark=lambda case: f"{case.bits} bits a parameter, {_answers(case):,} answers",
    ),
    Bound(
        id="related.bubeck2020",
        title="two-layer ReLU network",
        statement="4 ceil(T/d) ReLU neurons fit T real labels in general position in R^d.",
        formula="k = 4 ceil(T/d); T = d floor(k/4)",
        source="Bubeck, Eldan, Lee, Mikulincer 2020 (NeurIPS); Baum 1988",
        kind="lower bound",
        exactness="exact count",
        scope="one feed-forward layer",
        reads=("d", "d_ff"),
        hypotheses=(
            Hypothesis("ReLU", lambda case: (
                "needs feed-forward units: this one has attention only" if not case.d_ff
                else None if case.activation == "relu"
                else f"needs ReLU, found {case.activation}")),
            Hypothesis("4 units or more", at_least("d_ff", 4)),
            Hypothesis("points in general position"),
        ),
        capacity=lambda case: case["d"] * (case["d_ff"] // 4),
        parameters=lambda case: _bubeck_parameters(case, case["d_ff"]),
        size=_bubeck_size,
    ),
    Bound(
        id="related.vardi2022",
        title="deep ReLU network of width 12",
        statement="Width 12 and depth O(sqrt(T log T)) memorize T separated points.",
        formula="parameters O~(sqrt T); depth of Lemma C.1 with R = 20 r T² δ^{-1} sqrt(πd)",
        source="Vardi, Yehudai, Shamir 2022 (ICLR, arXiv 2110.03187)",
        kind="lower bound",
        exactness="explicit constants",
        scope="whole model",
        reads=("T", "N"),
        hypotheses=(
            Hypothesis("T >= 2", at_least("T", 2)),
            Hypothesis("a plain ReLU network, not a Transformer", lambda case: (
                f"is about plain ReLU networks of width 12, not {case.family}: see `byheart size`"
                if case.family else None)),
        ),
        size=_vardi_size,
    ),
    Bound(
        id="related.park2021",
        title="deep network, T^(2/3)",
        statement="O(T^{2/3} + log(1/δ)) parameters memorize T separated points.",
        formula="W = O(T^{2/3} + log δ^{-1})",
        source="Park, Lee, Yun, Shin 2021 (arXiv 2010.13363)",
        kind="lower bound",
        exactness="up to constants",
        scope="whole model",
    ),
    Bound(
        id="related.kim2023",
        title="sequence to sequence, earlier",
        statement="O~(d + n + sqrt(nT)) parameters memorize T sequence-to-sequence maps.",
        formula="W = O~(d + n + sqrt(nT))",
        source="Kim, Kim, Mozafari 2023 (ICLR)",
        kind="lower bound",
        exactness="up to logs",
        scope="whole model",
        corrections=("Table 1 of Kajitsuka and Sato omits d; the abstract has it.",),
    ),
    Bound(
        id="related.kajitsuka2023",
        title="one layer of softmax attention",
        statement="One layer memorizes T sequence-to-sequence maps with O(dnT + d²) parameters.",
        formula="W = O(dnT + d²)",
        source="Kajitsuka and Sato 2023, as in Table 1 of Kajitsuka and Sato 2025",
        kind="lower bound",
        exactness="up to constants",
        scope="one attention layer",
    ),
    Bound(
        id="related.madden2024",
        title="arbitrary next-token distributions",
        statement="T arbitrary distributions over N tokens have T (N-1) free numbers: so many "
        "parameters are needed, and one layer does with Θ of them.",
        formula="T <= W/(N-1);  Θ(N T) parameters are enough",
        source="Madden, Fox, Thrampoulidis 2024 (arXiv 2405.13718)",
        kind="upper bound",
        exactness="exact count",
        unit="distributions",
        scope="whole model",
        reads=("parameters", "N"),
        hypotheses=(
            Hypothesis("N >= 2 tokens", at_least("N", 2)),
            Hypothesis("generic distributions, real parameters, a smooth model"),
        ),
        capacity=lambda case: case["parameters"] // (case["N"] - 1),
        parameters=_model,
        size=lambda case: Size(case["T"] * (case["N"] - 1), {}, "no fewer, for distributions"),
        corrections=("Our count is the dimension argument; their Θ has no explicit constant.",),
    ),
    Bound(
        id="related.sontag1997",
        title="without separation",
        statement="Memorizing every T points in general position needs (T-1)/2 parameters.",
        formula="W >= (T-1)/2, so T <= 2W + 1",
        source="Sontag 1997, as cited by Kajitsuka and Sato 2025",
        kind="necessary size",
        exactness="exact count",
        scope="whole model",
        reads=("parameters",),
        hypotheses=(
            Hypothesis("analytic or piecewise analytic networks; all generic T-sets shattered"),
            Hypothesis("points are real vectors, not tokens", lambda case: (
                "needs real vectors in general position: tokens are separated"
                if case.N is not None else None)),
        ),
        capacity=lambda case: 2 * case["parameters"] + 1,
        parameters=_model,
        size=lambda case: Size(ceil_div(case["T"] - 1, 2), {}, "no fewer, for real vectors"),
    ),
    Bound(
        id="related.vc_dimension",
        title="VC dimension of ReLU networks",
        statement="T points are shattered only with Ω(sqrt T) parameters.",
        formula="T = O(W²) (Goldberg and Jerrum 1995); O(W L log W) with depth L",
        source="Goldberg and Jerrum 1995; Bartlett et al. 2019",
        kind="necessary size",
        exactness="up to constants",
        scope="whole model",
    ),
)  # fmt: skip
