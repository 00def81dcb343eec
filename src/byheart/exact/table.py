"""The memorizer: a table from keys to values as blocks, O(sqrt(K log K)) parameters for K keys.

After Kajitsuka and Sato 2025, Lemma C.1 (Vardi et al. 2022), with a reflected code in place of two
copies of a triangle map (docs/square-root.md). K keys are cut into m groups of k; group j is one
long number Z_j of records of b = t + c bits: the t low bits D of a key, and its value. z = Z_j of
the group of l; for each record y += 1[D > l] or, if D = l, a fraction whose first bits are the
value, and b tent folds uncover the next record. `make_table` finds the cheapest k and t.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from byheart._search import bisect
from byheart.errors import ByheartError, CapacityError
from byheart.exact.blocks import Block, Record, as_count, as_long
from byheart.exact.data import separate
from byheart.exact.primitives import clear, fold, mod, shift, step, unit

GROUPINGS = ("sorted", "interp")
FEW = 1 << 15  # bits of weights that are not counted, when a file says how large its table is
WINDOW = 3.0  # group sizes from a third to three times the closed form: the optimum is flat


@dataclass(frozen=True)
class Table:
    """l in 0..largest -> value in 0..2^c - 1, as emitted by `blocks`.

    `grouping` "sorted": group j holds the keys from starts[j] on (group 0 all below starts[1]).
    "interp": bucket j holds the keys with floor((l mod m 2^t) / 2^t) = j; `starts` is empty, and a
    bucket costs 3 parameters, since j is an integer and Z_j can be interpolated.
    """

    grouping: str
    t: int
    c: int
    k: int
    largest: int
    starts: tuple[int, ...]
    codes: tuple[int, ...]

    @property
    def m(self) -> int:
        """Groups."""
        return len(self.codes)

    @property
    def b(self) -> int:
        """Bits of a record, t + c."""
        return self.t + self.c

    @property
    def T(self) -> int:
        """Bits of a group's code, k b + 1."""
        return self.k * self.b + 1

    @property
    def parameters(self) -> int:
        """Non-zero weights; t >= 1 (a step at 1 has one bias fewer).

        sorted: 1 + 6(m-1) + 6 steps(largest / 2^t) + 7k + 3b(k-1) + 6 bits(k) + 8c + 2
        interp: 1 + 3(m-1) - 1 + 6 steps(largest / Q) + 8 bits(m-1) + 2 + the same
        """
        m, k, t = self.m, self.k, self.t
        rest = 7 * k + 3 * self.b * (k - 1) + 6 * k.bit_length() + 8 * self.c + 2
        if self.grouping == "sorted":
            return 1 + 6 * (m - 1) + 6 * (self.largest >> t).bit_length() + rest
        Q = m << t
        kinks = 3 * (m - 1) - (m > 1)  # the first kink, at 0, has no bias
        index = 8 * (min(self.largest, Q - 1) >> t).bit_length()
        return 1 + kinks + 6 * (self.largest // Q).bit_length() + index + 2 + rest

    @property
    def bits(self) -> int:
        """Bits of the largest weight: a code, or a step of the reduction of l."""
        kinks = 2 if self.grouping == "interp" else 0  # second differences of codes
        return max(self.T + kinks, self.largest.bit_length())

    def blocks(self, l: int, z: int, y: int) -> list[Block]:  # noqa: E741
        """The table on coordinate l. z and y must be 0; the value ends in z."""
        t, c, b, k, T = self.t, self.c, self.b, self.k, self.T
        blocks = self._groups(l, z, y)
        for i in range(k):
            sigma, weight = 1 << (T - i * b - t), 1 << (i * b)
            # z = (D + f) sigma with 0 < f < 1: the clip is sigma, f sigma or 0 as D >, =, < l.
            inputs = {z: 1, l: -sigma}
            blocks.append(Block((unit(inputs, 0, {y: weight}), unit(inputs, -sigma, {y: -weight}))))
            if i < k - 1:
                blocks += [fold(z, 1 << (T - i * b - q - 1)) for q in range(b)]
        # y = (rank + f) 2^(T-t): drop the rank, then read the first c bits of f.
        blocks += mod(y, 1 << (T - t), k << (T - t))
        blocks.append(clear(z))
        for i in reversed(range(c)):
            A = 1 << (T - t - c + i)
            blocks.append(step(y, A, {y: -A, z: 1 << i}))
        return blocks

    def _groups(self, l: int, z: int, y: int) -> list[Block]:  # noqa: E741
        """z = Z_j of the group of l, which is then reduced to its low bits."""
        first = shift({z: self.codes[0]})
        changes = [after - before for before, after in pairwise(self.codes)]
        if self.grouping == "sorted":
            steps = [step(l, a, {z: w}) for a, w in zip(self.starts[1:], changes, strict=True)]
            return [first, *steps, *mod(l, 1 << self.t, self.largest)]
        # y = j; Z_j as a sum of kinks, each the change of the slope.
        kinks = [
            Block((unit({y: 1}, -j, {z: after - before}),))
            for j, (before, after) in enumerate(pairwise([0, *changes]))
        ]
        return [*_index_blocks(l, y, self.m, self.t, self.largest), first, *kinks, clear(y)]

    def layout(self) -> dict[str, object]:
        """The small numbers with which `read` finds codes and starts in the blocks."""
        start = hex(self.starts[0]) if self.starts else None
        sizes = {"t": self.t, "c": self.c, "k": self.k, "m": self.m}
        return {"grouping": self.grouping, **sizes, "largest": hex(self.largest), "start": start}

    @staticmethod
    def read(blocks: Sequence[Block], record: Record) -> Table:
        """The table whose blocks come first: codes Z_j and starts a_j from their weights."""
        grouping, largest = str(record["grouping"]), as_long(record["largest"])
        t, c = as_count(record["t"], 64), as_count(record["c"], 64)
        # Every group and every record has a block of its own.
        m, k = (as_count(record[name], len(blocks)) for name in ("m", "k"))
        if min(t, c, m, k) < 1 or grouping not in GROUPINGS:
            raise ValueError(f"{grouping} groups with t, c, m, k = {t}, {c}, {m}, {k}")
        # Folds have every power of two up to 2^T among their weights, and codes, unless they are
        # equal or short, are weights too: a table that says more would be written for nothing.
        T = k * (t + c) + 1
        bits = sum(w.bit_length() for w in {w for block in blocks for w in block.weights()})
        if T * T > 4 * bits + FEW or m * T > 4 * bits + FEW * len(blocks):
            raise ValueError(f"{m} groups of {k} records, and weights of {bits} bits")
        at, starts = 0, []
        if grouping == "interp":
            at = len(_index_blocks(0, 1, m, t, largest))
        else:
            starts.append(as_long(record["start"]))
        codes, slope = [blocks[at].shift[0][1]], 0
        for block in blocks[at + 1 : at + m]:
            outputs = block.units[0].outputs
            change = outputs[0][1] if outputs else 0  # equal neighbours leave no weight behind
            slope = slope + change if grouping == "interp" else change
            codes.append(codes[-1] + slope)
            if grouping != "interp":
                starts.append(-block.units[1].bias)
        if not all(0 <= code < 1 << T for code in codes):
            raise ValueError(f"a code that is not of {T} bits")
        if any(start.bit_length() > 62 for start in starts):
            raise ValueError("a group that starts beyond 2^62")
        return Table(grouping, t, c, k, largest, tuple(starts), tuple(codes))

    @cached_property
    def records(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(group, low bits, value) of all records, decoded from the codes; padding has value 0."""
        heads = []
        for rest in self.codes:
            for i in range(self.k):
                below = self.T - (i + 1) * self.b
                head, rest = rest >> below, rest & ((1 << below) - 1)
                if head & 1:  # the reflection that the folds undo
                    rest = (1 << below) - rest
                heads.append(head)
        q = np.array(heads, dtype=np.int64 if self.b <= 62 else object)
        group = np.repeat(np.arange(self.m), self.k)
        value = q & ((1 << self.c) - 1)
        return group, (q >> self.c).astype(np.int64), value.astype(np.int64)

    def check(self) -> str:
        """What `look_up` takes for granted of the blocks, for every group in exact integers, in
        words; a `ByheartError` where it is not so."""
        starts = self.starts[1:]
        if self.grouping == "sorted" and not (
            len(self.starts) == self.m and all(a <= b for a, b in pairwise(starts))
        ):
            raise ByheartError("the groups of the table are not in order")
        _, low, value = self.records
        for j, code in enumerate(self.codes):
            mine = slice(j * self.k, (j + 1) * self.k)
            D, G = low[mine].tolist(), value[mine].tolist()
            if not 0 < code < 1 << self.T or encode(D, G, self.t, self.c, self.k) != code:
                raise ByheartError(f"group {j} of the table: its code is not that of its records")
            if len(set(D)) < self.k and not self._repeats(code, D, G):
                raise ByheartError(f"group {j} of the table: two records have the same low bits")
        return f"{self.m:,} groups of {self.k:,} records: codes decoded, encoded, low bits distinct"

    def _repeats(self, code: int, D: list[int], G: list[int]) -> bool:
        """Are all records with equal low bits padding, so that their values add up to 0?"""
        again = {d for d, count in Counter(D).items() if count > 1}
        if any(g for d, g in zip(D, G, strict=True) if d in again):
            return False
        # A key that meets them gets the sum of their fractions, which must not reach a value.
        total, rest = dict.fromkeys(again, 0), code
        for i, (d, g) in enumerate(zip(D, G, strict=True)):
            below = self.T - (i + 1) * self.b
            rest &= (1 << below) - 1
            if d in again:
                total[d] += rest << (i * self.b)
            rest = (1 << below) - rest if g & 1 else rest
        return max(total.values()) < 1 << (self.T - self.b)

    def _code(self, group: np.ndarray, low: np.ndarray) -> np.ndarray:
        wide = np.int64 if self.m.bit_length() + self.t <= 62 else object
        return (group.astype(wide) << self.t) | low

    @cached_property
    def _index(self) -> tuple[np.ndarray, np.ndarray]:
        group, low, value = self.records
        code = self._code(group, low)
        order = np.argsort(code, kind="stable")
        return code[order], value[order]

    def look_up(self, l: np.ndarray) -> np.ndarray:  # noqa: E741
        """What the blocks compute, by one binary search: the structured evaluator.

        Equal to `blocks` because the records of a group have different low bits (`check`), so that
        at most one matches, and y - rank 2^(T-t) is then its fraction.
        """
        codes, values = self._index
        if self.grouping == "sorted":
            group = np.searchsorted(np.array(self.starts[1:], dtype=np.int64), l, side="right")
        else:
            group = (l % (self.m << self.t)) >> self.t
        wanted = self._code(group, l & ((1 << self.t) - 1))
        at = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
        return np.where(codes[at] == wanted, values[at], 0).astype(np.int64)

    def hits(self) -> int:
        """How many of the keys 0..largest give a value other than 0: K, and the false positives."""
        group, low, value = self.records
        group, low = group[value > 0].astype(object), low[value > 0].astype(object)
        # Those of a <= l < b that are x modulo Q.
        if self.grouping == "interp":
            x, a, b, Q = (group << self.t) | low, 0, self.largest + 1, self.m << self.t
        else:
            edges = np.array([0, *self.starts[1:], self.largest + 1], dtype=object)
            at = group.astype(np.int64)
            x, a, b, Q = low, edges[at], edges[at + 1], 1 << self.t
        return int(((x - a) // Q - (x - b) // Q).sum())


def _index_blocks(l: int, y: int, m: int, t: int, largest: int) -> list[Block]:  # noqa: E741
    """Buckets: l mod Q, Q = m 2^t, then y = its high part, the index, and l its t low bits."""
    Q = m << t
    return [*mod(l, Q, largest), *mod(l, 1 << t, min(largest, Q - 1), quotient=y)]


def encode(low: Sequence[int], values: Sequence[int], t: int, c: int, k: int) -> int:
    """The reflected code of one group, last record first; padded with an unused key of value 0.

        R := (D 2^c + G) s + (s - R if G is odd else R),   s = 2^(T - (i+1) b), R := 1 at first

    All R are odd and strictly inside (0, s), so that no fold meets its corner. The last record has
    T = k b + 1 and i = k - 1, so that s = 2, and each record before it has b bits more.

    >>> encode([1], [1], t=1, c=1, k=1)
    7
    """
    padding = k - len(low)
    if padding:
        taken = set(low)
        spare = next(D for D in range(1 << t) if D not in taken)
        low, values = [*low, *[spare] * padding], [*values, *[0] * padding]
    R, s = 1, 2
    for D, G in zip(reversed(low), reversed(values), strict=True):
        R = ((D << c) | G) * s + (s - R if G & 1 else R)
        s <<= t + c
    return R


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
    best = content.best("sorted")
    if options.grouping == "interp":
        with suppress(CapacityError):
            best = min(best, content.best("interp"), key=_cost)
    plan, group = best
    order = np.lexsort((keys, group))
    keys, values = keys[order], values[order]
    edges = np.searchsorted(group[order], np.arange(plan.m + 1)).tolist()
    low = (keys & ((1 << plan.t) - 1)).tolist()
    marks = values.tolist()
    codes = (encode(low[a:b], marks[a:b], plan.t, c, plan.k) for a, b in pairwise(edges))
    starts = tuple(keys[edges[:-1]].tolist()) if plan.grouping == "sorted" else ()
    return replace(plan, starts=starts, codes=tuple(codes))


def low_bits(keys: np.ndarray, others: np.ndarray, c: int, largest: int) -> int:
    """t at the group size of the closed form: how lucky a set of keys is."""
    K = len(keys)
    k = max(1, min(K, round(best_size(K, math.log2(max(2, K)) + c))))
    return _Content(np.sort(keys), others, c, largest, TableOptions()).sorted_groups(k)[0].t


_Plan = tuple[Table, np.ndarray]
"""A table whose codes are not written yet, and the group of each key."""


def _cost(plan: _Plan) -> int:
    return plan[0].parameters


@dataclass(frozen=True)
class _Content:
    """What a table is for: sorted keys up to `largest` with values of c bits, sorted others."""

    keys: np.ndarray
    others: np.ndarray
    c: int
    largest: int
    options: TableOptions

    def best(self, grouping: str) -> _Plan:
        """The cheapest plan of the candidate sizes, then of those near it."""
        made = self.sorted_groups if grouping == "sorted" else self.buckets
        limit = math.inf if self.options.max_bits is None else self.options.max_bits
        plans = [plan for k in self.sizes() if (plan := made(k)) is not None]
        best = min((plan for plan in plans if plan[0].bits <= limit), key=_cost, default=None)
        if best is None:
            least = min((table.bits for table, _ in plans), default=0)
            raise CapacityError(
                f"a table of {len(self.keys):,} keys needs weights of at least {least} bits (one "
                f"record a group, keys below 2^{self.largest.bit_length()}), found a limit of "
                f"{limit}. Use `max_bits={least}` or more."
            )
        k, reach = best[0].k, best[0].k // 8
        near = map(made, range(max(1, k - reach), k + reach + 1, max(1, reach // 4)))
        fitting = (plan for plan in near if plan is not None and plan[0].bits <= limit)
        return min([best, *fitting], key=_cost)

    def sizes(self) -> list[int]:
        """Candidates: 1, 2, 4, ... and eleven around the closed form."""
        K = len(self.keys)
        start = best_size(K, math.log2(max(2, K)) + self.c)
        low, high = start / WINDOW, start * WINDOW
        near = {round(low * (high / low) ** (i / 10)) for i in range(11)}
        powers = {1 << i for i in range(max(1, round(low)).bit_length())}
        return sorted(k for k in near | powers if 1 <= k <= K)

    def plan(self, grouping: str, k: int, t: int, m: int, group: np.ndarray) -> _Plan:
        return Table(grouping, t, self.c, k, self.largest, (), (0,) * m), group

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
        return self.plan("sorted", k, t, m, group)

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
                return self.plan("interp", k, t, m, group)
        return None

    def rate_bits(self, k: int) -> int:
        """k / 2^t <= rate / 2: a key at random meets one of the k records of its group."""
        rate = self.options.rate
        return 0 if rate is None else math.ceil(math.log2(2 * k / rate))


def _spare_key(t: int, sizes: np.ndarray, k: int) -> int:
    """t or more low bits: at least 1, and so many that every padded group has an unused key."""
    return max(1, t, int(sizes[sizes < k].max(initial=0)).bit_length())
