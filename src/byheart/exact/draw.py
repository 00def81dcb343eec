"""Random draws of FF1: ids whose sums tell the given sequences apart."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from byheart.exact.data import ABSENT, Sequences
from byheart.exact.grouping import TableOptions, make_table
from byheart.exact.ids import FF1, Embedding, Hash, Paper, Product
from byheart.exact.keys import random_below

DIGIT = 4  # bits of a digit in product mode: 8g + 7 (2^g - 1) + 6 a digit, least per bit near 4
REPAIRS = 60  # rounds of new ids for colliding pairs before ids get one bit more


@dataclass(frozen=True)
class Drawing:
    """What a draw works with: sequences, keys of their tokens, weights of their sums."""

    data: Sequences
    keys: np.ndarray
    largest: int
    shares: np.ndarray
    rng: np.random.Generator
    bits: int = 8
    """Least length of the random numbers: longer ones keep other sequences away, too."""
    folds: int = 3
    """Of a hash, at first."""

    def first_apart(self, mode: str) -> tuple[FF1, np.ndarray] | None:
        """The first random one of a mode whose sums tell the sequences apart, and the sums."""
        draws = {"hash": self._hashes, "product": self._products, "embedding": self._embeddings}
        for ff1 in draws[mode]():
            sums = self.data.sums(ff1.values(self.keys), self.shares, ff1.bound)
            if self.data.apart(sums):
                return ff1, sums
        return None

    def _hashes(self) -> Iterator[FF1]:
        """Longer coefficients, then more folds; it ends."""
        most, folds = max(1, self.largest.bit_length() - 1), self.folds
        for count, least in (folds, 8), (folds, 16), (max(folds, 6), 32), (max(folds, most), 48):
            for _ in range(4):
                yield self._hash(min(count, most), max(least, self.bits))

    def _hash(self, folds: int, bits: int) -> Hash:
        """Folds near the middle of what the fold before left: 2A >= top keeps the key >= 0."""
        top, pairs = self.largest, []
        for _ in range(folds):
            A = -(-top // 2) + random_below(self.rng, top // 8 + 1)
            pairs.append((A, 2 * self._number(bits - 1) - 1))
            top = max(1, A)
        return Hash(self.largest, 2 * self._number(bits - 1) - 1, tuple(pairs))

    def _products(self) -> Iterator[FF1]:
        """Random factors of B = log2(R^2 digits) bits: of at most R^2 / 2 pairs to tell apart each
        fails with probability <= digits / 2^B (`Product`), so that a draw works with >= 1/2."""
        g, R = DIGIT, len(self.data.index)
        digits = max(1, -(-self.largest.bit_length() // g))
        bits = max(self.bits, (R * R * digits).bit_length())
        # The highest digit may be shorter.
        sizes = [(self.largest >> (g * (digits - 1))) + 1, *[1 << g] * (digits - 1)]
        while True:
            rows = [[self._number(bits) for _ in range(size - 1)] for size in sizes]
            factors = tuple((*row, *[1] * ((1 << g) - 1 - len(row))) for row in rows)
            yield Product(self.largest, g, factors)

    def _embeddings(self) -> Iterator[FF1]:
        """A random id for every token id that occurs: R^2 / 2 pairs, each fails with 2^-B."""
        R = len(self.data.index)
        bits = max(self.bits, (R * R).bit_length())
        while True:
            ids = [0] * (int(self.largest) + 1)
            for x in self.keys.tolist():
                ids[x] = self._number(bits)
            yield Embedding(tuple(ids))

    def _number(self, bits: int) -> int:
        return 1 + random_below(self.rng, 1 << bits)

    def paper(self, options: TableOptions) -> tuple[FF1, np.ndarray]:
        """Distinguishing tokens A, ids for them that give different sums, the table of the ids."""
        A, ids, sums = self.paper_ids()
        rest = np.setdiff1d(np.arange(len(self.keys)), A)
        c = int(ids.max()).bit_length()
        keys = self.keys.astype(np.int64)
        return Paper(make_table(keys[A], ids[A], keys[rest], c, self.largest, options)), sums

    def paper_ids(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(A, ids, sums): ids in 1..2^c - 1 for the distinguishing tokens A, 0 for all others, and
        different sums of them (Lemma B.2).

        From c = log2 N + 1 on: one token of each colliding pair gets another id, until none
        collides. A single multiset has nothing to be told apart from: its first token is taken.
        """
        data, rng = self.data, self.rng
        A = np.array(sorted(distinguishing(data) or [int(data.index[0, 0])]))
        in_A = set(A.tolist())
        c = max(1, math.ceil(math.log2(max(2, len(data.firsts)))) + 1)
        while True:
            ids = np.zeros(len(self.keys), dtype=np.int64)
            ids[A] = rng.integers(1, 1 << c, size=len(A))
            for _ in range(REPAIRS):
                sums = data.sums(ids, self.shares, int(ids.max()))
                again = _colliding_tokens(data, sums, in_A)
                if not len(again):
                    return A, ids, sums
                ids[again] = rng.integers(1, 1 << c, size=len(again))
            c += 1


