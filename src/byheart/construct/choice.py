"""The sizes that a build takes where none are given, and a preview of what it would make."""

from __future__ import annotations

import math
from collections.abc import Sized
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from byheart.construct.methods import AttentionOnly, Sharded
from byheart.construct.sharded.plan import LEAST_WIDTH, SHARD, plan
from byheart.construct.widths import OPTIMISED_UP_TO, frame_margin, smallest_width
from byheart.facts import Facts
from byheart.methods import SHARDED_FROM
from byheart.specs import AttentionOnlySpec, ShardedSpec, Spec
from byheart.theory import corollary1_capacity, corollary1_heads
from byheart.theory.bound import ceil_div
from byheart.theory.related import sharded_heads

# How much of H d_h + d a convex read-out is asked for at first; see docs/benchmarks.md.
CONVEX_LOAD = 1.25
OPTIMISED_MARGIN = 0.4  # what `smallest_width` aims at where answers repel each other


class FactCounts(Protocol):
    """What sizes depend on: a table of facts has it, or `Counts`."""

    @property
    def T(self) -> int: ...
    @property
    def N(self) -> int: ...
    @property
    def S(self) -> int: ...
    @property
    def answer_ids(self) -> Sized: ...
    @property
    def last_tokens(self) -> int: ...


@dataclass(frozen=True)
class Counts:
    """The counts of facts that are not at hand; last tokens as many as there can be."""

    T: int
    N: int
    S: int
    answer_ids: range

    @property
    def last_tokens(self) -> int:
        return min(self.T, self.N)


class Choice(NamedTuple):
    """A spec, and the reasons in words."""

    spec: AttentionOnlySpec
    why: tuple[str, ...]


def choose_attention_only(facts: FactCounts, options: AttentionOnly | None = None) -> Choice:
    """Fill in what is not given: width by the answers, d_h = d, heads by Corollary 1 plus slack.

    Parameters are d (S + 2N + 2 (r + d_h) H), about 2 d T (1 + r/d_h) for T facts: least for small
    d, large d_h and r = 1. Without `H` and `d_h` the rank of W_QK is 1 (Remark 2: enough); with
    them it is d_h, the layer of the paper, unless `qk_rank` says otherwise.
    """
    options = options or AttentionOnly()
    d, H, d_h, qk_rank = options.d, options.H, options.d_h, options.qk_rank
    A, why = len(facts.answer_ids), []
    if d is None:
        d = max(smallest_width(A), d_h or 1)
        why.append(f"d = {d}: the least width at which {A:,} answers keep a margin near 0.4")
    if qk_rank is None:
        qk_rank = 1 if H is None and d_h is None else (d_h or d)
        if qk_rank == 1 and H is None:
            why.append("rank(W_QK) = 1: enough (Remark 2) and fewest parameters")
    if d_h is None:
        d_h = d
        why.append("d_h = d: fewest query and key parameters per fact")
    if H is None:
        wanted = facts.T * (1 + options.slack)
        reason = f"{facts.T:,} facts and {options.slack:.0%} slack"
        if options.readout == "convex":
            wanted = facts.T / CONVEX_LOAD
            reason = f"{CONVEX_LOAD} facts for each of H·d_h (convex read-out)"
        H = max(1, math.ceil(wanted / d_h))
        why.append(f"H = {H}: H·d_h >= {wanted:,.0f}, {reason}")
    spec = attention_spec(facts, why, d=d, d_h=d_h, H=H, qk_rank=qk_rank)
    promised = corollary1_capacity(spec, facts.last_tokens)
    skip, last = f"{d}", facts.last_tokens
    if last < d:
        skip = f"{last} (the skip spans the {last} last tokens, not d = {d})"
    why.append(f"Corollary 1 promises H·d_h + d = {H * d_h:,} + {skip} = {promised:,} facts")
    return Choice(spec, tuple(why))


