"""The random tasks of the papers: random sequences with random answers, or with distributions
over them (Gaussian logits, noisy tables, power laws)."""

from __future__ import annotations

import numpy as np

from byheart.errors import FactsError
from byheart.facts import _checks as check
from byheart.facts.distinct import group_equal_rows
from byheart.facts.distributions import Distributions
from byheart.facts.facts import Facts
from byheart.facts.vocabulary import Vocabulary

__all__ = ["random_associations", "random_distributions"]

KINDS = {"gauss": "tau", "lut": "eta", "power": "exponent"}
# What a machine of some ten gigabytes holds; beyond, allocation fails late and without a reason.
MAX_TOKENS, MAX_CELLS = 100_000_000, 1_000_000_000


def random_associations(N: int, S: int, T: int, seed: int = 0) -> Facts:
    """T distinct keys drawn uniformly from [N]^S, each with an answer drawn uniformly from [N].

    Symbols:
        N: tokens, named "0", ..., "N-1"; S: tokens in a key; T: facts, at most N^S.

    Example:
        >>> facts = random_associations(N=3, S=2, T=9, seed=1)
        >>> facts, len({facts.key(i) for i in range(facts.T)})
        (Facts('random:N=3,S=2,T=9,seed=1', T=9, S=2, N=3), 9)
        >>> random_associations(N=3, S=2, T=10)
        Traceback (most recent call last):
        ...
        byheart.errors.FactsError: expected at most N**S = 3**2 = 9 distinct keys, found T = 10. \
Choose a larger N or S, or fewer facts.

    Notes:
        The same arguments give the same facts, as long as numpy keeps the stream of its
        default generator. N^S may exceed every machine integer.
    """
    check.whole(N=N, S=S, T=T, seed=seed)
    if N > MAX_TOKENS or T * S > MAX_CELLS:
        raise FactsError(
            f"expected at most {MAX_TOKENS:,} tokens and {MAX_CELLS:,} cells T·S, found N = {N:,} "
            f"and T·S = {T * S:,}. Choose smaller sizes."
        )
    keys = int(N) ** int(S)
    if keys < T:
        raise FactsError(
            f"expected at most N**S = {N}**{S} = {keys:,} distinct keys, found T = {T:,}. "
            "Choose a larger N or S, or fewer facts."
        )
    rng = np.random.default_rng(seed)
    tokens = _dense_keys(rng, N, S, T) if keys < 2 * T else _sparse_keys(rng, N, S, T)
    answers = rng.integers(N, size=T)
    vocabulary = Vocabulary(tuple(str(i) for i in range(N)))
    return Facts.make(tokens, answers, vocabulary, name=f"random:N={N},S={S},T={T},seed={seed}")


def _dense_keys(rng: np.random.Generator, N: int, S: int, T: int) -> np.ndarray:
    """More than half of all keys: shuffle the numbers 0, ..., N^S - 1 and write T in base N."""
    numbers = rng.permutation(N**S)[:T]
    tokens = np.empty((T, S), dtype=np.int64)
    for s in reversed(range(S)):
        numbers, tokens[:, s] = np.divmod(numbers, N)
    return tokens


def _sparse_keys(rng: np.random.Generator, N: int, S: int, T: int) -> np.ndarray:
    """At most half of all keys: draw, keep each key where it first appears, until there are T.

    A draw is new with probability at least 1/2, so twice as many draws as are missing (and a few
    for luck) are nearly always enough at once.
    """
    tokens = np.empty((0, S), dtype=np.int64)
    while len(tokens) < T:
        draws = 2 * (T - len(tokens)) + 16
        tokens = np.concatenate([tokens, rng.integers(N, size=(draws, S))])
        order, starts = group_equal_rows(tokens, N)
        tokens = tokens[np.sort(order[starts])]
    return tokens[:T]


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
        raise FactsError(f"expected `kind` to be one of {', '.join(KINDS)}, found {kind!r}.")
    if N < 2:
        raise FactsError(f"expected N >= 2 tokens for a distribution, found {N}.")
    settings = {"tau": tau, "eta": eta, "exponent": exponent}
    for letter, value in (settings | {"zipf": zipf}).items():
        if not 0 <= value < float("inf"):
            raise FactsError(f"expected `{letter}` to be a finite number >= 0, found {value}.")
    if not 0 < eta < 1:
        raise FactsError(f"expected `eta` strictly between 0 and 1, found {eta}.")
    T = int(N**S) if T is None else T
    check.room(T, N, f"random:{kind}")
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
    setting = settings[KINDS[kind]]
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
