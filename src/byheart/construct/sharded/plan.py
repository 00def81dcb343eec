"""Which facts share which heads: the deciding column, the groups and the shards, with reasons.

Each group of facts has a lattice point P; a token that decides for it carries (s1 P, s2 |P|²), from
which heads read |P_g - P_t|² exactly: 0 for their own group, 1 or more for others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from byheart.construct.methods import Sharded
from byheart.construct.sharded.housing import MAX_SHARD, Housing, balanced_bits, packed
from byheart.construct.sharded.known import heads_of_column, one_head_each
from byheart.construct.widths import frame_margin, smallest_width
from byheart.errors import ByheartError, CapacityError
from byheart.facts import Facts
from byheart.specs import Gate

if TYPE_CHECKING:
    from byheart.models.attention_only import Weights

SHARD = 250  # facts: best for time, memory and conditioning between 100 and 250
LEAST_WIDTH = 8  # generic coordinates: below, condition numbers grow fast
# Tokens of at most this share of a shard pack evenly (within 3 % was measured at far less).
FINE = 1 / 8
# Heads per fact of the busiest first token (key gate): condition numbers fall fast up to here.
KEY_RESERVE = 1.5
# Margins that the stored format keeps: rounding moves a logit by 1e-6 (d_g = 16) to 1e-4 (d_g = 4)
# in float32, and by 1e-14 to 1e-12 in float64. Below these a build is not worth a try.
LEAST_MARGIN = {"float32": 1e-4, "float64": 1e-10}
BATCH_ENTRIES = 4_000_000  # of the Gram matrices of one batch: 32 MB
BATCH_ROWS = 65_536  # facts of one batch: many tiny shards have small matrices but many features
Ids = np.ndarray
Ints = Sequence[int] | np.ndarray
# Integer lattice codes, exact in float32: 4 |P|² <= 2^24 in each partial sum of a distance. Other
# codes (circle, sphere, random) have gaps that shrink with the number of groups and were measured
# to fail in float32 from some thousand groups on.
DIMENSIONS = {"lat1": 1, "lat2": 2}
MAX_GROUPS = {1: 4096, 2: 4_000_000}


@dataclass(frozen=True)
class Plan:
    """Everything about the layout of a sharded memory except its numbers.

    `deciding`: the key column that decides. `group` (N + 1,) of each token, -1 for tokens that
    decide for none; `level` and `first` (groups,) the number of bits read of the first token and
    the first shard of each group; `bits` (N + 1, kb) of each token, +1 or -1; `shard` (T,) of each
    fact; `sizes` (shards,); `subject` (N + 1,) 1 for tokens that may stand first (subject sink).
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
    gate: Gate
    k: int
    subject: np.ndarray | None

    def order(self, S: int) -> list[int]:
        """Key columns as the model reads them: as they are asked, unless the last must decide."""
        if self.gate != "query":
            return list(range(S))
        return [c for c in range(S) if c != self.deciding] + [self.deciding]


def plan(facts: Facts, options: Sharded | None = None, seed: int = 0) -> Plan:
    """Inspect the facts and lay out shards. What cannot be done is refused here, before any work,
    with an alternative.

    >>> import byheart as bh
    >>> made = plan(bh.random_associations(N=100, S=2, T=1000))
    >>> made.sizes.tolist(), made.order(2)
    ([250, 250, 250, 250], [0, 1])
    """
    options = options or Sharded()
    S, N, code = facts.S, facts.N, options.code or "lat2"
    gate = cast(Gate, options.gate or "query")
    _check_options(gate, options.shard_size or SHARD, S)
    if options.copies > 1 and gate == "subject-sink":
        raise ByheartError(
            f"`copies={options.copies}` with `gate=subject-sink`: every fact depends on every head "
            "there, and none can be zeroed alone. Use `gate=query`."
        )
    why: list[str] = []
    d_g, d_h = _widths(len(facts.answer_ids), options, why)
    shard = options.shard_size or (options.copies_fit(d_h) if options.copies > 1 else SHARD)
    # Facts of one head differ in their tokens already: sharp scores would only make features small.
    one_each = options.facts_per_head is not None
    housing = _housing(facts, options, shard, gate, seed)
    subject = _roles(facts) if gate == "subject-sink" else None
    group, level, groups = housing.group, housing.level, len(housing.level)
    _check_groups(groups, code, shard)
    first = np.cumsum(2**level) - 2**level
    shard_of_fact = housing.shards(facts.tokens)
    sizes = np.bincount(shard_of_fact, minlength=int((2**level).sum()))
    why.append(housing.reason)
    if gate == "key":
        counts = np.bincount(facts.tokens[:, housing.deciding], minlength=N)
        d_h = _key_head_width(d_h, options.d_h, counts, group, sizes, why)
    why += housing.more
    if options.facts_per_head is None and options.heads_by is None:
        why.append(
            f"{len(sizes):,} shards of {sizes.min():,} to {sizes.max():,} facts (aim {shard:,})"
            + (": best for time and conditioning" if shard == SHARD else ", as asked")
        )
    return Plan(
        deciding=housing.deciding,
        d_g=d_g,
        d_h=d_h,
        beta=1.0 if one_each else 4.0 if d_g >= 8 else 8.0 if d_g >= 4 else 32.0,
        group=group,
        level=level,
        first=first,
        bits=housing.bits,
        shard=shard_of_fact,
        sizes=sizes,
        why=tuple(why),
        gate=gate,
        k=DIMENSIONS[code],
        subject=subject,
    )


