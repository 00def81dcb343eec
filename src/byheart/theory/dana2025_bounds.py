"""The theorems of Dana et al. 2025 as objects: hypotheses, capacity, size."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from byheart.specs import AttentionOnlySpec
from byheart.theory.bound import Bound, Case, Hypothesis, Size, at_least, at_most
from byheart.theory.dana2025 import (
    corollary1_heads,
    phi,
    proposition3_margin,
)

PAPER = "Dana, Pydi, Chevaleyre 2025 (arXiv 2411.10115)"
SLIDES = "Dana, slides of June 2024"


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
            "(for the bare layer, ask with --d-model, --heads, --d-head, --context, --vocab)"
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


def _uniform(case: Case) -> str | None:
    return "needs a uniform prior: these facts are weighted" if case.uniform is False else None


def _heads_remark(case: Case) -> str:
    said = []
    if case.free_heads < case["H"]:
        said.append(
            f"counts {case.free_heads} of {case['H']} heads: those of a group share W_K and W_V"
        )
    if case.last_tokens is not None and case.last_tokens < case["d"]:
        said.append(f"the skip spans {case.last_tokens} last tokens, not d = {case['d']}")
    if _few_sequences(case) and _held(case) > case["N"] ** case["n"]:
        said.append(f"more than all N^n = {case['N'] ** case['n']:,} keys")
    return "; ".join(said)


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


def _layer(case: Case) -> int | None:
    return case.layer_parameters


def _model(case: Case) -> int | None:
    return case.parameters


TOKENS = Hypothesis("N >= 2 tokens", at_least("N", 2))
PLANE = Hypothesis("d >= 2", at_least("d", 2, "Proposition 3"))
LAYER = (
    TOKENS,
    Hypothesis("d_h <= d", at_most("d_h", "d")),
    Hypothesis("softmax over S >= 2 positions", _attends),
    Hypothesis("positions are added to the input", _additive),
    Hypothesis("a skip connection", lambda case: None if case.skip else "needs the skip x_S"),
    Hypothesis("generic e, pos, W_QK (Lemma 2): almost every choice will do"),
)
SIZES = ("d", "d_h", "H", "n", "N")

BOUNDS = (
    Bound(
        id="dana2025.proposition1",
        title="rank bottleneck",
        statement="No Transformer of width d does better than the best sequence encoder of rank d.",
        formula="d_KL(π, T) >= d_KL(π, L(N,S,d)), logits of rank <= min(d, N-1) up to constants",
        source=f"{PAPER}, Proposition 1",
        kind="rank",
        exactness="exact count",
        unit="rank",
        scope="whole model",
        reads=("d", "N"),
        hypotheses=(TOKENS,),
        capacity=lambda case: min(case["d"], case["N"] - 1),
        parameters=_model,
    ),
    Bound(
        id="dana2025.proposition2",
        title="every distribution",
        statement="Rank d represents every next-token distribution exactly when d >= N - 1.",
        formula="min_{f in L(N,S,d)} d_KL(π, f) = 0 for all π  <=>  d >= N - 1",
        source=f"{PAPER}, Proposition 2",
        kind="rank",
        exactness="exact count",
        unit="rank",
        scope="whole model",
        reads=("d", "N"),
        hypotheses=(TOKENS, Hypothesis("d >= N - 1", _full_width)),
        capacity=lambda case: case["N"] - 1,
        parameters=_model,
        corrections=("Logits count up to a constant a sequence: centre log π first.",),
    ),
    Bound(
        id="dana2025.proposition3",
        title="associations in the plane",
        statement="For one answer a sequence, rank 2 is enough: answers on a circle, λ -> ∞.",
        formula="W_j = (cos 2πj/N, sin 2πj/N), E(t) = λ W_{g(t)}, margin 1 - cos(2π/N) at λ = 1",
        source=f"{PAPER}, Proposition 3",
        kind="rank",
        exactness="exact count",
        unit="rank",
        scope="whole model",
        reads=("d", "N"),
        hypotheses=(
            TOKENS,
            Hypothesis("d >= 2", at_least("d", 2, "one direction tells 2 answers apart")),
        ),
        capacity=lambda case: 2,
        parameters=_model,
        remark=lambda case: f"margin {proposition3_margin(case['N']):.3g} at λ = 1",
    ),
    Bound(
        id="dana2025.theorem1",
        title="distributions",
        statement="A layer reaches the best rank-d encoder on the T_ε likeliest sequences.",
        formula="H d_h + d >= T_ε  =>  d_KL(π,T) <= d_KL(π,L) + sqrt 2 · C · ε · ||W E||_2",
        source=f"{PAPER}, Theorem 1",
        kind="KL",
        exactness="exact count",
        unit="distributions",
        reads=SIZES,
        hypotheses=(*LAYER, Hypothesis("every π_t has full support (Assumption 2)")),
        capacity=_held,
        parameters=_layer,
        remark=_eps_remark,
        constants="C = sqrt(1 + ||X_1^{-1} X_2||²) = 1/σ_min(V_11): theorem1_constant(X1, X2)",
        corrections=(
            "The printed bound drops the factor max_i |e_i - π|_2 <= sqrt 2 of its eq. 13.",
            "The printed sqrt(1 + ||V_11^{-1}||²) is at most sqrt 2 too large.",
            "V_11 is invertible when X_1 is, not because V is orthogonal (footnote 8).",
            "γ = 0: the literal skip by a change of basis, no limit λ -> ∞.",
            "Sharper: theorem1_excess_per_sequence(pi, prior, W, E, X).",
        ),
    ),
    Bound(
        id="dana2025.corollary1",
        title="associations",
        statement="One layer holds H d_h + d associations exactly; d = 2 is enough.",
        formula="T0 = H d_h + d with d (S + 2N + 4 d_h H) parameters; d = 2: 2(S + 2N + 4(T0-2))",
        source=f"{PAPER}, Corollary 1, Table 1",
        kind="lower bound",
        exactness="exact count",
        reads=SIZES,
        hypotheses=(*LAYER, PLANE),
        capacity=_held,
        parameters=_layer,
        size=attention_size,
        remark=_heads_remark,
        corrections=("With fewer than d last tokens the skip spans only those: H d_h + last.",),
    ),
    Bound(
        id="dana2025.corollary1_rank1",
        title="associations, W_QK of rank 1",
        statement="Rank-1 W_QK are enough for Corollary 1.",
        formula="T0 = H d_h + d with d (S + 2N + 2 (d_h + 1) H) parameters",
        source=f"{PAPER}, Remark 2",
        kind="lower bound",
        exactness="exact count",
        reads=SIZES,
        hypotheses=(*LAYER, PLANE),
        capacity=_held,
        parameters=lambda case: (
            case["d"] * (case["n"] + 2 * case["N"] + 2 * (case["d_h"] + 1) * case["H"])
        ),
        size=lambda case: attention_size(replace(case, qk_rank=1)),
        remark=_heads_remark,
    ),
    Bound(
        id="dana2025.corollary2",
        title="accuracy beyond capacity",
        statement="Under a uniform prior, what does not fit is guessed.",
        formula="E[accuracy] >= φ(H d_h + d), φ(X) = 1/N + (1 - 1/N) X/T0",
        source=f"{PAPER}, Corollary 2",
        kind="accuracy",
        exactness="exact count",
        unit="accuracy",
        reads=(*SIZES, "T"),
        hypotheses=(*LAYER, PLANE, Hypothesis("a uniform prior over T0 facts", _uniform)),
        capacity=lambda case: phi(_held(case), case["N"], case["T"]),
        parameters=_layer,
        remark=lambda case: f"T0 = {case['T']:,} facts",
    ),
    Bound(
        id="dana2025.theorem3",
        title="any distribution",
        statement="Without full support, against polynomially approximable distributions M.",
        formula="H d_h + d >= T_ε  =>  d_KL(π,T*) <= d_KL(π,M(N,S,d)) + O(ε log 1/ε)",
        source=f"{PAPER}, Theorem 3",
        kind="KL",
        exactness="up to constants",
        unit="distributions",
        reads=SIZES,
        hypotheses=LAYER,
        capacity=_held,
        parameters=_layer,
        remark=lambda case: "exact for ε = 0; the constant of O(ε log 1/ε) is not given",
        corrections=("Its last lines write e^{δ/c} for e^{cδ^α}: the same O.",),
    ),
    Bound(
        id="dana2025.associative",
        title="associative memory",
        statement="A matrix W solved for holds d associations with independent keys.",
        formula="T = d, parameters d (S N + d + N); W = Σ_i w_U(g(i)) w_e(i)^T: order d",
        source=f"{SLIDES}; Bietti et al. 2023",
        kind="lower bound",
        exactness="exact count",
        scope="one matrix",
        reads=("d", "n", "N"),
        hypotheses=(
            Hypothesis("one matrix", _one_matrix),
            TOKENS,
            PLANE,
            Hypothesis("independent keys: random ones are"),
        ),
        capacity=lambda case: case["d"],
        parameters=lambda case: case["d"] * (case["n"] * case["N"] + case["d"] + case["N"]),
        size=_associative_size,
        corrections=("The sum of outer products is of order d only up to constants.",),
    ),
)
