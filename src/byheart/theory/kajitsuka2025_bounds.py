"""The theorems of Kajitsuka and Sato 2025 as objects, and our sparse construction."""

from __future__ import annotations

import math
from collections.abc import Callable

from byheart.theory.bound import Bound, Case, Hypothesis, Size, at_least, largest
from byheart.theory.kajitsuka2025 import (
    Literal,
    corollary41,
    theorem41,
    theorem42_parameters,
    theorem43_parameters,
    theoremD1,
    theoremE1,
    theoremF1,
)
from byheart.theory.kajitsuka2025_sparse import SparseSize, sparse_size

PAPER = "Kajitsuka and Sato 2025 (arXiv 2409.17677)"
FORMS = "constants of Lemma C.1 evaluated literally; dense parameters"

Construction = Callable[[int, Case], Literal]


def separation(case: Case) -> tuple[int, float]:
    """(d, r/δ) of the input tokens: as given, else the pairs (token, position), integers: d = 2,
    r = |(N, n)|, δ = 1.

    >>> separation(Case(N=4, n=3))
    (2, 5.0)
    """
    if case.d_in is not None and case.spread is not None:
        return case.d_in, case.spread
    return 2, math.hypot(case["N"], _length(case))


def _length(case: Case) -> int:
    return case.S if case.S is not None else case["n"]


def _labels(case: Case) -> int:
    if case.answers is not None:
        return max(2, case.answers)
    return max(2, case.N) if case.N is not None else 2


def _next_token(T: int, case: Case) -> Literal:
    d, spread = separation(case)
    return theorem41(T, _length(case), d, spread, _labels(case))


def _sequence(T: int, case: Case) -> Literal:
    d, spread = separation(case)
    return corollary41(T, _length(case), d, spread, _labels(case))


def _sets(T: int, case: Case) -> Literal:
    d, spread = separation(case)
    return theoremD1(T, _length(case), d, spread, _labels(case))


def _table(T: int, case: Case) -> Literal:
    omega = case["N"] * _length(case)
    # Ids are 1 apart and at most ω: r = ω, δ = 1.
    return theoremE1(T, _length(case), float(omega), _labels(case), omega)


def _limited(T: int, case: Case) -> Literal:
    d, spread = separation(case)
    C, n = _labels(case), _length(case)
    B = largest(lambda B: theoremF1(T, n, d, spread, C, B).bits <= case.bits, 2, math.isqrt(T))
    return theoremF1(T, n, d, spread, C, max(2, B))


def _within(found: Literal, case: Case) -> bool:
    return found.depth <= case["layers"] and found.bits <= case.bits


def _inverse(construction: Construction) -> Callable[[Case], int]:
    """The largest T whose network is no deeper than the spec."""
    return lambda case: largest(lambda T: construction(T, case).depth <= case["layers"], 2)


def _size(construction: Construction) -> Callable[[Case], Size]:
    def size(case: Case) -> Size:
        found = construction(max(2, case["T"]), case)
        sizes = {"width": found.width, "depth": found.depth}
        note = f"about {found.bits:,.0f} bits a parameter, up to a constant"
        return Size(found.parameters, sizes, note=note, bits=found.bits)

    return size


def _bits_remark(construction: Construction) -> Callable[[Case], str]:
    def remark(case: Case) -> str:
        found = construction(_inverse(construction)(case), case)
        return f"weights of about {found.bits:,.0f} bits, up to a constant"

    return remark


def _fits(construction: Construction, width: int) -> tuple[Hypothesis, ...]:
    def deep(case: Case) -> str | None:
        least = construction(2, case).depth
        if case["layers"] >= least:
            return None
        return f"needs depth >= {least} for 2 sequences: {case['layers']}"

    return (
        Hypothesis("n >= 1 tokens, (r, δ)-separated, consistently labelled", _separated),
        Hypothesis("ReLU feed-forward blocks", _relu),
        Hypothesis("no layer norm", _no_norm),
        Hypothesis(f"width >= {width}", at_least("width", width)),
        Hypothesis("deep enough", deep),
    )


def _separated(case: Case) -> str | None:
    if (case.d_in is None or case.spread is None) and case.N is None:
        return "needs (r, δ)-separated tokens: a vocabulary, or bounds(spec, spread=r/δ)"
    return None


def _relu(case: Case) -> str | None:
    if not case.d_ff:
        return "needs feed-forward blocks: this one has attention only"
    if case.activation != "relu":
        return f"needs ReLU feed-forward blocks, found {case.activation}"
    return None


def _piecewise(case: Case) -> str | None:
    if case.d_ff and case.activation != "relu":
        return f"needs ReLU (the proof counts linear pieces), found {case.activation}"
    return None


