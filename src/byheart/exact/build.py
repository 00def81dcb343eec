"""Sequences and labels -> a network that gives every one of them, in exact integers.

Kajitsuka and Sato 2025, Theorem 4.1 (next token), Corollary 4.1 (sequence to sequence), D.1 (deep
sets), E.1 (embedding layer), F.1 (limited bits), Remark 4.5 (register token); with cheaper parts
(docs/square-root.md).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from byheart._progress import Report, quiet
from byheart.errors import check_choice
from byheart.exact.blocks import POOLINGS, Network
from byheart.exact.data import ABSENT, Limits, Sequences, separate, sequences
from byheart.exact.ids import FF1, MODES, Embedding, Hash, Paper, Product
from byheart.exact.keys import identity, next_prime, projection, random_below
from byheart.exact.parts import Parts, Structured, emit, pooled
from byheart.exact.table import GROUPINGS, Table, TableOptions, encode, low_bits, make_table

FOLDS = 3  # enough for random data; more are tried when sums collide
# Moduli that are compared: the luckiest needs a bit less for each record. Sorting 10^6 keys takes
# a tenth of a second, so that large tables get one draw.
TRIES = ((20_000, 12), (200_000, 4), (2**62, 1))
LONGEST = 56  # bits of a modulus: residues stay machine integers (parts.times)
PATIENCE = 12  # primes of one length that may fail before longer ones are drawn
DIGIT = 4  # bits of a digit in product mode: 8g + 7 (2^g - 1) + 6 a digit, least per bit near 4
REPAIRS = 60  # rounds of new ids for colliding pairs before ids get one bit more


@dataclass(frozen=True)
class Built:
    """A network, its parts, and what was done to get it."""

    parts: Parts
    mode: str
    asked: str
    notes: tuple[str, ...]

    @cached_property
    def network(self) -> Network:
        return emit(self.parts)

    @cached_property
    def structured(self) -> Structured:
        return Structured(self.parts)


def memorize(
    tokens: ArrayLike,
    labels: ArrayLike,
    *,
    ff1: str = "hash",
    grouping: str = "sorted",
    max_bits: int | None = None,
    pooling: str = "attention",
    reads: bool | None = None,
    others: ArrayLike | None = None,
    rate: float | None = None,
    lengths: ArrayLike | None = None,
    limits: Limits | None = None,
    folds: int = FOLDS,
    seed: int = 0,
    progress: Report = quiet,
) -> Built:
    """A network that outputs labels[i] for the multiset of tokens[i], exactly.

    `tokens`: (N, n, d) integers, or (N, n). `labels` >= 0: (N,), one for each multiset (with
    `reads`, for each multiset and last token), or (N, n), one for every token (sequence to
    sequence). Label 0 costs nothing: it is also what everything else gets, unless it meets a
    record by chance (`rate` bounds that), and what `others` (M, n, d) are made to get.

    `ff1`: "hash" (checked; "product" or "paper" if it cannot be made to work), "product" (works for
    every data set), "paper" (Lemmas B.1-B.3) or "embedding" (token ids, Theorem E.1). `grouping`:
    "sorted" or "interp". `max_bits`: limit for the weights of the tables (Theorem F.1's trade-off);
    keys and sums may be longer.
    `pooling`: "attention", "sum" (a deep set, Theorem D.1) or "register" (two attentions through a
    register token, 4 n links in place of n^2, Remark 4.5). `lengths`: only the first tokens of
    each row are there; add a token that says the length, or proportional multisets collide.
    `limits`: (lowest, highest) coordinates that may be asked for; default: those that occur.

    >>> built = memorize([[3, 5], [3, 7], [5, 7]], [1, 2, 3])
    >>> built.network.dims, built.network.counts().width
    (('l', 'z', 'y'), 3)
    """
    check_choice("ff1", ff1, MODES)
    check_choice("grouping", grouping, GROUPINGS)
    check_choice("pooling", pooling, POOLINGS)
    data = sequences(tokens, labels, others, lengths, reads=reads)
    limits = data.limits(limits)
    options = TableOptions(grouping, max_bits, rate)
    rng = np.random.default_rng(seed)
    shares, lcm = (np.ones(1, dtype=np.int64), 1) if pooling == "sum" else data.shares
    bits = 8 if rate is None else math.ceil(math.log2(data.N / rate)) + 3

    def made(mode: str) -> Parts | None:
        """Parts in one mode; None if a hash cannot be found."""
        if mode == "embedding":
            project = identity(limits)
        else:
            project = projection(data.vectors, limits, rng, mix=mode == "hash")
        keys = project.keys(data.vectors)
        progress(f"ids for {len(keys):,} tokens ({mode})")
        drawing = Drawing(data, keys, project.largest, shares, rng, bits, folds)
        if mode == "paper":
            drawn = drawing.paper(replace(options, rate=None))
        else:
            drawn = drawing.first_apart(mode)
        if drawn is None:
            return None
        ids, sums = drawn
        most = int(max(sums.max(), ids.bound * data.n * int(max(shares))))
        factor, reach = pooled(project.largest, most, data.reads)
        contexts, marks = data.contexts(sums, keys, factor)
        progress(f"a table of {len(contexts):,} keys")
        modulus, table = _table(contexts, marks, reach, options, rng)
        return Parts(project, ids, pooling, lcm, most, data.reads, modulus, table)

    parts = made(ff1)
    if parts is not None:
        return Built(parts, ff1, ff1, ())
    # No hash found: the smaller of the two modes that always work.
    certain = [parts for mode in ("product", "paper") if (parts := made(mode)) is not None]
    best = min(certain, key=lambda parts: emit(parts).counts().parameters)
    note = f"no hash tells the sequences apart: {best.ff1.mode} in its place"
    return Built(best, best.ff1.mode, ff1, (note,))


def _table(
    contexts: np.ndarray,
    labels: np.ndarray,
    reach: int,
    options: TableOptions,
    rng: np.random.Generator,
) -> tuple[int | None, Table]:
    """A modulus under which the contexts stay apart, and the table of those with a label.

    A random prime p of w bits: a difference below 2^h has at most h / (w - 1) such factors out of
    about 2^w / (1.4 w), so that from w = 2 log2 K + log2 h + 2 on most primes do; smaller ones are
    tried first. The sum of steps down to the t low bits is the same whatever p.
    """
    member = labels > 0
    K, rest = int(member.sum()), int((~member).sum())
    c = max(1, int(labels.max()).bit_length())
    if K == 0:  # nothing but zeros
        return None, Table("sorted", 1, c, 1, max(1, reach), (0,), (encode([], [], 1, c, 1),))
    w = max(4, (K * (K // 2 + rest)).bit_length() + 1)
    if options.rate is not None:  # a random residue is that of a member with probability K / p
        w = max(w, math.ceil(math.log2(2 * K / options.rate)))
    w = min(w, LONGEST)
    if reach.bit_length() <= w:
        keys = contexts.astype(np.int64)
        return None, make_table(keys[member], labels[member], keys[~member], c, reach, options)
    tries, failed = next(n for most, n in TRIES if most >= len(labels)), 0
    found: list[tuple[int, int, np.ndarray]] = []
    while len(found) < tries:
        p = next_prime((1 << (w - 1)) + random_below(rng, 1 << (w - 1)))
        keys = (contexts % p).astype(np.int64)
        if separate(keys[member], keys[~member]):
            found.append((low_bits(keys[member], keys[~member], c, p - 1), p, keys))
            continue
        failed += 1
        if failed == PATIENCE:
            w, failed = min(w + 1, LONGEST), 0
    _, p, keys = min(found, key=lambda one: one[0])
    return p, make_table(keys[member], labels[member], keys[~member], c, p - 1, options)


@dataclass(frozen=True)
class Drawing:
    """Random draws of FF1 for sequences, keys of their tokens and weights of their sums: ids that
    tell the sequences apart."""

    data: Sequences
    keys: np.ndarray
    largest: int
    shares: np.ndarray
    rng: np.random.Generator
    bits: int = 8  # of the random numbers, at least: longer ones keep other sequences away, too
    folds: int = FOLDS

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
        bits = max(self.bits, (len(self.data.index) ** 2).bit_length())
        while True:
            ids = [0] * (self.largest + 1)
            for x in self.keys.tolist():
                ids[x] = self._number(bits)
            yield Embedding(tuple(ids))

    def _number(self, bits: int) -> int:
        return 1 + random_below(self.rng, 1 << bits)

    def paper(self, options: TableOptions) -> tuple[FF1, np.ndarray]:
        """Distinguishing tokens A, ids for them that give different sums, the table of the ids."""
        A, ids, sums = self.paper_ids()
        keys, c = self.keys.astype(np.int64), int(ids.max()).bit_length()
        rest = np.delete(keys, A)
        return Paper(make_table(keys[A], ids[A], rest, c, self.largest, options)), sums

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
        x = _difference(*tokens[pair].tolist())
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


def _difference(a: list[int], b: list[int], allowed: set[int] | None = None) -> int:
    """The first token (of the allowed ones) whose counts in a and b differ: of a, then of b."""
    for one, other in ((a, b), (b, a)):
        for x in one:
            fits = x != ABSENT and (allowed is None or x in allowed)
            if fits and one.count(x) != other.count(x):
                return x
    raise AssertionError("the two are the same multiset")


def _colliding_tokens(data: Sequences, sums: np.ndarray, in_A: set[int]) -> np.ndarray:
    """For every pair of neighbours with one sum that must differ, a token of A to draw again."""
    rows = np.concatenate([data.firsts, data.strangers])
    labelled = np.arange(len(rows)) < len(data.firsts)
    values = sums[rows]
    order = np.lexsort((~labelled, values)) if values.dtype != object else np.argsort(values)
    v, mark = values[order], labelled[order]
    clash = np.flatnonzero((v[1:] == v[:-1]) & (mark[1:] | mark[:-1]))
    first, second = (data.index[rows[order[clash + i]]].tolist() for i in (0, 1))
    differ = [_difference(a, b, in_A) for a, b in zip(first, second, strict=True)]
    return np.unique(np.array(differ, dtype=np.int64))
