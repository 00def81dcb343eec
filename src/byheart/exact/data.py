"""Sequences and labels, checked: different tokens, different multisets, consistent labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from byheart.errors import Conflict, ConflictError, FactsError
from byheart.facts.distinct import conflicting_groups, group_equal_rows

LISTED = 10
Limits = tuple[tuple[int, ...], tuple[int, ...]]
"""Lowest and highest value of each coordinate of a token."""

ABSENT = -1  # in place of a token beyond the length of its sequence


@dataclass(frozen=True)
class Sequences:
    """R sequences of at most n tokens: the first N have labels, the others are to get 0.

    `vectors` (V, d): the different tokens; `index` (R, n): which token stands where; `labels` (R,)
    or (R, n); `lengths` (R,); `reads`: labels belong to (multiset, token), not to the multiset.
    """

    N: int
    vectors: np.ndarray
    index: np.ndarray
    labels: np.ndarray
    lengths: np.ndarray
    reads: bool

    @property
    def n(self) -> int:
        return self.index.shape[1]

    @cached_property
    def multiset(self) -> np.ndarray:
        """A number for each row: equal for equal multisets."""
        rows = np.ascontiguousarray(np.sort(self.index.astype(np.int32), axis=1))
        flat = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1])))[:, 0]
        return np.unique(flat, return_inverse=True)[1].reshape(-1)

    @cached_property
    def firsts(self) -> np.ndarray:
        """A row for each different multiset with a label."""
        return np.sort(np.unique(self.multiset[: self.N], return_index=True)[1])

    @cached_property
    def strangers(self) -> np.ndarray:
        """Rows of the others whose multiset has no label."""
        mine, others = np.split(self.multiset, [self.N])
        return self.N + np.flatnonzero(~np.isin(others, mine))

    @cached_property
    def shares(self) -> tuple[np.ndarray, int]:
        """(lcm / length of each row, lcm of all lengths): the means become whole numbers."""
        lengths = np.unique(self.lengths).tolist()
        lcm = math.lcm(*lengths)
        if lcm.bit_length() > 62:
            raise FactsError(
                f"the lengths {lengths[0]}..{lengths[-1]} have a least common multiple of "
                f"{lcm.bit_length()} bits, which every weight after the attention would carry. "
                "Pad the sequences to one length, or pool by sum (a deep set)."
            )
        return lcm // self.lengths, lcm

    def limits(self, wanted: Limits | None) -> Limits:
        """The lowest and highest coordinates that occur, or the wanted ones around them."""
        low = tuple(int(x) for x in self.vectors.min(axis=0))
        high = tuple(int(x) for x in self.vectors.max(axis=0))
        if wanted is None:
            return low, high
        a, b = (tuple(int(x) for x in ends) for ends in wanted)
        if len(a) != len(low) or any(x > y for x, y in zip((*a, *high), (*low, *b), strict=True)):
            raise FactsError(f"limits {wanted}: the tokens lie between {low} and {high}.")
        return a, b

    def sums(self, z: np.ndarray, shares: np.ndarray, bound: int) -> np.ndarray:
        """share x sum of z over the tokens of each row; exact."""
        wide = bound * self.n * int(shares.max()) >= 1 << 62
        z = np.append(z.astype(object if wide else np.int64), 0)  # ABSENT reads the last one
        return z[self.index].sum(axis=1) * (shares.astype(z.dtype))

    def apart(self, sums: np.ndarray) -> bool:
        """Do the sums tell multisets with labels from each other and from all others?"""
        return separate(sums[self.firsts], sums[self.strangers])

    def contexts(
        self, sums: np.ndarray, keys: np.ndarray, factor: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """(numbers of the different contexts, their labels): S, or S factor + u; others get 0."""
        labels = self.labels
        if not self.reads:
            rows = np.concatenate([self.firsts, self.strangers])
            return sums[rows], labels[rows]
        S = sums.astype(object) * factor
        if labels.ndim == 1:
            last = self.index[np.arange(len(self.index)), self.lengths - 1]
            numbers = S + keys[last].astype(object)
        else:
            there = self.index != ABSENT
            u = np.append(keys, 0)[self.index].astype(object)
            numbers, labels = (S[:, None] + u)[there], labels[there]
        distinct = dict(zip(reversed(numbers.tolist()), reversed(labels.tolist()), strict=True))
        numbers = np.array(list(distinct), dtype=np.int64 if max(distinct) < 1 << 62 else object)
        return numbers, np.array(list(distinct.values()), dtype=np.int64)


def separate(members: np.ndarray, others: np.ndarray) -> bool:
    """Are the members all different, and is no other among them?"""
    members = np.sort(members)
    if (members[1:] == members[:-1]).any():
        return False
    at = np.minimum(np.searchsorted(members, others), len(members) - 1)
    return not bool((members[at] == others).any())


def sequences(
    tokens: ArrayLike,
    labels: ArrayLike,
    others: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    *,
    reads: bool | None = None,
) -> Sequences:
    """Checked sequences; equal contexts with different labels are a `ConflictError`."""
    rows = as_vectors(tokens)
    N, n, d = rows.shape
    if N == 0 or n == 0:
        raise FactsError(f"expected at least one sequence of at least one token, found {N} x {n}.")
    marks = np.asarray(labels)
    if marks.shape not in ((N,), (N, n)):
        raise FactsError(f"labels: expected shape ({N},) or ({N}, {n}), found {marks.shape}.")
    if marks.dtype.kind not in "iu" or (marks < 0).any() or (marks >= 1 << 32).any():
        raise FactsError("labels: expected whole numbers 0..2^32 - 1.")
    marks = marks.astype(np.int64)
    if marks.ndim == 2 and reads is False:
        raise FactsError("one label for every token is read at that token: leave out reads=False.")
    reads = marks.ndim == 2 if reads is None else reads
    counts: np.ndarray = np.full(N, n) if lengths is None else np.asarray(lengths)
    numbers = counts.shape == (N,) and counts.dtype.kind in "iu"
    if not numbers or not 1 <= counts.min() <= counts.max() <= n:
        raise FactsError(f"lengths: expected {N} whole numbers 1..{n}.")
    counts = counts.astype(np.int64)
    if others is not None:
        more = as_vectors(others, "others")
        if more.shape[1:] != (n, d):
            raise FactsError(f"others: expected shape (M, {n}, {d}), found {more.shape}.")
        rows = np.concatenate([rows, more])
        counts = np.concatenate([counts, np.full(len(more), n)])
        marks = np.concatenate([marks, np.zeros((len(more), *marks.shape[1:]), dtype=np.int64)])
    vectors, index = distinct_tokens(rows)
    if lengths is not None:
        index = np.where(np.arange(n) < counts[:, None], index, ABSENT)
    data = Sequences(N, vectors, index, marks, counts, reads)
    _check_consistent(data)
    return data


def as_vectors(tokens: ArrayLike, name: str = "tokens", d: int | None = None) -> np.ndarray:
    """(N, n, d) whole numbers, int64 where all are below 2^62; (N, n) is (N, n, 1). `d`: refuse
    another number of coordinates, and sequences without tokens."""
    array: np.ndarray = np.asarray(tokens)
    long = list(array.flat) if array.dtype.kind == "O" or array.dtype == np.uint64 else []
    whole = all(isinstance(x, (int, np.integer)) and not isinstance(x, bool) for x in long)
    if not whole or (array.dtype.kind not in "iuO" and array.size):
        raise FactsError(
            f"{name}: exact networks take whole numbers, found {array.dtype}. Quantise reals "
            "first: byheart.exact.keys.quantise(tokens, delta)."
        )
    if all(-(1 << 62) < x < 1 << 62 for x in long):
        array = array.astype(np.int64)
    else:
        array = np.array([int(x) for x in long], dtype=object).reshape(array.shape)
    if array.ndim == 2:
        array = array[:, :, None]
    good = array.ndim == 3 and array.shape[2] > 0
    if not good or (d is not None and (array.shape[2] != d or array.shape[1] == 0)):
        shape = "(N, n) or (N, n, d)" if d is None else f"(sequences, n, {d})"
        raise FactsError(f"expected {name} of shape {shape}, found {np.shape(tokens)}.")
    return array


def distinct_tokens(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different tokens (V, d) of sequences (B, n, d) of integers of any length, and which of
    them stands where, (B, n)."""
    shape, flat = vectors.shape[:2], vectors.reshape(-1, vectors.shape[2])
    if flat.dtype != object:
        axis = None if flat.shape[1] == 1 else 0  # many times as fast without
        distinct, inverse = np.unique(flat, axis=axis, return_inverse=True)
        return distinct.reshape(-1, flat.shape[1]), inverse.reshape(shape)
    at: dict[tuple[int, ...], int] = {}
    inverse = np.array([at.setdefault(tuple(row), len(at)) for row in flat.tolist()])
    distinct = np.array(list(at), dtype=object).reshape(len(at), flat.shape[1])
    return distinct, inverse.reshape(shape)