def _no_norm(case: Case) -> str | None:
    if case.family == "transformer":
        return "needs blocks without layer norm: the proof has none"
    return None


def _constant(case: Case) -> str | None:
    if case.family == "associative":
        return "is about Transformers, not one matrix"
    if case.positions != "none":
        return "needs no positions: the proof feeds sequences of equal tokens, which stay equal"
    return None


def _hardmax(case: Case) -> str | None:
    return None if case.attention == "hardmax" else "needs hardmax attention, found softmax"


def _bits_fit(case: Case) -> str | None:
    if case.T is None or case.T < 4:
        return None
    d, spread = separation(case)
    needed = theoremF1(case.T, _length(case), d, spread, _labels(case), 2).bits
    if needed <= case.bits:
        return None
    return f"needs B >= 2, about {needed:,.0f} bits a parameter (up to a constant): {case.bits}"


def _total_bits(case: Case) -> float:
    found = _next_token(max(2, case["T"]), case)
    return found.parameters * found.bits


def sparse(case: Case) -> SparseSize:
    """Our construction for case.T facts: keys are token + N · position.

    >>> sparse(Case(T=1000, N=50, S=2)).ff1
    94
    """
    key_bits = max(1, math.ceil(math.log2(case["N"] * _length(case))))
    return sparse_size(case["T"], key_bits=key_bits, C=_labels(case), d=2, n=_length(case))


def _sparse_size(case: Case) -> Size:
    found = sparse(case)
    sizes = {"width": 3, "k": found.table.k, "t": found.table.t}
    return Size(found.parameters, sizes, f"weights of up to {found.bits:,} bits", found.bits)


def _model(case: Case) -> int | None:
    return case.parameters


SHATTER = Hypothesis("every labelling is wanted (shattering), not one")

