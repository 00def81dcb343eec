"""Tokens as numbers: real vectors to integers, integer vectors to one key each."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from flint import fmpz

from byheart.errors import ByheartError, FactsError
from byheart.exact.data import Limits
from byheart.exact.parts import Projection

MOST_IDS = 10**7  # rows of an embedding layer


def quantise(tokens: np.ndarray, delta: float) -> np.ndarray:
    """x -> floor(x s / delta) in every coordinate, s = ceil(sqrt d): integers (..., d).

    If |x - y|_2 >= delta, some coordinate differs by at least delta / sqrt d >= delta / s, the
    width of a cell: distinct tokens stay distinct, the division being one of rational numbers.
    Tokens that are neither equal nor delta apart are refused with their places (Kajitsuka and Sato
    2025, Assumption 4.1).

    >>> quantise(np.array([[0.0, 0.5], [0.25, 0.5]]), 0.25).tolist()
    [[0, 4], [2, 4]]
    """
    array = np.asarray(tokens, dtype=np.float64)
    if array.ndim == 0 or array.size == 0:
        raise FactsError(f"expected tokens of shape (..., d), found {array.shape}.")
    if not np.isfinite(array).all():
        at = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise FactsError(f"tokens: expected real numbers, found {array[at]} at {at}.")
    if not (math.isfinite(delta) and delta > 0):
        raise FactsError(f"delta must be a positive number, found {delta!r}.")
    d = array.shape[-1]
    flat = array.reshape(-1, d)
    distinct, where, back = np.unique(flat, axis=0, return_index=True, return_inverse=True)
    _check_separated(distinct, where, delta, array.shape)
    width = Fraction(delta) / (math.isqrt(d - 1) + 1)
    numbers, inverse = np.unique(distinct, return_inverse=True)
    floors = np.array([math.floor(Fraction(x) / width) for x in numbers.tolist()], dtype=object)
    whole = floors[inverse.reshape(-1)].reshape(distinct.shape)
    if max(map(abs, floors)) < 1 << 62:
        whole = whole.astype(np.int64)
    return whole[back.reshape(-1)].reshape(array.shape)


def _check_separated(
    distinct: np.ndarray, where: np.ndarray, delta: float, shape: tuple[int, ...]
) -> None:
    from scipy.spatial import KDTree

    # A little more than delta, so that rounding of the distances hides no pair; then exactly.
    for i, j in sorted(KDTree(distinct).query_pairs(delta * (1 + 1e-9))):
        pairs = zip(distinct[i].tolist(), distinct[j].tolist(), strict=True)
        gap = sum((Fraction(a) - Fraction(b)) ** 2 for a, b in pairs)
        if gap < Fraction(delta) ** 2:
            places = [tuple(map(int, np.unravel_index(where[k], shape[:-1]))) for k in (i, j)]
            raise FactsError(
                f"tokens {places[0]} and {places[1]} are {math.sqrt(float(gap)):.3g} apart, which "
                f"is less than delta = {delta:g}, and not equal. Give a smaller delta, or merge "
                "them."
            )


def projection(
    vectors: np.ndarray, limits: Limits, rng: np.random.Generator, *, mix: bool
) -> Projection:
    """One key for each of the V different integer vectors (V, d), different for all of them.

    Where all vectors between the limits fit into 2 log2 V + 6 bits, the key is v . x in mixed
    radix: different for all vectors there are (to `mix`, times a random number mod a prime above
    them, still different). Otherwise v . x mod p for a random v and a prime p >= 4 V^2: two vectors
    get one key with probability <= 1/p; drawn again until all V differ.
    """
    (low, high), V = limits, len(vectors)
    sizes = [b - a + 1 for a, b in zip(low, high, strict=True)]
    *radix, every = (math.prod(sizes[:j]) for j in range(len(sizes) + 1))
    if every.bit_length() <= 2 * V.bit_length() + 6:
        if not mix:
            return Projection(tuple(radix), low, high, None)
        p = next_prime(every + random_below(rng, every))
        multiplier = 1 + random_below(rng, p - 1)
        return Projection(tuple(multiplier * r % p for r in radix), low, high, p)
    bits = 2 * V.bit_length() + 2
    while True:
        p = next_prime((1 << bits) + random_below(rng, 1 << bits))
        v = tuple(1 + random_below(rng, p - 1) for _ in sizes)
        project = Projection(v, low, high, p)
        keys = (vectors.astype(object) @ np.array(v, dtype=object) + project.offset) % p
        if len(set(keys.tolist())) == V:
            return project
        bits += 1  # a power of p in all differences could not go on for ever


def identity(limits: Limits) -> Projection:
    """Token ids 0..omega-1 as their own keys, for an embedding layer."""
    low, high = limits
    if len(low) != 1 or low[0] < 0 or high[0] > MOST_IDS:
        raise ByheartError(
            f"an embedding layer takes token ids 0..{MOST_IDS:,}, found vectors of {len(low)} "
            f"coordinates between {low} and {high}. Use another ff1."
        )
    return Projection((1,), (0,), high, None)


def random_below(rng: np.random.Generator, n: int) -> int:
    """A uniform integer in 0..n-1, of any length.

    >>> 0 <= random_below(np.random.default_rng(0), 10**40) < 10**40
    True
    """
    bits = n.bit_length()
    while True:
        words = rng.integers(0, 1 << 32, size=-(-bits // 32), dtype=np.uint64).tolist()
        value = sum(w << (32 * i) for i, w in enumerate(words)) & ((1 << bits) - 1)
        if value < n:
            return value


def next_prime(n: int) -> int:
    """The least prime >= n.

    >>> next_prime(14)
    17
    """
    n = max(2, n)
    while not fmpz(n).is_prime():
        n += 1
    return n
