"""The random task of the papers: T random sequences with random answers."""

from __future__ import annotations

import operator

import numpy as np

from byheart.errors import FactsError
from byheart.facts._distinct import group_equal_rows
from byheart.facts._words import quote
from byheart.facts.facts import Facts
from byheart.facts.vocabulary import Vocabulary

__all__ = ["RECIPE", "facts_from_recipe", "random_associations"]

RECIPE = "random:N=50,S=2,T=1000,seed=0"
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
    for letter, value in (("N", N), ("S", S), ("T", T), ("seed", seed)):
        smallest = 0 if letter == "seed" else 1
        try:
            too_small = operator.index(value) < smallest
        except TypeError:
            too_small = True
        if too_small:
            raise FactsError(f"expected {letter} to be an integer >= {smallest}, found {value!r}.")
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


def facts_from_recipe(recipe: str) -> Facts:
    """The random task that a text describes.

    Example:
        >>> facts_from_recipe("random:N=50,S=2,T=1000,seed=0")
        Facts('random:N=50,S=2,T=1000,seed=0', T=1000, S=2, N=50)
    """
    sizes: dict[str, int] = {}
    for part in recipe.removeprefix("random:").split(","):
        letter, _, number = part.strip().partition("=")
        try:
            value = int(number)
        except ValueError:
            value = None
        if letter not in ("N", "S", "T", "seed") or letter in sizes or value is None:
            raise FactsError(
                f"expected a recipe such as {RECIPE}, found {quote(part)} in {quote(recipe)}."
            )
        sizes[letter] = value
    missing = [letter for letter in ("N", "S", "T") if letter not in sizes]
    if missing:
        raise FactsError(
            f"expected a recipe such as {RECIPE}, found no {' and no '.join(missing)} in "
            f"{quote(recipe)}."
        )
    return random_associations(**sizes)
