"""Proofs for vector memories: outputs of multi-head attention with error bounds.

Classes: margin(t) = logit of the right class minus the largest other. Numbers: margin(t) =
tolerance - max_j |f_j(t) - y_j(t)|. Either way example t is proved when margin(t) > error_bound(t),
for exact real arithmetic on the stored weights and the stored vectors.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from flint import arb
from torch import Tensor

from byheart.certificates import ball
from byheart.certificates.arithmetic import (
    EXACT,
    Arithmetic,
    Bounded,
    Format,
    Rounding,
    U,
    Value,
    Weights,
    exactly,
    finite,
    margins,
)
from byheart.certificates.ball import Balls, outward
from byheart.certificates.proving import (
    Asked,
    Margins,
    both_statements,
    certificate,
    in_batches,
    prove,
)
from byheart.certificates.statement import (
    AnswerCertificate,
    Certificate,
    Failure,
    NumberCertificate,
)
from byheart.errors import ByheartError
from byheart.facts import VectorFacts
from byheart.models.memory import FactTable
from byheart.models.vector_memory import VectorMemory
from byheart.specs import MultiHeadSpec

COPIES = 6  # values, bounds and their intermediates


@prove.register
def prove_vectors(memory: VectorMemory, facts: FactTable, asked: Asked) -> Certificate:
    """Every label within the tolerance, or the right class above all others."""
    allowed = asked.tolerance if asked.tolerance is not None else memory.tolerance
    if not allowed > 0 or (asked.tolerance is not None and memory.classes is not None):
        raise ByheartError("`tolerance` is a positive number, for labels that are numbers.")
    examples = memory.fitting(facts)
    found, evaluation = both_statements(
        memory.weights["W_O"].dtype,
        asked,
        examples.rows,
        lambda format: vector_margins(memory, examples, allowed, asked, format),
    )

    def failure(i: int) -> Failure:
        row, label = int(examples.rows[i]), str(examples.label[i].tolist())

        def wrong() -> str | None:
            if not found.margins[i] <= 0:
                return None
            if examples.classes is None:
                return "further from the label than the tolerance"
            return "another class has a logit at least as large"

        return found.failure(i, row, (f"example {row}",), label, wrong, "numbers")

    block = (memory, examples, asked.name(memory), found.held)
    if examples.classes is not None:
        own = found.extremes() | {"competitors": "classes", "evaluation": evaluation}
        return certificate(AnswerCertificate, *block, own, failure)
    # An upper bound on the error of each example.
    worst = (allowed - found.margins + found.bounds)[found.real]
    largest = float(worst.max() * (1 + 2.0**-40)) if found.real.all() else None
    own = {"tolerance": allowed, "largest_error": largest, "evaluation": evaluation}
    own |= found.extremes()
    return certificate(NumberCertificate, *block, own, failure)


def vector_margins(
    memory: VectorMemory,
    facts: VectorFacts,
    tolerance: float,
    asked: Asked,
    format: Format = EXACT,
) -> Margins:
    """Margins and error bounds (T,) of all examples."""
    weights = {name: w.double() for name, w in memory.weights.items()}
    E, e = torch.tensor(facts.context), torch.tensor(facts.query)
    if not finite({**weights, "context": E, "query": e}):
        return Margins.nowhere(facts.T)
    if asked.arithmetic == "ball":
        with ball.bits(asked.precision):
            return _ball_margins(memory.spec, weights, facts, tolerance, asked)
    inputs = memory.inputs_of(facts)
    label = torch.tensor(facts.label if facts.classes is not None else facts.targets)
    A = Rounding(weights, format)

    def values(batch: slice) -> Bounded:
        if asked.arithmetic == "rounding":
            return outputs(memory.spec, A, E if facts.shared else E[batch], e[batch])
        return exactly(memory.outputs(inputs.rows(batch), torch.float64))

    def margin(out: Bounded, batch: slice) -> tuple[Tensor, Tensor]:
        if facts.classes is not None:
            return margins(out, label[batch])
        return _distance(out, label[batch], tolerance)

    copies = COPIES * (1 if facts.shared else facts.n)
    return in_batches(memory, facts.T, copies, values, margin, asked, "examples")


def _distance(out: Bounded, y: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    """tolerance - max_j |out_j - y_j|, and a bound on its error (two subtractions round once)."""
    away = (out.value - y).abs()
    bound = (out.error + 4 * U * (away + out.value.abs() + y.abs())).amax(1) + 4 * U * tolerance
    margin = tolerance - away.amax(1)
    return margin, bound * (1 + 2.0**-40) + (margin - margin)


def outputs(spec: MultiHeadSpec, A: Arithmetic[Value], context: Tensor, query: Tensor) -> Value:
    """Σ_h softmax(E W_K^h W_Q^h^T e)^T E W_V^h W_O^h: (B, d_out).

    `context` (n, d) or (B, n, d), `query` (B, d). Keys first: the errors of q then meet the keys
    themselves, which saturated heads keep small.
    """
    if spec.embed:
        raise ByheartError(
            "certificates cover layers that read the vectors as they are, not the reference model "
            "with its embedding and sines: use `arithmetic=float`."
        )
    E, W_K, W_V = A.given(context), A.weight("W_K"), A.weight("W_V")
    q = A.einsum("bd,hde->bhe", A.given(query), A.weight("W_Q"))
    if context.dim() == 2:  # shared
        scores = A.chain("nd,hde->hne", "hne,bhe->bhn", E, W_K, q)
    else:
        scores = A.chain("bnd,hde->bhne", "bhne,bhe->bhn", E, W_K, q)
    a = A.softmax(A.over_root(scores, spec.d) if spec.scale else scores)
    if context.dim() == 2:
        F = A.chain("nd,hdv->hnv", "hnv,bhn->bhv", E, W_V, a)
    else:
        F = A.chain("bhn,bnd->bhd", "bhd,hdv->bhv", a, E, W_V)
    out = A.einsum("bhv,hvo->bo", F, A.weight("W_O"))
    if spec.decoder:
        out = A.einsum("bd,do->bo", out, A.weight("W_U"))
        out = A.add(out, A.weight("b_U"), spec.d + 1)
    return out


def _ball_margins(
    spec: MultiHeadSpec, weights: Weights, facts: VectorFacts, tolerance: float, asked: Asked
) -> Margins:
    """The same in Arb, example by example."""
    A, verdicts = Balls(weights), []
    for t in range(facts.T):
        context = torch.tensor(facts.context if facts.shared else facts.context[t : t + 1])
        out = outputs(spec, A, context, torch.tensor(facts.query[t : t + 1]))
        verdicts.append(_verdict(out[0].tolist(), facts, t, tolerance))
        asked.progress(f"{t + 1:,} of {facts.T:,} examples")
    return Margins(*np.array(verdicts).T)


def _verdict(out: list[arb], facts: VectorFacts, t: int, tolerance: float) -> tuple[float, float]:
    """Margin of example t as midpoint and radius."""
    if facts.classes is None:
        target = facts.targets[t].tolist()
        away = [abs(o - arb(y)) for o, y in zip(out, target, strict=True)]
        return outward(arb(tolerance) - ball.largest(away))
    own = out.pop(int(facts.label[t]))
    return outward(own - ball.largest(out)) if out else (math.inf, 0.0)
