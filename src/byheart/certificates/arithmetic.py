"""Arithmetics over which a forward pass is written once (`architectures`), and the one of float64
values with proven error bounds.

`Rounding(weights, EXACT)`: each value lies within its bound of the exact real result.
`Rounding(weights, FLOAT32)`: each value lies within its bound of the exact result and of every
float32 evaluation of the formula, in any order of summation. The value itself is always computed
here, in float64. Model of arithmetic (Higham, Accuracy and Stability of Numerical Algorithms, ch. 2
and 3) of a format with unit roundoff u, smallest normal number η and largest number Ω:

- +, -, *, / and fused multiply-add return (exact)(1 + δ), |δ| <= u, where the result is below Ω,
  and are off by at most η where it is below η: underflow may be gradual or flush to zero, and
  subnormal operands may be read as zero;
- so a sum of n products is off by at most γ_n Σ|a_i||b_i| + 2 n η, γ_n = n u / (1 - n u), in any
  order of summation, with or without fused multiply-add (true of every conventional matrix
  product);
- exp is off by at most a factor 1 ± `exp`, erf by at most `erf`. The float64 library used here
  stays below 2^-52 (tests compare it with ball arithmetic); 2^-47 is assumed. For float32 4 units
  in the last place, 2^-21, are allowed;
- |gelu'| <= 1.13 (its maximum, at sqrt(2), is 1.1290); ReLU is exact and moves no two numbers
  further apart.

Anything that is not finite, or beyond Ω in any order of summation, has the bound NaN, which no
later step removes and no comparison accepts: it is never proved. Bounds are sums and products of
non-negative numbers, so their own rounding is a relative error of at most γ of the number of
operations; `Rounding._bounded` multiplies it away.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]


class Indexed(Protocol):
    """Numbers in several axes."""

    def __getitem__(self, index, /) -> Self: ...


Value = TypeVar("Value", bound=Indexed)

GELU_SLOPE = 1.13


@dataclass(frozen=True)
class Format:
    """How numbers round: unit roundoff `u`, smallest normal number `tiny`, largest number `huge`,
    the relative error of exp and the absolute one of erf."""

    name: str
    u: float
    tiny: float
    huge: float
    exp: float
    erf: float


EXACT = Format("exact real arithmetic", 0.0, 0.0, math.inf, 0.0, 0.0)
FLOAT32 = Format("float32", 2.0**-24, 2.0**-126, 2.0**127, 2.0**-21, 2.0**-21)
FLOAT64 = Format("float64", 2.0**-53, 2.0**-1022, 2.0**1023, 2.0**-47, 2.0**-47)
FORMATS = {torch.float32: FLOAT32, torch.float64: FLOAT64}
U = FLOAT64.u
SAFE = 2.0**900


class Arithmetic(Protocol[Value]):
    """Tensors of numbers that know how wrong they can be. `Value` is indexed like a tensor."""

    weights: Weights

    def exact(self, numbers: Tensor) -> Value:
        """Numbers of the stored format, such as weights."""
        ...

    def given(self, numbers: Tensor) -> Value:
        """Numbers of any format, which an evaluation may round to its own before it reads them."""
        ...

    def weight(self, name: str, *layer: int) -> Value: ...
    def add(self, a: Value, b: Value, terms: int = 1) -> Value:
        """a + b; `terms` where b may have been added first to a sum of so many terms."""
        ...

    def negative(self, a: Value) -> Value: ...
    def stack(self, values: Sequence[Value], axis: int) -> Value: ...
    def einsum(self, formula: str, a: Value, b: Value) -> Value: ...
    def chain(self, first: str, then: str, a: Value, b: Value, c: Value) -> Value:
        """einsum(then, einsum(first, a, b), c), bounded for every order of the two products."""
        ...

    def over_root(self, x: Value, n: int) -> Value:
        """x / sqrt(n)."""
        ...

    def softmax(self, scores: Value) -> Value:
        """Over the last axis."""
        ...

    def activation(self, z: Value, name: str) -> Value:
        """ReLU, or GELU by erf."""
        ...


@dataclass(frozen=True)
class Bounded:
    """Computed numbers and bounds on how far off they are, entry by entry; NaN: unknown."""

    value: Tensor
    error: Tensor

    def __getitem__(self, index) -> Bounded:
        return Bounded(self.value[index], self.error[index])


def exactly(numbers: Tensor) -> Bounded:
    """Numbers that are taken as they are."""
    return Bounded(numbers, numbers - numbers)


def finite(weights: Weights) -> bool:
    """Whether every number is one; nothing is proved about a model with others, used or not."""
    return all(bool(torch.isfinite(w).all()) for w in weights.values() if w.is_floating_point())


def gamma(n: int, u: float = U) -> float:
    """γ_n = n u / (1 - n u), rounded up; infinite where n u is no longer small."""
    return n * u / (1 - n * u) * (1 + 4 * U) if n * u < 0.5 else math.inf


def terms_of(formula: str, a: Sequence[int], b: Sequence[int]) -> int:
    """How many products an einsum of shapes a and b adds up for one entry."""
    inputs, result = formula.split("->")
    sizes = {
        letter: size
        for letters, shape in zip(inputs.split(","), (a, b), strict=True)
        for letter, size in zip(letters, shape, strict=True)
    }
    return math.prod(size for letter, size in sizes.items() if letter not in result)


class Rounding:
    """float64 values with bounds on their distance from every evaluation in `format`."""

    def __init__(self, weights: Weights, format: Format = EXACT) -> None:
        self.weights = weights
        self.format = format

    def _bounded(self, value: Tensor, error: Tensor, n: int) -> Bounded:
        """A value with its bound, which was computed with sums of n non-negative terms and speaks
        of no underflow yet; NaN where anything is not finite, or may overflow in `format`: every
        bound is at least u times the largest partial sum."""
        underflow = 8 * n * (FLOAT64.tiny + self.format.tiny)
        error.mul_(1 + 4 * gamma(n + 8)).add_(underflow)
        limit = self.format.u * self.format.huge if self.format.u else math.inf
        # Every bound is also at least U times the value, which is finite where this is small.
        if error.numel() and not float(error.max()) < min(limit, SAFE):
            error = torch.where(error < limit, error, torch.nan) + (value - value)
        return Bounded(value, error)

    def exact(self, numbers: Tensor) -> Bounded:
        """Numbers as they are stored; subnormal ones may be read as zero."""
        size = numbers.abs()
        tiny = max(FLOAT64.tiny, self.format.tiny)
        return Bounded(numbers, torch.where(size < tiny, size, 0.0) + (numbers - numbers))

    def given(self, numbers: Tensor) -> Bounded:
        read = numbers.float() if self.format is FLOAT32 else numbers
        stored = self.exact(numbers)
        return Bounded(numbers, stored.error + (numbers - read).abs())

    def weight(self, name: str, *layer: int) -> Bounded:
        return self.exact(self.weights[name][layer])

    def add(self, a: Bounded, b: Bounded, terms: int = 1) -> Bounded:
        """With b first, every term of a passes one addition more, the last one, which rounds the
        whole sum by u |a + b|."""
        value = a.value + b.value
        size = a.value.abs() + a.error + b.value.abs() + b.error
        own = U * value.abs() + gamma(terms, self.format.u) * size
        return self._bounded(value, a.error + b.error + own, 6)

    def negative(self, a: Bounded) -> Bounded:
        return Bounded(-a.value, a.error)

    def stack(self, values: Sequence[Bounded], axis: int) -> Bounded:
        parts = zip(*((v.value, v.error) for v in values), strict=True)
        return Bounded(*(torch.stack(part, axis) for part in parts))

    def einsum(self, formula: str, a: Bounded, b: Bounded) -> Bounded:
        """|fl_u(Σ a b) - fl_64(Σ â b̂)| <= γ_n(u) Σ (|â| + err_a)(|b̂| + err_b) + γ_n Σ |â||b̂|
        + Σ (err_a |b̂| + |â| err_b + err_a err_b)."""
        n = terms_of(formula, a.value.shape, b.value.shape)
        value = torch.einsum(formula, a.value, b.value)
        return self._bounded(value, self._spread(formula, a, b, a.value.abs(), n), 2 * n)

    def _spread(self, formula: str, a: Bounded, b: Bounded, A: Tensor, n: int) -> Tensor:
        """The bound of `einsum` for sums in which every term is rounded n times; A = |â|."""
        u = gamma(n, self.format.u)
        left = (a.error * (1 + u)).add_(A, alpha=gamma(n) + u)
        B = b.value.abs()
        if not bool((b.error != 0).any()):
            return torch.einsum(formula, left, B)
        error = torch.einsum(formula, left, B + b.error)
        return error.add_(torch.einsum(formula, A, b.error))

    def chain(self, first: str, then: str, a: Bounded, b: Bounded, c: Bounded) -> Bounded:
        """In the other order the third factor multiplies what the product of two lost by underflow,
        and that product must not overflow: both by the largest entries, far from either usually."""
        if not self.format.u:
            return self.einsum(then, self.einsum(first, a, b), c)
        n = terms_of(first, a.value.shape, b.value.shape)
        inner = torch.einsum(first, a.value, b.value)
        n += terms_of(then, inner.shape, c.value.shape) + 4  # and a factor taken in early
        value = torch.einsum(then, inner, c.value)
        # All n roundings of a term, on the product of magnitudes, in whichever order it is taken.
        middle = self._spread(first, a, b, a.value.abs(), n)
        error = torch.einsum(then, middle, c.value.abs() + c.error)
        if bool((c.error != 0).any()):
            error.add_(torch.einsum(then, inner.abs_(), c.error))
        sizes = [float((part.value.abs() + part.error).max()) for part in (a, b, c)]
        x, y, z = sizes
        fits = n * max(x * y, y * z, x * z) < self.format.huge  # false for NaN
        lost = 8 * n * n * self.format.tiny * max(1.0, *sizes) if fits else math.nan
        return self._bounded(value, error.add_(lost), 2 * n)

    def over_root(self, x: Bounded, n: int) -> Bounded:
        """Square root, reciprocal and product (or quotient) each round once."""
        factor = 1 / math.sqrt(n)
        value = x.value * factor
        own = 4 * U * value.abs() + 4 * self.format.u * (value.abs() + x.error * factor)
        return self._bounded(value, x.error * factor + own, 4)

    def softmax(self, scores: Bounded) -> Bounded:
        """Each score that exp is given differs from the exact one, up to a shift of all of them, by
        at most η (its error and the rounding of the subtracted maximum), which moves a numerator
        and the denominator by factors within e^{±η}. A single weight is 1, e / e, where its score
        is a number."""
        f = self.format
        if scores.value.shape[-1] == 1:
            return Bounded(torch.ones_like(scores.value), scores.error - scores.error)
        shifted = scores.value - scores.value.amax(-1, keepdim=True)
        largest = scores.error.amax(-1, keepdim=True)
        eta = scores.error + 2 * U * shifted.abs() + 2 * f.u * (shifted.abs() + 2 * largest)
        eta = eta.amax(-1, keepdim=True)
        e = torch.exp(shifted)
        value = e / e.sum(-1, keepdim=True)
        n = shifted.shape[-1] + 4
        exponent = 2 * eta + 4 * (FLOAT64.exp + f.exp) + 4 * (gamma(n) + gamma(n, f.u))
        relative = torch.expm1(exponent) * (1 + 2.0**-30)
        # What exp flushes to 0 is below `tiny`, and the denominator is at least 1.
        lost = 4 * (FLOAT64.tiny + f.tiny)
        return self._bounded(value, (value + lost) * relative + lost, 5)

    def activation(self, z: Bounded, name: str) -> Bounded:
        if name != "gelu":
            return Bounded(torch.relu(z.value), z.error)
        return self._gelu(z)

    def _gelu(self, z: Bounded) -> Bounded:
        """z Φ(z) = z (1 + erf(z / sqrt 2)) / 2.

        t = z / sqrt 2 is rounded by at most 4 u |t|, which moves erf by at most 4 u |t| (2/sqrt π)
        e^{-t²} <= 2 u; with erf itself, 1 + erf and the halving, Φ is off by less than erf + 8 u.
        One product follows. What z itself is off by counts GELU_SLOPE times.
        """
        f = self.format
        value = z.value * ((1 + torch.erf(z.value * (1 / math.sqrt(2)))) / 2)
        own = (z.value.abs() + z.error) * (FLOAT64.erf + f.erf + 10 * (U + f.u))
        return self._bounded(value, GELU_SLOPE * z.error + own, 8)


def margins(values: Bounded, right: Tensor) -> tuple[Tensor, Tensor]:
    """Margin of the right answer and a bound on its error: recalled for sure if margin > bound.

    The bound belongs to min_j (T_g - T_j) as a whole: lower end of T_g minus the largest upper end.
    A single token has no competitor: its margin is infinite, and certain where its logit is.
    """
    at = right[:, None]
    own, own_error = (part.gather(1, at)[:, 0] for part in (values.value, values.error))
    if values.value.shape[1] == 1:
        return torch.full_like(own, torch.inf), own_error
    others = values.value.scatter(1, at, -torch.inf).amax(1)
    upper = (values.value + values.error).scatter(1, at, -torch.inf).amax(1)
    margin = own - others
    lower = own - own_error - upper
    rounding = 8 * U * (own.abs() + own_error + upper.abs() + others.abs()) + 8 * FLOAT64.tiny
    bound = (margin - lower + rounding) * (1 + 64 * U)
    return margin, bound + (margin - margin)
