"""Which groups: the size k that costs least, the fewest low bits t that tell keys apart."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from byheart.errors import CapacityError
from byheart.exact.table import Table, count, encode

WINDOW = 3.0  # sizes from a third to three times the closed form: the optimum is flat


def best_size(K: int, b: float) -> float:
    """k = sqrt(6 K / (3b + 7)), where 6 K/k + (3b + 7) k is least.

    >>> round(best_size(10**4, 18))
    31
    """
    return math.sqrt(6 * K / (3 * b + 7))


@dataclass(frozen=True)
class Wish:
    """What a table must keep to: bits of its largest weight, rate of keys answered by mistake."""

    grouping: str = "sorted"
    bits: int | None = None
    rate: float | None = None


def make_table(
    keys: np.ndarray, values: np.ndarray, others: np.ndarray, c: int, largest: int, wish: Wish
) -> Table:
    """The cheapest table: different keys -> values, and 0 for every one of `others`.

    Buckets of equal width ("interp") suit keys that are spread evenly; where sorted groups cost
    less, they are taken all the same.
    """
    if wish.grouping == "interp":
        plain = make_table(keys, values, others, c, largest, replace(wish, grouping="sorted"))
        try:
            even = _cheapest(keys, values, others, c, largest, wish)
        except CapacityError:
            return plain
        return min(plain, even, key=lambda table: table.parameters)
    return _cheapest(keys, values, others, c, largest, wish)


def _cheapest(
    keys: np.ndarray, values: np.ndarray, others: np.ndarray, c: int, largest: int, wish: Wish
) -> Table:
    order = np.argsort(keys)
    keys, values = keys[order], values[order]
    others = np.sort(others)  # neighbours are then looked up side by side: four times as fast
    found = [_plan(keys, others, k, c, largest, wish) for k in _sizes(len(keys), c)]
    plans = [plan for plan in found if plan is not None]
    fitting = [p for p in plans if wish.bits is None or p.bits <= wish.bits]
    if not fitting:
        least = min((p.bits for p in plans), default=0)
        raise CapacityError(
            f"a table of {len(keys):,} keys needs weights of at least {least} bits (one record a "
            f"group, keys below 2^{largest.bit_length()}), found a limit of {wish.bits}. "
            f"Give --max-bits {least} or more."
        )
    best = min(fitting, key=lambda p: p.parameters)
    reach = best.k // 8
    for k in range(max(1, best.k - reach), best.k + reach + 1, max(1, reach // 4)):
        plan = _plan(keys, others, k, c, largest, wish)
        small = plan is not None and (wish.bits is None or plan.bits <= wish.bits)
        if plan is not None and small and plan.parameters < best.parameters:
            best = plan
    return best.table(keys, values)


def low_bits(keys: np.ndarray, others: np.ndarray, c: int, largest: int) -> int:
    """t at the group size of the closed form: how lucky a set of keys is."""
    K = len(keys)
    k = max(1, min(K, round(best_size(K, math.log2(max(2, K)) + c))))
    plan = _plan(np.sort(keys), others, k, c, largest, Wish())
    assert plan is not None
    return plan.t


@dataclass(frozen=True)
class _Plan:
    grouping: str
    k: int
    t: int
    c: int
    m: int
    largest: int
    group: np.ndarray

    @property
    def parameters(self) -> int:
        folds = (self.t + self.c) * (self.k - 1)
        return count(self.grouping, self.m, self.k, self.t, self.c, self.largest, folds)

    @property
    def bits(self) -> int:
        """Bits of the largest weight: a code, or a step of the reduction of l."""
        kinks = 2 if self.grouping == "interp" else 0  # second differences of codes
        return max(self.k * (self.t + self.c) + 1 + kinks, self.largest.bit_length())

    def table(self, keys: np.ndarray, values: np.ndarray) -> Table:
        order = np.lexsort((keys, self.group))
        keys, values, group = keys[order], values[order], self.group[order]
        edges = np.searchsorted(group, np.arange(self.m + 1)).tolist()
        low = keys & ((1 << self.t) - 1)
        codes = tuple(
            encode(low[a:b].tolist(), values[a:b].tolist(), self.t, self.c, self.k)
            for a, b in pairwise(edges)
        )
        starts = tuple(keys[edges[:-1]].tolist()) if self.grouping == "sorted" else ()
        return Table(self.grouping, self.t, self.c, self.k, self.largest, starts, codes)


def _sizes(K: int, c: int) -> list[int]:
    """Candidates: 1, 2, 4, ... and twelve a factor of e around the closed form."""
    start = best_size(K, math.log2(max(2, K)) + c)
    low, high = start / WINDOW, start * WINDOW
    steps = round(5 * math.log(WINDOW))
    near = {round(low * (high / low) ** (i / (2 * steps))) for i in range(2 * steps + 1)}
    powers = {1 << i for i in range(max(1, round(low)).bit_length())}
    return sorted(k for k in near | powers if 1 <= k <= K)


def _plan(
    keys: np.ndarray, others: np.ndarray, k: int, c: int, largest: int, wish: Wish
) -> _Plan | None:
    K = len(keys)
    if wish.grouping == "sorted":
        m = -(-K // k)
        edges = np.arange(m + 1) * K // m
        group = np.repeat(np.arange(m), np.diff(edges))
        starts = keys[edges[1:-1]]
        other_group = np.searchsorted(starts, others, side="right")
        k = int(np.diff(edges).max())
        t = _room(_least_t(keys, group, others, other_group, largest), np.diff(edges), k)
        # More low bits than the keys have would say nothing more.
        t = max(t, min(_rate_bits(k, wish.rate), largest.bit_length()))
        if k <= 2:  # a low bit more costs 3 (k - 1) for folds and saves 6 for a step of MOD
            most = largest.bit_length() if wish.bits is None else (wish.bits - 1) // k - c
            t = max(t, min(most, largest.bit_length()))
        return _Plan("sorted", k, t, c, m, largest, group)
    return _buckets(keys, others, k, c, largest, wish)


def _room(t: int, sizes: np.ndarray, k: int) -> int:
    """At least 1, and enough that every padded group has an unused key."""
    t = max(t, 1)
    while (sizes[sizes < k] >= 1 << t).any():
        t += 1
    return t


def _rate_bits(k: int, rate: float | None) -> int:
    """k / 2^t <= rate / 2: a key at random meets one of the k records of its group."""
    return 0 if rate is None else math.ceil(math.log2(2 * k / rate))


def _least_t(
    keys: np.ndarray, group: np.ndarray, others: np.ndarray, other_group: np.ndarray, largest: int
) -> int:
    """The least t such that keys of one group, and others in it, differ in their t low bits."""
    low, high = 0, max(1, largest.bit_length())
    while low < high:  # keys that differ mod 2^t differ mod 2^(t+1)
        t = (low + high) // 2
        if _apart(keys, group, others, other_group, t):
            high = t
        else:
            low = t + 1
    return high


def _apart(
    keys: np.ndarray, group: np.ndarray, others: np.ndarray, other_group: np.ndarray, t: int
) -> bool:
    mask = (1 << t) - 1
    if int(group[-1]).bit_length() + t <= 62:
        codes = np.sort((group << t) | (keys & mask))
        if (codes[1:] == codes[:-1]).any():
            return False
        wanted = (other_group << t) | (others & mask)
        at = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
        return not bool((codes[at] == wanted).any())
    pairs = set(zip(group.tolist(), (keys & mask).tolist(), strict=True))
    if len(pairs) < len(keys):
        return False
    return pairs.isdisjoint(zip(other_group.tolist(), (others & mask).tolist(), strict=True))


def _buckets(
    keys: np.ndarray, others: np.ndarray, k: int, c: int, largest: int, wish: Wish
) -> _Plan | None:
    """m = K / k buckets of equal width; the fullest one sets the group size."""
    K = len(keys)
    # Fullest of K/k buckets of mean x: solve for the mean whose fullest has about k.
    mean = max(1.0, k - 2.5 * math.sqrt(k))
    m = max(1, math.ceil(K / mean))
    first = max(1, math.ceil(2 * math.log2(K + 1) - math.log2(m)) - 5)
    for t in range(first, 63 - m.bit_length()):
        Q = m << t
        reduced = keys % Q
        if len(np.unique(reduced)) < K or np.isin(others % Q, reduced).any():
            continue
        group = reduced >> t
        sizes = np.bincount(group, minlength=m)
        k = int(sizes.max())
        if max(_room(t, sizes, k), _rate_bits(k, wish.rate)) > t:
            continue
        return _Plan("interp", k, t, c, m, largest, group)
    return None
