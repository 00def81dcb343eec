"""Layouts with heads of one's own choice: so many facts a head, or heads by a column of the key.

A hypothesis about where a model keeps its facts can be planted this way, to see whether a method
of interpretability finds it (docs/ground-truth.md). What cannot be done is refused with the reason.
"""

from __future__ import annotations

import math

import numpy as np

from byheart.construct.sharded.housing import MAX_SHARD, Housing, balanced_bits, unknowns_needed
from byheart.errors import ByheartError, CapacityError, OptionError, did_you_mean
from byheart.facts import Facts
from byheart.specs import Gate


def key_column(facts: Facts, name: str | int) -> int:
    """The key column of that name, or of that number from 1 on.

    >>> import byheart as bh
    >>> facts = bh.read_facts("countries")
    >>> key_column(facts, "relation"), key_column(facts, 1)
    (1, 0)
    """
    names = list(facts.columns or ())
    if str(name) in names:
        return names.index(str(name))
    if str(name).isdecimal() and 1 <= int(name) <= facts.S:
        return int(name) - 1
    numbers = f"a number from 1 to {facts.S}" if facts.S > 1 else "1"
    known = f"one of {', '.join(names)}, or {numbers}" if names else numbers
    raise OptionError("heads_by", f"a key column, {known}", name, did_you_mean(str(name), names))


def heads_of_column(facts: Facts, name: str | int, gate: Gate) -> Housing:
    """Every value of a key column has heads of its own: no two share any, none is split."""
    column = key_column(facts, name)
    names = facts.columns or [str(c + 1) for c in range(facts.S)]
    if gate != "query" and column != 0:
        raise ByheartError(
            f"`heads_by={name}` with `gate={gate}`: that gate reads the first key column, not "
            f"column {column + 1}. Use `gate=query`, which can read any, or `heads_by={names[0]}`."
        )
    counts = np.bincount(facts.tokens[:, column], minlength=facts.N)
    worst = int(counts.argmax())
    if counts[worst] > MAX_SHARD:
        raise CapacityError(
            f"`heads_by={name}`: {counts[worst]:,} facts have {facts.vocabulary.token(worst)!r} in "
            f"that column, and one group of heads is solved for at most {MAX_SHARD:,} at once. "
            "Choose another column, or fewer facts."
        )
    values = np.flatnonzero(counts)
    group = np.full(facts.N + 1, -1, dtype=np.int64)
    group[values] = np.arange(len(values))
    level, bits = np.zeros(len(values), dtype=np.int64), np.ones((facts.N + 1, 0), dtype=np.int8)
    reason = f"column {names[column]!r} decides, as asked: each of its {len(values):,} values has "
    reason += f"heads of its own, for {counts[values].min():,} to {counts[worst]:,} facts"
    return Housing(column, reason, group, level, bits)


def one_head_each(facts: Facts, k: int, gate: Gate, seed: int) -> Housing:
    """Shards of at most k facts that one head of width k can hold.

    Facts of a token with more than k of them are told apart by bits of the other token (S = 2),
    enough of them that no part has more than k; tokens with fewer are put together. The column
    decides that leaves no facts to luck (a token with every answer), then the one with fewer parts.
    """
    if gate != "query":
        raise ByheartError(
            f"`facts_per_head` needs `gate=query`, found `gate={gate}`, which cannot tell the "
            "facts of one token apart by another. Leave `gate` out."
        )
    made = [_by_column(facts, c, k, seed) for c in range(facts.S)]
    possible = [housing for housing in made if housing is not None]
    if not possible:
        raise _too_many(facts, k)
    return min(possible, key=lambda h: (_luck(facts, h), int((2**h.level).sum()), -h.deciding))


def _luck(facts: Facts, housing: Housing) -> int:
    """Facts whose deciding token has every answer there is: its embedding names one of them."""
    pairs = np.unique(facts.tokens[:, housing.deciding] * facts.N + facts.answers) // facts.N
    every = np.bincount(pairs, minlength=facts.N) == len(facts.answer_ids)
    return int(every[facts.tokens[:, housing.deciding]].sum())


