"""The theorems of Dana et al. 2025 and of the slides as objects: hypotheses, capacity, size."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from byheart.specs import AttentionOnlySpec
from byheart.theory.bound import (
    ONE_MATRIX,
    TOKENS,
    Hypothesis,
    Size,
    at_least,
    at_most,
    ceil_div,
    layer_parameters,
    requires,
    theorem,
)
from byheart.theory.case import Case
from byheart.theory.dana2025 import (
    associative_parameters,
    corollary1_heads,
    phi,
    proposition3_margin,
    random_coherence,
)


def _held(case: Case) -> int:
    skip = case["d"] if case.last_tokens is None else min(case["d"], case.last_tokens)
    return case.free_heads * case["d_h"] + skip


def attention_size(case: Case) -> Size:
    """The fewest heads for case.T facts at case.d and case.d_h (default d = 2, d_h = d)."""
    d = case.d if case.d is not None else 2
    d_h = min(d, case.d_h) if case.d_h is not None else d
    # A key of one token gets a start token in front: attention over one position is constant.
    S, N = (2, case["N"] + 1) if case["S"] == 1 else (case["S"], case["N"])
    H = corollary1_heads(case["T"], d, d_h, case.last_tokens)
    spec = AttentionOnlySpec(N=N, S=S, d=d, d_h=d_h, H=H, qk_rank=case.qk_rank or d_h)
    start = ", with a start token in front of the key" if case["S"] == 1 else ""
    note = f"{d * (S + 2 * N):,} of them embeddings and positions{start}"
    return Size(spec.parameters, {"d": d, "d_h": d_h, "H": H}, note)


def _modules_size(case: Case) -> Size:
    """⌈N_ε/d⌉ modules, d_h = d (default 2), N_ε = case.T sequences."""
    d = case.d if case.d is not None else 2
    spec = AttentionOnlySpec(N=case["N"], S=case["S"], d=d, d_h=d, H=ceil_div(case["T"], d))
    return Size(spec.parameters, {"d": d, "d_h": d, "H": spec.H}, "distributions, rank d")


def _additive(case: Case) -> str | None:
    needs = "needs positions added to the input"
    if case.positions == "rotary":
        bare = "(for the bare layer, ask with `d`, `H`, `d_h`, `n`, `N`)"
        return f"{needs}: rotary ones change W_QK with the distance {bare}"
    known = case.positions in ("input", "learned")
    return None if known else f"{needs}, found positions={case.positions!r}"


def _attends(case: Case) -> str | None:
    if case.attention == "hardmax":
        return "needs softmax attention, found hardmax"
    if case["n"] < 2:
        return f"needs S >= 2: attention over {case['n']} position is constant (add a start token)"
    return None


def _heads_remark(case: Case) -> str:
    remarks = []
    if case.free_heads < case["H"]:
        counted = f"counts {case.free_heads} of {case['H']} heads"
        remarks.append(f"{counted}: those of a group share W_K and W_V")
    if case.last_tokens is not None and case.last_tokens < case["d"]:
        remarks.append(f"the skip spans {case.last_tokens} last tokens, not d = {case['d']}")
    writable = case["n"] * math.log2(case["N"]) <= 1000
    if writable and _held(case) > case["N"] ** case["n"]:
        remarks.append(f"more than all N^n = {case['N'] ** case['n']:,} keys")
    return "; ".join(remarks)


def _eps_remark(case: Case) -> str:
    prior = getattr(case.facts, "prior", None)
    if prior is None:
        return _heads_remark(case)
    outside = float(np.sort(np.asarray(prior))[::-1][_held(case) :].sum())
    return f"ε = {outside:.3g} of the prior lies outside the {_held(case):,} likeliest facts"


def _rank1_parameters(case: Case) -> int:
    return case["d"] * (case["n"] + 2 * case["N"] + 2 * (case["d_h"] + 1) * case["H"])


def _jl_width(case: Case) -> float:
    return 128 * math.log(case["N"] + 1)


def _jl_factor(case: Case) -> float:
    C = random_coherence(case["N"], case["d"])
    return (1 + 2 * C) / (1 - 2 * C)


def _jl_remark(case: Case) -> str:
    vacuous = case["d"] >= case["N"] - 1
    return "vacuous: d >= N - 1, Proposition 2 gives KL = 0" if vacuous else ""


FALSE = (
    "false: N = 50, orthonormal W, two sequences with 1 - π_g = 0.3, noise on one token and on "
    "all: KL = 0.95433 > 0.91737"
)

PLANE = at_least("d", 2, "Proposition 3")
LAYER = (
    TOKENS,
    at_most("d_h", "d"),
    Hypothesis("softmax over S >= 2 positions", _attends),
    Hypothesis("positions are added to the input", _additive),
    requires("a skip connection", lambda case: case.skip, "needs the skip x_S"),
    "generic e, pos, W_QK (Lemma 2): almost every choice will do",
)
UNIFORM = requires("a uniform prior over T0 facts", lambda case: case.uniform is not False,
                   "needs a uniform prior: these facts are weighted")  # fmt: skip
SUPPORT = "every π_t has full support (Assumption 2)"
POLYNOMIAL = (
    "m in M: encoders f_δ of rank d, c δ^α <= |log m/softmax f_δ| <= δ on the support of m",
    "the support of π lies in that of m",
)
SQUARE = requires("modules of full width, d_h = d", lambda case: case["d_h"] == case["d"],
                  lambda case: f"needs d_h = d: {case['d_h']} != {case['d']}")  # fmt: skip
SIZES = "d d_h H n N"

BOUNDS = (
    theorem("dana2025.proposition1", "d N", (TOKENS,), lambda case: min(case["d"], case["N"] - 1)),
    theorem("dana2025.proposition2", "d N",
            (TOKENS, requires("d >= N - 1", lambda case: case["d"] >= case["N"] - 1, lambda case:
             f"needs d >= N - 1: {case['d']} < {case['N'] - 1} (some distribution has KL > 0)")),
            lambda case: case["N"] - 1),
    theorem("dana2025.proposition3", "d N",
            (TOKENS, at_least("d", 2, "one direction tells 2 answers apart")), lambda case: 2,
            remark=lambda case: f"margin {proposition3_margin(case['N']):.3g} at λ = 1"),
    theorem("dana2025.theorem1", SIZES, (*LAYER, SUPPORT), _held, layer_parameters, _eps_remark),
    theorem("dana2025.corollary1", SIZES, (*LAYER, PLANE), _held, layer_parameters, _heads_remark,
            size=attention_size),
    theorem("dana2025.corollary1_rank1", SIZES, (*LAYER, PLANE), _held, _rank1_parameters,
            _heads_remark, size=lambda case: attention_size(replace(case, qk_rank=1))),
    theorem("dana2025.corollary2", f"{SIZES} T", (*LAYER, PLANE, UNIFORM),
            lambda case: phi(_held(case), case["N"], case["T"]), layer_parameters,
            lambda case: f"T0 = {case['T']:,} facts"),
    theorem("dana2025.theorem3", SIZES,
            (*LAYER, *POLYNOMIAL), _held, layer_parameters,
            lambda case: "exact for ε = 0; theorem3_constant measures that of O(ε log 1/ε)"),
    theorem("dana2025.slides_modules", SIZES,
            (*LAYER, SQUARE, SUPPORT),
            lambda case: case.free_heads * case["d"], layer_parameters, size=_modules_size),
    theorem("dana2025.associative", "d n N",
            (ONE_MATRIX, TOKENS, PLANE, "independent keys: random ones are"),
            lambda case: case["d"],
            lambda case: associative_parameters(case["d"], case["n"], case["N"])),
    theorem("dana2025.theorem2", "", ("||W W^T - I_N||_max = C < 1/2",)),
    theorem("dana2025.theorem2_unit", "", ("unit rows, no two equal",)),
    theorem("dana2025.theorem2_random", "d N",
            (TOKENS, requires("d > 128 log(N+1)", lambda case: case["d"] > _jl_width(case),
             lambda case: "needs C = sqrt(32 log(N+1)/d) < 1/2, so d > 128 log(N+1) = "
                          f"{_jl_width(case):.0f}: {case['d']}")),
            _jl_factor, remark=_jl_remark),
    theorem("dana2025.theorem2_simplified", "",
            (requires("none: it is false", lambda case: False, FALSE),)),
    theorem("dana2025.slides_ls"),
    theorem("dana2025.slides_wls"),
    theorem("dana2025.bennett", "", (SUPPORT,)),
)  # fmt: skip
