"""Which facts share which heads: the deciding column, the groups and the shards, with reasons."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np

from byheart.construct.choose import smallest_width
from byheart.construct.sharded.codes import MAX_GROUPS
from byheart.errors import CapacityError
from byheart.facts import Facts

SHARD = 250  # facts: best for time, memory and conditioning between 100 and 250
MAX_SHARD = 4000  # facts of one hot token that cannot be split (S >= 3): one dense solve
LEAST_WIDTH = 8  # generic coordinates: below, condition numbers grow fast


@dataclass(frozen=True)
class Plan:
    """Everything about the layout of a sharded memory except its numbers.

    `deciding`: the key column that decides, moved last. `group` (N,) the group of each token, -1
    for tokens that decide for none; `level` and `first` (groups,) the number of key bits read and
    the first shard of each group; `bits` (N, kb) of each token, +1 or -1; `shard` (T,) the shard
    of each fact; `sizes` (shards,) the facts in it.
    """

    deciding: int
    d_g: int
    d_h: int
    beta: float
    group: np.ndarray
    level: np.ndarray
    first: np.ndarray
    bits: np.ndarray
    shard: np.ndarray
    sizes: np.ndarray
    why: tuple[str, ...]

    def order(self, S: int) -> list[int]:
        """Key columns as the model reads them: the deciding one last."""
        return [c for c in range(S) if c != self.deciding] + [self.deciding]


def plan(
    facts: Facts,
    *,
    d_g: int | None = None,
    d_h: int | None = None,
    shard: int = SHARD,
    beta: float | None = None,
    deciding: int | None = None,
    seed: int = 0,
) -> Plan:
    """Inspect the facts and lay out shards of about `shard` facts."""
    T, S = facts.tokens.shape
    A = len(facts.answer_ids)
    why = []
    if d_g is None:
        d_g = max(LEAST_WIDTH, smallest_width(A))
        why.append(f"d_g = {d_g}: the least width at which {A:,} answers keep a margin near 0.4")
    d_h = d_h or d_g
    beta = beta or (4.0 if d_g >= 8 else 8.0 if d_g >= 4 else 32.0)
    if deciding is None:
        deciding, reason = _deciding_column(facts, shard)
        why.append(reason)
    counts = np.bincount(facts.tokens[:, deciding], minlength=facts.N)
    hot = np.flatnonzero(counts > shard)
    cold = np.flatnonzero((counts > 0) & (counts <= shard))
    if len(hot) and S != 2 and counts[hot].max() > MAX_SHARD:
        worst = int(counts.argmax())
        raise CapacityError(
            f"{counts[worst]:,} of {T:,} facts share the deciding token "
            f"{facts.vocabulary.token(worst)!r} (column {deciding + 1}), and keys of {S} tokens "
            f"cannot be split further: at most {MAX_SHARD:,} fit one shard. "
            "Use --method attention, or join two key columns into one."
        )
    group = np.full(facts.N + 1, -1, dtype=np.int64)  # the last id is BOS
    bins = max(1, math.ceil(counts[cold].sum() / shard)) if len(cold) else 0
    group[cold] = _packed(counts[cold], bins)
    group[hot] = bins + np.arange(len(hot))
    groups = bins + len(hot)
    if groups > MAX_GROUPS[2]:
        raise CapacityError(f"{groups:,} groups, lattice codes are exact up to {MAX_GROUPS[2]:,}")
    level = np.zeros(groups, dtype=np.int64)
    if S == 2:
        level[bins:] = np.ceil(np.log2(counts[hot] / shard)).astype(np.int64)
    first = np.concatenate([[0], np.cumsum(2**level)])
    kb = int(level.max(initial=0))
    bits = _balanced_bits(facts.tokens[:, 1 - deciding] if S == 2 else None, facts.N, kb, seed)
    fact_group = group[facts.tokens[:, deciding]]
    sub = np.zeros(T, dtype=np.int64)
    for j in range(kb):
        bit = bits[facts.tokens[:, 1 - deciding], j] > 0
        sub = np.where(level[fact_group] > j, 2 * sub + bit, sub)
    shard_of_fact = first[:-1][fact_group] + sub
    sizes = np.bincount(shard_of_fact, minlength=int(first[-1]))
    if len(hot):
        where = f"{int(2 ** level[bins:].max())} sub-shards by {kb} bits of the other token"
        largest = counts[hot].max()
        why.append(
            f"{len(hot):,} hot tokens with more than {shard} facts (largest {largest:,}): "
            + (f"up to {where}" if S == 2 else "one shard each")
        )
    why.append(
        f"{len(sizes):,} shards of {sizes.min():,} to {sizes.max():,} facts (aim {shard}): "
        "best for time and conditioning"
    )
    return Plan(
        deciding, d_g, d_h, beta, group, level, first[:-1], bits, shard_of_fact, sizes, tuple(why)
    )


def _deciding_column(facts: Facts, shard: int) -> tuple[int, str]:
    """The column with the fewest facts under tokens too common for a shard; the last on a tie."""
    hot_facts = []
    for column in range(facts.S):
        counts = np.bincount(facts.tokens[:, column], minlength=facts.N)
        hot_facts.append(int(counts[counts > shard].sum()))
    best = min(range(facts.S), key=lambda c: (hot_facts[c], -c))
    name = facts.columns[best] if facts.columns else f"{best + 1}"
    reason = f"column {name!r} decides the shard"
    if best != facts.S - 1:
        last = hot_facts[-1]
        reason += f" and is read last: by the last column {last:,} facts would share hot tokens"
    return best, reason


def _packed(counts: np.ndarray, bins: int) -> np.ndarray:
    """Longest-first packing of tokens into `bins` groups of nearly equal numbers of facts."""
    assigned = np.empty(len(counts), dtype=np.int64)
    heap = [(0, b) for b in range(bins)]
    for i in np.argsort(-counts, kind="stable").tolist():
        load, b = heap[0]
        assigned[i] = b
        heapq.heapreplace(heap, (load + int(counts[i]), b))
    return assigned


def _balanced_bits(column: np.ndarray | None, N: int, kb: int, seed: int) -> np.ndarray:
    """kb random bits a token, balanced among the tokens of `column`: (N + 1, kb) of +1 and -1."""
    bits = np.ones((N + 1, kb), dtype=np.int8)
    if kb == 0 or column is None:
        return bits
    tokens = np.unique(column)
    rank = np.random.default_rng(seed).permutation(len(tokens))
    for j in range(kb):
        # The ranks' binary digits split every prefix class in halves.
        bits[tokens, j] = np.where(rank >> j & 1, 1, -1)
    return bits