def _housing(facts: Facts, options: Sharded, shard: int, gate: Gate, seed: int) -> Housing:
    if options.facts_per_head is not None:
        return one_head_each(facts, options.facts_per_head, gate, seed)
    if options.heads_by is not None:
        return heads_of_column(facts, options.heads_by, gate)
    if options.copies > 1 and options.shard_size is None and gate == "query" and facts.S <= 2:
        return one_head_each(facts, shard, gate, seed)  # shards that each copy can hold whole
    return _shared_heads(facts, shard, gate, seed)


def _shared_heads(facts: Facts, shard: int, gate: Gate, seed: int) -> Housing:
    """Tokens packed into groups of nearly `shard` facts; hot ones split, where they can be."""
    deciding, reason = _deciding_column(facts, shard, gate)
    counts = np.bincount(facts.tokens[:, deciding], minlength=facts.N)
    hot = np.flatnonzero(counts > shard)
    cold = np.flatnonzero((counts > 0) & (counts <= shard))
    splits = facts.S == 2 and gate == "query"
    if len(hot) and not splits:
        _refuse_too_hot(facts, deciding, counts, gate, shard)
    group = np.full(facts.N + 1, -1, dtype=np.int64)  # the last id is BOS
    bins = math.ceil(counts[cold].sum() / shard)
    group[cold] = packed(counts[cold], bins)
    group[hot] = bins + np.arange(len(hot))
    level = np.zeros(bins + len(hot), dtype=np.int64)
    if splits:
        level[bins:] = np.ceil(np.log2(counts[hot] / shard)).astype(np.int64)
    kb = int(level.max(initial=0))
    other = facts.tokens[:, 1 - deciding] if kb else facts.tokens[:, 0]
    bits, more = balanced_bits(other, facts.N, kb, seed), ()
    if len(hot):
        split = f"up to {2**kb} sub-shards by {kb} bits of the other token"
        more = (
            f"{len(hot):,} hot tokens with more than {shard:,} facts (largest "
            f"{counts[hot].max():,}): {split if kb else 'one shard each'}",
        )
    return Housing(deciding, reason, group, level, bits, more)


def _check_groups(groups: int, code: str, shard: int) -> None:
    most = MAX_GROUPS[DIMENSIONS[code]]
    if groups > most:
        raise CapacityError(
            f"{groups:,} groups of facts, {code} codes are exact up to {most:,}. Use "
            f"{'code lat2' if code == 'lat1' else 'fewer facts'} or a `shard_size` of "
            f"{math.ceil(groups * shard / most):,} or more."
        )


def _check_options(gate: Gate, shard: int, S: int) -> None:
    if shard > MAX_SHARD:
        raise ByheartError(
            f"`shard_size` must lie between 1 and {MAX_SHARD:,} facts (time grows like its 1.5th "
            f"power, {SHARD} is a good value), found {shard:,}"
        )
    if gate == "key" and S != 2:
        raise ByheartError(
            f"`gate=key` reads the first of two key tokens and shuts the second out, found keys of "
            f"{S}. Use `gate=query` (any length; the deciding column is read last)"
            + (", or `gate=subject-sink`." if S > 2 else ".")
        )
    if gate == "subject-sink" and S < 2:
        raise ByheartError("`gate=subject-sink` needs keys of at least 2 tokens. Use `gate=query`.")


