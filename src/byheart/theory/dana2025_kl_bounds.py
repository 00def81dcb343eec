"""The divergence bounds of Dana et al. 2025 and of the slides as objects; most need matrices."""

from __future__ import annotations

import math

from byheart.theory.bound import Bound, Case, Hypothesis, at_least
from byheart.theory.dana2025 import random_coherence

PAPER = "Dana, Pydi, Chevaleyre 2025 (arXiv 2411.10115)"
SLIDES = "Dana, slides of June 2024"
TOKENS = Hypothesis("N >= 2 tokens", at_least("N", 2))


def _jl(case: Case) -> str | None:
    least = 128 * math.log(case["N"] + 1)
    if case["d"] > least:
        return None
    return f"needs C = sqrt(32 log(N+1)/d) < 1/2, so d > 128 log(N+1) = {least:.0f}: {case['d']}"


def _jl_factor(case: Case) -> float:
    C = random_coherence(case["N"], case["d"])
    return (1 + 2 * C) / (1 - 2 * C)


def _false(case: Case) -> str:
    return (
        "false: N = 50, orthonormal W, two sequences with 1 - π_g = 0.3, noise on one token and on "
        "all: KL = 0.95433 > 0.91737"
    )


BOUNDS = (
    Bound(
        id="dana2025.theorem2",
        title="low entropy, as published",
        statement="Distributions near a look-up table need no rank: f = λ W W_g.",
        formula="d_KL <= (1+2C)/(1-2C) · E_t[(1-π_g) log((N-1)/(e^{H_t}-1))], H_t Shannon entropy",
        source=f"{PAPER}, Theorem 2",
        kind="KL",
        exactness="exact count",
        unit="nats",
        scope="whole model",
        hypotheses=(Hypothesis("||W W^T - I_N||_max = C < 1/2"),),
        matrices="needs the matrices: byheart.theory.dana2025.theorem2_bound(pi, W, "
        'form="published")',
        corrections=(
            "The printed H is Σ p log p (minus the entropy) in the theorem, e^{-H} is e^{+H}.",
            "C d_TV(π̃, unif) (d_TV an L1 distance) is superfluous; the Gram matrix is N x N.",
        ),
    ),
    Bound(
        id="dana2025.theorem2_unit",
        title="low entropy, unit rows",
        statement="With unit rows the factor is finite whenever no two rows coincide.",
        formula="d_KL <= (1+μ₋)/(1-μ₊) · E_t[(1-π_g) log((N-1)/(e^{H_t}-1))]",
        source=f"derived from {PAPER}, Theorem 2",
        kind="KL",
        exactness="exact count",
        unit="nats",
        scope="whole model",
        hypotheses=(Hypothesis("unit rows, no two equal"),),
        matrices="needs the matrices: byheart.theory.dana2025.theorem2_bound(pi, W)",
    ),
    Bound(
        id="dana2025.theorem2_random",
        title="low entropy, random rows",
        statement="Random directions have C = sqrt(32 log(N+1)/d).",
        formula="factor (1+2C)/(1-2C), C = sqrt(32 log(N+1)/d) < 1/2",
        source=f"{PAPER}, after Theorem 2; {SLIDES}",
        kind="KL",
        exactness="exact count",
        unit="factor",
        scope="whole model",
        reads=("d", "N"),
        hypotheses=(TOKENS, Hypothesis("d > 128 log(N+1)", _jl)),
        capacity=_jl_factor,
        parameters=lambda case: case.parameters,
        remark=lambda case: (
            "vacuous: d >= N - 1, Proposition 2 gives KL = 0" if case["d"] >= case["N"] - 1 else ""
        ),
        corrections=("Below N of about 870, d > 128 log(N+1) is more than N - 1: measure C.",),
    ),
    Bound(
        id="dana2025.theorem2_simplified",
        title='the "simpler bound"',
        statement="FALSE: the expectations moved inside the logarithm.",
        formula="d_KL <= E[1-π_g] · factor · log((N-1)/(e^{E H}-1))   (false)",
        source=f"{PAPER}, after Theorem 2",
        kind="KL",
        exactness="false",
        unit="nats",
        scope="whole model",
        hypotheses=(Hypothesis("none: it is false", _false),),
        corrections=("h -> log((N-1)/(e^h-1)) is convex: Jensen goes the other way.",),
    ),
    Bound(
        id="dana2025.slides_ls",
        title="least squares on log π",
        statement="Heuristic: truncated SVD of log π, remainder of third order dropped.",
        formula="d_KL <~ N|π|² σ_{d+1}² + (N|π|)^{3/2} σ_{d+1}³",
        source=SLIDES,
        kind="KL",
        exactness="heuristic",
        unit="nats",
        scope="whole model",
        matrices="needs the matrices: byheart.theory.dana2025.slides_least_squares(pi, prior, d)",
        corrections=("|π| is not defined there; taken as the largest joint probability.",),
    ),
    Bound(
        id="dana2025.slides_wls",
        title="weighted least squares on log π",
        statement="Heuristic: SVD of the weighted matrix.",
        formula="d_KL <~ |π|_∞ σ_{d+1}² + (|π|_∞/|π|_{-∞})^{3/2} σ_{d+1}³",
        source=SLIDES,
        kind="KL",
        exactness="heuristic",
        unit="nats",
        scope="whole model",
        matrices="needs the matrices: "
        "byheart.theory.dana2025.slides_weighted_least_squares(pi, prior, d)",
    ),
    Bound(
        id="dana2025.bennett",
        title="Bennett",
        statement="Rigorous replacement of the slides' bounds, for any logits f.",
        formula="KL_t <= log(1 + Var_π(Z)(e^b-1-b)/b²), Z = f - log π, b = max Z - E_π Z",
        source="derived here (Bennett's inequality)",
        kind="KL",
        exactness="exact count",
        unit="nats",
        scope="whole model",
        hypotheses=(Hypothesis("every π_t has full support (Assumption 2)"),),
        matrices="needs the matrices: byheart.theory.dana2025.bennett_bound(pi, f)",
    ),
)
