"""Mahdavi, Liao, Thrampoulidis, "Memorization Capacity of Multi-Head Attention" (ICLR 2024).

A query e in R^d and a context of n tokens; head h has logits E W_h e with rank(W_h) <= d_h.
"""

from __future__ import annotations

from byheart.theory.bound import (
    Bound,
    Hypothesis,
    Size,
    at_least,
    at_most,
    ceil_div,
    requires,
    theorem,
)
from byheart.theory.case import Case


def theorem1_capacity(H: int, n: int, d_h: int, kruskal: int | None = None) -> int:
    """T = H (r - 1) + 1 examples, r = min(n, d_h), n replaced by the Kruskal rank Q < n.

    Source: Mahdavi et al. 2024, Theorem 1.

    >>> theorem1_capacity(H=20, n=32, d_h=64), theorem1_capacity(20, 32, 64, kruskal=10)
    (621, 181)
    """
    return H * (_rank(n, d_h, kruskal) - 1) + 1


def theorem1_heads(T: int, n: int, d_h: int, kruskal: int | None = None) -> int:
    """The fewest heads with H (r - 1) + 1 >= T; r >= 2 (Theorem 1, inverted).

    >>> theorem1_heads(621, n=32, d_h=64), theorem1_heads(622, n=32, d_h=64)
    (20, 21)
    """
    return max(1, ceil_div(T - 1, _rank(n, d_h, kruskal) - 1))


def _rank(n: int, d_h: int, kruskal: int | None) -> int:
    return min(n, d_h) if kruskal is None else min(n, d_h, kruskal)


def generic_rank(H: int, n: int, d: int, *, shared: bool) -> int:
    """rank(Z) of random heads: min(H(n-1)+1, H d) for one shared context, H d otherwise (n >= 2).

    It does not depend on d_h. Derived here: A_h 1 = 1 for every head takes H - 1 of H n directions.

    >>> generic_rank(8, 32, 64, shared=True), generic_rank(8, 32, 64, shared=False)
    (249, 512)
    """
    if n == 1:
        return 1 if shared else d
    return min(H * (n - 1) + 1, H * d) if shared else H * d


def effective_parameters(H: int, n: int, d: int, d_h: int, *, shared: bool) -> int:
    """P, the dimension of the family of functions on generic examples, scalar labels.

        shared:  H q (d + k - q) + rank(Z),   k = min(n-1, d), q = min(d_h, k)
        else:    H q (2d - q) + H d,          q = min(d_h, d), n >= 2

    A head is a rank-q map from queries to the k logit differences that softmax sees. More than P
    generic labels cannot be fitted: a P-dimensional smooth family does not cover R^T (Sard).
    Derived here; for n <= d the shared form is H q (d + n-1 - q) + H(n-1) + 1.

    >>> effective_parameters(4, 8, 16, 16, shared=True)
    477
    >>> effective_parameters(4, 8, 16, 4, shared=False)
    512
    """
    if n == 1:
        return generic_rank(H, n, d, shared=shared)
    k = min(n - 1, d) if shared else d
    q = min(d_h, k)
    return H * q * (d + k - q) + generic_rank(H, n, d, shared=shared)


def _parameters(case: Case) -> int:
    """H (2 d d_h + d d_v) + H d_v d_out, d_v = d_out = 1 unless given: scalar labels."""
    d_v, d_out = case.d_v or 1, case.d_out or 1
    return case["H"] * (2 * case["d"] * _key_width(case) + case["d"] * d_v + d_v * d_out)


def multihead_size(case: Case) -> Size:
    """The fewest parameters for case.T scalar labels; d, n and d_h free unless given.

    At d = n = d_h = r the cost is (2r² + r + 1)/(r - 1) a fact: 11 at r = 2 and 3, then growing.

    >>> multihead_size(Case(T=101)).parameters
    1100
    """
    best: Size | None = None
    for d_h in [case.d_h] if case.d_h is not None else range(2, 65):
        n = case.n if case.n is not None else d_h
        d = case.d if case.d is not None else max(n, d_h)
        if min(n, d_h) < 2 or n > d:
            continue
        H = theorem1_heads(case["T"], n, d_h)
        count, sizes = H * (2 * d * d_h + d + 1), {"d": d, "n": n, "d_h": d_h, "H": H}
        if best is None or count < best.parameters:
            best = Size(count, sizes, "scalar labels, the vectors themselves not counted")
    if best is None:
        raise ValueError("needs 2 <= d_h and 2 <= n <= d")
    return best


def _key_width(case: Case) -> int:
    """rank(W_h) <= d_h, or the rank that an attention-only spec gives its W_QK."""
    return case["d_h"] if case.qk_rank is None else case.qk_rank


def _capacity(case: Case) -> int:
    return theorem1_capacity(case.free_heads, case["n"], _key_width(case), case.kruskal)


def _kruskal(case: Case) -> str | None:
    """Assumption 1 as far as sizes tell: T different queries, Kruskal rank at least 2."""
    if case.kruskal is not None and case.kruskal < 2:
        return f"needs queries of Kruskal rank >= 2 (Assumption 1): {case.kruskal}"
    if case.T is not None and case.last_tokens is not None and case.last_tokens < case.T:
        found = f"{case.last_tokens} last tokens, so two queries coincide"
        return f"needs {case.T} different queries (Assumption 1): {found}"
    queries = _capacity(case)
    if case.family == "attention-only" and case.N is not None and queries > case.N:
        return f"needs H(r-1)+1 = {queries} different queries (Assumption 1): {case.N} tokens"
    return None


