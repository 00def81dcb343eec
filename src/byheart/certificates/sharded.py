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
   literal layer with queries and keys first: scores of foreign heads grow by at most a factor
   1 + 2^-8 of s_max + λ, what they write by 1 + 2^-8; adding a foreign term to a partial sum
   rounds by at most that term, so that |leak| counts three times; and W_U rounds a logit by at most
   γ_{d+2} max|w| (max|w| + |δ| + |leak|). With a subject sink only the own heads are covered: the
   literal layer cancels sums too large for that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from byheart._progress import Report
from byheart.certificates.arithmetic import EXACT, Bounded, Format, Rounding, U, finite, gamma
from byheart.certificates.proving import Asked, Margins, prove
from byheart.certificates.statement import Certificate
from byheart.certificates.tokens import Own, prove_answers, token_margins
from byheart.construct.frames import hamming_margin
from byheart.errors import ByheartError
from byheart.models.attention_only import Weights
from byheart.models.memory import FactTable
from byheart.models.sharded import heads_sum, last_shut, layout_fault, shard_of
from byheart.models.sharded_memory import ShardedMemory, shard_sha256
from byheart.specs import ShardedSpec

# Of a number format: bits of a whole number, smallest and largest exponents.
EXACT_INTEGERS = {torch.float32: (24, -126, 127), torch.float64: (53, -1022, 1023)}
LARGEST_POINT = 2**26  # coordinates of lattice points: sums of squares then fit into 64 bits
ROWS_AT_ONCE = 8192  # facts in one batch of own heads
FRAME_ROWS = 1024  # answers in one block of frame margins
HEADS_AT_ONCE = 1024  # untied heads whose largest scores are bounded together
LITERAL_PARAMETERS = 2_000_000  # of a layer that is evaluated head by head
# Every bound below is a sum of fewer than 2^20 positive float64 terms: this covers its rounding.
INFLATE = 1 + 2.0**-30


@prove.register
def prove_sharded(memory: ShardedMemory, facts: FactTable, asked: Asked) -> Certificate:
    """Shard by shard in float64; other arithmetics evaluate every head of the literal layer."""
    told = premises(memory.spec, memory.tensors)

    def evaluate(tokens: np.ndarray, right: np.ndarray, format: Format) -> tuple[Margins, Own]:
        if asked.arithmetic != "rounding":
            if memory.spec.parameters > LITERAL_PARAMETERS:
                raise ByheartError(
                    f"the literal layer has {memory.spec.parameters:,} parameters, every one of "
                    "which this arithmetic would evaluate for every fact (limit "
                    f"{LITERAL_PARAMETERS:,}). The default, float64 with error bounds, covers it "
                    "shard by shard."
                )
            return token_margins(memory.to_dense(), tokens, right, asked), {}
        ids, answers = memory.in_order(tokens), torch.from_numpy(right.copy())
        worst = np.zeros(memory.spec.shards)
        found = sharded_margins(
            memory.spec, memory.tensors, ids, answers, asked.progress, worst, format
        )
        sums = shard_sums(memory.tensors)
        own = {"shard_errors": tuple(worst.tolist()), "shard_sha256": sums, "premises": told}
        return Margins(*found), own

    return prove_answers(memory, facts, asked, evaluate)


def shard_sums(weights: Weights) -> tuple[str, ...]:
    """SHA-256 of the W_O of every shard, in hexadecimal digits."""
    starts = weights["head_start"].tolist()
    return tuple(shard_sha256(weights["W_O"], a, b).hex() for a, b in pairwise(starts))


def premises(spec: ShardedSpec, weights: Weights) -> tuple[tuple[str, str], ...]:
    """What the proof takes for granted, checked on these weights in whole numbers: (what, how it
    was checked). Refuses weights for which it is not so."""
    points = torch.cat([weights["point"].long(), weights["far"].long()[None]])
    if int(points.abs().max()) >= LARGEST_POINT:
        raise ByheartError(f"lattice points beyond {LARGEST_POINT:,}: distances are not exact")
    if len(points.unique(dim=0)) != len(points):
        raise ByheartError("two groups share a lattice point: the shards are not separated")
    exponents = {name: _exponent(name, getattr(spec, name)) for name in ("lam", "s1", "s2")}
    significant, least, most = EXACT_INTEGERS[weights["W_O"].dtype]
    # dist is summed from |P|², 2 P·Q and |Q|²: no partial sum exceeds 4 max|P|².
    square = int((points**2).sum(1).max())
    if 4 * square > 2**significant:
        raise ByheartError(f"lattice points too far out: sums beyond 2^{significant} are not exact")
    # Powers of two that stand in the layer, each with the largest whole number it is multiplied by.
    lam, s1, s2 = (exponents[name] for name in ("lam", "s1", "s2"))
    width, root = (4 * square).bit_length(), (2 * math.isqrt(square) + 2).bit_length()
    # Half a λ: a wrong bit is counted as 1/2 - c b / 2.
    entries = {"λ": (lam - 1, width + 2), "s1": (s1, root), "s2": (s2, width)}
    entries |= {"λ/s1": (lam - s1, root + 1), "λ/s2": (lam - s2, 1)}
    for name, (low, bits) in entries.items():
        if low < least or low + bits > most:
            raise ByheartError(
                f"{name} times lattice points does not exist in {weights['W_O'].dtype}: the "
                "literal layer has other gates than the proof assumes"
            )
    if bool((weights["W_E"][-1] != 0).any()) or bool((weights["W_pos"][0] != 0).any()):
        raise ByheartError("the start token is not the zero vector: foreign heads are not silent")
    if wrong := layout_fault(spec, weights):
        raise ByheartError(wrong)
    kind = str(weights["W_O"].dtype).removeprefix("torch.")
    return (
        ("gates", f"{len(points):,} lattice points are distinct; λ, s1 and s2 are powers of two"),
        ("range", f"sums of at most {4 * square:,} are whole numbers that {kind} holds exactly"),
        ("layout", f"{spec.H:,} heads in {spec.shards:,} shards, each owned by one group"),
        ("start token", "embedded as the zero vector, and in no key"),
    )