def _widths(A: int, options: Sharded, why: list[str]) -> tuple[int, int]:
    d_g, d_h, dtype = options.d, options.facts_per_head or options.d_h, options.dtype
    if d_g is None:
        d_g = max(LEAST_WIDTH, smallest_width(A), d_h or 1)
        why.append(f"d_g = {d_g}: the least width at which {A:,} answers keep a margin near 0.4")
    if d_g < 2:
        raise ByheartError(f"`d` must be at least 2 for a sharded memory, found {d_g}")
    d_h = d_h or d_g
    if d_h > d_g:
        name = "d_h" if options.facts_per_head is None else "facts_per_head"
        found = f"`{name}` must be at most the width d_g = {d_g}, found {d_h}"
        raise ByheartError(f"{found}. Use `{name}={d_g}`, or `d={d_h}`.")
    margin, least = frame_margin(A, d_g), LEAST_MARGIN[dtype]
    if margin < least:
        needed = next(d for d in range(d_g + 1, 10_000) if frame_margin(A, d) >= least)
        other = " or `dtype=float64`" if margin >= LEAST_MARGIN["float64"] else ""
        raise CapacityError(
            f"{A:,} distinct answers in d_g = {d_g} dimensions leave a margin of about "
            f"{margin:.0e}, {dtype} keeps margins from {least:.0e} on. Use `d={needed}` or more "
            f"({smallest_width(A)} for a margin near 0.4){other}."
        )
    return d_g, d_h


def _deciding_column(facts: Facts, shard: int, gate: Gate) -> tuple[int, str]:
    """The column with the fewest facts under tokens too common for a shard, then under tokens too
    common to pack evenly, then with the cheapest shards; the last on a tie. Gates that leave the
    order alone take the first."""
    names = facts.columns or [str(c + 1) for c in range(facts.S)]
    if gate != "query":
        return 0, f"column {names[0]!r} decides the shard ({gate} gate: keys are read as asked)"
    hot, coarse, largest = [], [], []
    for column in range(facts.S):
        counts = np.bincount(facts.tokens[:, column], minlength=facts.N)
        hot.append(int(counts[counts > shard].sum()))
        coarse.append(int(counts[counts > max(1, FINE * shard)].sum()))
        # Keys of two split hot tokens, and the largest does not matter.
        largest.append(int(counts.max()) if hot[-1] and facts.S > 2 else 0)
    best = min(range(facts.S), key=lambda c: (hot[c], coarse[c], largest[c], -c))
    reason = f"column {names[best]!r} decides the shard"
    if best != facts.S - 1:
        few = f"{hot[-1]:,} facts would share hot tokens"
        if hot[-1] == hot[best]:
            few = f"{coarse[-1]:,} facts have tokens too common to pack evenly"
        if (hot[-1], coarse[-1]) == (hot[best], coarse[best]):
            few = f"one token would have {largest[-1]:,} facts instead of {largest[best]:,}"
        reason += f" and is read last: by the last column {few}"
    return best, reason


def _roles(facts: Facts) -> np.ndarray:
    """1 for tokens that may stand first; refuse tables where one of them stands elsewhere too."""
    elsewhere = np.unique(facts.tokens[:, 1:])
    both = np.intersect1d(facts.tokens[:, 0], elsewhere)
    if len(both):
        examples = ", ".join(repr(facts.vocabulary.token(int(t))) for t in both[:3])
        raise ByheartError(
            f"`gate=subject-sink` needs tokens with one role each: {len(both):,} tokens stand both "
            f"first and elsewhere in a key, such as {examples}, and would attract heads there. "
            "Use `gate=query`, or give the tokens of the first column names of their own."
        )
    subject = np.ones(facts.N + 1, dtype=np.int8)
    subject[elsewhere] = subject[-1] = 0
    return subject


def _refuse_too_hot(facts: Facts, deciding: int, counts: np.ndarray, gate: Gate, shard: int):
    """Tokens whose facts can be neither split nor solved at once."""
    worst = int(counts.argmax())
    if counts[worst] <= MAX_SHARD and gate != "key":
        return
    what, other = f"keys of {facts.S} tokens", ""
    if gate != "query":
        better = "splits hot tokens of keys of 2" if facts.S == 2 else "may find a better column"
        what, other = f"the {gate} gate", f"`gate=query`, which {better}, "
    raise CapacityError(
        f"{counts[worst]:,} of {facts.T:,} facts share the deciding token "
        f"{facts.vocabulary.token(worst)!r} (column {deciding + 1}), and {what} "
        f"cannot split them: at most {shard if gate == 'key' else MAX_SHARD:,} fit one shard. "
        f"Use {other}`method=attention` (up to about 10,000 facts), or join two key columns into "
        "one."
    )


