"""What is of none of the three papers: our own sharded layer, counted before it is built; bounds of
other papers, from the comparison tables, and the information limit; measurements on trained models.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from byheart.specs import ShardedSpec
from byheart.theory.bound import (
    ONE_MATRIX,
    TOKENS,
    TWO_ANSWERS,
    Bound,
    Hypothesis,
    Size,
    at_least,
    ceil_div,
    largest,
    layer_parameters,
    requires,
    theorem,
)
from byheart.theory.case import Case
from byheart.theory.dana2025 import associative_parameters
from byheart.theory.kajitsuka2025 import memorizer_depth


def memorized_bits(T: int, N: int, accuracy: float = 1.0) -> float:
    """Bits about T uniform answers out of N that recalling a share `accuracy` of them carries.

    All right: T log2 N. Otherwise the mutual information of a symmetric channel whose errors fall
    on the other N - 1 answers alike,
        T ( log2 N - h(p) - p log2(N - 1) ),  p = 1 - accuracy,  h the binary entropy,
    which is 0 at chance, accuracy = 1/N.

    >>> memorized_bits(100, 1024), round(memorized_bits(100, 10, 0.1), 9)
    (1000.0, 0.0)
    >>> round(memorized_bits(100, 10, 0.9), 1)
    253.6
    """
    if N < 2:
        return 0.0
    p = 1 - accuracy
    lost = -p * math.log2(p) - accuracy * math.log2(accuracy) if 0 < p < 1 else 0.0
    if p > 0:
        lost += p * math.log2(N - 1)
    return T * max(0.0, math.log2(N) - lost)


def sharded_heads(T: int, d_h: int, shard: int = 250, slack: float = 0.05) -> int:
    """H = ceil(T/n) ceil(n (1 + slack)/d_h): every shard of n facts owns whole heads."""
    return ceil_div(T, shard) * math.ceil(shard * (1 + slack) / d_h)


def sharded_size(case: Case) -> Size:
    """d_g = d_h = 16 unless given, a two-dimensional code (d = d_g + 4), shards of 250, slack 5 %.

    parameters = d (S + 1 + 2 (N + 1) + 2 (2 + d_h) H), structural zeros included.

    >>> sharded_size(Case(T=10**6, N=50_000, S=2)).sizes
    {'d': 20, 'd_h': 16, 'H': 68000, 'shards': 4000}
    """
    d_g = case.d_h if case.d_h is not None else 16
    shards = ceil_div(case["T"], 250)
    H = sharded_heads(case["T"], d_g)
    spec = ShardedSpec(
        N=case["N"] + 1, S=case["S"], d_g=d_g, d_h=d_g, H=H, groups=shards, shards=shards,
        lam=128.0, s1=0.5,
    )  # fmt: skip
    sizes = {"d": spec.d, "d_h": d_g, "H": H, "shards": shards}
    return Size(spec.parameters, sizes, "each fact owned by known heads; 5 % slack included")


def log2_scaled(answers: int, places: int) -> int:
    """r with r <= 2^places log2 A < r + 2, in whole numbers: x² doubles the logarithm of x, and
    whether it passes 2 is the next binary digit. Cutting x off loses less than one unit in all."""
    one, result = 2 ** (2 * places + 16), answers.bit_length() - 1
    x = answers * one // 2**result
    for _ in range(places):
        x, result = x * x // one, 2 * result
        if x >= 2 * one:
            x, result = x // 2, result + 1
    return result


def facts_in_bits(bits: int, answers: int) -> int:
    """The largest T with A^T <= 2^bits: floor(bits / log2 A), exactly.

    >>> facts_in_bits(3 * 10**20, 8), 3**facts_in_bits(1000, 3) <= 2**1000
    (100000000000000000000, True)
    """
    return _decided(answers, lambda log2, one: bits * one // log2)


def information_parameters(T: int, answers: int, bits: int) -> int:
    """ceil(T log2 A / bits), exactly: fewer parameters cannot tell the A^T tables apart."""
    return _decided(answers, lambda log2, one: ceil_div(T * log2, bits * one))


def _decided(answers: int, count: Callable[[int, int], int]) -> int:
    """count(log2 A), a whole number of a real one, with log2 A as the quotient of two whole numbers
    below and above it. As many places as both need to agree: log2 A is whole or irrational, so they
    do in the end."""
    whole = answers.bit_length() - 1
    if answers == 2**whole:
        return count(whole, 1)
    places = 64
    while True:
        low = log2_scaled(answers, places)
        below, above = count(low, 2**places), count(low + 2, 2**places)
        if below == above:
            return below
        places *= 2


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


def associative_capacity(d: int, answers: int | None = None) -> int:
    """The largest T with T (1/d² + 1/(A d)) 2 log A <= 1: d²/(2 log T) where every key has its own
    answer (A = T, the default), A d/(2 log A) where `answers` are few. Facts that a d x d matrix of
    random keys and answers holds, up to a constant.

    Derived here: in the sum W = Σ_i w_U(g(i)) w_e(i)^T the right logit is 1; a wrong one has the
    variance T/d² of the cross-talk and T/(A d) of the keys that share its answer, and the largest
    of A such logits is about sqrt(2 log A) deviations. There the sum recalls 0.64 to 0.73 of the
    facts (measured, d = 32 to 512), at a quarter of it 0.97 to 1; a trained W holds all of them and
    half as many again. Source of the order d²: Cabannes et al. 2024; Nichani et al. 2024.

    >>> associative_capacity(128), associative_capacity(128, answers=16)
    (1049, 328)
    """
    return max(1, largest(lambda T: _cross_talk(T, d, answers) <= 1))


def _cross_talk(T: int, d: int, answers: int | None) -> float:
    """T (1/d² + 1/(A d)) 2 log A: 1 where the largest wrong logit is the right one."""
    A = max(2, T if answers is None else min(T, answers))
    return T * (1 / d**2 + 1 / (A * d)) * 2 * math.log(A)


def associative_width(T: int, answers: int | None = None) -> int:
    """The smallest d >= 2 with `associative_capacity` of at least T facts.

    >>> associative_width(1049), associative_width(10**6)
    (128, 5271)
    """
    return max(2, largest(lambda d: _cross_talk(T, d, answers) > 1) + 1)


def _associative_size(case: Case) -> Size:
    d = associative_width(case["T"], case.answer_count)
    count = associative_parameters(d, case["S"], case["N"])
    return Size(count, {"d": d}, "W trained; the sum of all facts recalls about 2 of 3")


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


def _information_size(case: Case) -> Size:
    count = information_parameters(case["T"], max(2, case.answer_count), case.bits)
    return Size(count, {"bits": case.bits}, "no fewer, whatever the architecture")


# X0 and κ of the study dana2025/dof-law, rounded; a test compares them with its recorded rows.
DOF_LAW = {"all": (141.0, 0.432), "sample": (209.0, 0.466)}


def trained_associations(
    d: int, d_h: int, H: int, qk_rank: int | None = None, *, sample: bool = False
) -> float:
    """X = 141 + 0.432 dof: associations that training keeps, of all N² = 2,500 facts; 209 + 0.466
    dof counted on the `sample` that was trained on, as the authors count. N = 50, d = 10 only.

    dof = H (2 d r - r² + 2 d d_h - d_h²): a d x d matrix of rank r has 2dr - r² free numbers (W_QK
    of rank r, by default d_h, and W_OV). Measured: 45 settings below accuracy 0.9, five seeds each,
    R² 0.991, largest residuals 139 and 135 (the study dana2025/dof-law; post hoc).

    >>> trained_associations(d=10, d_h=5, H=20), trained_associations(10, 5, 20, sample=True)
    (1437.0, 1607.0)
    """
    X0, slope = DOF_LAW["sample" if sample else "all"]
    r = d_h if qk_rank is None else qk_rank
    return X0 + slope * H * (2 * d * r - r * r + 2 * d * d_h - d_h * d_h)


SMALLEST_TRAINED = 500_000  # parameters: the smallest model of Morris et al.


def trained_parameters(T: int, answers: int, tenths: int) -> int:
    """ceil(T log2 A / r), r = tenths/10 bits a parameter: the model that training fills with so
    many facts, where the rate was measured.

    >>> trained_parameters(1000, answers=1024, tenths=20)
    5000
    """
    return information_parameters(10 * T, answers, tenths)


def _rate(bound_id: str, tenths: int, remark: str) -> Bound:
    """So many tenths of a bit a parameter: T = r W / log2 A."""
    rate = tenths / 10
    trained = requires(
        f"a language model trained until it holds no more ({rate} bits a parameter seen)",
        lambda case: case.family in ("transformer", "language model"),
        lambda case: f"was measured on whole language models, not {case.family or 'this'}",
    )
    uniform = "answers uniform and independent: log2 A bits a fact"

    def held(case: Case) -> int:
        return math.floor(rate * case["parameters"] / math.log2(case.answer_count))

    def size(case: Case) -> Size:
        count = trained_parameters(case["T"], max(2, case.answer_count), tenths)
        small = "; so small a model is an extrapolation" if count < SMALLEST_TRAINED else ""
        return Size(count, {}, remark + small)

    given = (trained, TWO_ANSWERS, uniform)
    return theorem(bound_id, "parameters N", given, held, remark=lambda case: remark, size=size)


def _trained(case: Case, sample: bool = False) -> float:
    sizes = case["d"], case["d_h"], case["H"], case.qk_rank
    return trained_associations(*sizes, sample=sample)


def _in_range(case: Case) -> str | None:
    """The range of the measurements: one task size, one width."""
    N, d, S = case["N"], case["d"], case["n"]
    if N != 50 or d != 10 or S != 2:
        return f"was measured at N = 50, d = 10, S = 2 only: N = {N}, d = {d}, S = {S}"
    if not 1 <= case["d_h"] <= 10:
        return f"was measured for d_h = 1..10: {case['d_h']}"
    # Accuracy 0.9 stands for X = 2500 (0.9 - 0.02)/0.98 associations.
    if _trained(case) > 2500 * (0.9 - 0.02) / 0.98:
        return "was measured below accuracy 0.9: this layer would be above"
    return None


BOUNDS = (
    theorem("sharded.layer", "",
            ("no last token with more facts than a shard (else sub-shards, wider d)",
             "shards packed full: bin packing reached 1.03 n at most"),
            size=sharded_size),
    theorem("related.information", "parameters N",
            (TWO_ANSWERS, "answers uniform and independent"),
            lambda case: facts_in_bits(case["parameters"] * case.bits, case.answer_count),
            remark=lambda case: f"{case.bits} bits a parameter, {case.answer_count:,} answers",
            size=_information_size),
    theorem("related.associative_memory", "d N",
            (ONE_MATRIX, TOKENS, "random keys and answers, T >> d"),
            lambda case: associative_capacity(case["d"], case.answer_count),
            remark=lambda case: "trained; the sum of the facts recalls 0.64 to 0.73 of so many",
            size=_associative_size),
    theorem("related.bubeck2020", "d d_ff",
            (Hypothesis("ReLU", _relu), at_least("d_ff", 4, text="4 units or more"),
             "points in general position"),
            lambda case: case["d"] * (case["d_ff"] // 4),
            lambda case: case["d_ff"] * (case["d"] + 2),  # weights, a bias, an output weight
            size=_bubeck_size),
    theorem("related.vardi2022", "T N",
            (at_least("T", 2),
             requires("a plain ReLU network, not a Transformer", lambda case: not case.family,
                      lambda case: f"is about plain ReLU networks of width 12, not {case.family}")),
            size=_vardi_size),
    theorem("related.park2021"),
    theorem("related.kim2023"),
    theorem("related.kajitsuka2023"),
    theorem("related.madden2024", "parameters N",
            (TOKENS, "generic distributions, real parameters, a smooth model"),
            lambda case: case["parameters"] // (case["N"] - 1),
            size=lambda case: Size(case["T"] * (case["N"] - 1), {}, "no fewer, for distributions")),
    theorem("related.sontag1997", "parameters",
            ("analytic or piecewise analytic networks; all generic T-sets shattered",
             requires("points are real vectors, not tokens", lambda case: case.N is None,
                      "needs real vectors in general position: tokens are separated")),
            lambda case: 2 * case["parameters"] + 1,
            size=lambda case: Size(ceil_div(case["T"] - 1, 2), {}, "no fewer, for real vectors")),
    theorem("related.vc_dimension"),
    _rate("empirical.knowledge_capacity", 20,
          "measured: 1000 exposures of each fact, down to int8 weights"),
    _rate("empirical.memorization_capacity", 36,
          "measured on GPT-2-like models of 0.5 million to 1.5 billion parameters"),
    theorem("empirical.free_dimensions", "d d_h H n N",
            (Hypothesis("N = 50, d = 10, S = 2, d_h <= 10, accuracy < 0.9", _in_range),),
            lambda case: round(_trained(case)), layer_parameters,
            lambda case: f"of all facts ({_trained(case, sample=True):,.0f} on the training sample)"
                         "; largest residual 139; the slope differs with d"),
)  # fmt: skip
