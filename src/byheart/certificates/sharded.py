"""The certificate of a sharded memory: it covers the whole literal layer without evaluating every
head for every fact.

For a fact t of shard g the residual stream of the literal layer is

    x_S + Σ_{own heads} W_O^h F^h(t) + leak(t)      = w_{g(t)} + δ(t) + leak(t)

1. Gates are exact: lattice points are integers and every scale a power of two, so the stored gate
   entries are the exact reals and dist(g, g') is a whole number, 0 for the own shard, >= 1 for any
   other (`premises` checks what this needs, in integers). Own heads therefore see gates of exactly
   0, in the stored format too, in whatever order a query or key is summed.
2. Own heads: float64 with the error bounds of `arithmetic`.
3. Leak, query and key gate: a foreign head's real tokens score at most s_max - λ against 0 for BOS
   (key gate: position 1 loses λ dist, position S 2 λ; sub-shards: λ a wrong bit and 2 λ), so they
   get at most S e^{s_max - λ} of the attention, and x_BOS = 0 contributes nothing:
   |leak| <= Σ_h S e^{s_max - λ} max_s |V_j x_s| ||W_O^h||_F. Where own heads shut position S by
   2 λ, its share e^{s_max - 2 λ} is counted with them.
4. Leak, subject sink: every other position, BOS too, scores at most s_max - λ against x_1, where
   s_max now bounds |u·x_S|(|w·x_s| + |w·x_1|). With E = Σ cancel + Σ_h V^h W_O^h (0 but for the
   rounding of `cancel`) and cancelling heads that score λ on x_1 and 0 elsewhere,

       Σ_{foreign} + cancelling = x_1 E - Σ_{own} W_O^h V^h x_1 + leak,
       |leak| <= S 2 max|x| (e^{s_max - λ} Σ_h ||V_j||_F ||W_O^h||_F + e^{-λ} ||cancel||_F).

   So own heads count as V (A - x_1), and |x_1| ||E||_F joins the leak. E is summed in float64, with
   its own error bound. Facts in which a subject stands elsewhere are not covered, and not proved.
5. Margin: (w_g - w_j)·(w_g + δ + leak) >= [w_g·w_g - max_j w_g·w_j] - 2 max|w| (|δ| + |leak|). The
   bracket belongs to the frame, and is computed once per answer, not once per fact.
6. Every evaluation in the stored format with unit roundoff u, of the own heads alone or of the
   literal layer with queries and keys first. Gates are exact. Queries and keys of foreign heads are
   off by γ |x||u| (in s_max); while γ_n <= 2^-9 for all of their sums, their scores then grow by
   at most 2^-8 (s_max + λ), what they write by 1 + 2^-8 and by what underflows. Rounding enlarges a
   sum of n foreign terms e^{n u} times at most. Adding it to a partial sum with own terms rounds by
   at most the smaller summand (to nearest), and enlarges what later additions round by less than
   itself: |leak| counts 3 e^{n u} times. W_U rounds a logit by at most γ_{d+2} max|w| (max|w| + |δ|
   + |leak|). Nothing may overflow. With a subject sink only the own heads are covered: the literal
   layer cancels sums too large for that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from byheart._progress import Report
from byheart.certificates.arithmetic import (
    EXACT,
    FLOAT64,
    Bounded,
    Format,
    Rounding,
    U,
    finite,
    gamma,
)
from byheart.certificates.premises import premises
from byheart.certificates.proving import Asked, Margins, Own, prove
from byheart.certificates.statement import Certificate
from byheart.certificates.tokens import prove_answers, token_margins
from byheart.construct.frames import hamming_margin
from byheart.errors import ByheartError
from byheart.models.attention_only import Weights
from byheart.models.folder import DIGESTS, INDEX, WEIGHTS
from byheart.models.memory import FactTable
from byheart.models.sharded import heads_sum, last_shut, shard_of
from byheart.models.sharded_memory import ShardedMemory, shard_sha256
from byheart.specs import ShardedSpec

ROWS_AT_ONCE = 8192  # facts in one batch of own heads
FRAME_ROWS = 1024  # answers in one block of frame margins
HEADS_AT_ONCE = 1024  # untied heads whose largest scores are bounded together
LITERAL_PARAMETERS = 2_000_000  # of a layer that is evaluated head by head
# Every bound below is a sum of fewer than 2^20 positive float64 terms: this covers its rounding.
INFLATE = 1 + 2.0**-30
# Entries below 2^-511 are lost when a norm squares them; this is more than all of them.
FAINT = 2.0**-500
WIDER = 2.0**-8  # relative growth of what foreign heads score and write in a rounded evaluation
COVERS = {
    "subject-sink": "own heads alone, not the literal layer",
    "": "own heads alone, or the literal layer with queries and keys first",
}


@prove.register
def prove_sharded(memory: ShardedMemory, facts: FactTable, asked: Asked) -> Certificate:
    """Shard by shard in float64; other arithmetics evaluate every head of the literal layer."""
    told = premises(memory.spec, memory.tensors)

    def evaluate(tokens: np.ndarray, right: np.ndarray, format: Format) -> Margins:
        if asked.arithmetic != "rounding":
            if memory.spec.parameters > LITERAL_PARAMETERS:
                raise ByheartError(
                    f"the literal layer has {memory.spec.parameters:,} parameters, every one of "
                    "which this arithmetic would evaluate for every fact (limit "
                    f"{LITERAL_PARAMETERS:,}). The default, float64 with error bounds, covers it "
                    "shard by shard."
                )
            return token_margins(memory.to_dense(), tokens, right, asked)
        ids, answers = memory.in_order(tokens), torch.from_numpy(right.copy())
        return sharded_margins(memory.spec, memory.tensors, ids, answers, asked.progress, format)

    sums = shard_sums(memory.tensors)
    own = {"shard_sha256": sums, "premises": told} if asked.arithmetic == "rounding" else None
    made = prove_answers(memory, facts, asked, evaluate, covers(memory.spec), own)
    said = memory.weights.get(DIGESTS)
    if said is None or said.numpy().tobytes().hex() == "".join(sums):
        return made
    other = f"shards of {WEIGHTS} differ from their SHA-256 in {INDEX}"
    return replace(made, certified=False, passed=False, damage=(other,))


def covers(spec: ShardedSpec) -> str:
    """`EvaluationProof.covers` of a sharded memory."""
    return COVERS.get(spec.gate, COVERS[""])


def shard_sums(weights: Weights) -> tuple[str, ...]:
    """SHA-256 of the W_O of every shard, in hexadecimal digits."""
    starts = weights["head_start"].tolist()
    return tuple(shard_sha256(weights["W_O"], a, b).hex() for a, b in pairwise(starts))


@dataclass(frozen=True)
class Leak:
    """Bounds that hold for all facts: `foreign` on everything that is not own heads,
    `shut` on what a shut position can add to its own heads, per unit of Σ_h ||W_O^h||_F |x|."""

    foreign: float
    shut: float


def sharded_margins(
    spec: ShardedSpec,
    weights: Weights,
    tokens: Tensor,
    right: Tensor,
    progress: Report,
    format: Format = EXACT,
) -> Margins:
    """Margins (T,) of the frame and bounds (T,) on what errors and leaks can take from them, with
    the own errors (`update` proves edits with them).

    `tokens` (T, S) as the model reads them, without BOS; `right` (T,) the answers. The weights must
    have passed `premises`.
    """
    if not finite(weights):
        return Margins.nowhere(len(tokens))
    frame, longest = frame_margins(weights["W_U"].double(), right)
    leak = leaks(spec, weights, tokens, format)
    distance, shards = own_distances(spec, weights, tokens, right, leak, progress, format)
    bounds = error_bounds(spec, distance, leak, longest, format)
    own = Own(shards.numpy(), distance.numpy(), spec.shards)
    return Margins(frame.numpy(), bounds.numpy(), own)


def error_bounds(
    spec: ShardedSpec, distance: Tensor, leak: Leak, longest: float, format: Format = EXACT
) -> Tensor:
    """Steps 5 and 6: 2 max|w| (|δ| + |leak| + γ (max|w| + |δ| + |leak|)), rounded up; NaN where
    anything is not finite, or a logit may overflow."""
    mixed = format.u and spec.gate != "subject-sink"
    times = 3 * math.exp(min(spec.H * spec.d_h * format.u, 600.0)) if mixed else 1.0
    off = distance + times * leak.foreign
    size = longest + off
    reading = gamma(spec.d_g + 2, format.u) * size
    lost = 8 * spec.d_g * (FLOAT64.tiny + format.tiny) * (1 + size)
    bounds = (2 * longest * (off + reading) + lost) * INFLATE
    fits = torch.isfinite(bounds) & (longest * size < format.huge)
    return torch.where(fits, bounds, torch.nan)


def own_distances(
    spec: ShardedSpec,
    weights: Weights,
    tokens: Tensor,
    right: Tensor,
    leak: Leak,
    progress: Report,
    format: Format = EXACT,
) -> tuple[Tensor, Tensor]:
    """|x_S + Σ_own W_O^h F^h - w_g| of each fact, rounded up, NaN where no shard owns the key; and
    the shards that do."""
    distance = torch.full((len(tokens),), torch.nan, dtype=torch.float64)
    shards = shard_of(weights, tokens)
    covered = (tokens != spec.N - 1).all(1)  # x_BOS = 0 closes no gate
    if spec.gate == "subject-sink":
        subject = weights["subject"][tokens]
        covered &= (subject[:, 0] == 1) & (subject[:, 1:] == 0).all(1)
    shards = torch.where(covered, shards, -1)
    order = shards.argsort(stable=True)
    order = order[shards[order] >= 0]  # a key that no shard owns is not recalled
    for i in range(0, len(order), ROWS_AT_ONCE):
        rows = order[i : i + ROWS_AT_ONCE]
        here = (tokens[rows], right[rows], shards[rows])
        distance[rows] = _own_error(spec, weights, *here, leak, format)
        progress(f"{i + len(rows):,} of {len(order):,} facts")
    return distance, shards


def frame_margins(W_U: Tensor, right: Tensor) -> tuple[Tensor, float]:
    """Per fact a lower bound on w_g·w_g - max_{j != g} w_g·w_j over all tokens, and max |w|.

    Inner products of d terms are off by at most γ_d |w_g||w_j|. Words of a Hamming code need no
    comparison of all pairs (`hamming_margin`).
    """
    d, N = W_U.shape
    used = (W_U != 0).any(0).nonzero()[:, 0]
    if not len(used):  # all logits are 0
        return torch.full((len(right),), -torch.inf, dtype=torch.float64), 0.0
    rows = W_U[:, used].T.contiguous()
    longest = float(_norms(rows).max())
    error = 4 * gamma(d + 4) * longest**2 + 8 * d * FLOAT64.tiny
    coded = hamming_margin(rows)
    if coded and len(used) < N:  # a zero column: w_g·w_g = d c², less than 8 c² for d < 8
        coded *= min(1.0, d / 8)
    margins = torch.full((len(used),), coded or 0.0, dtype=torch.float64)
    for i in range(0, 0 if coded else len(used), FRAME_ROWS):
        G = rows[i : i + FRAME_ROWS] @ rows.T
        here = torch.arange(len(G))
        own = G[here, here + i].clone()
        G[here, here + i] = -torch.inf
        others = G.amax(1)
        if len(used) < N:  # tokens that are never answers have logit 0
            others = others.clamp_min(0.0)
        margins[i : i + FRAME_ROWS] = own - others - error
    at = torch.full((N,), -1, dtype=torch.long)
    at[used] = torch.arange(len(used))
    place = at[right]
    return torch.where(place >= 0, margins[place.clamp_min(0)], -torch.inf), longest


def _norms(rows: Tensor) -> Tensor:
    """2-norms (B,) of the rows of float64 tensors (B, ...), rounded up."""
    return rows.flatten(1).norm(dim=1) * INFLATE + FAINT


def leaks(spec: ShardedSpec, weights: Weights, tokens: Tensor, format: Format = EXACT) -> Leak:
    """Steps 3, 4 and 6: s_max and the norms over the tokens that the facts use. NaN where a foreign
    head may overflow, or has sums too long for step 6."""
    E, pos = weights["W_E"].double(), weights["W_pos"].double()
    x = [E[tokens[:, s].unique()] + pos[s + 1] for s in range(spec.S)]
    norms = [float(_norms(x_s).max()) for x_s in x]
    # |fl(x·u) - x·u| <= γ_{d+1} |x||u| and what underflows, added to what is computed.
    slop = 4 * (gamma(spec.d_g + 4) + gamma(spec.d_g + 4, format.u))
    lost = 8 * (spec.d_g + spec.S) * (FLOAT64.tiny + format.tiny)

    def read(rows: Tensor, s: int) -> Tensor:
        """|x_s·row| over all facts, rounded up: (heads,)."""
        size = _norms(rows)
        return (x[s] @ rows.T).abs().amax(0) + slop * norms[s] * size + lost * (1 + norms[s] + size)

    largest = []  # tensors, whose maximum is NaN where one entry is
    for i in range(0, len(weights["u"]), HEADS_AT_ONCE):
        u, w = (weights[name][i : i + HEADS_AT_ONCE].double() for name in ("u", "w"))
        keys = torch.stack([read(w, s) for s in range(spec.S)])
        reach = keys.amax(0) + (keys[0] if spec.gate == "subject-sink" else 0.0)
        scores = read(u, spec.S - 1) * reach * INFLATE
        largest.append(torch.stack([scores.max(), max(norms) * torch.cat([u, w]).abs().max()]))
    s_max, projected = torch.stack(largest).amax(0).tolist()
    wider = 1.0
    if format.u:
        wider += WIDER
        s_max += WIDER * (s_max + spec.lam)
    # exp is within 2^-47, far inside INFLATE. Beyond e^600 nothing is proved anyway.
    share = spec.S * (wider * math.exp(min(s_max - spec.lam, 600.0)) + 4 * format.tiny) * INFLATE
    W_O = float(weights["W_O"].flatten(1).norm(dim=1, dtype=torch.float64).sum()) * INFLATE
    W_O += spec.H * FAINT
    V = float(_norms(weights["V"].double()).max())
    per_head = (V * max(norms) * wider + lost) * INFLATE
    # What a head computes is below `lost` (1 + |V|) off by underflow, whatever it attends to.
    foreign = (share * per_head + lost * (1 + V)) * W_O * wider * INFLATE
    foreign += spec.H * spec.d_h * lost
    if spec.gate == "subject-sink":
        foreign = (2 * foreign + _uncancelled(spec, weights, max(norms))) * INFLATE
    shuts = spec.bits or spec.gate == "key"
    closed = math.exp(min(s_max - 2 * spec.lam, 600.0)) + 4 * format.tiny
    shut = wider * closed * per_head * INFLATE if shuts else 0.0
    # No partial sum of a query or key exceeds Σ|x_i||u_i| <= d_g |x| max|u|.
    sizes = (s_max, spec.d_g * projected, per_head, foreign)
    short = gamma(2 * (spec.S + spec.d_g + spec.d_h) + 32, format.u) <= WIDER / 2
    if not (short and all(size < format.huge / 4 for size in sizes)):
        return Leak(math.nan, math.nan)
    return Leak(foreign, shut)


def _uncancelled(spec: ShardedSpec, weights: Weights, longest: float) -> float:
    """|x_1| ||E||_F + S e^{-λ} 2 max|x| ||cancel||_F of step 4."""
    cancel = weights["cancel"].double()
    # Sums over shards, then over heads and d_h, then two additions.
    terms = spec.shards + len(weights["V"]) * spec.d_h + 4
    error = 2 * gamma(terms) * (heads_sum(spec, weights, magnitude=True) + cancel.abs().sum(0))
    E = (heads_sum(spec, weights) + cancel[0] + cancel[1]).abs() + error
    closed = spec.S * math.exp(-spec.lam) * 2 * float(cancel.flatten(1).norm(dim=1).sum())
    return (float(E.norm()) + closed) * longest * INFLATE


def _own_error(
    spec: ShardedSpec,
    weights: Weights,
    tokens: Tensor,
    right: Tensor,
    shards: Tensor,
    leak: Leak,
    format: Format,
) -> Tensor:
    """|x_S + Σ_own W_O^h F^h - w_g|_2 of each key, rounded up. Keys come sorted by shard."""
    start = weights["head_start"]
    distinct, sizes = shards.unique_consecutive(return_counts=True)
    heads = int((start[distinct + 1] - start[distinct]).max())
    drawn = [weights[name] for name in ("u", "w", "V")]
    A, tied = Rounding({}, format), None
    if not spec.untied:
        tied = _own_features(spec, weights, tokens, [part[:heads] for part in drawn], A)
    target = weights["W_U"].double()[:, right].T
    distance = torch.empty(len(tokens), dtype=torch.float64)
    begin = 0
    for g, size in zip(distinct.tolist(), sizes.tolist(), strict=True):
        rows = slice(begin, begin + size)
        a, b = int(start[g]), int(start[g + 1])
        if tied is not None:
            x_S, F = (part[rows] for part in tied)
        else:
            own = [part[a:b] for part in drawn]
            x_S, F = _own_features(spec, weights, tokens[rows], own, A)
        W_O = A.exact(weights["W_O"][a:b].double()[..., : spec.d_g])
        out = A.einsum("bhe,hed->bd", F[:, : b - a], W_O)
        out = A.add(out, x_S, (b - a) * spec.d_h + 1)
        off = (out.value - target[rows]).abs() * (1 + 2 * U) + out.error
        norms = float(W_O.value.flatten(1).norm(dim=1).sum())
        # A shut position moves every attention weight by at most its own share, twice.
        distance[rows] = off.norm(dim=1) * INFLATE + 3 * leak.shut * norms
        begin += size
    return distance


def _own_features(
    spec: ShardedSpec, weights: Weights, tokens: Tensor, drawn: list[Tensor], A: Rounding
) -> tuple[Bounded, Bounded]:
    """x_S (B, d_g) and F (B, heads, d_h) of the heads u, w, V with error bounds; gates are exactly
    0 here."""
    u, w, V = (A.exact(part.double()) for part in drawn)
    x = A.exact(weights["W_E"].double()[tokens])
    x = A.add(x, A.exact(weights["W_pos"].double()[1:]))
    q = A.einsum("bd,jd->bj", x[:, -1], u)
    k = A.einsum("bsd,jd->bjs", x, w)
    scores = A.einsum("bj,bjs->bjs", q, k)
    a = _attention(A, scores, last_shut(spec, weights, tokens))
    if spec.gate == "subject-sink":
        mixed = A.add(A.einsum("bjs,bsd->bjd", a, x), A.negative(x[:, :1]))
        return x[:, -1], A.einsum("bjd,jde->bje", mixed, V)
    return x[:, -1], A.chain("bjs,bsd->bjd", "bjd,jde->bje", a, x, V)


def _attention(A: Rounding, scores: Bounded, shut: Tensor | None) -> Bounded:
    """a (B, heads, S) over the key's tokens, where BOS has score exactly 0 and the rest; the last
    position is left out, exactly, where it is `shut`."""

    def softmax(some: Bounded) -> Bounded:
        zero = torch.zeros_like(some.value[..., :1])
        both = [torch.cat([part, zero], -1) for part in (some.value, some.error)]
        return A.softmax(Bounded(*both))[..., :-1]

    if shut is None or not bool(shut.any()):
        return softmax(scores)
    without = softmax(scores[..., :-1])
    zero = torch.zeros_like(scores.value[..., :1])
    parts = [torch.cat([part, zero], -1) for part in (without.value, without.error)]
    if not bool(shut.all()):
        read, where = softmax(scores), shut[:, None, None]
        both = zip(parts, (read.value, read.error), strict=True)
        parts = [torch.where(where, part, whole) for part, whole in both]
    return Bounded(*parts)
