"""What an edit adds, and who lives where after it.

New rows for tokens, answers, lattice points, bits and heads are appended, and each depends on the
memory's seed and its own number only: the same edits give the same bytes, in one step or several.
New deciding tokens move in where there is most room; a shard that overflows is split, a group of
several tokens into several groups, a single token (keys of two) by one more bit of the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from byheart.construct.attention_only import TOKEN_SHARE
from byheart.construct.frames import hamming, word_numbers
from byheart.construct.sharded.plan import LEAST_MARGIN, MAX_SHARD, SHARD, layout_weights, packed
from byheart.construct.widths import hamming_width, smallest_width
from byheart.errors import CapacityError
from byheart.facts import Facts
from byheart.models.attention_only import Weights
from byheart.specs import ShardedSpec

MAX_LEVEL = 16  # bits that are read of the other token: 65,536 sub-shards
TOKEN, HEAD, ANSWER, BIT = range(4)  # what a random stream is for
CANDIDATES = 256  # random directions tried for a new answer before the best is refined
REFINEMENTS = 120  # steps of refinement
REFINED_PAIRS = 2**23  # inner products in a step of refinement; beyond, the first guess is kept


def stream(seed: int, purpose: int, number: int) -> np.random.Generator:
    """The random numbers of one new row."""
    return np.random.default_rng([seed, purpose, number])


def token_rows(seed: int, first: int, count: int, d_g: int) -> Tensor:
    """Generic embeddings N(0, 0.7/d_g) of the tokens first..first + count - 1: (count, d_g)."""
    rows = [stream(seed, TOKEN, first + i).standard_normal(d_g) for i in range(count)]
    return torch.from_numpy(np.array(rows)).reshape(count, d_g) * math.sqrt(TOKEN_SHARE / d_g)


def free_points(taken: np.ndarray, far: np.ndarray, count: int, limit: int) -> np.ndarray:
    """`count` lattice points that are neither `taken` (groups, k) nor `far`, nearest to 0 first.
    `limit`: distances are exact while 4 |P|² <= limit (`certificates.sharded.exact_gates`)."""
    k = taken.shape[1]
    used = np.concatenate([taken, far[None]])
    # A cube of this many points holds all that is used and `count` more.
    radius = math.ceil(((len(used) + count) ** (1 / k) - 1) / 2) + 1
    cube = np.indices((2 * radius + 1,) * k).reshape(k, -1).T - radius
    nearest = cube[np.argsort(np.abs(cube).max(1), kind="stable")]
    place = (2 * max(radius, int(np.abs(used).max())) + 1) ** np.arange(k)
    free = nearest[~np.isin(nearest @ place, used @ place)][:count]
    if 4 * int((free**2).sum(1).max()) > limit:
        raise CapacityError(
            f"no lattice point is left for group {len(taken) + 1:,}: beyond, distances are not "
            "exact. Build the memory again: its shards will be fuller, so there are fewer groups."
        )
    return free


def balanced_bit(classes: np.ndarray, tokens: np.ndarray, N: int, seed: int, j: int) -> np.ndarray:
    """A new bit (N,), number j: random signs, but every class of `tokens` is split in halves."""
    bit = (2 * stream(seed, BIT, -1 - j + 2**32).integers(0, 2, N) - 1).astype(np.int8)
    order = np.lexsort((tokens, classes))
    starts = np.flatnonzero(np.diff(classes[order], prepend=-1))
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    bit[tokens[order]] = np.where(rank & 1, 1, -1)
    return bit


def answer_rows(W: Tensor, count: int, seed: int, least: float) -> tuple[Tensor, float]:
    """`count` unit rows (count, d) for new answers beside the rows W (A, d), and their margin
    1 - max w_new·w over all other rows, which must be at least `least`: the next words of the
    Hamming code, if W are its first ones; else random directions, moved away from the others."""
    A, d = W.shape
    rows, margin = _next_words(W, count), 8 / d
    if rows is None:
        rows = _repelled(W, count, seed)
        margin = 1 - _closest(rows, W)
    if margin < least:
        raise CapacityError(
            f"{count:,} new answer{'s'[: count > 1]} beside {A:,} in R^{d}: the best margin found "
            f"is {margin:.2g}, the stored number format needs {least:.2g}. Build the memory again "
            f"with `d={max(smallest_width(A + count), d + 1)}`, which keeps about 0.4."
        )
    return rows, margin


def _next_words(W: Tensor, count: int) -> Tensor | None:
    """The code words that follow those in W; None if W is another frame or the code is full."""
    A, d = W.shape
    signs = W.abs() * math.sqrt(d)
    if d < 4 or not bool(((signs - 1).abs() < 1e-5).all()) or hamming_width(A + count) > d:
        return None
    words = hamming(A + count, d)
    # As sets: answers and words were matched in the order of ids at build time.
    if not torch.equal(word_numbers(words[:A]).sort().values, word_numbers(W).sort().values):
        return None
    return words[A:]


def _repelled(W: Tensor, count: int, seed: int) -> Tensor:
    """One after the other into the widest gap found; then all new rows move, W stays."""
    A, d = W.shape
    made = torch.empty(count, d, dtype=torch.float64)
    for i in range(count):
        draw = stream(seed, ANSWER, A + i).standard_normal((CANDIDATES, d))
        tried = torch.nn.functional.normalize(torch.from_numpy(draw))
        cosines = tried @ torch.cat([W, made[:i]]).T
        made[i] = tried[cosines.amax(1).argmin()]
    best, best_closest = made, _closest(made, W)
    if count * (A + count) > REFINED_PAIRS:
        return best
    for step in range(REFINEMENTS):
        # Away from the nearest neighbours, tangent to the sphere, by a length of 1 at most.
        C, others = _cosines(made, W)
        push = torch.softmax((20.0 + step) * C, dim=1) @ others
        push = push - (push * made).sum(1, keepdim=True) * made
        push = push / push.norm(dim=1, keepdim=True).clamp_min(1.0)
        made = made - 0.1 * (1 - step / REFINEMENTS) * push
        made = torch.nn.functional.normalize(made)
        now = _closest(made, W)
        if now < best_closest:
            best, best_closest = made, now
    return best


def _closest(rows: Tensor, W: Tensor) -> float:
    """max w_i·w_j between a new row and any other; 0 at least: tokens that are no answers."""
    largest, step = 0.0, max(1, REFINED_PAIRS // (len(W) + len(rows)))
    for i in range(0, len(rows), step):
        others = torch.cat([W, rows[:i], rows[i + step :]])
        largest = max(largest, float(_cosines(rows[i : i + step], others)[0].max()))
    return largest


def _cosines(rows: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
    others = torch.cat([W, rows])
    C = rows @ others.T
    here = torch.arange(len(rows))
    C[here, len(W) + here] = -2.0
    return C, others


def with_tokens(spec: ShardedSpec, weights: Weights, count: int, seed: int) -> Weights:
    """Rows for `count` tokens between the known ones and BOS, which stays last."""
    first = spec.N - 1
    rows = {"W_E": token_rows(seed, first, count, spec.d_g), "group": torch.full((count,), -1)}
    if spec.bits:  # random signs
        drawn = [stream(seed, BIT, first + i).integers(0, 2, spec.bits) for i in range(count)]
        rows["bits"] = torch.from_numpy(2 * np.array(drawn) - 1)
    made = {
        name: torch.cat([weights[name][:-1], new.to(weights[name].dtype), weights[name][-1:]])
        for name, new in rows.items()
    }
    W_U = weights["W_U"]
    blank = W_U.new_zeros(spec.d_g, count)
    return made | {"W_U": torch.cat([W_U[:, :-1], blank, W_U[:, -1:]], dim=1)}


def place_answers(facts: Facts, weights: Weights, ideal: float, seed: int) -> tuple[int, float]:
    """Columns of W_U for answers that have none; how many, and the margin of the frame."""
    W_U = weights["W_U"]
    used = (W_U != 0).any(0)
    answers = torch.from_numpy(facts.answer_ids.copy())
    new = answers[~used[answers]]
    if not len(new):
        return 0, ideal
    least = LEAST_MARGIN[str(W_U.dtype).removeprefix("torch.")]
    rows, margin = answer_rows(W_U[:, used].T.double(), len(new), seed, least)
    W_U = W_U.clone()
    W_U[:, new] = rows.T.to(W_U.dtype)
    weights["W_U"] = W_U
    return len(new), min(ideal, margin)


def draw_heads(spec: ShardedSpec, weights: Weights, heads: int, beta: float, seed: int) -> None:
    """More tied heads u, w (d_g,) and V (d_g, d_h) behind the stored ones, drawn as they were, if a
    shard has more than any had."""
    rows: dict[str, list[np.ndarray]] = {"u": [], "w": [], "V": []}
    for j in range(len(weights["u"]), heads):
        draw = stream(seed, HEAD, j)
        rows["u"].append(beta * draw.standard_normal(spec.d_g))
        rows["w"].append(draw.standard_normal(spec.d_g))
        rows["V"].append(np.linalg.qr(draw.standard_normal((spec.d_g, spec.d_h))).Q)
    for name, new in rows.items() if rows["u"] else ():
        w = weights[name]
        weights[name] = torch.cat([w, torch.from_numpy(np.array(new)).to(w.dtype)])


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
        none = np.ones((len(self.group), 0), np.int8)
        self.bits = weights["bits"].numpy() if spec.bits else none
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

    def stored(self) -> Weights:
        heads = [shard.heads for shard in self.shards]
        return layout_weights(self.group, self.level, self.point, heads, self.bits)

    def settle(self, touched: np.ndarray) -> None:
        """House every deciding token, and split what overflows; only groups of the deciding tokens
        `touched` can."""
        self._move_in(np.flatnonzero((self.counts > 0) & (self.group < 0)))
        for g in np.unique(self.group[touched]).tolist():
            self._split(g)

    def _most(self, heads: int) -> int:
        """Facts of one deciding token that `heads` heads can hold."""
        return heads if self.fixed_value else heads * self.d_h

    def _move_in(self, homeless: np.ndarray) -> None:
        """Tokens that now decide, most facts first, each to the group with most room."""
        if not len(homeless):
            return
        housed = self.group >= 0
        load = np.bincount(self.group[housed], self.counts[housed], minlength=len(self.parts))
        capacity = np.array([p[0].heads * self.d_h for p in self.parts])
        room = np.where(np.array(self.level) == 0, capacity - load.astype(np.int64), -1)
        left = []
        for t in homeless[np.argsort(-self.counts[homeless], kind="stable")].tolist():
            g = int(room.argmax())
            if min(room[g], self._most(self.parts[g][0].heads)) < self.counts[t]:
                left.append(t)
                continue
            self.group[t] = g
            room[g] -= self.counts[t]
        # As many heads as a full shard has, so that others can move in; in a memory of small
        # shards as many as its largest has.
        full = math.ceil(SHARD * (1 + self.slack) / self.d_h)
        largest = max(shard.heads for shard in self.shards)
        self._found(np.array(left, dtype=np.int64), min(largest, full))

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
        if len(tokens) < 2:
            for token in tokens.tolist():
                self._split_token(g, token)
            return
        shard = self.parts[g][0]
        capacity = shard.heads * self.d_h
        small = tokens[self.counts[tokens] <= self._most(shard.heads)]
        total = int(self.counts[small].sum())
        if len(small) == len(tokens) and total <= capacity:
            return
        # Where a big token leaves, the others may fit as they are.
        bins = max(math.ceil(total / capacity), 1 if len(small) < len(tokens) else 2)
        stay = self._bins(small, capacity, bins)[0] if len(small) else tokens[:1]
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
            if len(mine) > self._most(self.parts[g][0].heads):
                self._add_heads(self.parts[g][0], len(mine))
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
