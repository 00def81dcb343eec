"""The theorems of Dana et al. 2025 as objects: hypotheses, capacity, size."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from byheart.specs import AttentionOnlySpec
from byheart.theory.bound import (
    TOKENS,
    Capacity,
    Hypothesis,
    Size,
    at_least,
    at_most,
    layer_parameters,
    model_parameters,
    requires,
)
from byheart.theory.case import Case
from byheart.theory.dana2025 import corollary1_heads, phi, proposition3_margin
from byheart.theory.statements import theorem


def _held(case: Case) -> int:
    skip = case["d"] if case.last_tokens is None else min(case["d"], case.last_tokens)
    return case.free_heads * case["d_h"] + skip


def _few_sequences(case: Case) -> bool:
    """Is N^n small enough to write down?"""
    return case["n"] * math.log2(case["N"]) <= 1000


def attention_size(case: Case) -> Size:
    """The fewest heads for case.T facts at case.d and case.d_h (default d = 2, d_h = d).

    >>> attention_size(Case(T=42, N=10, S=2)).sizes
    {'d': 2, 'd_h': 2, 'H': 20}
    """
    d = case.d if case.d is not None else 2
    d_h = min(d, case.d_h) if case.d_h is not None else d
    # A key of one token gets a start token in front: attention over one position is constant.
    S, N = (2, case["N"] + 1) if case["S"] == 1 else (case["S"], case["N"])
    H = corollary1_heads(case["T"], d, d_h, case.last_tokens)
    spec = AttentionOnlySpec(N=N, S=S, d=d, d_h=d_h, H=H, qk_rank=case.qk_rank or d_h)
    note = f"{d * (S + 2 * N):,} of them embeddings and positions"
    if case["S"] == 1:
        note += ", with a start token in front of the key"
    return Size(spec.parameters, {"d": d, "d_h": d_h, "H": H}, note=note)


def _associative_size(case: Case) -> Size:
    T, S, N = case["T"], case["S"], case["N"]
    d = max(2, T)
    return Size(d * (S * N + d + N), {"d": d}, note="W solved for, independent keys")


def _additive(case: Case) -> str | None:
    if case.positions == "rotary":
        return (
            "needs positions added to the input: rotary ones change W_QK with the distance "
            "(for the bare layer, ask with `d`, `H`, `d_h`, `n`, `N`)"
        )
    if case.positions not in ("input", "learned"):
        return f"needs positions added to the input, found positions={case.positions!r}"
    return None


def _attends(case: Case) -> str | None:
    if case.attention == "hardmax":
        return "needs softmax attention, found hardmax"
    if case["n"] < 2:
        return f"needs S >= 2: attention over {case['n']} position is constant (add a start token)"
    return None


def _full_width(case: Case) -> str | None:
    if case["d"] >= case["N"] - 1:
        return None
    return f"needs d >= N - 1: {case['d']} < {case['N'] - 1} (some distribution has KL > 0)"


def _heads_remark(case: Case) -> str:
    remarks = []
    if case.free_heads < case["H"]:
        remarks.append(
            f"counts {case.free_heads} of {case['H']} heads: those of a group share W_K and W_V"
        )
    if case.last_tokens is not None and case.last_tokens < case["d"]:
        remarks.append(f"the skip spans {case.last_tokens} last tokens, not d = {case['d']}")
    if _few_sequences(case) and _held(case) > case["N"] ** case["n"]:
        remarks.append(f"more than all N^n = {case['N'] ** case['n']:,} keys")
    return "; ".join(remarks)


def _eps_remark(case: Case) -> str:
    prior = getattr(case.facts, "prior", None)
    if prior is None:
        return _heads_remark(case)
    outside = float(np.sort(np.asarray(prior))[::-1][_held(case) :].sum())
    return f"ε = {outside:.3g} of the prior lies outside the {_held(case):,} likeliest facts"


def _one_matrix(case: Case) -> str | None:
    if case.family in ("", "associative"):
        return None
    return f"is about one d x d matrix W between keys and answers, not {case.family}"


PLANE = at_least("d", 2, "Proposition 3")
LAYER = (
    TOKENS,
    at_most("d_h", "d"),
    Hypothesis("softmax over S >= 2 positions", _attends),
    Hypothesis("positions are added to the input", _additive),
    requires("a skip connection", lambda case: case.skip, "needs the skip x_S"),
    Hypothesis("generic e, pos, W_QK (Lemma 2): almost every choice will do"),
)
UNIFORM = requires(
    "a uniform prior over T0 facts",
    lambda case: case.uniform is not False,
    "needs a uniform prior: these facts are weighted",
)
SIZES = ("d", "d_h", "H", "n", "N")

BOUNDS = (
    theorem(
        "dana2025.proposition1",
        ("d", "N"),
        (TOKENS,),
        Capacity(lambda case: min(case["d"], case["N"] - 1), model_parameters),
    ),
    theorem(
        "dana2025.proposition2",
        ("d", "N"),
        (TOKENS, Hypothesis("d >= N - 1", _full_width)),
        Capacity(lambda case: case["N"] - 1, model_parameters),
    ),
    theorem(
        "dana2025.proposition3",
        ("d", "N"),
        (TOKENS, at_least("d", 2, "one direction tells 2 answers apart")),
        Capacity(
            lambda case: 2,
            model_parameters,
            lambda case: f"margin {proposition3_margin(case['N']):.3g} at λ = 1",
        ),
    ),
    theorem(
        "dana2025.theorem1",
        SIZES,
        (*LAYER, Hypothesis("every π_t has full support (Assumption 2)")),
        Capacity(_held, layer_parameters, _eps_remark),
    ),
    theorem(
        "dana2025.corollary1",
        SIZES,
        (*LAYER, PLANE),
        Capacity(_held, layer_parameters, _heads_remark),
        size=attention_size,
    ),
    theorem(
        "dana2025.corollary1_rank1",
        SIZES,
        (*LAYER, PLANE),
        Capacity(
            _held,
            lambda case: (
                case["d"] * (case["n"] + 2 * case["N"] + 2 * (case["d_h"] + 1) * case["H"])
            ),
            _heads_remark,
        ),
        size=lambda case: attention_size(replace(case, qk_rank=1)),
    ),
    theorem(
        "dana2025.corollary2",
        (*SIZES, "T"),
        (*LAYER, PLANE, UNIFORM),
        Capacity(
            lambda case: phi(_held(case), case["N"], case["T"]),
            layer_parameters,
            lambda case: f"T0 = {case['T']:,} facts",
        ),
    ),
    theorem(
        "dana2025.theorem3",
        SIZES,
        LAYER,
        Capacity(
            _held,
            layer_parameters,
            lambda case: "exact for ε = 0; the constant of O(ε log 1/ε) is not given",
        ),
    ),
    theorem(
        "dana2025.associative",
        ("d", "n", "N"),
        (
            Hypothesis("one matrix", _one_matrix),
            TOKENS,
            PLANE,
            Hypothesis("independent keys: random ones are"),
        ),
        Capacity(
            lambda case: case["d"],
            lambda case: case["d"] * (case["n"] * case["N"] + case["d"] + case["N"]),
        ),
        size=_associative_size,
    ),
)