def _key_head_width(
    d_h: int, asked: int | None, counts: Ids, group: Ids, sizes: Ids, why: list[str]
) -> int:
    """d_h for the key gate: facts with the same first token have features in as many dimensions as
    their shard has heads, n_g / d_h of them, which must be more than one token has facts."""
    busiest = np.zeros(len(sizes), dtype=np.int64)  # one shard a group
    used = np.flatnonzero(counts)
    np.maximum.at(busiest, group[used], counts[used])
    most = max(1, int((sizes / (KEY_RESERVE * busiest)).min()))
    if asked is not None and asked > most:
        raise ByheartError(
            f"`d_h` must be at most {most} with `gate=key`: facts with the same first token "
            f"(up to {busiest.max():,} in a shard of {sizes[busiest.argmax()]:,}) need a head each "
            f"and some to spare, found {asked}. Leave it out, or use `gate=query`."
        )
    if asked is None:
        d_h = min(d_h, most)
        why.append(
            f"d_h = {d_h}: a shard needs more heads than one first token has facts "
            f"(up to {busiest.max():,})"
        )
    return d_h


def layout_weights(
    group: np.ndarray, level: Ints, point: np.ndarray, heads: Ints, bits: np.ndarray
) -> Weights:
    """The layout as stored: shards are numbered group by group, and have so many `heads` each."""
    import torch  # a plan alone does without

    first = np.cumsum(2 ** np.asarray(level)) - 2 ** np.asarray(level)
    whole = {"point": point, "group": group, "level": np.asarray(level), "first": first}
    made = {name: torch.from_numpy(array).int() for name, array in whole.items()}
    made["head_start"] = torch.from_numpy(np.concatenate([[0], np.cumsum(heads)]))
    return made | ({"bits": torch.from_numpy(bits)} if bits.shape[1] else {})


class Batch(NamedTuple):
    """Shards of similar size that are solved together; all get `heads` heads. `equal`: each of
    them an equal share of what is written (`shares`)."""

    shards: np.ndarray
    heads: int
    size: int
    equal: bool = False


def batches(sizes: np.ndarray, d_h: int, slack: float, needed: np.ndarray) -> list[Batch]:
    """Shards from large to small in padded batches; a fixed function of the sizes and the unknowns
    `needed`, so that any number of workers solves the same batches and gets the same bytes."""
    order = np.argsort(-sizes, kind="stable")
    made, i = [], 0
    while i < len(order):
        size = max(1, int(sizes[order[i]]))
        count = max(1, min(BATCH_ENTRIES // size**2, BATCH_ROWS // size))
        some = order[i : i + count]
        # Padding costs work: no shard is padded to more than 9/8 of its size.
        some = some[sizes[some] * 9 >= size * 8] if size > 16 else some
        heads = max(1, int(np.ceil(needed[some].max() * (1 + slack) / d_h)))
        made.append(Batch(some, heads, size))
        i += len(some)
    return made


class Lattice(NamedTuple):
    """`points` (groups, k) int64, centred, distinct; `far` a point outside that opens no head;
    `s1`, `s2` the powers of two that scale coordinates and |P|² to at most 1."""

    points: np.ndarray
    far: np.ndarray
    s1: float
    s2: float


def lattice(groups: int, k: int = 2) -> Lattice:
    """The first `groups` points of a line (k = 1, "lat1") or a square (k = 2, "lat2")."""
    side = groups if k == 1 else math.isqrt(groups - 1) + 1
    index = np.arange(groups, dtype=np.int64)
    columns = (index,) if k == 1 else (index // side, index % side)
    points = np.stack(columns, axis=1) - side // 2
    far = np.full(k, side - side // 2, dtype=np.int64)
    # No coordinate exceeds side // 2 + 1, so s1 |coordinate| < 1 and, over k of them, s2 |P|² < 1.
    s1 = 2.0 ** -math.ceil(math.log2(side // 2 + 2))
    return Lattice(points, far, s1, s1 * s1 / k)
