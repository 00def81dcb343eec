"""Random draws of FF1: ids whose sums tell the given sequences apart."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from byheart.exact.data import ABSENT, Sequences
from byheart.exact.grouping import Wish, make_table
from byheart.exact.ids import FF1, Embedding, Hash, Paper, Product
from byheart.exact.keys import random_below

DIGIT = 4  # bits of a digit in product mode: 8g + 7 (2^g - 1) + 6 a digit, least per bit near 4
REPAIRS = 60  # rounds of new ids for colliding pairs before ids get one bit more

Found = tuple[FF1, np.ndarray]


@dataclass(frozen=True)
class Way:
    """What a draw works with: sequences, keys of their tokens, weights of their sums."""

    data: Sequences
    keys: np.ndarray
    largest: int
    shares: np.ndarray
    rng: np.random.Generator
    bits: int = 8
    """Least length of the random numbers: longer ones keep other sequences away, too."""

    def sums(self, made: FF1) -> np.ndarray:
        return self.data.sums(made.values(self.keys), self.shares, made.bound)


def draw_hash(way: Way, folds: int) -> Found | None:
    """Longer coefficients, then more folds, until the sums differ; None if they never do."""
    most = max(1, way.largest.bit_length() - 1)
    ladder = [(folds, 8), (folds, 16), (max(folds, 6), 32), (max(folds, most), 48)]
    for count, least in ladder:
        bits = max(least, way.bits)
        for _ in range(4):
            made = _random_hash(way, min(count, most), bits)
            sums = way.sums(made)
            if way.data.apart(sums):
                return made, sums
    return None


def _random_hash(way: Way, folds: int, bits: int) -> Hash:
    """Folds near the middle of what the fold before left: 2A >= top keeps the key >= 0."""
    rng, top = way.rng, way.largest
    pairs = []
    for _ in range(folds):
        A = -(-top // 2) + random_below(rng, top // 8 + 1)
        pairs.append((A, 1 + 2 * random_below(rng, 1 << (bits - 1))))
        top = max(1, A)
    return Hash(way.largest, 1 + 2 * random_below(rng, 1 << (bits - 1)), tuple(pairs))


def draw_product(way: Way) -> Found:
    """Random factors of B = log2(R^2 digits) bits: any R sequences differ with probability >= 1/2.

    Pairs to tell apart: at most R^2 / 2; each fails with probability <= digits / 2^B (`Product`).
    """
    g = DIGIT
    digits = max(1, -(-way.largest.bit_length() // g))
    R = len(way.data.index)
    bits = max(way.bits, (R * R * digits).bit_length())
    while True:
        factors = []
        for j in range(digits):
            size = 1 << g
            if j == 0:  # the highest digit may be shorter
                size = (way.largest >> (g * (digits - 1))) + 1
            row = [1 + random_below(way.rng, 1 << bits) for _ in range(size - 1)]
            factors.append(tuple(row + [1] * ((1 << g) - size)))
        made = Product(way.largest, g, tuple(factors))
        sums = way.sums(made)
        if way.data.apart(sums):
            return made, sums


def draw_embedding(way: Way) -> Found:
    """A random id for every token id that occurs; at most R^2 / 2 pairs, each fails with 2^-B."""
    R = len(way.data.index)
    bits = max(way.bits, (R * R).bit_length())
    while True:
        ids = [0] * (int(way.largest) + 1)
        for x in way.keys.tolist():
            ids[x] = 1 + random_below(way.rng, 1 << bits)
        made = Embedding(tuple(ids))
        sums = way.sums(made)
        if way.data.apart(sums):
            return made, sums


def draw_paper(way: Way, wish: Wish) -> Found:
    """Distinguishing tokens A, ids for them that give different sums, and the table of the ids."""
    chosen = distinguishing(way.data)
    if not chosen:  # one multiset: nothing to tell apart
        chosen = [int(way.data.index[0, 0])]
    A = np.array(sorted(chosen))
    ids, sums = repaired_ids(way, A)
    rest = np.setdiff1d(np.arange(len(way.keys)), A)
    c = int(ids.max()).bit_length()
    keys = way.keys.astype(np.int64)
    table = make_table(keys[A], ids[A], keys[rest], c, way.largest, wish)
    return Paper(table), sums


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
    # Members of each class, those with a label and the others; who moved away is dropped late.
    inside = {0: (list(range(mine)), list(range(mine, len(rows))))}
    size = {0: len(rows)}
    todo, chosen = [0], []
    while todo:
        here = todo[-1]
        pair = _mixed_pair(inside[here], home, here)
        if pair is None:
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
            size[fresh] = len(group)
            inside[fresh] = ([i for i in group if i < mine], [i for i in group if i >= mine])
            for i in group:
                home[i] = fresh
            todo.append(fresh)
    return chosen


def _mixed_pair(
    members: tuple[list[int], list[int]], home: list[int], here: int
) -> tuple[int, int] | None:
    """Two rows of a class that must be told apart: one of them has a label."""
    labelled, strangers = members
    first = _last(labelled, home, here)
    if first is None:
        return None
    labelled.pop()
    second = _last(labelled, home, here)
    labelled.append(first)
    if second is None:
        second = _last(strangers, home, here)
    return None if second is None else (first, second)


def _last(stack: list[int], home: list[int], here: int) -> int | None:
    """The last row that is still in the class; the ones that are not are dropped for good."""
    while stack and home[stack[-1]] != here:
        stack.pop()
    return stack[-1] if stack else None


def _difference(a: np.ndarray, b: np.ndarray) -> int:
    """A token whose counts in a and b differ."""
    counts: dict[int, int] = defaultdict(int)
    for x in a.tolist():
        counts[x] += 1
    for x in b.tolist():
        counts[x] -= 1
    return next(x for x, k in counts.items() if k and x != ABSENT)


def repaired_ids(way: Way, A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ids in 1..2^c - 1 for the tokens A, 0 for all others, with different sums (Lemma B.2).

    From c = log2 N + 1 on: one token of each colliding pair gets another id, until none collides.
    """
    data, rng = way.data, way.rng
    V = len(way.keys)
    in_A = np.zeros(V + 1, dtype=bool)
    in_A[A] = True
    c = max(1, math.ceil(math.log2(max(2, len(data.firsts)))) + 1)
    while True:
        ids = np.zeros(V, dtype=np.int64)
        ids[A] = rng.integers(1, 1 << c, size=len(A))
        for _ in range(REPAIRS):
            sums = data.sums(ids, way.shares, int(ids.max()))
            again = _colliding_tokens(data, sums, in_A)
            if not len(again):
                return ids, sums
            ids[again] = rng.integers(1, 1 << c, size=len(again))
        c += 1


def _colliding_tokens(data: Sequences, sums: np.ndarray, in_A: np.ndarray) -> np.ndarray:
    """For every pair of neighbours with one sum that must differ, a token of A to draw again."""
    rows = np.concatenate([data.firsts, data.strangers])
    labelled = np.arange(len(rows)) < len(data.firsts)
    values = sums[rows]
    order = np.lexsort((~labelled, values)) if values.dtype != object else np.argsort(values)
    v, mark = values[order], labelled[order]
    clash = np.flatnonzero((v[1:] == v[:-1]) & (mark[1:] | mark[:-1]))
    found = []
    for i in clash.tolist():
        a, b = rows[order[i]], rows[order[i + 1]]
        counts: dict[int, int] = defaultdict(int)
        for x in data.index[a].tolist():
            counts[x] += 1
        for x in data.index[b].tolist():
            counts[x] -= 1
        found.append(next(x for x, k in counts.items() if k and in_A[x]))
    return np.unique(np.array(found, dtype=np.int64))
