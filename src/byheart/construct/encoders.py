"""Sequence encoders f(t) = W E(t) of rank d: how near a width-d model can come to π at all.

`encode` makes one by name, `best` picks by regime and says why, `compare` makes all of them. Least
squares on log π (`svd`, `weighted`) is for distributions near uniform, `theorem2`, λ_t W_{g(t)} on
a frame of low coherence, for those near a look-up table g (docs/distributions.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from byheart._machine import check_room, check_time
from byheart._progress import Report, quiet
from byheart.construct.frames import frame
from byheart.construct.readout import CrossEntropy, lbfgs
from byheart.errors import ByheartError
from byheart.facts import Distributions
from byheart.models.threads import one_thread
from byheart.theory.dana2025 import divergence, theorem2_logits

Array = NDArray[np.float64]
ENCODERS: tuple[str, ...] = ("svd", "centred", "weighted", "theorem2", "theorem2*", "optimised")

SWEEPS = 300
SETTLED = 1e-9  # relative decrease of the loss in a sweep at which alternation stops
RIDGE = 1e-10  # of the mean diagonal: answers that nearly no sequence gives leave singular systems
HALVINGS = 80  # of an interval for λ: below the last bit of a float64
SMALLEST = 1e-15  # what is left for wrong answers where λ would be infinite
ITERATIONS = 2000
HEAT = 300  # iterations that every start gets; then the best of them alone goes on
# Share of log A in the mean entropy. Above, KL is nearly quadratic in log π and weighted least
# squares was within 1.5 % of the best; below, the mass lies on one answer and Theorem 2's encoder
# with its best λ was within 50 % (docs/distributions.md).
HIGH_ENTROPY, LOW_ENTROPY = 0.95, 0.15
# Work of one alternation, (T A) (d + 1)²: above, least squares takes longer than the optimisation.
ALTERNATION_LIMIT = 3 * 10**7
RANDOM_STARTS = 2
# Entries of π above which there is one start, and fewer steps: on texts the starts came within 2 %
# of each other, and each takes minutes.
SEVERAL_STARTS_LIMIT = 5 * 10**5
LARGE_ITERATIONS = 400
VECTORS_KEPT = 25  # in L-BFGS: two for each of ten corrections, and its working copies


@dataclass(frozen=True, eq=False)  # one is itself: arrays have no hash
class Encoder:
    """f_{W,E}(t) = W E(t), an element of L(N, S, d): logits of rank at most d (Dana et al. 2025,
    section 3; Proposition 1: no width-d Transformer is nearer to π than the best of these).

    `W` (A, d) one row an answer, `E` (T, d) one row a sequence; `name` how it was made, `why`.

    >>> Encoder(np.eye(2), np.array([[1.0, -1.0]]), "by hand").logits
    array([[ 1., -1.]])
    """

    W: Array
    E: Array
    name: str
    why: str = ""

    @property
    def d(self) -> int:
        return self.W.shape[1]

    @property
    def logits(self) -> Array:
        """f (T, A)."""
        return self.E @ self.W.T

    def balanced(self) -> Encoder:
        """The same logits with W of orthonormal columns (where its rank allows): |W z| = |z|, so
        that a read-out fits E in the metric of the logits."""
        U, s, Vt = np.linalg.svd(self.W, full_matrices=False)
        W, E = np.zeros_like(self.W), np.zeros_like(self.E)
        W[:, : U.shape[1]], E[:, : U.shape[1]] = U, self.E @ Vt.T * s
        return Encoder(W, E, self.name, self.why)


def check_rank(table: Distributions, d: int) -> None:
    """Refuse a rank below 1, and one for which an encoder would not fit or not end."""
    if d < 1:
        raise ByheartError(f"the rank d of an encoder must be at least 1, found {d}")
    T, A = table.T, table.A
    what = f"an encoder of rank {d:,} for {T:,} sequences and {A:,} answers"
    advice = "Give a smaller `d` (`rank`), or fewer sequences."
    # π, its logarithms and logits; W and E with their gradient and what L-BFGS keeps of both.
    check_room(8 * (4 * T * A + VECTORS_KEPT * (T + A) * d), what, advice)
    check_time(6.0 * T * A * d * LARGE_ITERATIONS, what, advice)


def factored(matrix: Array, d: int) -> tuple[Array, Array]:
    """(W, E) with E W^T the best rank-d approximation of `matrix` (T, A) in Frobenius norm."""
    T, A = matrix.shape
    if min(T, A) > 4 * d and T * A > 10**6:
        from scipy.sparse.linalg import svds

        start = np.ones(min(T, A))  # a fixed start: the same bits every time
        U, s, Vt = svds(matrix, k=d, v0=start, return_singular_vectors=True)
        assert U is not None and Vt is not None  # asked for
    else:
        U, s, Vt = np.linalg.svd(matrix, full_matrices=False)
        U, s, Vt = U[:, :d], s[:d], Vt[:d]
    W, E = np.zeros((A, d)), np.zeros((T, d))
    W[:, : len(s)], E[:, : len(s)] = Vt.T * np.sqrt(s), U * np.sqrt(s)
    return W, E


def svd(table: Distributions, d: int, *, centred: bool = True) -> Encoder:
    """The rank-d truncated SVD of log π (slides of June 2024): min ||f - log π||.

    `centred`: of log π - mean_j log π, so that the constant of each sequence, which softmax does
    not see, costs no rank. Exact for d >= min(T, A - 1) (Proposition 2).

    >>> from byheart.facts import random_distributions
    >>> table = random_distributions("gauss", N=5)
    >>> divergence(table.probabilities, svd(table, d=4).logits) < 1e-14
    True
    """
    L = table.logarithms()
    if not centred:
        return Encoder(*factored(L, d), "svd", "rank-d SVD of log π")
    why = "rank-d SVD of log π without its mean in each sequence"
    return Encoder(*factored(L - L.mean(axis=1, keepdims=True), d), "centred", why)


def weighted(table: Distributions, d: int) -> Encoder:
    """min Σ_t p_t Σ_j π_t(j) (E_t·W_j + o_t - log π_t(j))², o_t free: alternating least squares on
    the second-order expansion of d_KL, from the centred SVD; the loss never rises."""
    start = svd(table, d)
    L = torch.from_numpy(table.logarithms())
    w = torch.from_numpy(table.prior[:, None] * table.probabilities)
    W, E = torch.from_numpy(start.W), torch.from_numpy(start.E)
    last = float("inf")
    with one_thread():
        for _ in range(SWEEPS):
            # With an offset: rows (W_j, 1) against unknowns (E_t, o_t), one system a sequence.
            rows = torch.cat([W, torch.ones(len(W), 1, dtype=W.dtype)], dim=1)
            both = _row_solves(w, L, rows)
            E, offset = both[:, :d], both[:, d:]
            W = _row_solves(w.T, (L - offset).T, E)
            loss = float((w * (E @ W.T + offset - L) ** 2).sum())
            if last < float("inf") and last - loss <= SETTLED * last:
                break
            last = loss
    why = "least squares on log π weighted by p π, offsets free, by alternation"
    return Encoder(W.numpy().copy(), E.numpy().copy(), "weighted", why)


def _row_solves(w: torch.Tensor, target: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """x_i = argmin Σ_j w_ij (rows_j·x_i - target_ij)², for all i at once."""
    n = rows.shape[1]
    outer = (rows[:, :, None] * rows[:, None, :]).flatten(1)
    G = (w @ outer).reshape(-1, n, n)
    scale = G.diagonal(dim1=1, dim2=2).mean(1).clamp_min(1e-300)
    G = G + RIDGE * scale[:, None, None] * torch.eye(n, dtype=G.dtype)
    return torch.linalg.solve(G, ((w * target) @ rows)[:, :, None])[:, :, 0]


def theorem2(table: Distributions, d: int, seed: int = 0, *, best: bool = False) -> Encoder:
    """E(t) = λ_t W_g, λ_t the root of H_t = log Σ_j exp(λ (W_j - W_g)·W_g), as in the proof.

    Source: Dana et al. 2025, Theorem 2, signs corrected. Needs H_t > 0. `best`: instead λ_t =
    argmin KL(π_t || softmax(λ W W_g)), which obeys every bound of the theorem, because its KL is
    at most that of any other λ >= 0.
    """
    W = frame(table.A, d, seed).numpy()
    g = table.probabilities.argmax(axis=1)
    if best:
        lam = _best_scales(table.probabilities, (W @ W.T)[g])
        name, why = "theorem2*", "λ W_g, λ the best for each sequence (convex)"
    else:
        f = theorem2_logits(table.probabilities, W)
        lam = f[np.arange(table.T), g] / (W[g] ** 2).sum(axis=1)
        name, why = "theorem2", "λ W_g, λ from the entropy (Theorem 2)"
    return Encoder(W, lam[:, None] * W[g], name, why)


def _best_scales(pi: Array, scores: Array) -> Array:
    """argmin_λ KL(π_t || softmax(λ scores_t)), one convex problem a sequence: bisection on the sign
    of the derivative Σ_j (q_j - π_j) W_j·W_g. Where π_t is a point mass the infimum is at λ = ∞
    (Proposition 3): λ stops at `SMALLEST` for the others."""
    T, A = pi.shape
    wanted = np.sum(pi * scores, axis=1)
    # At λ = top every wrong answer has less than SMALLEST: nothing moves beyond.
    gap = 1.0 - max(float(np.sort(scores, axis=1)[:, -2].max()), -1.0)
    low, high = np.zeros(T), np.full(T, np.log(A / SMALLEST) / max(gap, 1e-12))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        f = middle[:, None] * scores
        q = np.exp(f - f.max(axis=1, keepdims=True))
        q /= q.sum(axis=1, keepdims=True)
        short = np.sum(q * scores, axis=1) < wanted
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return (low + high) / 2


def optimised(table: Distributions, starts: Sequence[Encoder], progress: Report = quiet) -> Encoder:
    """argmin_{W,E} Σ_t p_t KL(π_t || softmax W E_t), the best local minimum from the `starts`
    (large tables: the first), never worse than any: all run for `HEAT` steps, the best to the end.
    """
    pi, prior, iterations = table.probabilities, table.prior, ITERATIONS
    if table.T * table.A > SEVERAL_STARTS_LIMIT:
        starts, iterations = starts[:1], LARGE_ITERATIONS

    def kl(encoder: Encoder) -> float:
        return divergence(pi, encoder.logits, prior)

    heat = HEAT if len(starts) > 1 else iterations
    raced = []
    for number, start in enumerate(starts):
        what = f"optimising the encoder, start {number + 1} of {len(starts)} ({start.name})"
        raced.append(min((start, _descend(table, start, heat, what, progress)), key=kl))
    best = min(raced, key=kl)
    if heat < iterations:
        what = f"optimising the encoder further from the {best.name} start"
        best = min((best, _descend(table, best, iterations, what, progress)), key=kl)
    return Encoder(best.W, best.E, "optimised", f"L-BFGS on W and E from {best.why or best.name}")


def _descend(
    table: Distributions, start: Encoder, iterations: int, what: str, progress: Report
) -> Encoder:
    """L-BFGS in the variables sqrt(p_t) E_t and sqrt(m_j) W_j, m_j = Σ_t p_t π_t(j): rare sequences
    and rare answers then descend as fast as frequent ones. `progress` is told of `what`."""
    progress(what)
    pi = torch.from_numpy(table.probabilities.copy())
    p = torch.from_numpy(table.prior.copy())
    T, A, d = table.T, table.A, start.d
    of_t = p.sqrt().clamp_min(1e-8)[:, None]
    of_j = (p @ pi).sqrt().clamp_min(1e-8)[:, None]
    W, E = _even(start.W * of_j.numpy(), start.E * of_t.numpy())
    loss = CrossEntropy(pi, p)

    def value_and_gradient(flat: Array) -> tuple[float, Array]:
        both = torch.from_numpy(flat)
        W_j = both[: A * d].reshape(A, d) / of_j
        E_t = both[A * d :].reshape(T, d) / of_t
        value, G = loss(E_t, W_j)
        gradient = torch.cat([((G.T @ E_t) / of_j).flatten(), ((G @ W_j) / of_t).flatten()])
        return value, gradient.numpy()

    with loss.threads():
        start_at = np.concatenate([W.ravel(), E.ravel()])
        tell = partial(_told, progress, what)
        x = lbfgs(value_and_gradient, start_at, iterations, ftol=1e-13, progress=tell).x
    W, E = x[: A * d].reshape(A, d) / of_j.numpy(), x[A * d :].reshape(T, d) / of_t.numpy()
    return replace(start, W=W, E=E)


def _told(progress: Report, what: str, step: str) -> None:
    progress(f"{what}, {step}")


def _even(W: Array, E: Array) -> tuple[Array, Array]:
    """The same product E W^T with W^T W = E^T E: both factors then descend at one speed."""
    Q_W, R_W = np.linalg.qr(W)
    Q_E, R_E = np.linalg.qr(E)
    U, s, Vt = np.linalg.svd(R_E @ R_W.T)
    # Directions with s = 0 would have a gradient of exactly 0 on both sides: leave them a start.
    root = np.sqrt(np.maximum(s, 1e-6 * s.max(initial=1e-300)))
    if W.shape[0] < W.shape[1] or E.shape[0] < E.shape[1]:
        return W, E
    return Q_W @ Vt.T * root, Q_E @ U * root


def encode(
    table: Distributions, d: int, name: str = "best", *, seed: int = 0, progress: Report = quiet
) -> Encoder:
    """One encoder by name: one of `ENCODERS`, or "best".

    >>> from byheart.facts import random_distributions
    >>> encode(random_distributions("gauss", N=5), 2, "centred").logits.shape
    (25, 5)
    """
    check_rank(table, d)
    makers: dict[str, Callable[[], Encoder]] = {
        "best": lambda: best(table, d, seed=seed, progress=progress),
        "svd": lambda: svd(table, d, centred=False),
        "centred": lambda: svd(table, d),
        "weighted": lambda: weighted(table, d),
        "theorem2": lambda: theorem2(table, d, seed),
        "theorem2*": lambda: theorem2(table, d, seed, best=True),
        "optimised": lambda: optimised(table, _starts(table, d, seed), progress),
    }
    if name not in makers:
        raise ByheartError(f"the encoder must be one of {', '.join(makers)}, found {name!r}")
    return makers[name]()


def best(table: Distributions, d: int, *, seed: int = 0, progress: Report = quiet) -> Encoder:
    """The encoder for this regime, and why.

    d >= min(T, A - 1) and full support: the centred SVD, exact (Proposition 2). Otherwise L-BFGS
    from the closed forms and random starts, that of the regime first (docs/distributions.md).

    >>> from byheart.facts import random_distributions
    >>> best(random_distributions("gauss", N=5), 4).why
    'd = 4 >= min(T, A - 1) = 4: exact, by the centred SVD of log π (Proposition 2)'
    """
    limit = min(table.T, table.A - 1)
    if d >= limit and table.full_support:
        why = f"d = {d} >= min(T, A - 1) = {limit}: exact, by the centred SVD of log π"
        return replace(svd(table, d), name="best", why=f"{why} (Proposition 2)")
    share = float(table.prior @ table.entropy) / float(np.log(table.A))
    if share >= HIGH_ENTROPY:
        regime, starts = "high entropy", _least_squares(table, d)
    elif share <= LOW_ENTROPY:
        regime, starts = "low entropy", _low_entropy(table, d, seed) + _least_squares(table, d)
        starts += _random(table, d, seed)
    else:
        regime, starts = "entropy in the middle", _starts(table, d, seed)
    found = optimised(table, starts or _random(table, d, seed), progress)
    return replace(found, name="best", why=f"{regime} ({share:.0%} of log A): {found.why}")


class Compared(NamedTuple):
    """One row of `compare`: the encoder, or why there is none, and the seconds it took."""

    name: str
    encoder: Encoder | None
    reason: str
    seconds: float


def compare(
    table: Distributions, d: int, *, seed: int = 0, progress: Report = quiet
) -> list[Compared]:
    """All encoders of `ENCODERS` at rank d; one that does not apply says why."""
    check_rank(table, d)
    rows = []
    for name in ENCODERS:
        started, made = time.perf_counter(), None
        try:
            made = encode(table, d, name, seed=seed, progress=progress)
            reason = made.why
        except ByheartError as error:
            reason = str(error)
        rows.append(Compared(name, made, reason, time.perf_counter() - started))
    return rows


def _starts(table: Distributions, d: int, seed: int) -> list[Encoder]:
    return _least_squares(table, d) + _low_entropy(table, d, seed) + _random(table, d, seed)


def _least_squares(table: Distributions, d: int) -> list[Encoder]:
    if not table.full_support:
        return []
    heavy = table.T * table.A * (d + 1) ** 2 > ALTERNATION_LIMIT
    start = svd(table, d) if heavy else weighted(table, d)
    # Where all answers are equally probable there is nothing to fit, and its systems are singular.
    return [start] if np.isfinite(start.W).all() and np.isfinite(start.E).all() else []


def _low_entropy(table: Distributions, d: int, seed: int) -> list[Encoder]:
    return [theorem2(table, d, seed, best=True)] if d > 1 or table.A == 2 else []


def _random(table: Distributions, d: int, seed: int) -> list[Encoder]:
    """Gaussian W and E with logits of standard deviation about 1."""
    starts = []
    for own in range(1000 * seed, 1000 * seed + RANDOM_STARTS):
        r = np.random.default_rng(own)
        W, E = r.normal(size=(table.A, d)), r.normal(size=(table.T, d)) / np.sqrt(d)
        starts.append(Encoder(W, E, "random", f"a random start ({own})"))
    return starts