BOUNDS = (
    Bound(
        id="kajitsuka2025.theorem41",
        title="next token, sqrt(T) parameters",
        statement="Width 14 and depth O~(sqrt T) memorize T sequences.",
        formula="R = 400 sqrt(3d) n³ r T⁵ π/δ; depth <~ sqrt(T log T) + sqrt(T/log T) max(log R, "
        "log C)",
        source=f"{PAPER}, Theorem 4.1 / B.1",
        kind="lower bound",
        exactness="explicit constants",
        scope="whole model",
        reads=("width", "layers", "n"),
        hypotheses=_fits(_next_token, 14),
        capacity=_inverse(_next_token),
        remark=_bits_remark(_next_token),
        parameters=_model,
        size=_size(_next_token),
        constants=FORMS,
        corrections=("The paper has no positions: the position is a coordinate of the token.",),
    ),
    Bound(
        id="kajitsuka2025.theorem42",
        title="next token, sqrt(T) is needed",
        statement="Shattering T constant sequences needs Ω(sqrt T) parameters.",
        formula="W >= sqrt(T / (3 log2(48 e T)))",
        source=f"{PAPER}, Theorem 4.2 / B.2; constant derived here from Theorem 4.3 with n = 1",
        kind="necessary size",
        exactness="explicit constants",
        scope="whole model",
        reads=("parameters",),
        hypotheses=(
            Hypothesis("no positions added", _constant),
            Hypothesis("no layer norm", _no_norm),
            Hypothesis("ReLU or no feed-forward", _piecewise),
            SHATTER,
        ),
        capacity=lambda case: largest(lambda T: theorem42_parameters(T) <= case["parameters"]),
        parameters=_model,
        size=lambda case: Size(math.ceil(theorem42_parameters(case["T"])), {}, "no fewer"),
        constants="loose: 13 parameters at T = 10^4",
    ),
    Bound(
        id="kajitsuka2025.corollary41",
        title="sequence to sequence, sqrt(nT) parameters",
        statement="One label for each of n T tokens: width 14, depth O~(sqrt(nT)).",
        formula="Theorem 4.1 with n T in place of T",
        source=f"{PAPER}, Corollary 4.1",
        kind="lower bound",
        exactness="explicit constants",
        unit="sequences",
        scope="whole model",
        reads=("width", "layers", "n"),
        hypotheses=_fits(_sequence, 14),
        capacity=_inverse(_sequence),
        remark=_bits_remark(_sequence),
        parameters=_model,
        size=_size(_sequence),
        constants=FORMS,
    ),
    Bound(
        id="kajitsuka2025.theorem43",
        title="sequence to sequence, hardmax lower bound",
        statement="Shattering T sequences of n different tokens needs Ω(sqrt(nT/log(nT))).",
        formula="nT <= 3 W² log2(48 e n³ T), so W >= sqrt(nT/(9 log2(48 e n T)))",
        source=f"{PAPER}, Theorem 4.3 / B.3, eqs 90-96",
        kind="necessary size",
        exactness="explicit constants",
        unit="sequences",
        scope="whole model",
        reads=("parameters", "n"),
        hypotheses=(
            Hypothesis("hardmax attention", _hardmax),
            Hypothesis("no layer norm", _no_norm),
            Hypothesis("ReLU or no feed-forward", _piecewise),
            SHATTER,
        ),
        capacity=lambda case: largest(
            lambda T: theorem43_parameters(T, case["n"]) <= case["parameters"]
        ),
        parameters=_model,
        size=lambda case: Size(math.ceil(theorem43_parameters(case["T"], _length(case))), {}),
        constants="the sharper first line of the chain is evaluated",
    ),
    Bound(
        id="kajitsuka2025.theoremD1",
        title="deep sets",
        statement="ρ(Σ φ(x)) of width 12 memorizes T multisets of at most n elements.",
        formula="R = 80 M² T⁵ r π sqrt(d)/δ; depth as in Theorem 4.1",
        source=f"{PAPER}, Theorem D.1",
        kind="lower bound",
        exactness="explicit constants",
        scope="whole model",
        reads=("width", "layers", "n"),
        hypotheses=_fits(_sets, 12),
        capacity=_inverse(_sets),
        remark=_bits_remark(_sets),
        parameters=_model,
        size=_size(_sets),
        constants=FORMS,
    ),
    Bound(
        id="kajitsuka2025.theoremE1",
        title="with an embedding table",
        statement="A table of ω ids replaces the first feed-forward stack.",
        formula="R = 200 sqrt 3 n² r T⁵ ω π/δ; ω + O~(sqrt T) parameters",
        source=f"{PAPER}, Theorem E.1",
        kind="lower bound",
        exactness="explicit constants",
        scope="whole model",
        reads=("width", "layers", "n", "N"),
        hypotheses=_fits(_table, 14),
        capacity=_inverse(_table),
        remark=_bits_remark(_table),
        parameters=_model,
        size=_size(_table),
        constants=FORMS + "; ω = N n pairs (token, position)",
    ),
    Bound(
        id="kajitsuka2025.theoremF1",
        title="limited bits",
        statement="T/B² networks in series: bits O~(B), parameters O~(T/B).",
        formula="depth <~ T sqrt(log B)/B + T/(B sqrt(log B)) max(log R, log C), 2 <= B <= sqrt T",
        source=f"{PAPER}, Theorem F.1",
        kind="lower bound",
        exactness="explicit constants",
        scope="whole model",
        reads=("width", "layers", "n", "T"),
        hypotheses=(
            Hypothesis("T >= 4", at_least("T", 4)),
            *_fits(lambda T, case: _limited(max(4, T), case), 15),
            Hypothesis("B >= 2 within the bits of a parameter", _bits_fit),
        ),
        capacity=lambda case: largest(lambda T: _within(_limited(T, case), case), 4),
        parameters=_model,
        size=_size(lambda T, case: _limited(max(4, T), case)),
        constants=FORMS + "; the constant of the bits is not given",
    ),
    Bound(
        id="kajitsuka2025.bits",
        title="bits of the construction",
        statement="Parameters x bits a parameter is O~(T), and 2^T labellings need T bits.",
        formula="(parameters of Theorem 4.1) x (log d + sqrt(T/log T) max(log R, log C))",
        source=f"{PAPER}, Remarks 4.4 and 4.6",
        kind="bits",
        exactness="up to constants",
        unit="bits",
        scope="whole model",
        reads=("T", "n", "N"),
        hypotheses=(Hypothesis("T >= 2", at_least("T", 2)),),
        capacity=_total_bits,
        parameters=lambda case: _next_token(case["T"], case).parameters,
        remark=lambda case: (
            f"against {case['T'] * math.log2(_labels(case)):,.0f} bits that the facts have"
        ),
    ),
    Bound(
        id="kajitsuka2025.sparse",
        title="our sparse construction",
        statement="Integer weights, width 3, tent folds: about 11 sqrt(T log2 T) parameters.",
        formula="1 + 6(m-1) + 6(w-t) + 7k + 3b(k-1) + 6 ceil(log2(k+1)) + 8c + 2, m = ceil(T/k), "
        "and the hash",
        source=f"byheart, after {PAPER}",
        kind="lower bound",
        exactness="explicit constants",
        scope="whole model",
        hypotheses=(Hypothesis("keys told apart by the hash, checked when built"),),
        matrices="is a network of its own, sized for the facts: byheart size",
        size=_sparse_size,
        constants="nonzero parameters; t is expected, the table's count is exact given t",
        corrections=("Dense counts are about 3 times the nonzero ones.",),
    ),
)
