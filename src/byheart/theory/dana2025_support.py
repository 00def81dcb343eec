"""Dana et al. 2025, Theorem 3: distributions without full support, such as associations.

The logits of a zero probability would be -∞, so Theorem 1 is applied to encoders f_δ of rank d that
come near. The class M(N, S, d) holds the distributions m for which they come near polynomially:

    c δ^α <= |log m_t(j) - log softmax(f_δ)_t(j)| <= δ     wherever m_t(j) > 0, for all small δ > 0.

Shapes as in `dana2025`; a `Family` is δ -> f_δ, logits (T, N).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from byheart.errors import ByheartError
from byheart.theory.dana2025 import (
    Array,
    divergence,
    proposition3_margin,
    theorem1_constant,
    theorem1_excess,
)

Family = Callable[[float], Array]


def smoothed(pi: ArrayLike) -> Family:
    """f_δ = log(π + η), η = δ/max(N, 1/π_min), π_min the smallest positive probability.

    |log π - log softmax f_δ| <= max(N η, η/π_min) <= δ on the support. The rank is at most N - 1 up
    to a constant a sequence: for d >= N - 1.

    >>> nearness([[0.75, 0.25, 0.0]], smoothed([[0.75, 0.25, 0.0]])(0.1))[1] <= 0.1
    True
    """
    pi = np.asarray(pi, float)
    scale = max(pi.shape[1], 1 / pi[pi > 0].min())
    return lambda delta: np.log(pi + delta / scale)


def on_circle(answers: ArrayLike, N: int) -> Family:
    """f_δ = λ W W_g, W_j = (cos 2πj/N, sin 2πj/N): associations at d = 2 (Proposition 3).

    λ = log((N-1)/(e^δ - 1)) / (1 - cos 2π/N), at which -log softmax(f_δ)_g <= δ: all N - 1 other
    answers are at least the margin away. The two nearest are at it exactly, so c = 1/(N-1), α = 1.

    >>> one = np.array([[0.0, 1.0, 0.0]])
    >>> low, high = nearness(one, on_circle([1], N=3)(0.01))
    >>> 0.005 <= low <= high <= 0.01 * (1 + 1e-12)
    True
    """
    if N < 2:
        raise ByheartError(f"needs N >= 2 answers, found {N}")
    turn = 2 * math.pi / N * (np.arange(N) - np.asarray(answers)[:, None])

    def logits(delta: float) -> Array:
        return math.log((N - 1) / math.expm1(delta)) / proposition3_margin(N) * np.cos(turn)

    return logits


def nearness(m: ArrayLike, f: ArrayLike) -> tuple[float, float]:
    """The smallest and the largest |log m_t(j) - log softmax(f)_t(j)| over the support of m."""
    m, f = np.asarray(m, float), np.asarray(f, float)
    log_q = f - np.logaddexp.reduce(f, axis=1, keepdims=True)
    gaps = np.abs(np.log(m[m > 0]) - log_q[m > 0])
    return float(gaps.min()), float(gaps.max())


@dataclass(frozen=True)
class Approximable:
    """c and α of the class M, found at given δ; `reason` says why a family does not show it."""

    c: float
    alpha: float
    reason: str = ""

    def __bool__(self) -> bool:
        return not self.reason


def approximable(m: ArrayLike, family: Family, deltas: Sequence[float]) -> Approximable:
    """Whether c δ^α <= |log m - log softmax f_δ| <= δ on the support, at each of these δ in (0, 1).

    α is the slope of the smallest gap on logarithmic scales, c the largest constant that it allows:
    a check at finitely many δ, as a program can make it.

    >>> bool(approximable([[0.0, 1.0, 0.0]], on_circle([1], N=3), [0.1, 0.01, 0.001]))
    True
    """
    x = np.asarray(deltas, float)
    if len(x) < 2 or x.min() <= 0 or x.max() >= 1:
        raise ByheartError(f"needs two δ or more in (0, 1), found {list(deltas)}")
    low, high = np.array([nearness(m, family(delta)) for delta in x]).T
    if (high > x * (1 + 1e-9)).any():
        worst = int((high / x).argmax())
        return Approximable(0.0, 0.0, f"a gap of {high[worst]:.3g} is above δ = {x[worst]:.3g}")
    if low.min() <= 1e-14:  # the rounding of logarithms of order one
        return Approximable(0.0, 0.0, "a gap is 0: there is no c > 0 (m is met exactly)")
    alpha = float(np.polyfit(np.log(x), np.log(low), 1)[0])
    return Approximable(float((low / x**alpha).min()), alpha)


def theorem3_excess(C: float, eps: float, delta: float, logits: ArrayLike) -> float:
    """d_KL(π, T) <= d_KL(π, m) + δ + sqrt 2 · C · ε · ||f_δ||_2, m in M with supp π in supp m.

    `logits` are f_δ, C is that of Theorem 1. At δ = ε and with ||f_ε||_2 = O(log 1/ε) (Lemma 4)
    this is the O(ε log 1/ε) of Theorem 3, with its constant. Derived here: the layer of Theorem 1
    for f_δ, and d_KL(π, f_δ) - d_KL(π, m) = E log m/softmax f_δ <= δ.
    """
    return delta + theorem1_excess(C, eps, logits)


@dataclass(frozen=True)
class Constant:
    """What stands before ε log 1/ε at one ε: as measured, and as `theorem3_excess` bounds it."""

    eps: float
    measured: float
    bound: float


def theorem3_constant(pi: ArrayLike, X: ArrayLike, family: Family, eps: float) -> Constant:
    """(d_KL(π, T) - d_KL(π, M)) / (ε log 1/ε) of the layer that Theorem 3 makes, and its bound.

    `X` (m, T) holds [W_V A(t); x_S] of every sequence, the m = H d_h + d likely ones first, which
    share the prior 1 - ε; the others share ε. W_O makes the layer equal f_ε on the likely ones; on
    the others it is f_ε X_1^{-1} X_2. π itself is in M, so that d_KL(π, M) = 0.
    """
    pi, X, f = np.asarray(pi, float), np.asarray(X, float), family(eps)
    m, T = X.shape
    if not 0 < eps < 1 or not m < T == len(pi):
        found = f"found ε = {eps}, X {X.shape}, pi {pi.shape}"
        raise ByheartError(f"needs 0 < ε < 1, X (m, T) with m < T and pi (T, N): {found}")
    f = f - f.mean(axis=1, keepdims=True)  # softmax sees no constant, the norm does
    C = theorem1_constant(X[:, :m], X[:, m:])
    layer = np.linalg.solve(X[:, :m], X).T @ f[:m]
    prior = np.concatenate([np.full(m, (1 - eps) / m), np.full(T - m, eps / (T - m))])
    unit = eps * math.log(1 / eps)
    return Constant(
        eps, divergence(pi, layer, prior) / unit, theorem3_excess(C, eps, eps, f) / unit
    )