def _check_consistent(data: Sequences) -> None:
    """Consistently labelled (Kajitsuka and Sato 2025): equal contexts have equal labels."""
    rows, labels = np.arange(data.N), data.labels[: data.N]
    token = np.zeros(data.N, dtype=np.int64)  # that the label is read at, where it counts
    if labels.ndim == 2:
        there = data.index[: data.N] != ABSENT
        rows, token, labels = np.nonzero(there)[0], data.index[: data.N][there], labels[there]
    elif data.reads:
        token = data.index[rows, data.lengths[: data.N] - 1]
    context = np.stack([data.multiset[rows], token], axis=1)
    order, starts = group_equal_rows(context, max(len(data.index), len(data.vectors)))
    conflicts: list[Conflict] = []
    for group in conflicting_groups(labels, order, starts):
        key = tuple(str(x) for x in data.index[rows[group[0]]] if x != ABSENT)[:LISTED]
        conflicts.append((key, [(int(rows[i]) + 1, str(int(labels[i]))) for i in group]))
    if not conflicts:
        return
    lines = []
    for _, said in conflicts[:LISTED]:
        (row, label), other = said[0], next(s for s in said if s[1] != said[0][1])
        lines.append(f"sequences {row} and {other[0]}: labels {label} and {other[1]}")
    if len(conflicts) > LISTED:
        lines.append(f"and {len(conflicts) - LISTED:,} more")
    what = "multiset and token" if data.reads else "multiset"
    raise ConflictError(
        f"equal {what}, different labels (the network cannot see the order of tokens):\n  "
        + "\n  ".join(lines)
        + "\nUse the ordered mode (the position as a coordinate of the token), or correct the "
        "labels.",
        conflicts,
    )
