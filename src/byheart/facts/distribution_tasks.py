"""The random tasks of the distribution experiments: Gaussian logits, noisy tables, power laws."""

from __future__ import annotations

import numpy as np

from byheart.errors import FactsError
from byheart.facts._probabilities import check_room
from byheart.facts._words import quote
from byheart.facts.distributions import Distributions
from byheart.facts.tasks import random_associations

__all__ = ["DISTRIBUTION_RECIPE", "distributions_from_recipe", "random_distributions"]

DISTRIBUTION_RECIPE = "random:kind=gauss,N=20,S=2,tau=1,zipf=0,seed=0"
KINDS = {"gauss": "tau", "lut": "eta", "power": "exponent"}


def random_distributions(
    kind: str,
    N: int,
    S: int = 2,
    T: int | None = None,
    *,
    tau: float = 1.0,
    eta: float = 0.03,
    exponent: float = 1.0,
    zipf: float = 0.0,
    seed: int = 0,
) -> Distributions:
    """T distinct keys out of [N]^S (all of them by default), each with a distribution over [N].

    Symbols:
        kind: "gauss": softmax of τ·N(0, 1) logits; "lut": 1 - η on a random g(t), η spread over
            the other tokens by a uniform (Dirichlet(1)) draw; "power": probability proportional to
            rank^-exponent, ranks shuffled for each sequence.
        zipf: the prior is proportional to i^-zipf over the keys in random order; 0 is uniform.

    Example:
        >>> table = random_distributions("lut", N=10, eta=0.03)
        >>> table.T, table.A, float(table.probabilities.max().round(2))
        (100, 10, 0.97)
    """
    if kind not in KINDS:
        raise FactsError(f"expected the kind to be one of {', '.join(KINDS)}, found {kind!r}.")
    if N < 2:
        raise FactsError(f"expected N >= 2 tokens for a distribution, found {N}.")
    for letter, value, least in (("tau", tau, 0), ("exponent", exponent, 0), ("zipf", zipf, 0)):
        if not least <= value < float("inf"):
            raise FactsError(f"expected {letter} to be a finite number >= 0, found {value}.")
    if not 0 < eta < 1:
        raise FactsError(f"expected eta strictly between 0 and 1, found {eta}.")
    T = int(N**S) if T is None else T
    check_room(T, N, f"random:{kind}")
    keys = random_associations(N, S, T, seed)
    rng = np.random.default_rng([seed, 1])
    if kind == "gauss":
        logits = tau * rng.normal(size=(T, N))
        pi = np.exp(logits - logits.max(axis=1, keepdims=True))
    elif kind == "lut":
        pi = np.empty((T, N))
        noise = rng.exponential(size=(T, N - 1))
        noise *= eta / noise.sum(axis=1, keepdims=True)
        right = rng.integers(N, size=T)
        pi[:, 1:], pi[:, 0] = noise, 1 - eta
        # Token j stands in column (j - g) mod N: a shift keeps the noise exchangeable.
        pi = np.take_along_axis(pi, (np.arange(N) - right[:, None]) % N, axis=1)
    else:
        law = np.arange(1, N + 1.0) ** -exponent
        pi = rng.permuted(np.tile(law, (T, 1)), axis=1)
    setting = {"gauss": tau, "lut": eta, "power": exponent}[kind]
    # The keys are in random order already unless they are all of [N]^S; shuffle all the same.
    prior = rng.permutation(np.arange(1, T + 1.0) ** -zipf)
    return Distributions.make(
        keys.tokens,
        pi,
        keys.vocabulary,
        prior,
        normalise=True,
        name=f"random:kind={kind},N={N},S={S},T={T},{KINDS[kind]}={setting:g},zipf={zipf:g},"
        f"seed={seed}",
    )


def distributions_from_recipe(recipe: str) -> Distributions:
    """The random task that a text describes.

    Example:
        >>> distributions_from_recipe("random:kind=lut,N=10,eta=0.003")
        Distributions('random:kind=lut,N=10,S=2,T=100,eta=0.003,zipf=0,seed=0', T=100, S=2, A=10, \
N=10)
    """
    settings: dict[str, str] = {}
    for part in recipe.removeprefix("random:").split(","):
        name, _, value = part.strip().partition("=")
        if name in settings or name not in ("kind", "N", "S", "T", "seed", "zipf", *KINDS.values()):
            raise _not_a_recipe(part, recipe)
        settings[name] = value
    missing = [name for name in ("kind", "N") if name not in settings]
    if missing:
        raise FactsError(
            f"expected a recipe such as {DISTRIBUTION_RECIPE}, found no {' and no '.join(missing)} "
            f"in {quote(recipe)}."
        )
    kind = settings.pop("kind")
    numbers: dict[str, int | float] = {}
    for name, value in settings.items():
        try:
            numbers[name] = int(value) if name in ("N", "S", "T", "seed") else float(value)
        except ValueError:
            raise _not_a_recipe(f"{name}={value}", recipe) from None
    return random_distributions(kind, **numbers)  # type: ignore[arg-type]


def _not_a_recipe(part: str, recipe: str) -> FactsError:
    return FactsError(
        f"expected a recipe such as {DISTRIBUTION_RECIPE}, found {quote(part)} in {quote(recipe)}."
    )
