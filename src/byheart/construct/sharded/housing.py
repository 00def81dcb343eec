"""Who lives where after an edit: groups, shards and the heads they have.

A shard holds at most heads·d_h facts. New deciding tokens move in where there is most room; a shard
that overflows is split, a group of several tokens into several groups, a single token (keys of two
tokens) by one more bit of the other token. Shards nobody moved into or out of keep their heads,
their codes and their W_O to the bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from byheart.construct.sharded.grow import balanced_bit, free_points
from byheart.construct.sharded.plan import MAX_SHARD, SHARD, packed
from byheart.errors import CapacityError
from byheart.models.attention_only import Weights
from byheart.specs import ShardedSpec

MAX_LEVEL = 16  # bits that are read of the other token: 65,536 sub-shards


@dataclass
class Shard:
    """`heads` of one shard; `old`: its number in the memory before the edit, None if its facts
    changed, so that it must be solved again."""

    heads: int
    old: int | None = None


class Housing:
    """The layout of a memory while it is edited.

    `last`, `other` (T,): the deciding token of each fact and the other one, whose bits can split it
    (None unless keys have two tokens and the last decides). `group` (N,), `point` (groups, k),
    `bits` (N, kb) as stored; `level` and `parts` the bits read and the shards of each group.
    `fixed_value`: heads read nothing but the deciding token ("key" gate), so that its facts differ
    in one number a head, the attention, and span at most as many dimensions as there are heads.
    """

    def __init__(
        self, spec: ShardedSpec, weights: Weights, tokens: np.ndarray, slack: float, seed: int
    ) -> None:
        by_key = self.fixed_value = spec.gate == "key"
        self.last = tokens[:, 0 if by_key else -1]
        self.other = tokens[:, 0] if spec.S == 2 and not by_key else None
        self.group, self.point, self.far = (
            weights[name].numpy().astype(np.int64) for name in ("group", "point", "far")
        )
        self.bits = np.ones((len(self.group), 0), np.int8)
        if spec.bits:
            self.bits = weights["bits"].numpy()
        self.level: list[int] = weights["level"].tolist()
        shards = [Shard(n, old) for old, n in enumerate(weights["head_start"].diff().tolist())]
        first = weights["first"].tolist()
        self.parts = [shards[a : a + 2**j] for a, j in zip(first, self.level, strict=True)]
        self.d_h, self.slack, self.seed = spec.d_h, slack, seed
        self.limit = int(2 / torch.finfo(weights["W_O"].dtype).eps)  # integers up to it are exact
        self.counts = np.bincount(self.last, minlength=len(self.group))
        self.why: list[str] = []

    @property
    def shards(self) -> list[Shard]:
        return [shard for parts in self.parts for shard in parts]

    @property
    def new_heads(self) -> int:
        """Heads of a new shard: as many as a full one has, so that others can move in; in a memory
        of small shards as many as its largest has."""
        largest = max(shard.heads for shard in self.shards)
        return min(largest, math.ceil(SHARD * (1 + self.slack) / self.d_h))

    def settle(self, touched: np.ndarray) -> None:
        """House every deciding token, and split what overflows; only groups of the deciding tokens
        `touched` can."""
        self._move_in(np.flatnonzero((self.counts > 0) & (self.group < 0)))
        for g in np.unique(self.group[touched]).tolist():
            self._split(g)

    def _most(self, heads: int) -> int:
        """Facts of one deciding token that `heads` heads can hold."""
        return heads if self.fixed_value else heads * self.d_h

    def _loads(self) -> np.ndarray:
        """Facts of each group."""
        housed = self.group >= 0
        return np.bincount(
            self.group[housed], self.counts[housed], minlength=len(self.parts)
        ).astype(np.int64)

    def _move_in(self, homeless: np.ndarray) -> None:
        """Tokens that now decide, most facts first, each to the group with most room."""
        if not len(homeless):
            return
        load = self._loads()
        capacity = np.array([p[0].heads * self.d_h for p in self.parts])
        room = np.where(np.array(self.level) == 0, capacity - load, -1)
        left = []
        for t in homeless[np.argsort(-self.counts[homeless], kind="stable")].tolist():
            g = int(room.argmax())
            if min(room[g], self._most(self.parts[g][0].heads)) < self.counts[t]:
                left.append(t)
                continue
            self.group[t] = g
            room[g] -= self.counts[t]
        self._found(np.array(left, dtype=np.int64), self.new_heads)

    def _found(self, tokens: np.ndarray, heads: int) -> None:
        """New groups for `tokens`, with `heads` heads a shard; tokens too big for one alone."""
        capacity, most = heads * self.d_h, self._most(heads)
        big = tokens[self.counts[tokens] > most]
        rest = tokens[self.counts[tokens] <= most]
        homes = [big[i : i + 1] for i in range(len(big))]
        if len(rest):
            homes += self._bins(rest, capacity, math.ceil(self.counts[rest].sum() / capacity))
        if not homes:
            return
        points = free_points(self.point, self.far, len(homes), self.limit)
        self.point = np.concatenate([self.point, points])
        for home in homes:
            self.group[home] = len(self.parts)
            self.level.append(0)
            self.parts.append([Shard(heads)])

    def _bins(self, tokens: np.ndarray, capacity: int, bins: int) -> list[np.ndarray]:
        """`tokens` in at least `bins` lots of at most `capacity` facts, the fullest first."""
        while True:
            lot = packed(self.counts[tokens], bins)
            load = np.bincount(lot, self.counts[tokens], minlength=bins)
            if load.max() <= capacity:
                fullest = np.argsort(-load, kind="stable")
                return [tokens[lot == b] for b in fullest if load[b]]
            bins += 1

    def _split(self, g: int) -> None:
        """Make the facts of group g fit; does nothing if they do."""
        tokens = np.flatnonzero((self.group == g) & (self.counts > 0))
        if len(tokens) == 0:
            return
        if len(tokens) == 1:
            self._split_token(g, int(tokens[0]))
            return
        shard = self.parts[g][0]
        capacity = shard.heads * self.d_h
        small = tokens[self.counts[tokens] <= self._most(shard.heads)]
        total = int(self.counts[small].sum())
        if len(small) == len(tokens) and total <= capacity:
            return
        # Where a big token leaves, the others may fit as they are.
        bins = max(math.ceil(total / capacity), 1 if len(small) < len(tokens) else 2)
        lots = self._bins(small, capacity, bins) if len(small) else [tokens[:1]]
        stay = lots[0]
        leave = np.setdiff1d(tokens, stay)
        self.why.append(
            f"a shard of {int(self.counts[tokens].sum()):,} facts for {capacity:,} places was "
            f"split: {len(leave):,} of its {len(tokens):,} deciding tokens moved out"
        )
        shard.old = None
        before = len(self.parts)
        self._found(leave, shard.heads)
        for new in range(before, len(self.parts)):
            self._split(new)
        self._split(g)

    def _split_token(self, g: int, token: int) -> None:
        """One token: more sub-shards by bits of the other token, or more heads."""
        mine = np.flatnonzero(self.last == token)
        if self.other is None:
            shard = self.parts[g][0]
            if len(mine) > self._most(shard.heads):
                self._add_heads(shard, len(mine))
            return
        others = self.other[mine]
        sub = np.zeros(len(others), dtype=np.int64)
        for j in range(self.level[g]):
            sub = 2 * sub + (self.bits[others, j] > 0)
        while (
            np.bincount(sub, minlength=2 ** self.level[g])
            > [self._most(shard.heads) for shard in self.parts[g]]
        ).any():
            j = self.level[g]
            if j == MAX_LEVEL:
                raise CapacityError(
                    f"{len(mine):,} facts share a deciding token and are not told apart by "
                    f"{MAX_LEVEL} bits of the other. Build the memory again: it draws other bits."
                )
            if j == self.bits.shape[1]:
                bit = balanced_bit(sub, others, len(self.group), self.seed, j)
                self.bits = np.concatenate([self.bits, bit[:, None]], axis=1)
            sub = 2 * sub + (self.bits[others, j] > 0)
            self.level[g] = j + 1
            # Sub-shards belong to one token: former members without facts have to go.
            self.group[(self.group == g) & (self.counts == 0)] = -1
            # Both halves get the heads of the whole, so the next split is far away.
            self.parts[g] = [Shard(shard.heads) for shard in self.parts[g] for _ in range(2)]
            self.why.append(
                f"{len(mine):,} facts of one deciding token now lie in {2 ** (j + 1):,} sub-shards"
            )

    def _add_heads(self, shard: Shard, facts: int) -> None:
        most = SHARD if self.fixed_value else MAX_SHARD
        if facts > most:
            raise CapacityError(
                f"{facts:,} facts share a deciding token, which cannot be split here: at most "
                f"{most:,} fit one shard. Build the memory again"
                + (" with `gate=query`." if self.fixed_value else ", two key columns joined.")
            )
        shard.heads = math.ceil(facts * (1 + self.slack) / self._most(1))
        shard.old = None
        self.why.append(f"a shard of one deciding token grew to {shard.heads:,} heads")