def _by_column(facts: Facts, column: int, k: int, seed: int) -> Housing | None:
    """The groups where this column decides; None where a token has facts that cannot be split."""
    counts = np.bincount(facts.tokens[:, column], minlength=facts.N)
    hot = np.flatnonzero(counts > k)
    if len(hot) and facts.S != 2:
        return None
    cold = np.flatnonzero((counts > 0) & (counts <= k))
    lot = _put_together(counts[cold], k)
    group = np.full(facts.N + 1, -1, dtype=np.int64)
    group[cold] = lot
    for bin in _too_few_tokens(facts, column, group, k):
        alone = cold[lot == bin]  # one head cannot hold them together: each for itself
        group[alone] = np.arange(group.max() + 1, group.max() + 1 + len(alone))
    used = np.unique(group[cold])
    group[cold] = np.searchsorted(used, group[cold])
    if len(_too_few_tokens(facts, column, group, k)):
        return None
    group[hot] = len(used) + np.arange(len(hot))
    level = np.zeros(len(used) + len(hot), dtype=np.int64)
    bits = np.ones((facts.N + 1, 0), dtype=np.int8)
    if len(hot):
        other = facts.tokens[:, 1 - column]
        code = balanced_bits(other, facts.N, _bits(len(np.unique(other))), seed)
        level[len(used) :] = [_level(code[other[facts.tokens[:, column] == t]], k) for t in hot]
        bits = code[:, : int(level.max())]
    names = facts.columns or [str(c + 1) for c in range(facts.S)]
    reason = f"one head for at most {k:,} fact{'s'[: k > 1]}, as asked: column {names[column]!r} "
    reason += "decides" + (f", with {bits.shape[1]} bits of the other" if bits.shape[1] else "")
    return Housing(column, reason, group, level, bits)


def _bits(tokens: int) -> int:
    return math.ceil(math.log2(tokens))


def _level(code: np.ndarray, k: int) -> int:
    """The fewest bits of `code` (n, kb) by which n tokens fall into parts of at most k."""
    level, part = 0, np.zeros(len(code), dtype=np.int64)
    while np.bincount(part).max() > k:
        part = 2 * part + (code[:, level] > 0)
        part = np.unique(part, return_inverse=True)[1]
        level += 1
    return level


def _put_together(counts: np.ndarray, k: int) -> np.ndarray:
    """Bins of at most k facts: the largest first, each where the least room is left (best fit)."""
    assigned = np.empty(len(counts), dtype=np.int64)
    open_bins: list[list[int]] = [[] for _ in range(k + 1)]  # by the room that is left
    bins = 0
    for i in np.argsort(-counts, kind="stable").tolist():
        count = int(counts[i])
        room = next((room for room in range(count, k) if open_bins[room]), k)
        bin = open_bins[room].pop() if room < k else bins
        bins += room == k
        assigned[i] = bin
        open_bins[room - count].append(bin)
    return assigned


def _too_few_tokens(facts: Facts, column: int, group: np.ndarray, k: int) -> np.ndarray:
    """The groups whose facts have so few tokens that one head cannot tell them apart."""
    mine = group[facts.tokens[:, column]]
    housed, order = mine >= 0, [*(c for c in range(facts.S) if c != column), column]
    if not housed.any():
        return np.empty(0, dtype=np.int64)
    mine, tokens = mine[housed], facts.tokens[housed][:, order]
    sizes, spanned = np.bincount(mine), 0
    for column in tokens.T:  # what a head reads lies in the span of e(t) + pos_s
        pairs = np.unique(mine * facts.N + column) // facts.N
        spanned += np.bincount(pairs, minlength=len(sizes))
    short = (unknowns_needed(mine, sizes, tokens, k) > k) | (spanned < sizes)
    return np.flatnonzero(short & (sizes > 0))


def _too_many(facts: Facts, k: int) -> CapacityError:
    best = min(int(np.bincount(column).max()) for column in facts.tokens.T)
    return CapacityError(
        f"`facts_per_head={k}`: keys have {facts.S} tokens, in every column some token has {best:,}"
        " facts or more, and only keys of two tokens are told apart by the other one (or so few "
        "tokens occur that one head cannot tell them apart). Join key columns into two, or use "
        f"`facts_per_head={best}` or more, or `heads_by`."
    )
