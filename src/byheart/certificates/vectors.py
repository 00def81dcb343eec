"""Proofs for vector memories: outputs of multi-head attention with error bounds.

Classes: margin(t) = logit of the right class minus the largest other. Numbers: margin(t) =
tolerance - max_j |f_j(t) - y_j(t)|. Either way example t is proved when margin(t) > error_bound(t),
for exact real arithmetic on the stored weights and the stored vectors.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from flint import arb, arb_mat
from torch import Tensor

from byheart.certificates import ball, rounding
from byheart.certificates.ball import matrix, outward, softmax
from byheart.certificates.proving import Asked, Margins, certificate, in_batches, prove
from byheart.certificates.rounding import Bounded, U, Weights, exact, product
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
    found = vector_margins(memory, examples, allowed, asked)

    def wrong() -> str:
        if examples.classes is None:
            return "further from the label than the tolerance"
        return "another class has a logit at least as large"

    def failure(i: int) -> Failure:
        row, label = int(examples.rows[i]), str(examples.label[i].tolist())
        return found.failure(i, row, (f"example {row}",), label, wrong, "numbers")

    block = (memory, examples, asked.name(memory), found.held)
    if examples.classes is not None:
        own = found.extremes() | {"competitors": "classes"}
        return certificate(AnswerCertificate, *block, own, failure)
    # An upper bound on the error of each example.
    worst = (allowed - found.margins + found.bounds)[found.real]
    largest = float(worst.max() * (1 + 2.0**-40)) if found.real.all() else None
    own = found.extremes() | {"tolerance": allowed, "largest_error": largest}
    return certificate(NumberCertificate, *block, own, failure)


def vector_margins(
    memory: VectorMemory, facts: VectorFacts, tolerance: float, asked: Asked
) -> Margins:
    """Margins and error bounds (T,) of all examples."""
    weights = {name: w.double() for name, w in memory.weights.items()}
    E, e = torch.tensor(facts.context), torch.tensor(facts.query)
    if not rounding.admissible({**weights, "context": E, "query": e}):
        return Margins.nowhere(facts.T)
    if asked.arithmetic == "ball":
        with ball.bits(asked.precision):
            return _ball_margins(memory.spec, weights, facts, tolerance, asked)
    inputs = memory.inputs_of(facts)
    label = torch.tensor(facts.label if facts.classes is not None else facts.targets)

    def values(batch: slice) -> Bounded:
        if asked.arithmetic == "rounding":
            return bounded_outputs(memory.spec, weights, E if facts.shared else E[batch], e[batch])
        return exact(memory.outputs(inputs.rows(batch), torch.float64))

    def margin(out: Bounded, batch: slice) -> tuple[Tensor, Tensor]:
        if facts.classes is not None:
            return rounding.margins(out, label[batch])
        return _distance(out, label[batch], tolerance)

    copies = COPIES * (1 if facts.shared else facts.n)
    return in_batches(memory, facts.T, copies, values, margin, asked, "examples")


def _distance(out: Bounded, y: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    """tolerance - max_j |out_j - y_j|, and a bound on its error (two subtractions round once)."""
    away = (out.value - y).abs()
    bound = (out.error + 4 * U * (away + out.value.abs() + y.abs())).amax(1) + 4 * U * tolerance
    return tolerance - away.amax(1), bound * (1 + 2.0**-40)


def bounded_outputs(
    spec: MultiHeadSpec, weights: Weights, context: Tensor, query: Tensor
) -> Bounded:
    """Σ_h softmax(E W_K^h W_Q^h^T e)^T E W_V^h W_O^h with error bounds: (B, d_out).

    Weights without model axis, float64; `context` (n, d) or (B, n, d), `query` (B, d). Keys first:
    the errors of q then meet the keys themselves, which saturated heads keep small.
    """
    check_covered(spec)
    E, e = exact(context), exact(query)
    shared = context.dim() == 2
    q = product(e, exact(weights["W_Q"]), "bd,hde->bhe", spec.d)
    if shared:
        K = product(E, exact(weights["W_K"]), "nd,hde->hne", spec.d)
        scores = product(q, K, "bhe,hne->bhn", spec.d_h)
        V = product(E, exact(weights["W_V"]), "nd,hdv->hnv", spec.d)
        a = rounding.softmax(_scaled(scores, spec))
        F = product(a, V, "bhn,hnv->bhv", spec.n)
    else:
        K = product(E, exact(weights["W_K"]), "bnd,hde->bhne", spec.d)
        scores = product(q, K, "bhe,bhne->bhn", spec.d_h)
        a = rounding.softmax(_scaled(scores, spec))
        z = product(a, E, "bhn,bnd->bhd", spec.n)
        F = product(z, exact(weights["W_V"]), "bhd,hdv->bhv", spec.d)
    out = product(F.flatten(1), exact(weights["W_O"].flatten(0, 1)), "bm,mo->bo", spec.H * spec.d_v)
    if spec.decoder:
        out = product(out, exact(weights["W_U"]), "bd,do->bo", spec.d)
        out = rounding.add(out, exact(weights["b_U"].expand_as(out.value)))
    return out


def _scaled(scores: Bounded, spec: MultiHeadSpec) -> Bounded:
    if not spec.scale:
        return scores
    factor = 1 / math.sqrt(spec.d)  # sqrt, reciprocal and product each round once
    value = scores.value * factor
    return Bounded(value, (scores.error * factor + 4 * U * value.abs()) * (1 + 2.0**-40))


def check_covered(spec: MultiHeadSpec) -> None:
    """The proofs are written for layers that read the vectors as they are."""
    if spec.embed:
        raise ByheartError(
            "certificates cover layers that read the vectors as they are, not the reference model "
            "with its embedding and sines: use `arithmetic=float`."
        )


def _ball_margins(
    spec: MultiHeadSpec, weights: Weights, facts: VectorFacts, tolerance: float, asked: Asked
) -> Margins:
    """The same in Arb, one example at a time after whole-matrix products for all queries."""
    check_covered(spec)
    middle, radius = np.empty(facts.T), np.empty(facts.T)
    head = [_head_matrices(weights, h) for h in range(spec.H)]
    shared = matrix(torch.tensor(facts.context)) if facts.shared else None
    values = [shared * OV for _, _, OV in head] if shared is not None else []
    keys = [shared * K for _, K, _ in head] if shared is not None else []
    scale = 1 / arb(spec.d).sqrt() if spec.scale else arb(1)
    for t in range(facts.T):
        e = matrix(torch.tensor(facts.query[t : t + 1]))
        own = None if shared is not None else matrix(torch.tensor(facts.context[t]))
        total = matrix(weights["b_U"][None]) if spec.decoder else arb_mat(1, spec.d_out)
        for h, (Q, K, OV) in enumerate(head):
            key = keys[h] if own is None else own * K
            scores = (key * (e * Q).transpose()).entries()
            a = arb_mat(1, spec.n, softmax(tuple(s * scale for s in scores)))
            total = total + a * (values[h] if own is None else own * OV)
        middle[t], radius[t] = _verdict(total.entries(), facts, t, tolerance)
        asked.progress(f"{t + 1:,} of {facts.T:,} examples")
    return Margins(middle, radius)


def _head_matrices(weights: Weights, h: int) -> tuple[arb_mat, arb_mat, arb_mat]:
    OV = matrix(weights["W_V"][h]) * matrix(weights["W_O"][h])
    if "W_U" in weights:
        OV = OV * matrix(weights["W_U"])
    return matrix(weights["W_Q"][h]), matrix(weights["W_K"][h]), OV


def _verdict(out: list[arb], facts: VectorFacts, t: int, tolerance: float) -> tuple[float, float]:
    """Margin of example t as midpoint and radius."""
    if facts.classes is None:
        target = facts.targets[t].tolist()
        away = [abs(o - arb(y)) for o, y in zip(out, target, strict=True)]
        return outward(arb(tolerance) - ball.largest(away))
    own = out.pop(int(facts.label[t]))
    return outward(own - ball.largest(out)) if out else (math.inf, 0.0)
