"""The memorizer: a table from keys to values as blocks, O(sqrt(K log K)) parameters for K keys.

After Kajitsuka and Sato 2025, Lemma C.1 (Vardi et al. 2022), with a reflected code in place of two
copies of a triangle map. K keys are cut into m groups of k; group j is one long number Z_j:

    II   z = Z_j of the group that l lies in                            6 parameters a group
    III  for each record i: y += 1[D_i > l] or, if D_i = l, a fraction whose first bits are the
         value; then b tent folds uncover the next record               7 + 3b a record
    read-out of the c bits of the value into z                          8 a bit

A record has b = t + c bits: the t low bits of the key, which tell the keys of a group apart, and
the value. Keys that are in no record give 0, unless they share group and low bits with one that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from byheart.exact.blocks import Block, Record, as_count, as_long
from byheart.exact.primitives import clear, fold, mod, shift, step, unit

GROUPINGS = ("sorted", "interp")


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
        """Non-zero weights, from the formula."""
        return count(self.grouping, self.m, self.k, self.t, self.c, self.largest)

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

        Equal to `blocks` because the records of a group have different low bits, so that at most
        one matches, and y - rank 2^(T-t) is then its fraction.
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


def count(grouping: str, m: int, k: int, t: int, c: int, largest: int) -> int:
    """Non-zero parameters of a table; t >= 1 (a step at 1 has one bias fewer).

    sorted: 1 + 6(m-1) + 6 steps(largest / 2^t) + 7k + 3b(k-1) + 6 bits(k) + 8c + 2
    interp: 1 + 3(m-1) - 1 + 6 steps(largest / Q) + 8 bits(m-1) + 2 + the same
    """
    rest = 7 * k + 3 * (t + c) * (k - 1) + 6 * k.bit_length() + 8 * c + 2
    if grouping == "sorted":
        return 1 + 6 * (m - 1) + 6 * (largest >> t).bit_length() + rest
    Q = m << t
    kinks = 3 * (m - 1) - (m > 1)  # the first kink, at 0, has no bias
    index = 8 * (min(largest, Q - 1) >> t).bit_length()
    return 1 + kinks + 6 * (largest // Q).bit_length() + index + 2 + rest


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