def _exponent(name: str, value: float) -> int:
    """log2 of a power of two."""
    mantissa, exponent = math.frexp(value)
    if mantissa != 0.5:
        raise ByheartError(f"{name} = {value} is not a power of two: the gates are not exact")
    return exponent - 1


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
    worst: np.ndarray | None = None,
    format: Format = EXACT,
) -> tuple[np.ndarray, np.ndarray]:
    """Margins (T,) of the frame and bounds (T,) on what errors and leaks can take from them.

    `tokens` (T, S) as the model reads them, without BOS; `right` (T,) the answers. `worst`
    (shards,) receives the largest own error of each shard (`update` proves edits with it). The
    weights must have passed `premises`.
    """
    if not finite(weights):
        return np.full(len(tokens), np.nan), np.full(len(tokens), np.nan)
    frame, longest = frame_margins(weights["W_U"].double(), right)
    leak = leaks(spec, weights, tokens, format)
    distance, shards = own_distances(spec, weights, tokens, right, leak, progress, format)
    if worst is not None:
        known = (shards >= 0) & torch.isfinite(distance)
        np.maximum.at(worst, shards[known].numpy(), distance[known].numpy())
    return frame.numpy(), error_bounds(spec, distance, leak, longest, format).numpy()


def error_bounds(
    spec: ShardedSpec, distance: Tensor, leak: Leak, longest: float, format: Format = EXACT
) -> Tensor:
    """Steps 5 and 6: 2 max|w| (|δ| + |leak| + γ (max|w| + |δ| + |leak|)), rounded up; NaN where
    anything is not finite."""
    foreign = leak.foreign * (3 if format.u and spec.gate != "subject-sink" else 1)
    off = distance + foreign
    reading = gamma(spec.d_g + 2, format.u) * (longest + off) + spec.d_g * format.tiny
    bounds = 2 * longest * (off + reading) * INFLATE
    return torch.where(torch.isfinite(bounds), bounds, torch.nan)


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
    rows = W_U[:, used].T.contiguous()
    longest = float(rows.norm(dim=1).max()) * INFLATE
    error = 4 * gamma(d + 4) * longest**2
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


def leaks(spec: ShardedSpec, weights: Weights, tokens: Tensor, format: Format = EXACT) -> Leak:
    """Steps 3, 4 and 6: s_max and the norms over the tokens that the facts use."""
    E, pos = weights["W_E"].double(), weights["W_pos"].double()
    x = [E[tokens[:, s].unique()] + pos[s + 1] for s in range(spec.S)]
    norms = [float(x_s.norm(dim=1).max()) * INFLATE for x_s in x]
    # |fl(x·u) - x·u| <= γ_{d+1} |x||u|, added to what is computed.
    slop = 4 * gamma(spec.d_g + 4)
    s_max, both = 0.0, list(zip(x, norms, strict=True))
    for i in range(0, len(weights["u"]), HEADS_AT_ONCE):
        u, w = (weights[name][i : i + HEADS_AT_ONCE].double() for name in ("u", "w"))
        keys = torch.stack(
            [(x_s @ w.T).abs().amax(0) + slop * n * w.norm(dim=1) for x_s, n in both]
        )
        query = (x[-1] @ u.T).abs().amax(0) + slop * norms[-1] * u.norm(dim=1)
        reach = keys.amax(0) + (keys[0] if spec.gate == "subject-sink" else 0.0)
        s_max = max(s_max, float((query * reach).max()) * INFLATE)
    wider = 1 + 2.0**-8 if format.u else 1.0
    s_max += (wider - 1) * (s_max + spec.lam)
    # exp is within 2^-47, far inside INFLATE. Beyond e^600 nothing is proved anyway.
    share = spec.S * wider * math.exp(min(s_max - spec.lam, 600.0)) * INFLATE
    W_O = weights["W_O"].flatten(1).norm(dim=1, dtype=torch.float64).sum()
    V = weights["V"].double().flatten(1).norm(dim=1).max()
    per_head = (float(V) * max(norms) * wider + spec.d_g * format.tiny) * INFLATE
    foreign = share * per_head * float(W_O) * INFLATE
    if spec.gate == "subject-sink":
        foreign = (2 * foreign + _uncancelled(spec, weights, max(norms))) * INFLATE
    shuts = spec.bits or spec.gate == "key"
    closed = math.exp(min(s_max - 2 * spec.lam, 600.0))
    shut = wider * closed * per_head * INFLATE if shuts else 0.0
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
