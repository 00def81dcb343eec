"""What no layer can exceed: how many facts with random answers, whatever the precision.

A layer with real parameters recalls a table of T facts with A answers when, for every key, the
logit of the right answer is above all others. As the parameters vary it gets at most 2^b(T) of the
A^T tables right, where b(T) counts sign patterns of functions of the parameters. So

    T log2 A <= b(T)   for all tables of T keys to be held, and a random one is held with a
                       probability of at most 2^(b(T) - T log2 A).

All b(T) here are concave and 0 at T = 0: beyond the largest such T the probability falls for good.
With parameters of so many bits, counting says the same (`related.information`), usually sharper.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from byheart.theory.bound import (
    ONE_MATRIX,
    TOKENS,
    TWO_ANSWERS,
    Bound,
    Hypothesis,
    largest,
    layer_parameters,
    requires,
    theorem,
)
from byheart.theory.case import Case

Bits = Callable[[Case, int], float]
Given = tuple[Hypothesis | str, ...]
ROUNDING = 1 + 1e-9  # limits are rounded up: far more than float64 loses in a dozen operations
SIZES = "d d_h H n N layer_parameters"


def sign_patterns(m: int, degree: int, W: int, *, zeros: bool = False) -> float:
    """log2 of the number of sign patterns of m polynomials of at most this degree in W variables:

        W log2(4 e D m / W) for m >= W, at most m;   with `zeros`, W log2(8 e D m / W), m log2 3.

    Source: Warren 1968, Theorem 3 (signs +, -); Goldberg and Jerrum 1995, Corollary 2.1 (+, -, 0).

    >>> round(2 ** sign_patterns(10, 1, 2))  # 10 lines in the plane: 56 regions at most
    1024
    >>> round(2 ** sign_patterns(100, 1, 2)) >= 1 + 100 + 100 * 99 // 2
    True
    """
    every = m * math.log2(3 if zeros else 2)
    if m < W:
        return every
    constant = math.log2((8 if zeros else 4) * math.e)
    return min(every, W * (constant + math.log2(degree) + math.log2(m) - math.log2(W)))


def shattered(m: int, V: int) -> float:
    """log2 of the number of patterns on m questions of a class of VC dimension V (Sauer, Shelah):
    V log2(e m / V) for m >= V, else m."""
    return m if m < V else V * (math.log2(math.e) + math.log2(m) - math.log2(V))


def hardmax_bits(case: Case, T: int) -> float:
    """b(T) of one attention-only layer with hardmax: two steps of polynomials.

    Which positions a head attends to is told by the signs (ties count) of the S(S-1)/2 differences
    of its scores, of degree 4 in e, pos, W_Q, W_K, for H heads and T keys. Where these signs are
    fixed every head is a mean of given positions, and the A(A-1)/2 differences of the logits of
    each key are of degree 4 in all parameters. The product of both numbers of patterns.
    """
    r, S = case.qk_rank or case["d_h"], case["n"]
    scores = case["d"] * (case["N"] + S + 2 * r * case["H"])
    attended = sign_patterns(T * case["H"] * _pairs(S), 4, scores, zeros=True) if S > 1 else 0
    return attended + sign_patterns(_questions(case, T), 4, case["layer_parameters"])


def softmax_bits(case: Case, T: int) -> float:
    """b(T) of one attention-only layer with softmax over tokens, the exponentials taken as free.

    A score depends on the head, the last token, and the token and position attended to. So the
    layer has Q = H N² (S - 1) different exponentials e^(score - score of the last position),
    however many keys there are. With them as variables in place of W_Q and W_K, a difference of two
    logits times all H denominators is a polynomial of degree H + 4. Derived here: it says something
    where there are more keys than exponentials, S >= 3.
    """
    r, H = case.qk_rank or case["d_h"], case["H"]
    exponentials = H * case["N"] ** 2 * (case["n"] - 1)
    variables = case["layer_parameters"] - 2 * case["d"] * r * H + exponentials
    return sign_patterns(_questions(case, T), H + 4, variables)


def pfaffian_dimension(W: int, q: int, t: int) -> int:
    """(W(q+1))² + 11 W(q+1) (t + log2(9 W(q+1))), rounded up: the VC dimension of what t operations
    (arithmetic, comparisons and q exponentials) on W parameters can decide.

    Source: Karpinski and Macintyre 1997 (Khovanskii's bound for Pfaffian functions), with the
    constants of Anthony and Bartlett 1999, Theorem 8.14.

    >>> pfaffian_dimension(W=10, q=1, t=100)
    24049
    """
    x = W * (q + 1)
    return x * x + 11 * x * t + math.ceil(11 * x * math.log2(9 * x) * ROUNDING)


def operations(case: Case) -> tuple[int, int]:
    """(t, q) of the question "is logit a of this key above logit b?" for one softmax layer.

    Tokens are looked up by bisection; every head takes W_K W_Q^T x_S, S products with it, S - 1
    exponentials, a weighted mean, W_V, W_O; then the skip, a product with w_a - w_b, a comparison.
    """
    d, d_h, H, S, N = (case[name] for name in ("d", "d_h", "H", "n", "N"))
    r = case.qk_rank or d_h
    read = (S + 2) * (math.ceil(math.log2(N)) + 1) + S * d
    scores = r * (2 * d - 1) + d * (2 * r - 1) + S * 2 * d + 3 * (S - 1)
    values = 2 * d * (S - 1) + d + d_h * (2 * d - 1) + d * (2 * d_h - 1) + d
    return read + H * (scores + values) + d + 3 * d + 1, H * (S - 1)


def pfaffian_bits(case: Case, T: int) -> float:
    """b(T) of one attention-only layer with softmax by its VC dimension, for any keys."""
    t, q = operations(case)
    return shattered(_questions(case, T), pfaffian_dimension(case["layer_parameters"], q, t))


def matrix_bits(case: Case, T: int) -> float:
    """b(T) of one d x d matrix between given keys and answers: T A(A-1)/2 hyperplanes in R^(d²)."""
    return sign_patterns(_questions(case, T), 1, case["d"] ** 2)


def most_facts(bits: Bits, case: Case) -> int:
    """The largest T with T log2 A <= b(T), rounded up."""
    A = math.log2(case.answer_count)
    return largest(lambda T: A * T <= bits(case, T) * ROUNDING)


def _questions(case: Case, T: int) -> int:
    """Which of two answers has the larger logit, for every pair and key."""
    return T * _pairs(case.answer_count)


def _pairs(n: int) -> int:
    return n * (n - 1) // 2


def _remark(bits: Bits, case: Case) -> str:
    T = most_facts(bits, case)
    more = math.ceil(T * 1.01)
    lost = more * math.log2(case.answer_count) - bits(case, more)
    if case["n"] * math.log2(case["N"]) <= 1000 and T >= case["N"] ** case["n"]:
        return f"says nothing: there are only N^n = {case['N'] ** case['n']:,} keys"
    return f"1 % more with random answers: held with a probability below 2^-{lost:.3g}"


ONE_LAYER = requires(
    "one attention-only layer",
    lambda case: case.family == "attention-only" and (case.layers or 1) == 1,
    lambda case: f"counts one attention-only layer: this is {_found(case)}",
)
RANDOM = "answers uniform and independent, given keys"


def _found(case: Case) -> str:
    one = (case.layers or 1) == 1 or case.family != "attention-only"
    return (case.family or "no layer") if one else f"{case.layers} layers"


def _attention(kind: str) -> Given:
    found = lambda case: f"needs {kind} attention, found {case.attention}"  # noqa: E731
    return (ONE_LAYER, requires(f"{kind} attention", lambda case: case.attention == kind, found),
            TOKENS, TWO_ANSWERS, RANDOM)  # fmt: skip


def _limit(bound_id: str, reads: str, hypotheses: Given, bits: Bits) -> Bound:
    def value(case: Case) -> int:
        return most_facts(bits, case)

    def remark(case: Case) -> str:
        return _remark(bits, case)

    return theorem(bound_id, reads, hypotheses, value, layer_parameters, remark)


BOUNDS = (
    _limit("limits.hardmax", SIZES, _attention("hardmax"), hardmax_bits),
    _limit("limits.softmax_tokens", SIZES, _attention("softmax"), softmax_bits),
    _limit("limits.softmax", SIZES, _attention("softmax"), pfaffian_bits),
    _limit("limits.associative", "d n N",
           (ONE_MATRIX, TOKENS, TWO_ANSWERS, "keys and answers given, W alone chosen", RANDOM),
           matrix_bits),
)  # fmt: skip