def _plain_scores(case: Case) -> str | None:
    changed = {
        "rotary": "rotary positions change it",
        "relative": "relative ones change the scores",
    }
    if case.positions in changed:
        bare = "(for the bare layer, ask with `d`, `H`, `d_h`, `n`)"
        why = f"{changed[case.positions]} with the distance"
        return f"needs one W_h for all positions: {why} {bare}"
    return "needs softmax attention, found hardmax" if case.attention == "hardmax" else None


def _context(shared: bool) -> Hypothesis:
    words = "one context shared by all examples" if shared else "a context of its own each example"
    return requires(words, lambda case: case.shared in (None, shared), f"needs {words}")


def _remark(case: Case) -> str:
    remarks = []
    if case.free_heads < case["H"]:
        remarks.append(f"counts {case.free_heads} of {case['H']} heads: groups share W_K and W_V")
    if _key_width(case) != case["d_h"]:
        remarks.append(f"W_QK has rank {_key_width(case)}, not d_h = {case['d_h']}")
    if case.kruskal is not None and case.kruskal < case["n"]:
        remarks.append(f"Kruskal rank {case.kruskal} in place of n = {case['n']}")
    if case.family == "transformer":
        remarks.append("first layer: queries repeat, so from the second layer on at best")
    return "; ".join(remarks)


SIZES = "d d_h H n"
HEADS = Hypothesis("softmax scores E W_h e, one W_h for all positions", _plain_scores)
# The paper has n < d; the proof needs no more than n <= d.
NARROW = (HEADS, at_most("n", "d", "the paper: n < d"), at_most("d_h", "d"))
TWO = at_least("n", 2, "attention over one token is constant")
QUERIES = Hypothesis(
    "every n queries independent (Assumption 1; only Q of them: n becomes Q)", _kruskal
)
ONE_LAYER = requires("one layer", lambda case: (case.layers or 1) <= 1,
                     lambda case: f"counts one layer: this one has {case.layers}")  # fmt: skip
GIVEN = requires(
    "queries and contexts are given vectors, not trained",
    lambda case: case.N is None and case.family != "transformer" and case.bare,
    "needs given vectors: here an embedding or a decoder is trained as well, which P leaves out",
)


def _random_heads(bound_id: str, shared: bool) -> Bound:
    def rank(case: Case) -> int:
        return generic_rank(case.free_heads, case["n"], case["d"], shared=shared)

    given = (HEADS, TWO, _context(shared), "generic data and weights")
    return theorem(bound_id, SIZES, given, rank, _parameters)


def _hard_limit(bound_id: str, shared: bool) -> Bound:
    def limit(case: Case) -> int:
        return effective_parameters(case["H"], case["n"], case["d"], case["d_h"], shared=shared)

    given = (HEADS, TWO, _context(shared), ONE_LAYER, GIVEN, "generic scalar labels")
    return theorem(bound_id, SIZES, given, limit, _parameters)


BOUNDS = (
    theorem("mahdavi2024.theorem1", SIZES,
            (*NARROW, QUERIES, "every context of rank n (Assumption 2)"),
            _capacity, _parameters, _remark, size=multihead_size),
    theorem("mahdavi2024.assumption3", f"{SIZES} layers",
            (*NARROW, at_least("layers", 2, text="two layers or more"),
             requires("a skip connection", lambda case: case.skip, "needs the skip"),
             "e + mean_i E_i of Kruskal rank >= n (Assumption 3)"),
            _capacity, lambda case: 2 * _parameters(case)),
    theorem("mahdavi2024.tightness", "H n", (_context(True),),
            lambda case: case["H"] * (case["n"] - 1) + 1, lambda case: None),
    _random_heads("mahdavi2024.generic_rank_shared", shared=True),
    _random_heads("mahdavi2024.generic_rank", shared=False),
    _hard_limit("mahdavi2024.effective_parameters_shared", shared=True),
    _hard_limit("mahdavi2024.effective_parameters", shared=False),
)  # fmt: skip


def partly_shared(H: int, n: int, d: int, d_h: int, contexts: int) -> tuple[int, int]:
    """(R, P) of generic examples that have c = `contexts` different contexts between them: the
    largest rank(Z) of random heads, and the dimension of the family of functions, scalar labels.

        R = min(c (H(n-1) + 1),  c (H-1)(n-1) + d,  H d)
        P = H q (d + k - q) + R,     k = min(c (n-1), d), q = min(d_h, k)

    c = 1 is one shared context, c >= d examples with contexts of their own. If every context is
    used equally often, rank(Z) = min(T, R), and T <= P is necessary for T generic labels.

    Derived here. The rows of one context span {(E^T a_1, ..., E^T a_H) with Σa_h the same for all
    h}. Those of c contexts: in every head the min(c (n-1), d) directions of their differences of
    tokens, and c vectors that are the same in all heads, as far as these directions leave room. A
    row is a generic point of an analytic family that spans its context's space, so T rows are
    independent unless some j contexts hold more than R(j) of them (Rado); R(j) is concave with
    R(0) = 0, so that all c of them decide. A head is a rank-q map from queries to k logit
    differences; P(j) is concave too.

    >>> [partly_shared(4, 3, 16, 4, contexts) for contexts in (1, 2, 6, 8, 100)]
    [(9, 137), (18, 274), (52, 436), (64, 512), (64, 512)]
    """
    c = contexts
    R = min(c * (H * (n - 1) + 1), c * (H - 1) * (n - 1) + d, H * d)
    k = min(c * (n - 1), d)
    q = min(d_h, k)
    return R, H * q * (d + k - q) + R
