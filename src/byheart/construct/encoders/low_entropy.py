"""Theorem 2: near a look-up table g, E(t) = λ_t W_{g(t)} on a frame of low coherence.

No rank is needed beyond what tells the answers apart: λ_t alone says how sure sequence t is.
"""

from __future__ import annotations

import numpy as np

from byheart.construct.encoders.encoder import Array, Encoder, check_rank
from byheart.construct.frames import frame
from byheart.errors import ByheartError
from byheart.facts import Distributions
from byheart.theory.dana2025 import theorem2_logits

HALVINGS = 80  # of an interval for λ: below the last bit of a float64
SMALLEST = 1e-15  # what is left for wrong answers where λ would be infinite


def answer_frame(A: int, d: int, seed: int = 0) -> Array:
    """A unit rows in R^d, as far apart as we can put them (`byheart.construct.frames`)."""
    check_rank(d)
    if d == 1 and A > 2:
        raise ByheartError(
            f"the low-entropy encoder needs different rows: rank 1 tells at most 2 answers apart, "
            f"these distributions have {A}. Use rank 2 or more (Proposition 3)."
        )
    return frame(A, d, seed).numpy()


def theorem2(table: Distributions, d: int, seed: int = 0) -> Encoder:
    """λ_t is the root of H_t = log Σ_j exp(λ (W_j - W_g)·W_g), as in the theorem's proof.

    Source: Dana et al. 2025, Theorem 2, signs corrected. Needs H_t > 0; see `theorem2_best`.

    >>> from byheart.facts import random_distributions
    >>> theorem2(random_distributions("lut", N=6, eta=0.01), d=3).logits.shape
    (36, 6)
    """
    W = answer_frame(table.A, d, seed)
    g = table.probabilities.argmax(axis=1)
    f = theorem2_logits(table.probabilities, W)
    lam = f[np.arange(table.T), g] / (W[g] ** 2).sum(axis=1)
    return Encoder(W, lam[:, None] * W[g], "theorem2", "λ W_g, λ from the entropy (Theorem 2)")


def theorem2_best(table: Distributions, d: int, seed: int = 0) -> Encoder:
    """The same with λ_t = argmin KL(π_t || softmax(λ W W_g)), one convex problem a sequence.

    The derivative Σ_j (q_j - π_j) W_j·W_g grows with λ: bisection on its sign. Derived; obeys
    every bound that `theorem2` obeys, because its KL is at most that of any other λ >= 0. Where
    π_t is a point mass the infimum is at λ = ∞ (Proposition 3): λ stops at 1e-15 for the others.

    >>> from byheart.facts import random_distributions
    >>> from byheart.theory.dana2025 import divergence
    >>> table = random_distributions("lut", N=6, eta=0.01)
    >>> pi = table.probabilities
    >>> divergence(pi, theorem2_best(table, 3).logits) < divergence(pi, theorem2(table, 3).logits)
    True
    """
    W = answer_frame(table.A, d, seed)
    pi = table.probabilities
    g = pi.argmax(axis=1)
    scores = (W @ W.T)[g]
    wanted = np.sum(pi * scores, axis=1)
    # At λ = top every wrong answer has less than SMALLEST: nothing moves beyond.
    gap = 1.0 - max(float(np.sort(scores, axis=1)[:, -2].max()), -1.0)
    top = np.log(table.A / SMALLEST) / max(gap, 1e-12)
    low, high = np.zeros(table.T), np.full(table.T, top)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        f = middle[:, None] * scores
        q = np.exp(f - f.max(axis=1, keepdims=True))
        q /= q.sum(axis=1, keepdims=True)
        short = np.sum(q * scores, axis=1) < wanted
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    lam = (low + high) / 2
    return Encoder(
        W, lam[:, None] * W[g], "theorem2*", "λ W_g, λ the best for each sequence (convex)"
    )
