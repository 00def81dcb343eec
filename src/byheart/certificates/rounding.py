"""A float64 evaluation that knows how wrong it can be: every value carries a proven error bound.

Model of arithmetic (Higham, Accuracy and Stability of Numerical Algorithms, ch. 2-3), for CPU
float64 with u = 2^-53:

- +, -, *, / and fused multiply-add return (exact)(1 + δ), |δ| <= u, or are off by at most
  `UNDERFLOW` where results are flushed to zero;
- a sum of n products is off by at most γ_n Σ|a_i||b_i|, γ_n = n u / (1 - n u), in any order of
  summation, with or without fused multiply-add (true of every conventional matrix product);
- exp is off by at most a factor 1 ± `EXP_ERROR` = 2^-47, 64 units in the last place. The library
  used here stays below 1; a test compares it with ball arithmetic;
- erf is off by at most `ERF_ERROR` = 2^-47 (the library used here stays below 2^-52; a test
  compares it with ball arithmetic), and |gelu'| <= 1.13 (its maximum, at sqrt(2), is 1.1290);
- ReLU is exact, and moves no two numbers further apart.

Error bounds are sums and products of non-negative numbers, so their own rounding is a relative
error of at most γ of the number of operations; `rounded_up` multiplies it away.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from byheart.specs import AttentionOnlySpec

Weights = Mapping[str, Tensor]

U = 2.0**-53
EXP_ERROR = 2.0**-47
ERF_ERROR = 2.0**-47
GELU_SLOPE = 1.13
# Far above what underflow can do to operands below `LARGEST`, far below any margin.
UNDERFLOW = 2.0**-900
LARGEST = 2.0**60


@dataclass(frozen=True)
class Bounded:
    """A computed tensor and a bound on |computed - exact|, entry by entry."""

    value: Tensor
    error: Tensor

    def __getitem__(self, index) -> Bounded:
        return Bounded(self.value[index], self.error[index])

    def flatten(self, start: int) -> Bounded:
        return Bounded(self.value.flatten(start), self.error.flatten(start))


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


def relu(z: Bounded) -> Bounded:
    """max(z, 0): exact, and 1-Lipschitz."""
    return Bounded(torch.relu(z.value), z.error)


def gelu(z: Bounded) -> Bounded:
    """z Φ(z) = z (1 + erf(z / sqrt 2)) / 2.

    t = z / sqrt 2 is rounded by at most 4 u |t|, which moves erf by at most 4 u |t| (2/sqrt π)
    e^{-t²} <= 2 u; with erf itself, 1 + erf and the halving, Φ is off by less than ERF_ERROR + 8 u.
    One product follows. What z itself is off by counts GELU_SLOPE times.
    """
    t = z.value * (1 / math.sqrt(2))
    value = z.value * ((1 + torch.erf(t)) / 2)
    own = z.value.abs() * (ERF_ERROR + 8 * U)
    return Bounded(value, rounded_up(GELU_SLOPE * z.error + own + U * value.abs(), 6))


class Rounding:
    """The arithmetic of `architectures.residual` in float64 with error bounds: all facts at once,
    x is (B, positions, d)."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights

    def weight(self, name: str, *layer: int) -> Bounded:
        return exact(self.weights[name][layer])

    def embed(self, tokens: Tensor) -> Bounded:
        return exact(self.weights["W_E"][tokens])

    def rows(self, x: Bounded, positions: Sequence[int]) -> Bounded:
        return x[:, list(positions)]

    def add(self, a: Bounded, b: Bounded) -> Bounded:
        return add(a, b)

    def product(self, x: Bounded, W: Bounded) -> Bounded:
        return product(x, W, "bqd,de->bqe", len(W.value))

    def activation(self, z: Bounded, name: str) -> Bounded:
        return gelu(z) if name == "gelu" else relu(z)

    def heads(
        self, spec: AttentionOnlySpec, layer: int, x: Bounded, queries: Sequence[int]
    ) -> Bounded:
        """Keys of all positions first: slower than x_S^T W_QK, but the errors of q then meet the
        keys themselves, not |W_K||x|, which after a change of basis can be a thousand times
        larger."""
        width = x.value.shape[-1]
        W_Q, W_K, W_V = (self.weight(name, layer) for name in ("W_Q", "W_K", "W_V"))
        k = product(x, W_K, "bsd,hdr->bhsr", width)
        q = product(self.rows(x, queries), W_Q, "bqd,hdr->bhqr", width)
        F = []
        for i, s in enumerate(queries):
            if s == 0:  # one position: its weight is 1 in every head, whatever its score
                first = [t[:, None, 0].expand(-1, spec.H, -1) for t in (x.value, x.error)]
                F.append(product(Bounded(*first), W_V, "bhd,hde->bhe", width).flatten(1))
                continue
            scores = product(q[:, :, i], k[:, :, : s + 1], "bhr,bhsr->bhs", spec.qk_rank)
            if spec.scale:
                scores = divided_by_root(scores, spec.qk_rank)
            A = product(softmax(scores), x[:, : s + 1], "bhs,bsd->bhd", s + 1)
            F.append(product(A, W_V, "bhd,hde->bhe", width).flatten(1))
        flat = Bounded(torch.stack([f.value for f in F], 1), torch.stack([f.error for f in F], 1))
        W_O = exact(self.weights["W_O"][layer].flatten(0, 1))
        return product(flat, W_O, "bqf,fd->bqd", spec.H * spec.d_h)


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