def attention_spec(
    facts: FactCounts, why: list[str], *, d: int, d_h: int, H: int, qk_rank: int
) -> AttentionOnlySpec:
    """The layer that reads these keys; `why` learns about the start token of keys of one token."""
    S, N = facts.S, facts.N
    if S == 1:
        S, N = 2, N + 1
        why.append(
            "a start token stands in front of every key: attention over one position is constant "
            "and would leave only the skip's d directions"
        )
    return AttentionOnlySpec(N=N, S=S, d=d, d_h=d_h, H=H, qk_rank=qk_rank)


class Preview(NamedTuple):
    """What `bh.build(facts)` would make: the method, the spec, the margin of its answers (`exact`:
    known beforehand), how it is stored, and where this differs from what the theorem counts."""

    method: str
    spec: Spec
    margin: float
    exact: bool
    dtype: str
    differs: tuple[str, ...]


def preview(facts: FactCounts) -> Preview:
    """The memory that the automatic method would make of facts, before any of it is made.

    >>> import byheart as bh
    >>> preview(bh.read_facts("countries")).spec.H
    56
    """
    if facts.T >= SHARDED_FROM:
        return _sharded(facts)
    spec, options = choose_attention_only(facts).spec, AttentionOnly()
    A, last = len(facts.answer_ids), facts.last_tokens
    least = corollary1_heads(facts.T, spec.d, spec.d_h, last)
    margin, exact = _margin(A, spec.d)
    differs = [
        f"H = {spec.H:,}, not the {least:,} of Corollary 1 at this d: the skip unused and "
        f"{options.slack:.0%} more, for a well-conditioned solve"
    ]
    if spec.d > 2 and A > 3:
        differs.append(
            f"d = {spec.d}, not 2: real numbers do with any margin; at d = 2 that of {A:,} answers "
            f"is {frame_margin(A, 2):.1e}, so that Corollary 1's "
            f"{corollary1_heads(facts.T, 2, 2, last):,} heads want float64 weights, and float32 "
            "ones many more heads, if they do at all"
        )
    if last < spec.d:
        differs.append(
            f"{last} different last tokens: the skip gives {last} facts, not d = {spec.d}, and so "
            "few queries make narrow heads nearly dependent"
        )
    return Preview("attention", spec, margin, exact, options.dtype, tuple(differs))


def _sharded(facts: FactCounts) -> Preview:
    """Heads from the sizes of the shards; packed full where the facts are not at hand."""
    options, A = Sharded(), len(facts.answer_ids)
    if isinstance(facts, Facts):
        layout = plan(facts, options)
        d_g, d_h, shards = layout.d_g, layout.d_h, len(layout.sizes)
        groups, bits = len(layout.level), layout.bits.shape[1]
        H = sum(math.ceil(int(size) * (1 + options.slack) / d_h) for size in layout.sizes)
    else:
        d_g = d_h = max(LEAST_WIDTH, smallest_width(A))
        groups = shards = ceil_div(facts.T, SHARD)
        bits, H = 0, sharded_heads(facts.T, d_h, SHARD, options.slack)
    spec = ShardedSpec(
        N=facts.N + 1, S=facts.S, d_g=d_g, d_h=d_h, H=H, groups=groups, shards=shards, lam=1.0,
        s1=0.5, bits=bits,
    )  # fmt: skip
    least = corollary1_heads(facts.T, d_g, d_h, facts.last_tokens)
    differs = (
        f"about H = {H:,}, not the {least:,} of Corollary 1 at this width: whole heads for each of "
        f"{shards:,} shards and {options.slack:.0%} more",
        f"d = {spec.d}: {d_g} coordinates for {A:,} answers, {spec.d - d_g} for the gates",
    )
    return Preview("sharded", spec, *_margin(A, d_g), options.dtype, differs)


def _margin(A: int, d: int) -> tuple[float, bool]:
    """The margin of the frame that is built for A answers in R^d, and whether that is exact."""
    optimised = d + 1 < A <= OPTIMISED_UP_TO and d > 2
    return (OPTIMISED_MARGIN, False) if optimised else (frame_margin(A, d), True)