def distinguishing(data: Sequences) -> list[int]:
    """Tokens whose counts tell apart all multisets with labels, and these from all others.

    Lemma B.1, by partition refinement: while a class holds two multisets that must differ, a token
    whose count differs between them splits every class it occurs in. Each token adds at least one
    class, so that at most (number of multisets) - 1 are chosen. O(n N) steps.

    >>> from byheart.exact.data import sequences
    >>> len(distinguishing(sequences([[0, 1], [0, 2], [1, 2]], [1, 2, 3])))
    2
    """
    rows = np.concatenate([data.firsts, data.strangers])
    mine = len(data.firsts)
    tokens = data.index[rows]
    holders: dict[int, dict[int, int]] = defaultdict(dict)  # token -> row -> count
    for i, row in enumerate(tokens.tolist()):
        for x in row:
            if x != ABSENT:
                held = holders[x]
                held[i] = held.get(i, 0) + 1
    home = [0] * len(rows)
    # Members of each class, those with a label last; who moved away is dropped late.
    inside = [[*range(mine, len(rows)), *range(mine)]]
    size = [len(rows)]
    todo, chosen = [0], []
    while todo:
        here, pair = todo[-1], []
        while inside[here] and len(pair) < 2:
            i = inside[here].pop()
            if home[i] == here:
                pair.append(i)
        inside[here] += reversed(pair)
        if len(pair) < 2 or pair[0] >= mine:  # nothing to tell apart from a row with a label
            todo.pop()
            continue
        x = _difference(tokens[pair[0]], tokens[pair[1]])
        chosen.append(x)
        moved: dict[tuple[int, int], list[int]] = defaultdict(list)
        for i, count in holders[x].items():
            moved[home[i], count].append(i)
        for (old, _), group in moved.items():
            if len(group) == size[old]:
                continue
            fresh = len(size)
            size[old] -= len(group)
            size.append(len(group))
            inside.append(sorted(group, key=lambda i: i < mine))
            for i in group:
                home[i] = fresh
            todo.append(fresh)
    return chosen


def _difference(a: np.ndarray, b: np.ndarray, allowed: set[int] | None = None) -> int:
    """A token (of the allowed ones) whose counts in a and b differ."""
    counts = Counter(a.tolist())
    counts.subtract(b.tolist())
    differing = (x for x, k in counts.items() if k and x != ABSENT)
    return next(x for x in differing if allowed is None or x in allowed)


def _colliding_tokens(data: Sequences, sums: np.ndarray, in_A: set[int]) -> np.ndarray:
    """For every pair of neighbours with one sum that must differ, a token of A to draw again."""
    rows = np.concatenate([data.firsts, data.strangers])
    labelled = np.arange(len(rows)) < len(data.firsts)
    values = sums[rows]
    order = np.lexsort((~labelled, values)) if values.dtype != object else np.argsort(values)
    v, mark = values[order], labelled[order]
    clash = np.flatnonzero((v[1:] == v[:-1]) & (mark[1:] | mark[:-1]))
    pairs = (data.index[rows[order[[i, i + 1]]]] for i in clash.tolist())
    return np.unique(np.array([_difference(a, b, in_A) for a, b in pairs], dtype=np.int64))
