"""Dana, Pydi, Chevaleyre, "Memorization in Attention-only Transformers" (AISTATS 2025).

First counts from sizes, then what needs matrices: Theorem 1's C, Theorem 2, Bennett, the slides.
The theorems as objects are in `dana2025_bounds`.

Shapes: `pi` (T, N) one distribution a row, `prior` (T,), logits `f` (T, N), `W` (N, d) rows W_j,
`X` (m, T) one sequence a column, `E` (d, T). Divergences are in nats.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from byheart.errors import ByheartError
from byheart.specs import AttentionOnlySpec
from byheart.theory.bound import ceil_div

Array = NDArray[np.float64]
Prior = ArrayLike | None  # None: all sequences alike
Form = Literal["unit", "published"]


def corollary1_capacity(spec: AttentionOnlySpec, last_tokens: int | None = None) -> int:
    """T0 = H d_h + d associations that one layer holds exactly (Corollary 1).

    The d comes from the skip x_S, which spans at most as many directions as there are distinct
    last tokens: with `last_tokens` of them the count is H d_h + min(d, last_tokens).

    >>> spec = AttentionOnlySpec(N=50, S=2, d=10, d_h=10, H=99)
    >>> corollary1_capacity(spec), corollary1_capacity(spec, last_tokens=3)
    (1000, 993)
    """
    return spec.H * spec.d_h + (spec.d if last_tokens is None else min(spec.d, last_tokens))


def corollary1_heads(T: int, d: int, d_h: int, last_tokens: int | None = None) -> int:
    """The fewest heads H >= 1 with H d_h + d >= T (Corollary 1, inverted).

    >>> corollary1_heads(1000, d=10, d_h=10), corollary1_heads(1001, d=10, d_h=10)
    (99, 100)
    """
    skip = d if last_tokens is None else min(d, last_tokens)
    return max(1, ceil_div(T - skip, d_h))


def associative_parameters(d: int, S: int, N: int) -> int:
    """d (S N + d + N): keys of S tokens, W and the unembedding of the associative memory."""
    return d * (S * N + d + N)


def phi(X: float, N: int, T0: int) -> float:
    """φ(X) = 1/N + (1 - 1/N) X/T0, at most 1: accuracy when X of T0 facts are held, rest guessed.

    Source: Dana et al. 2025, Corollary 2.

    >>> round(phi(40, N=10, T0=100), 9)
    0.46
    """
    return 1 / N + (1 - 1 / N) * min(1.0, X / T0)


def phi_inverse(accuracy: float, N: int, T0: int) -> float:
    """X = T0 (accuracy - 1/N)/(1 - 1/N): the facts that an accuracy stands for; N >= 2.

    >>> round(phi_inverse(0.46, N=10, T0=100), 9)
    40.0
    """
    return T0 * (accuracy - 1 / N) / (1 - 1 / N)


def proposition3_margin(N: int) -> float:
    """1 - cos(2π/N), the margin of N answers on a circle (Proposition 3), as 2 sin²(π/N)."""
    return 2 * math.sin(math.pi / N) ** 2


def random_coherence(N: int, d: int) -> float:
    """C = sqrt(32 log(N+1)/d): Johnson-Lindenstrauss coherence of N random directions in R^d."""
    return math.sqrt(32 * math.log(N + 1) / d)


def divergence(pi: ArrayLike, f: ArrayLike, prior: Prior = None) -> float:
    """d_KL(π, f) = E_t KL(π_t || softmax f_t), in nats.

    >>> round(divergence([[0.5, 0.5]], [[3.0, 3.0]]), 12)
    0.0
    """
    pi, f, weights = _task(pi, prior, f)
    log_q = f - np.logaddexp.reduce(f, axis=1, keepdims=True)
    return float(weights @ np.sum(pi * (_log(pi) - log_q), axis=1, where=pi > 0))


def theorem1_constant(X1: ArrayLike, X2: ArrayLike) -> float:
    """C = sqrt(1 + ||X_1^{-1} X_2||²), the constant of Theorem 1 (eq. 14): one solve, one norm.

    X = [X_1 X_2] holds [W_V A(t); x_S] of the m likely (X_1, square) and the other sequences.
    Source: Dana et al. 2025, Theorem 1; simplified here, equal to `theorem1_constant_svd`.

    >>> theorem1_constant([[2.0, 0.0], [0.0, 1.0]], [[6.0], [4.0]])  # X_1^{-1} X_2 = (3, 4)
    5.0990195135927845
    """
    X1, X2 = _blocks(X1, X2)
    return math.hypot(1.0, float(np.linalg.norm(_solve(X1, X2), 2))) if X2.shape[1] else 1.0


def theorem1_constant_svd(X1: ArrayLike, X2: ArrayLike) -> float:
    """C = 1/σ_min(V_11), V_11 the first m columns of V_1 in the thin SVD X = U Σ V_1.

    The same number as `theorem1_constant`: V_11 V_11^T + V_12 V_12^T = I and
    X_1^{-1} X_2 = V_11^{-1} V_12.
    """
    X1, X2 = _blocks(X1, X2)
    V1 = np.linalg.svd(np.hstack([X1, X2]), full_matrices=False)[2]
    return 1.0 / float(np.linalg.svd(V1[:, : X1.shape[0]], compute_uv=False)[-1])


def theorem1_excess(C: float, eps: float, logits: ArrayLike) -> float:
    """|d_KL(π, f) - d_KL(π, T)| <= sqrt 2 · C · ε · ||W E||_2.

    `logits` is W E as (T, N) or (N, T), for each sequence up to a constant (softmax sees none).
    Source: Dana et al. 2025, Theorem 1, with the factor max_i |e_i - π|_2 <= sqrt 2 of eq. 13 that
    the printed statement drops.
    """
    if not 0 <= eps <= 1 or C < 1:
        raise ByheartError(f"needs 0 <= eps <= 1 and C >= 1, found eps = {eps}, C = {C}")
    return math.sqrt(2) * C * eps * float(np.linalg.norm(np.asarray(logits, float), 2))


def theorem1_excess_per_sequence(
    pi: ArrayLike, prior: ArrayLike, W: ArrayLike, E: ArrayLike, X: ArrayLike
) -> float:
    """Σ_{t not likely} p(t) |(I - 1 π_t^T) W (E_1 X_1^{-1} X_2 - E_2)_t|_∞: Theorem 1, sharper.

    Sequences are ordered by prior, X (m, T): the first m columns are X_1. Derived here, from
    KL(π||softmax(f + Δ)) - KL(π||softmax f) <= max_j Δ_j - E_π Δ.

    >>> half = np.full((2, 2), 0.5)
    >>> theorem1_excess_per_sequence(half, [0.9, 0.1], np.eye(2), np.eye(2), [[1.0, 0.0]])
    0.05
    """
    pi, prior, W, E, X = (np.asarray(x, float) for x in (pi, prior, W, E, X))
    m = X.shape[0]
    X1, X2 = _blocks(X[:, :m], X[:, m:])
    change = (W @ (E[:, :m] @ _solve(X1, X2) - E[:, m:])).T
    centred = change - np.sum(pi[m:] * change, axis=1, keepdims=True)
    return float(prior[m:] @ np.abs(centred).max(axis=1, initial=0.0))


def coherence(W: ArrayLike) -> tuple[float, float, float]:
    """(C, μ₊, μ₋): C = ||W W^T - I_N||_max, μ₊ = max and μ₋ = -min of W_i·W_j over i != j."""
    W = np.asarray(W, float)
    gram = W @ W.T
    off = gram[~np.eye(len(W), dtype=bool)]
    return float(np.abs(gram - np.eye(len(W))).max()), float(off.max()), float(-off.min())


def theorem2_factor(W: ArrayLike, form: Form = "unit") -> float:
    """What multiplies E[(1-π_g) log((N-1)/(e^H-1))] in Theorem 2.

    "unit": (1+μ₋)/(1-μ₊), unit rows, no two equal (derived here). "published": (1+2C)/(1-2C),
    C < 1/2; the printed term C d_TV(π̃, unif) is superfluous.

    >>> theorem2_factor(np.eye(3)), theorem2_factor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    (1.0, 2.0)
    """
    W = np.asarray(W, float)
    C, mu_plus, mu_minus = coherence(W)
    if form == "published":
        if C >= 0.5:
            raise ByheartError(f"Theorem 2 as published needs C < 1/2, found C = {C:.3g}")
        return (1 + 2 * C) / (1 - 2 * C)
    norms = np.linalg.norm(W, axis=1)
    # Rows are normalised in floating point: d additions and a square root are off by this much.
    if np.abs(norms - 1).max() > 8 * W.shape[1] * np.finfo(float).eps:
        raise ByheartError(f"needs unit rows, found norms {norms.min():.6g} to {norms.max():.6g}")
    if mu_plus >= 1:
        raise ByheartError("needs different rows: two rows of W coincide (μ₊ = 1)")
    return (1 + mu_minus) / (1 - mu_plus)


def theorem2_bound(pi: ArrayLike, W: ArrayLike, prior: Prior = None, form: Form = "unit") -> float:
    """d_KL(π, f) <= factor(W) · E_t[(1-π_g) log((N-1)/(e^{H_t}-1))], H_t the Shannon entropy.

    For f = `theorem2_logits`. Source: Dana et al. 2025, Theorem 2, in the corrected sign (the
    printed H is Σ p log p) and with the expectation outside.

    >>> pi = [[0.7, 0.2, 0.1]]
    >>> round(theorem2_bound(pi, np.eye(3)), 9)
    0.145939463
    >>> round(divergence(pi, theorem2_logits(pi, np.eye(3))), 9)  # orthonormal rows: equal
    0.145939463
    """
    pi, _, weights = _task(pi, prior)
    return theorem2_factor(W, form) * float(weights @ ((1 - pi.max(axis=1)) * _sharpness(pi)))


def theorem2_logits(pi: ArrayLike, W: ArrayLike) -> Array:
    """f_t = λ_t W W_g, g = argmax π_t, λ_t the root of H_t = log Σ_j exp(λ (W_j - W_g)·W_g).

    The right side falls from log N at λ = 0 to 0: one root, found by bisection. A point mass
    (H = 0) has λ = ∞ and is refused.
    """
    pi, _, _ = _task(pi, None)
    W = np.asarray(W, float)
    entropy, answer = shannon(pi), pi.argmax(axis=1)
    if entropy.min() <= 0:
        raise ByheartError("needs entropy > 0 for every sequence: a point mass has λ = ∞")
    scores = (W @ W.T)[answer]
    gaps = scores - scores[np.arange(len(pi)), answer][:, None]
    _, mu_plus, _ = coherence(W)
    theorem2_factor(W)
    low, high = np.zeros(len(pi)), np.maximum(0.0, _sharpness(pi)) / (1 - mu_plus)
    for _ in range(100):  # halves 100 times: below the last bit of a float64
        middle = (low + high) / 2
        above = np.logaddexp.reduce(middle[:, None] * gaps, axis=1) > entropy
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return high[:, None] * scores


def bennett_bound(pi: ArrayLike, f: ArrayLike, prior: Prior = None) -> float:
    """d_KL(π, f) <= E_t log(1 + Var_π(Z) (e^b - 1 - b)/b²), Z = f - log π, b = max Z - E_π Z.

    Derived here (Bennett's inequality on log E_π e^Z - E_π Z = KL_t): the rigorous form of the
    slides' least-squares bounds.

    >>> bennett_bound([[0.5, 0.5]], [[0.2, 0.0]]) >= divergence([[0.5, 0.5]], [[0.2, 0.0]])
    True
    """
    pi, f, weights = _task(pi, prior, f)
    Z = f - _full_log(pi)
    Z -= np.sum(pi * Z, axis=1, keepdims=True)
    variance, b = np.sum(pi * Z**2, axis=1), Z.max(axis=1)
    small = b < 1e-4  # (e^b-1-b)/b² = 1/2 + b/6 + O(b²) there; the quotient cancels
    safe = np.where(small, 1.0, b)
    psi = np.where(small, 0.5 + b / 6 * 1.001, (np.expm1(safe) - safe) / safe**2)
    return float(weights @ np.log1p(variance * psi))


def slides_least_squares(pi: ArrayLike, prior: ArrayLike, d: int) -> float:
    """N|π|² σ² + (N|π|)^{3/2} σ³, σ = σ_{d+1}(log π), |π| the largest joint probability p(t) π_t.

    A heuristic of the slides of June 2024 for f_ls (truncated SVD of log π): third-order remainder
    dropped, |π| not defined there. Use `bennett_bound`.

    >>> round(slides_least_squares([[0.75, 0.25], [0.25, 0.75]], [0.5, 0.5], d=1), 4)
    1.2007
    """
    joint, L = _joint(pi, prior)
    N, top, sigma = L.shape[1], float(joint.max()), _singular(L, d)
    return N * top**2 * sigma**2 + (N * top) ** 1.5 * sigma**3


def slides_weighted_least_squares(pi: ArrayLike, prior: ArrayLike, d: int) -> float:
    """|π|_∞ σ² + (|π|_∞/|π|_{-∞})^{3/2} σ³, σ = σ_{d+1} of sqrt(joint) log π; a heuristic.

    >>> round(slides_weighted_least_squares([[0.75, 0.25], [0.25, 0.75]], [0.5, 0.5], d=1), 4)
    0.1978
    """
    joint, L = _joint(pi, prior)
    top, bottom = float(joint.max()), float(joint.min())
    sigma = _singular(np.sqrt(joint) * L, d)
    ratio = top / bottom if bottom > 0 else math.inf
    if ratio > 1e200:  # its power is no float64: nothing is promised
        return math.inf
    return top * sigma**2 + ratio**1.5 * sigma**3


def shannon(pi: ArrayLike) -> Array:
    """H_t = -Σ_j π_j log π_j >= 0, in nats."""
    pi = np.asarray(pi, float)
    return np.abs(np.sum(pi * _log(pi), axis=1))


def _sharpness(pi: Array) -> Array:
    """log((N-1)/(e^H-1)) of every sequence."""
    return np.log((pi.shape[1] - 1) / np.expm1(shannon(pi)))


def _log(pi: Array) -> Array:
    return np.log(np.where(pi > 0, pi, 1.0))


def _joint(pi: ArrayLike, prior: ArrayLike) -> tuple[Array, Array]:
    pi, _, weights = _task(pi, prior)
    return weights[:, None] * pi, _full_log(pi)


def _full_log(pi: Array) -> Array:
    if pi.min() <= 0:
        raise ByheartError("needs full support (Assumption 2): a probability is 0")
    return np.log(pi)


def _singular(matrix: Array, d: int) -> float:
    values = np.linalg.svd(matrix, compute_uv=False)
    return float(values[d]) if d < len(values) else 0.0


def _blocks(X1: ArrayLike, X2: ArrayLike) -> tuple[Array, Array]:
    X1, X2 = np.atleast_2d(np.asarray(X1, float)), np.atleast_2d(np.asarray(X2, float))
    if X1.shape[0] != X1.shape[1] or X2.shape[0] != X1.shape[0]:
        needs = "needs X_1 (m, m) and X_2 (m, T - m), m = H d_h + d features, one sequence a column"
        raise ByheartError(f"{needs}: found {X1.shape} and {X2.shape}")
    return X1, X2


def _solve(X1: Array, X2: Array) -> Array:
    try:
        return np.asarray(np.linalg.solve(X1, X2), dtype=np.float64)
    except np.linalg.LinAlgError:
        dependent = "the features of the likely sequences are dependent (Lemma 2 fails)"
        raise ByheartError(f"X_1 is singular: {dependent}") from None


def _task(pi: ArrayLike, prior: Prior, f: ArrayLike | None = None) -> tuple[Array, Array, Array]:
    pi = np.asarray(pi, float)
    if pi.ndim != 2 or pi.shape[1] < 2:
        raise ByheartError(f"pi must be (T, N) with N >= 2, found shape {pi.shape}")
    T = len(pi)
    weights = np.full(T, 1 / T) if prior is None else np.asarray(prior, float)
    logits = np.zeros_like(pi) if f is None else np.asarray(f, float)
    if weights.shape != (T,) or logits.shape != pi.shape:
        found = f"found {weights.shape} and {logits.shape}"
        raise ByheartError(f"prior must be ({T},) and f {pi.shape}, {found}")
    # Rounding of N or T terms that sum to one.
    for name, sums, terms in (("rows of pi", pi.sum(axis=1), pi.shape[1]),
                              ("prior", weights.sum(), T)):  # fmt: skip
        if pi.min() < 0 or np.abs(sums - 1).max() > 8 * terms * np.finfo(float).eps:
            raise ByheartError(f"{name} must be >= 0 and sum to 1")
    return pi, logits, weights
