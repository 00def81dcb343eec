"""What Theorems 1 and 3 of Dana et al. (2025) say about given features and a given encoder."""

from __future__ import annotations

import math

import numpy as np

from byheart.construct.encoders import Encoder
from byheart.errors import ByheartError
from byheart.facts import Distributions
from byheart.models.construction import Theorem1Excess, Theorem3Quantities
from byheart.theory.dana2025 import (
    theorem1_constant,
    theorem1_constant_svd,
    theorem1_excess,
    theorem1_excess_per_sequence,
)
from byheart.theory.divergences import log_ratio

SVD_UP_TO = 1200  # features: above, the second way to C takes minutes


def theorem1_quantities(
    table: Distributions, encoder: Encoder, X: np.ndarray
) -> tuple[float, Theorem1Excess]:
    """ε, C in two ways, ||W E||_2 and both bounds on d_KL(π, T) - d_KL(π, f), from the matrices.

    `X` (T, m) features [F, x_S]. ε is the prior of all but the m likely sequences. The spectral
    norm is that of the logits without their mean in each sequence, which softmax does not see.
    With m >= T nothing is left out: ε = 0, C = 1.
    """
    T, m = X.shape
    order = table.by_prior()
    if m >= T:
        return 0.0, Theorem1Excess(C=1.0, C_svd=1.0, excess=0.0, sharp=0.0)
    prior, pi = table.prior[order], table.probabilities[order]
    eps = float(prior[m:].sum())
    f = encoder.logits
    centred = f - f.mean(axis=1, keepdims=True)
    by_column = X[order].T
    try:
        C = theorem1_constant(by_column[:, :m], by_column[:, m:])
        small = m <= SVD_UP_TO
        C_svd = theorem1_constant_svd(by_column[:, :m], by_column[:, m:]) if small else None
        sharp = theorem1_excess_per_sequence(pi, prior, encoder.W, encoder.E[order].T, by_column)
    except ByheartError as error:
        return eps, Theorem1Excess(reason=str(error))
    norm, excess = float(np.linalg.norm(centred, 2)), theorem1_excess(C, eps, centred)
    return eps, Theorem1Excess(C=C, C_svd=C_svd, norm=norm, excess=excess, sharp=sharp)


def theorem3_quantities(table: Distributions, encoder: Encoder, m: int) -> Theorem3Quantities:
    """The pieces of d_KL(π, M) + O(ε log 1/ε): δ, max f - min f, and ε log 1/ε.

    δ = max |log π / softmax f| over the support (how well f approximates π), `logit_range` the
    max f_t - min f_t that Lemma 4 bounds by O(log 1/δ), `per_log` its quotient by log 1/p with p
    the smallest positive probability: a constant of order 1 where the lemma describes f.

    >>> from byheart.construct.encoders import encode
    >>> from byheart.facts import random_distributions
    >>> table = random_distributions("gauss", N=5)
    >>> round(theorem3_quantities(table, encode(table, 4), 8).delta, 9)
    0.0
    """
    eps = float(table.prior[table.by_prior()[m:]].sum())
    f, positive = encoder.logits, table.probabilities[table.probabilities > 0]
    logit_range = float((f.max(axis=1) - f.min(axis=1)).max())
    return Theorem3Quantities(
        delta=float(log_ratio(table.probabilities, f).max()),
        logit_range=logit_range,
        per_log=logit_range / max(math.log(1 / float(positive.min())), 1e-300),
        eps_log=eps * math.log(1 / eps) if eps > 0 else 0.0,
    )
