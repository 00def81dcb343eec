"""How near a memory is to the distributions it should hold, and what the bounds say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from byheart.construct.encoders import Encoder
from byheart.errors import ByheartError
from byheart.facts import Distributions
from byheart.models import DistributionMemory
from byheart.theory.dana2025 import (
    bennett_bound,
    slides_least_squares,
    slides_weighted_least_squares,
    theorem2_bound,
    theorem2_factor,
)
from byheart.theory.divergences import kl, log_ratio, squared_error, top_answers, total_variation


@dataclass(frozen=True)
class Losses:
    """Losses of logits f (T, A) against π, one a sequence, and their means under the prior.

    `kl` in nats, `total_variation` in [0, 1], `squared_error` Σ_j (π_j - q_j)², `log_ratio`
    max_j |log π_j - log q_j|, `right` whether a most probable answer is recalled.
    """

    kl: np.ndarray
    total_variation: np.ndarray
    squared_error: np.ndarray
    log_ratio: np.ndarray
    right: np.ndarray
    prior: np.ndarray

    def mean(self) -> dict[str, float]:
        """E_t of each, under the prior; for `log_ratio` the largest."""
        means = ("kl", "total_variation", "squared_error")
        return {
            **{name: float(self.prior @ getattr(self, name)) for name in means},
            "max_log_ratio": float(self.log_ratio.max()),
            "accuracy": float(1.0 - self.prior[~self.right].sum()),
        }


def losses(table: Distributions, f: np.ndarray) -> Losses:
    """All losses of logits `f` (T, A) on `table`.

    >>> import byheart as bh
    >>> table = bh.random_distributions("gauss", N=4)
    >>> losses(table, np.log(table.probabilities)).mean()["accuracy"]
    1.0
    """
    pi, prior = table.probabilities, table.prior
    distance, error = total_variation(pi, f), squared_error(pi, f)
    return Losses(kl(pi, f), distance, error, log_ratio(pi, f), top_answers(pi, f), prior)


def memory_losses(memory: DistributionMemory, table: Distributions | None = None) -> Losses:
    """The losses of a memory, stored weights evaluated in float64, on its own distributions.

    >>> import byheart as bh
    >>> memory = bh.build(bh.random_distributions("gauss", N=5), d=4, dtype="float64")
    >>> memory_losses(memory).mean()["kl"] < 1e-12
    True
    """
    given = memory.own(table)
    assert isinstance(given, Distributions)
    return losses(given, memory.answer_logits(given))


def encoder_bounds(table: Distributions, encoder: Encoder) -> dict[str, float | None]:
    """Every bound on d_KL(π, f) that can be computed for this encoder, by name, in nats.

    "bennett" and, for encoders λ W_g on unit rows, "theorem2" are rigorous; "theorem2 published"
    is infinite for C >= 1/2; the two of the slides are heuristics for the SVD encoders. A bound
    that does not apply is None.

    >>> import byheart as bh
    >>> from byheart.construct.encoders import encode
    >>> table = bh.random_distributions("gauss", N=6, tau=0.3)
    >>> encoder = encode(table, 2, "centred")
    >>> encoder_bounds(table, encoder)["bennett"] >= losses(table, encoder.logits).mean()["kl"]
    True
    """
    pi, prior, d = table.probabilities, table.prior, encoder.d
    names = ("bennett", "theorem2", "theorem2 published", "slides", "slides weighted")
    bounds: dict[str, float | None] = dict.fromkeys(names)
    if encoder.name.startswith("theorem2") and table.entropy.min() > 0:
        bounds["theorem2"] = bound = theorem2_bound(pi, encoder.W, prior)
        try:
            ratio = theorem2_factor(encoder.W, "published") / theorem2_factor(encoder.W)
        except ByheartError:  # C >= 1/2
            ratio = float("inf")
        bounds["theorem2 published"] = ratio * bound
    if table.full_support:
        bounds["bennett"] = bennett_bound(pi, encoder.logits, prior)
        if encoder.name in ("svd", "centred"):
            bounds["slides"] = slides_least_squares(pi, prior, d)
        if encoder.name == "weighted":
            bounds["slides weighted"] = slides_weighted_least_squares(pi, prior, d)
    return bounds
