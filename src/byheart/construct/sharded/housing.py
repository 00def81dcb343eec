"""Which tokens share which heads, before anything is sized: the parts of a layout that the default
plan (`plan`) and layouts with heads of one's own choice (`known`) have in common."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

MAX_SHARD = 4000  # facts of one hot token that cannot be split (S >= 3): one dense solve


class Housing(NamedTuple):
    """The groups of the deciding tokens.

    `deciding`: the key column that decides, and the `reason`; `group` (N + 1,) of each token, -1
    for those that decide for none; `level` (groups,) the number of bits read of the other token;
    `bits` (N + 1, kb) of each token; `more`: what else there is to say.
    """

    deciding: int
    reason: str
    group: np.ndarray
    level: np.ndarray
    bits: np.ndarray
    more: tuple[str, ...] = ()

    def shards(self, tokens: np.ndarray) -> np.ndarray:
        """The shard of each key (T,), tokens (T, S) as they are asked."""
        first = np.cumsum(2**self.level) - 2**self.level
        group, sub = self.group[tokens[:, self.deciding]], np.zeros(len(tokens), dtype=np.int64)
        for j in range(self.bits.shape[1]):
            bit = self.bits[tokens[:, 1 - self.deciding], j] > 0
            sub = np.where(self.level[group] > j, 2 * sub + bit, sub)
        return first[group] + sub


def packed(counts: np.ndarray, bins: int) -> np.ndarray:
    """Longest-first packing of tokens into `bins` groups of nearly equal numbers of facts."""
    assigned = np.empty(len(counts), dtype=np.int64)
    heap = [(0, b) for b in range(bins)]
    for i in np.argsort(-counts, kind="stable").tolist():
        load, b = heap[0]
        assigned[i] = b
        heapq.heapreplace(heap, (load + int(counts[i]), b))
    return assigned


def balanced_bits(column: np.ndarray, N: int, kb: int, seed: int) -> np.ndarray:
    """kb random bits a token, balanced among the tokens of `column`: (N + 1, kb) of +1 and -1."""
    bits = np.ones((N + 1, kb), dtype=np.int8)
    tokens = np.unique(column)
    rank = np.random.default_rng(seed).permutation(len(tokens))
    # The ranks' binary digits split every prefix class in halves.
    bits[tokens] = np.where(rank[:, None] >> np.arange(kb) & 1, 1, -1)
    return bits


def unknowns_needed(
    shard: np.ndarray, sizes: np.ndarray, tokens: np.ndarray, d_h: int, last_decides: bool = True
) -> np.ndarray:
    """How many unknowns H_g d_h each shard needs for its n_g facts: (shards,), n_g as a rule.

    `tokens` (T, S) as the model reads them. Shards of few distinct tokens need more:

    - the vectors e(t) + pos_s of N_g tokens at S positions span at most N_g + S - 1 dimensions,
      and a head cannot have more;
    - for one last token t, head j computes f / Z_j, f and Z_j sums of one term a position. Such f
      form a space of D = 1 + Σ_{s<S} (n_s - 1) dimensions for n_s different tokens at position s,
      and all heads share Z_j / Z_j = 1: together 1 + H_g (D - 1), which must reach t's facts
      (counted only where the last token decides, so that they are all in one shard).
    """
    N, S = int(tokens.max()) + 1, tokens.shape[1]
    pairs = np.unique((shard[:, None] * N + tokens).ravel())
    rank = np.bincount(pairs // N, minlength=len(sizes)) + S - 1
    needed = -(-sizes * d_h // np.minimum(rank, d_h))
    last = tokens[:, -1]
    facts = np.bincount(last, minlength=N)
    # S = 2: as many facts as first tokens. D >= 2: enough where heads outnumber facts.
    doubtful = facts[last] - 1 > (sizes // d_h)[shard]
    if S == 2 or not last_decides or not doubtful.any():
        return needed
    degrees = np.zeros(N, dtype=np.int64)  # D - 1
    for s in range(S - 1):
        pairs = np.unique(last[doubtful] * N + tokens[doubtful, s])
        degrees += np.maximum(np.bincount(pairs // N, minlength=N) - 1, 0)
    some = np.unique(last[doubtful])
    heads = -(-(facts[some] - 1) // np.maximum(degrees[some], 1))
    where = np.zeros(N, dtype=np.int64)
    where[last] = shard  # the last token decides, and cannot be split: one shard
    np.maximum.at(needed, where[some], heads * d_h)
    return needed
