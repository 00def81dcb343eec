"""Which encoder for which distributions, by name or by regime."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from byheart._progress import Report, quiet
from byheart.construct.encoders.closed import centred_svd, svd, weighted
from byheart.construct.encoders.encoder import Encoder, check_rank
from byheart.construct.encoders.low_entropy import theorem2, theorem2_best
from byheart.construct.encoders.optimised import optimised, random_start
from byheart.errors import ByheartError
from byheart.facts import Distributions

ENCODERS: tuple[str, ...] = ("svd", "centred", "weighted", "theorem2", "theorem2*", "optimised")

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


def encode(
    table: Distributions,
    d: int,
    name: str = "best",
    *,
    seed: int = 0,
    progress: Report = quiet,
) -> Encoder:
    """One encoder by name: one of `ENCODERS`, or "best".

    >>> from byheart.facts import random_distributions
    >>> encode(random_distributions("gauss", N=5), 2, "centred").logits.shape
    (25, 5)
    """
    check_rank(d)
    makers: dict[str, Callable[[], Encoder]] = {
        "best": lambda: best(table, d, seed=seed, progress=progress),
        "svd": lambda: svd(table, d),
        "centred": lambda: centred_svd(table, d),
        "weighted": lambda: weighted(table, d),
        "theorem2": lambda: theorem2(table, d, seed),
        "theorem2*": lambda: theorem2_best(table, d, seed),
        "optimised": lambda: _optimised(table, _starts(table, d, seed), progress),
    }
    if name not in makers:
        raise ByheartError(f"the encoder must be one of {', '.join(makers)}, found {name!r}")
    return makers[name]()


def best(table: Distributions, d: int, *, seed: int = 0, progress: Report = quiet) -> Encoder:
    """The encoder for this regime, and why.

    d >= min(T, A - 1) and full support: the centred SVD, exact (Proposition 2). Otherwise L-BFGS
    from the closed forms and random starts, that of the regime first: weighted least squares where
    entropy is high (alone: the problem is nearly convex there), Theorem 2 with the best λ where it
    is low. Large tables take the first one only.

    >>> from byheart.facts import random_distributions
    >>> best(random_distributions("gauss", N=5), 4).why
    'd = 4 >= min(T, A - 1) = 4: exact, by the centred SVD of log π (Proposition 2)'
    """
    check_rank(d)
    limit = min(table.T, table.A - 1)
    if d >= limit and table.full_support:
        found = f"d = {d} >= min(T, A - 1) = {limit}: exact"
        why = f"{found}, by the centred SVD of log π (Proposition 2)"
        return replace(centred_svd(table, d), name="best", why=why)
    share = float(table.prior @ table.entropy) / float(np.log(table.A))
    if share >= HIGH_ENTROPY:
        regime, starts = "high entropy", _least_squares_starts(table, d)
    elif share <= LOW_ENTROPY:
        closed = _low_entropy_starts(table, d, seed) + _least_squares_starts(table, d)
        regime, starts = "low entropy", closed + _random(table, d, seed)
    else:
        regime, starts = "entropy in the middle", _starts(table, d, seed)
    found = _optimised(table, starts or _random(table, d, seed), progress)
    return replace(found, name="best", why=f"{regime} ({share:.0%} of log A): {found.why}")


def _optimised(table: Distributions, starts: list[Encoder], progress: Report) -> Encoder:
    if table.T * table.A <= SEVERAL_STARTS_LIMIT:
        return optimised(table, starts, progress=progress)
    return optimised(table, starts[:1], iterations=LARGE_ITERATIONS, progress=progress)


@dataclass(frozen=True)
class Compared:
    """One row of `compare`: the encoder, or why there is none, and the seconds it took."""

    name: str
    encoder: Encoder | None
    reason: str
    seconds: float


def compare(
    table: Distributions, d: int, *, seed: int = 0, progress: Report = quiet
) -> list[Compared]:
    """All encoders of `ENCODERS` at rank d; one that does not apply says why.

    >>> from byheart.facts import random_distributions
    >>> [row.name for row in compare(random_distributions("lut", N=5), 2)][:3]
    ['svd', 'centred', 'weighted']
    """
    check_rank(d)
    rows = []
    for name in ENCODERS:
        started = time.perf_counter()
        made = None
        try:
            made = encode(table, d, name, seed=seed, progress=progress)
            reason = made.why
        except ByheartError as error:
            reason = str(error)
        rows.append(Compared(name, made, reason, time.perf_counter() - started))
    return rows


def _starts(table: Distributions, d: int, seed: int) -> list[Encoder]:
    starts = _least_squares_starts(table, d) + _low_entropy_starts(table, d, seed)
    return starts + _random(table, d, seed)


def _least_squares_starts(table: Distributions, d: int) -> list[Encoder]:
    if not table.full_support:
        return []
    if table.T * table.A * (d + 1) ** 2 > ALTERNATION_LIMIT:
        return [centred_svd(table, d)]
    return [weighted(table, d)]


def _low_entropy_starts(table: Distributions, d: int, seed: int) -> list[Encoder]:
    return [theorem2_best(table, d, seed)] if d > 1 or table.A == 2 else []


def _random(table: Distributions, d: int, seed: int) -> list[Encoder]:
    return [random_start(table, d, 1000 * seed + i) for i in range(RANDOM_STARTS)]
