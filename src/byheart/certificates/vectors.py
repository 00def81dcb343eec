"""Proofs for vector memories: outputs of multi-head attention with error bounds.

Classes: margin(t) = logit of the right class minus the largest other. Numbers: margin(t) =
tolerance - max_j |f_j(t) - y_j(t)|. Either way example t is proved when margin(t) > error_bound(t),
for exact real arithmetic on the stored weights and the stored vectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from flint import arb, arb_mat, ctx
from torch import Tensor

from byheart.certificates import rounding
from byheart.certificates.ball import matrix, outward, softmax
from byheart.certificates.rounding import Bounded, U, exact, product
from byheart.errors import ByheartError
from byheart.facts import VectorFacts
from byheart.models.multi_head import Weights
from byheart.models.vector_memory import VectorMemory
from byheart.specs import MultiHeadSpec

Progress = Callable[[str], None]
COPIES = 6  # values, bounds and their intermediates


def vector_margins(
    memory: VectorMemory,
    facts: VectorFacts,
    arithmetic: str,
    tolerance: float,
    *,
    precision: int,
    progress: Progress,
) -> tuple[np.ndarray, np.ndarray]:
    """Margins and error bounds (T,) of all examples."""
    weights = {name: w.double() for name, w in memory.weights.items()}
    weights["context"], weights["query"] = torch.tensor(facts.context), torch.tensor(facts.query)
    if not rounding.admissible(weights):
        return np.full(facts.T, np.nan), np.full(facts.T, np.nan)
    E, e = weights.pop("context"), weights.pop("query")
    if arithmetic == "ball":
        return _ball_margins(memory.spec, weights, facts, tolerance, precision, progress)
    right = torch.tensor(facts.label) if facts.classes is not None else None
    y = torch.tensor(facts.targets) if right is None else None
    margins, bounds = [], []
    for b in memory.batches(facts.T, copies=COPIES * (1 if facts.shared else facts.n)):
        if arithmetic == "rounding":
            out = bounded_outputs(memory.spec, weights, E if facts.shared else E[b], e[b])
        else:
            own = None if facts.shared else facts.contexts()[b]
            out = exact(memory.outputs(facts.query[b], own, torch.float64))
        if right is not None:
            margin, bound = rounding.margins(out, right[b])
        else:
            assert y is not None
            margin, bound = _distance(out, y[b], tolerance)
        margins.append(margin)
        bounds.append(bound if arithmetic == "rounding" else torch.zeros_like(bound))
        progress(f"{b.stop:,} of {facts.T:,} examples")
    return torch.cat(margins).numpy(), torch.cat(bounds).numpy()


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
    flat = Bounded(F.value.flatten(1), F.error.flatten(1))
    out = product(flat, exact(weights["W_O"].flatten(0, 1)), "bm,mo->bo", spec.H * spec.d_v)
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
    spec: MultiHeadSpec,
    weights: Weights,
    facts: VectorFacts,
    tolerance: float,
    precision: int,
    progress: Progress,
) -> tuple[np.ndarray, np.ndarray]:
    """The same in Arb, one example at a time after whole-matrix products for all queries."""
    check_covered(spec)
    old = ctx.prec
    ctx.prec = precision
    try:
        middle, radius = np.empty(facts.T), np.empty(facts.T)
        head = [_head_matrices(weights, h) for h in range(spec.H)]
        shared = matrix(torch.tensor(facts.context)) if facts.shared else None
        values = [shared * OV for _, _, OV in head] if shared is not None else []
        keys = [shared * K for _, K, _ in head] if shared is not None else []
        scale = 1 / arb(spec.d).sqrt() if spec.scale else arb(1)
        for t in range(facts.T):
            e = matrix(torch.tensor(facts.query[t : t + 1]))
            own = None if shared is not None else matrix(torch.tensor(facts.context[t]))
            total = _bias(spec, weights)
            for h, (Q, K, OV) in enumerate(head):
                key = keys[h] if own is None else own * K
                scores = (key * (e * Q).transpose()).entries()
                a = arb_mat(1, spec.n, softmax(tuple(s * scale for s in scores)))
                total = total + a * (values[h] if own is None else own * OV)
            middle[t], radius[t] = _verdict(total.entries(), facts, t, tolerance)
            progress(f"{t + 1:,} of {facts.T:,} examples")
        return middle, radius
    finally:
        ctx.prec = old


def _head_matrices(weights: Weights, h: int) -> tuple[arb_mat, arb_mat, arb_mat]:
    OV = matrix(weights["W_V"][h]) * matrix(weights["W_O"][h])
    if "W_U" in weights:
        OV = OV * matrix(weights["W_U"])
    return matrix(weights["W_Q"][h]), matrix(weights["W_K"][h]), OV


def _bias(spec: MultiHeadSpec, weights: Weights) -> arb_mat:
    if spec.decoder:
        return matrix(weights["b_U"][None])
    return arb_mat(1, spec.d_out)


def _verdict(out: list[arb], facts: VectorFacts, t: int, tolerance: float) -> tuple[float, float]:
    """Margin of example t as midpoint and radius."""
    if facts.classes is None:
        target = facts.targets[t].tolist()
        away = [abs(o - arb(y)) for o, y in zip(out, target, strict=True)]
        return outward(arb(tolerance) - _largest(away))
    own = out.pop(int(facts.label[t]))
    return outward(own - _largest(out)) if out else (math.inf, 0.0)


def _largest(balls: list[arb]) -> arb:
    top = balls[0]
    for ball in balls[1:]:
        top = top.max(ball)
    return top
