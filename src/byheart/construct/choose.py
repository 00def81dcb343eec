"""The smallest spec for given facts, and why."""

from __future__ import annotations

import math
from dataclasses import dataclass

from byheart.construct.frames import OPTIMISED_UP_TO, hamming_width
from byheart.construct.methods import AttentionOnly
from byheart.errors import ByheartError
from byheart.facts import Facts
from byheart.specs import AttentionOnlySpec
from byheart.theory import corollary1_capacity

# How much of H d_h + d a convex read-out is asked for at first; see docs/benchmarks.md.
CONVEX_LOAD = 1.25


@dataclass(frozen=True)
class Choice:
    """A spec, the reasons in words, and whether the number of heads was ours to choose."""

    spec: AttentionOnlySpec
    why: tuple[str, ...]
    heads_free: bool


def smallest_width(answers: int) -> int:
    """The width at which a frame of A rows keeps a margin near 0.4: max(4, 2 + ceil(log2 A)) up to
    2,048 answers, that of the Hamming code (`hamming_width`) above.

    d = 2 is enough in exact arithmetic (Proposition 3), but its margin 1 - cos(2π/A) falls like
    20/A², below what float32 weights keep.

    >>> [smallest_width(A) for A in (1, 10, 350, 5000)]
    [4, 6, 11, 19]
    """
    if answers > OPTIMISED_UP_TO:
        return hamming_width(answers)
    return max(4, 2 + math.ceil(math.log2(max(1, answers))))


def check_width(d: int | None, answers: int) -> None:
    """Refuse widths that cannot tell the answers apart."""
    if d == 1 and answers > 2:
        raise ByheartError(
            f"`d=1` tells at most 2 answers apart, these facts have {answers} "
            "(Dana et al. 2025, Proposition 3: d = 2 is enough). Use `d=2` or more."
        )


def choose_attention_only(facts: Facts, options: AttentionOnly | None = None) -> Choice:
    """Fill in what is not given: width by the answers, d_h = d, heads by Corollary 1 plus slack.

    Parameters are d (S + 2N + 2 (r + d_h) H), about 2 d T (1 + r/d_h) for T facts: least for small
    d, large d_h and r = 1. Without `H` and `d_h` the rank of W_QK is 1 (Remark 2: enough); with
    them it is d_h, the layer of the paper, unless `qk_rank` says otherwise.
    """
    options = options or AttentionOnly()
    d, H, d_h, qk_rank = options.d, options.H, options.d_h, options.qk_rank
    A, why = len(facts.answer_ids), []
    check_width(d, A)
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
    heads_free = H is None
    if H is None:
        wanted = facts.T * (1 + options.slack)
        reason = f"{facts.T:,} facts and {options.slack:.0%} slack"
        if options.readout == "convex":
            wanted = facts.T / CONVEX_LOAD
            reason = f"{CONVEX_LOAD} facts for each of H·d_h (convex read-out)"
        H = max(1, math.ceil(wanted / d_h))
        why.append(f"H = {H}: H·d_h >= {wanted:,.0f}, {reason}")
    S, N = facts.S, facts.N
    if S == 1:
        S, N = 2, N + 1
        why.append(
            "a start token stands in front of every key: attention over one position is constant "
            "and would leave only the skip's d directions"
        )
    spec = AttentionOnlySpec(N=N, S=S, d=d, d_h=d_h, H=H, qk_rank=qk_rank)
    promised = corollary1_capacity(spec, facts.last_tokens)
    skip, last = f"{d}", facts.last_tokens
    if last < d:
        skip = f"{last} (the skip spans the {last} last tokens, not d = {d})"
    why.append(f"Corollary 1 promises H·d_h + d = {H * d_h:,} + {skip} = {promised:,} facts")
    return Choice(spec, tuple(why), heads_free)
