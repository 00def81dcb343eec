"""A float64 evaluation that knows how wrong it can be: every value carries a proven error bound.

Model of arithmetic (Higham, Accuracy and Stability of Numerical Algorithms, ch. 2-3), for CPU
float64 with u = 2^-53:

- +, -, *, / and fused multiply-add return (exact)(1 + δ), |δ| <= u, or are off by at most
  `UNDERFLOW` where results are flushed to zero;
- a sum of n products is off by at most γ_n Σ|a_i||b_i|, γ_n = n u / (1 - n u), in any order of
  summation, with or without fused multiply-add (true of every conventional matrix product);
- exp is off by at most a factor 1 ± `EXP_ERROR` = 2^-47, 64 units in the last place. The library
  used here stays below 1; a test compares it with ball arithmetic.

Error bounds are sums and products of non-negative numbers, so their own rounding is a relative
error of at most γ of the number of operations; `rounded_up` multiplies it away.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from byheart.errors import ByheartError
from byheart.models.attention_only import Weights
from byheart.specs import AssociativeSpec, AttentionOnlySpec, MLPTransformerSpec

U = 2.0**-53
EXP_ERROR = 2.0**-47
# Far above what underflow can do to operands below `LARGEST`, far below any margin.
UNDERFLOW = 2.0**-900
LARGEST = 2.0**60


@dataclass(frozen=True)
class Bounded:
    """A computed tensor and a bound on |computed - exact|, entry by entry."""

    value: Tensor
    error: Tensor


def gamma(n: int) -> float:
    """γ_n = n u / (1 - n u), rounded up."""
    return n * U / (1 - n * U) * (1 + 4 * U)


def rounded_up(bound: Tensor, n: int) -> Tensor:
    """At least the exact value of a bound that was computed with sums of n non-negative terms."""
    return bound * (1 + 4 * gamma(n + 8)) + UNDERFLOW


def exact(value: Tensor) -> Bounded:
    return Bounded(value, torch.zeros_like(value))


def add(a: Bounded, b: Bounded) -> Bounded:
    value = a.value + b.value
    return Bounded(value, rounded_up(a.error + b.error + U * value.abs(), 3))


def product(a: Bounded, b: Bounded, formula: str, n: int) -> Bounded:
    """einsum of two bounded tensors over a sum of n products.

    |ab - âb̂| <= γ_n |â||b̂| + err_a |b̂| + |â| err_b + err_a err_b.
    """
    value = torch.einsum(formula, a.value, b.value)
    A, B = a.value.abs(), b.value.abs()
    error = torch.einsum(formula, gamma(n) * A + a.error, B)
    if bool((b.error != 0).any()):
        error = error + torch.einsum(formula, A + a.error, b.error)
    return Bounded(value, rounded_up(error, 2 * n))


def softmax(scores: Bounded) -> Bounded:
    """softmax over the last axis.

    Each exact score differs from what exp was given by at most η (its error and the rounding of
    the subtracted maximum), which moves a numerator and the denominator by factors within e^{±η}.
    """
    shifted = scores.value - scores.value.amax(-1, keepdim=True)
    eta = (scores.error + 2 * U * shifted.abs()).amax(-1, keepdim=True)
    e = torch.exp(shifted)
    value = e / e.sum(-1, keepdim=True)
    S = shifted.shape[-1]
    relative = torch.expm1(2 * eta + 4 * EXP_ERROR + 4 * gamma(S + 4)) * (1 + 2.0**-30)
    # Where exp underflows to 0 the exact value is below 2^-1020 and its error relative to that.
    return Bounded(value, rounded_up((value + 2.0**-1020) * relative, 5))


def divided_by_root(scores: Bounded, r: int) -> Bounded:
    """scores / sqrt(r): square root, reciprocal and product each round once."""
    factor = 1 / math.sqrt(r)
    value = scores.value * factor
    return Bounded(value, rounded_up(scores.error * factor + 4 * U * value.abs(), 3))


def attention_only_logits(spec: AttentionOnlySpec, weights: Weights, tokens: Tensor) -> Bounded:
    """W_U (x_S + Σ_h W_O^h W_V^h Σ_s softmax_s(x_S^T W_QK^h x_s) x_s) with error bounds.

    One layer; `weights` in float64, without model axis; `tokens` (B, S).
    """
    check_covered(spec)
    x = exact(weights["W_E"][tokens])
    if spec.positions == "input":
        x = add(x, exact(weights["W_pos"].expand_as(x.value)))
    x_S = Bounded(x.value[:, -1], x.error[:, -1])
    q = product(x_S, exact(weights["W_Q"][0]), "bd,hdr->bhr", spec.d)
    # Keys of all positions first: slower than x_S^T W_QK, but the errors of q then meet the keys
    # themselves, not |W_K||x|, which after a change of basis can be a thousand times larger.
    k = product(x, exact(weights["W_K"][0]), "bsd,hdr->bhsr", spec.d)
    scores = product(q, k, "bhr,bhsr->bhs", spec.qk_rank)
    if spec.scale:
        scores = divided_by_root(scores, spec.qk_rank)
    A = product(softmax(scores), x, "bhs,bsd->bhd", spec.S)
    F = product(A, exact(weights["W_V"][0]), "bhd,hde->bhe", spec.d)
    flat = Bounded(F.value.flatten(1), F.error.flatten(1))
    W_O = weights["W_O"][0].flatten(0, 1)
    out = product(flat, exact(W_O), "bm,md->bd", spec.H * spec.d_h)
    if spec.skip:
        out = add(out, x_S)
    return product(out, exact(weights["W_U"]), "bd,dn->bn", spec.d)


def associative_logits(spec: AssociativeSpec, weights: Weights, tokens: Tensor) -> Bounded:
    """W_U^T W w_e(t) with error bounds; w_e is a product of S entries divided by sqrt(d)."""
    key = weights["W_E"][0, tokens[:, 0]]
    for s in range(1, spec.S):
        key = key * weights["W_E"][s, tokens[:, s]]
    key = key / math.sqrt(spec.d)
    rounding = rounded_up(gamma(spec.S + 2) * key.abs(), 3)
    out = product(Bounded(key, rounding), exact(weights["W"]), "bd,de->be", spec.d)
    return product(out, exact(weights["W_U"]), "bd,dn->bn", spec.d)


def logits(spec: AttentionOnlySpec | AssociativeSpec, weights: Weights, tokens: Tensor) -> Bounded:
    """Logits (B, N) with error bounds, for every family that has them."""
    if isinstance(spec, AttentionOnlySpec):
        return attention_only_logits(spec, weights, tokens)
    return associative_logits(spec, weights, tokens)


def margins(values: Bounded, right: Tensor) -> tuple[Tensor, Tensor]:
    """Margin of the right answer and a bound on its error: recalled for sure if margin > bound.

    The bound belongs to min_j (T_g - T_j) as a whole: lower end of T_g minus the largest upper end.
    """
    own = values.value.gather(1, right[:, None])[:, 0]
    own_error = values.error.gather(1, right[:, None])[:, 0]
    without = right[:, None]
    others = values.value.scatter(1, without, -torch.inf).amax(1)
    upper = (values.value + values.error).scatter(1, without, -torch.inf).amax(1)
    margin = own - others
    lower = own - own_error - upper
    rounding = 8 * U * (own.abs() + own_error + upper.abs() + others.abs())
    bound = torch.where(torch.isinf(margin), own_error, rounded_up(margin - lower + rounding, 8))
    return margin, bound


def admissible(weights: Weights) -> bool:
    """Whether the error bounds cover these weights: finite, and below 2^60 (see `UNDERFLOW`)."""
    return all(bool((w.abs() < LARGEST).all()) for w in weights.values())


def check_covered(spec: AttentionOnlySpec) -> None:
    """The proofs here are written for the layer of the constructions; `stacks` has the others."""
    check_softmax(spec)
    if spec.layers != 1 or spec.positions == "attention":
        raise ByheartError(f"covers one layer with positions at the input, not {spec}")


def check_softmax(spec: AttentionOnlySpec | MLPTransformerSpec) -> None:
    if spec.attention != "softmax":
        raise ByheartError(
            f"certificates cover softmax attention, not {spec}. Scores that tie decide hardmax, "
            "and a tie cannot be proved in rounded arithmetic."
        )
