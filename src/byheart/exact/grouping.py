"""Which groups: the size k that costs least, the fewest low bits t that tell keys apart."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from byheart._search import bisect
from byheart.errors import CapacityError
from byheart.exact.data import separate
from byheart.exact.table import Table, count, encode

WINDOW = 3.0  # sizes from a third to three times the closed form: the optimum is flat


def best_size(K: int, b: float) -> float:
    """k = sqrt(6 K / (3b + 7)), where 6 K/k + (3b + 7) k is least.

    >>> round(best_size(10**4, 18))
    31
    """
    return math.sqrt(6 * K / (3 * b + 7))


@dataclass(frozen=True)
class TableOptions:
    """What a table must keep to: bits of its largest weight, rate of keys answered by mistake."""

    grouping: str = "sorted"
    max_bits: int | None = None
    rate: float | None = None


def make_table(
    keys: np.ndarray,
    values: np.ndarray,
    others: np.ndarray,
    c: int,
    largest: int,
    options: TableOptions,
) -> Table:
    """The cheapest table: different keys -> values, and 0 for every one of `others`.

    Buckets of equal width ("interp") suit keys that are spread evenly; where sorted groups cost
    less, they are taken all the same.
    """
    order = np.argsort(keys)
    keys, values = keys[order], values[order]
    # Sorted, neighbours are looked up side by side: four times as fast.
    content = _Content(keys, np.sort(others), c, largest, options)
    plain = replace(content, options=replace(options, grouping="sorted")).best()
    if options.grouping == "interp":
        with suppress(CapacityError):
            plain = min(plain, content.best(), key=lambda plan: plan.parameters)
    return plain.table(keys, values)


def low_bits(keys: np.ndarray, others: np.ndarray, c: int, largest: int) -> int:
    """t at the group size of the closed form: how lucky a set of keys is."""
    K = len(keys)
    k = max(1, min(K, round(best_size(K, math.log2(max(2, K)) + c))))
    return _Content(np.sort(keys), others, c, largest, TableOptions()).sorted_groups(k).t


@dataclass(frozen=True)
class _Plan:
    """Groups of keys: `group` of each key, m groups of at most k, told apart by t low bits."""

    grouping: str
    k: int
    t: int
    c: int
    m: int
    largest: int
    group: np.ndarray

    @property
    def parameters(self) -> int:
        return count(self.grouping, self.m, self.k, self.t, self.c, self.largest)

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


@dataclass(frozen=True)
class _Content:
    """What a table is for: sorted keys up to `largest` with values of c bits, sorted others."""

    keys: np.ndarray
    others: np.ndarray
    c: int
    largest: int
    options: TableOptions

    def best(self) -> _Plan:
        """The cheapest plan of the candidate sizes, then of those near it."""
        limit = self.options.max_bits
        plans = self.plans(self.sizes())
        fitting = [p for p in plans if limit is None or p.bits <= limit]
        if not fitting:
            least = min((p.bits for p in plans), default=0)
            raise CapacityError(
                f"a table of {len(self.keys):,} keys needs weights of at least {least} bits (one "
                f"record a group, keys below 2^{self.largest.bit_length()}), found a limit of "
                f"{limit}. Use `max_bits={least}` or more."
            )
        best = min(fitting, key=lambda p: p.parameters)
        reach = best.k // 8
        near = range(max(1, best.k - reach), best.k + reach + 1, max(1, reach // 4))
        fitting = [p for p in self.plans(near) if limit is None or p.bits <= limit]
        return min([best, *fitting], key=lambda p: p.parameters)

    def sizes(self) -> list[int]:
        """Candidates: 1, 2, 4, ... and eleven around the closed form."""
        K = len(self.keys)
        start = best_size(K, math.log2(max(2, K)) + self.c)
        low, high = start / WINDOW, start * WINDOW
        near = {round(low * (high / low) ** (i / 10)) for i in range(11)}
        powers = {1 << i for i in range(max(1, round(low)).bit_length())}
        return sorted(k for k in near | powers if 1 <= k <= K)

    def plans(self, sizes: Iterable[int]) -> list[_Plan]:
        plan = self.sorted_groups if self.options.grouping == "sorted" else self.buckets
        return [found for k in sizes if (found := plan(k)) is not None]

    def sorted_groups(self, k: int) -> _Plan:
        """m = K / k groups of neighbours, of nearly equal size."""
        K, bits = len(self.keys), self.largest.bit_length()
        m = -(-K // k)
        edges = np.arange(m + 1) * K // m
        sizes = np.diff(edges)
        group = np.repeat(np.arange(m), sizes)
        other_group = np.searchsorted(self.keys[edges[1:-1]], self.others, side="right")
        k = int(sizes.max())
        # Keys that differ mod 2^t differ mod 2^(t+1).
        least = bisect(lambda t: self.apart(group, other_group, t), -1, max(1, bits))
        # More low bits than the keys have would say nothing more.
        t = max(_spare_key(least, sizes, k), min(self.rate_bits(k), bits))
        if k <= 2:  # a low bit more costs 3 (k - 1) for folds and saves 6 for a step of MOD
            limit = self.options.max_bits
            most = bits if limit is None else (limit - 1) // k - self.c
            t = max(t, min(most, bits))
        return _Plan("sorted", k, t, self.c, m, self.largest, group)

    def apart(self, group: np.ndarray, other_group: np.ndarray, t: int) -> bool:
        """Do keys of one group, and others in it, differ in their t low bits?"""
        wide = np.int64 if int(group[-1]).bit_length() + t <= 62 else object
        codes, others = (
            (groups.astype(wide) << t) | (keys & ((1 << t) - 1))
            for groups, keys in ((group, self.keys), (other_group, self.others))
        )
        return separate(codes, others)

    def buckets(self, k: int) -> _Plan | None:
        """m = K / k buckets of equal width; the fullest one sets the group size."""
        K = len(self.keys)
        # Fullest of K/k buckets of mean x: solve for the mean whose fullest has about k.
        mean = max(1.0, k - 2.5 * math.sqrt(k))
        m = max(1, math.ceil(K / mean))
        first = max(1, math.ceil(2 * math.log2(K + 1) - math.log2(m)) - 5)
        for t in range(first, 63 - m.bit_length()):
            Q = m << t
            reduced = self.keys % Q
            if not separate(reduced, self.others % Q):
                continue
            group = reduced >> t
            sizes = np.bincount(group, minlength=m)
            k = int(sizes.max())
            if max(_spare_key(t, sizes, k), self.rate_bits(k)) <= t:
                return _Plan("interp", k, t, self.c, m, self.largest, group)
        return None

    def rate_bits(self, k: int) -> int:
        """k / 2^t <= rate / 2: a key at random meets one of the k records of its group."""
        rate = self.options.rate
        return 0 if rate is None else math.ceil(math.log2(2 * k / rate))


def _spare_key(t: int, sizes: np.ndarray, k: int) -> int:
    """t or more low bits: at least 1, and so many that every padded group has an unused key."""
    return max(1, t, int(sizes[sizes < k].max(initial=0)).bit_length())
