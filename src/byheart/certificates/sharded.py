"""The certificate of a sharded memory: it covers the whole literal layer without evaluating every
head for every fact.

For a fact t of shard g the residual stream of the literal layer is

    x_S + Σ_{own heads} W_O^h F^h(t) + leak(t)      = w_{g(t)} + δ(t) + leak(t)

1. Gates are exact: lattice points are integers and every scale a power of two, so the stored gate
   entries are the exact reals and dist(g, g') is a whole number, 0 for the own shard, >= 1 for any
   other (`exact_gates` checks what this needs). Own heads therefore see gates of exactly 0.
2. Own heads: float64 with the error bounds of `rounding`.
3. Leak: a foreign head's real tokens score at most s_max - λ against 0 for BOS, so they get at most
   S e^{s_max - λ} of the attention, and x_BOS = 0 contributes nothing:
   |leak| <= Σ_h S e^{s_max - λ} max_s |V_j x_s| ||W_O^h||_F. In shards of hot tokens position S is
   shut by 2 λ; its share is counted with the own heads' leak.
4. Margin: (w_g - w_j)·(w_g + δ + leak) >= [w_g·w_g - max_j w_g·w_j] - 2 max|w| (|δ| + |leak|). The
   bracket belongs to the frame, and is computed once per answer, not once per fact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from byheart.certificates.rounding import Bounded, U, add, exact, gamma, product, softmax
from byheart.errors import ByheartError
from byheart.models.attention_only import Weights
from byheart.models.sharded import shard_of, to_dense
from byheart.specs import AttentionOnlySpec, ShardedSpec

EXACT_INTEGERS = {torch.float32: 2**24, torch.float64: 2**53}
ROWS_AT_ONCE = 8192  # facts in one batch of own heads
FRAME_ROWS = 1024  # answers in one block of frame margins
LITERAL_PARAMETERS = 2_000_000  # of a layer that is evaluated head by head
# Every bound below is a sum of fewer than 2^20 positive float64 terms: this covers its rounding.
INFLATE = 1 + 2.0**-30


def exact_gates(spec: ShardedSpec, weights: Weights) -> None:
    """Refuse weights for which distances are not exact whole numbers in the stored format."""
    points = weights["point"].long()
    everything = torch.cat([points, weights["far"].long()[None]])
    if len(everything.unique(dim=0)) != len(everything):
        raise ByheartError("two groups share a lattice point: the shards are not separated")
    for name in ("lam", "s1", "s2"):
        value = getattr(spec, name)
        if not value > 0 or math.frexp(value)[0] != 0.5:
            raise ByheartError(f"{name} = {value} is not a power of two: the gates are not exact")
    limit = EXACT_INTEGERS[weights["W_O"].dtype]
    # dist is summed from |P|², 2 P·Q and |Q|²: no partial sum exceeds 4 max|P|².
    if 4 * int((everything**2).sum(1).max()) > limit:
        raise ByheartError(f"lattice points too far out: sums beyond {limit:,} are not exact")
    if bool((weights["W_E"][-1] != 0).any()) or bool((weights["W_pos"][0] != 0).any()):
        raise ByheartError("the start token is not the zero vector: foreign heads are not silent")


@dataclass(frozen=True)
class Leak:
    """Bounds that hold for all facts: `foreign` on the leak of all foreign heads together,
    `shut` on what a shut position can add to its own heads, per unit of Σ_h ||W_O^h||_F |x|."""

    foreign: float
    shut: float


def sharded_margins(
    spec: ShardedSpec,
    weights: Weights,
    tokens: Tensor,
    right: Tensor,
    progress: Callable[[str], None],
) -> tuple[np.ndarray, np.ndarray]:
    """Margins (T,) of the frame and bounds (T,) on what errors and leaks can take from them.

    `tokens` (T, S) as the model reads them, without BOS; `right` (T,) the answers.
    """
    exact_gates(spec, weights)
    frame, longest = frame_margins(weights["W_U"].double(), right)
    leak = leaks(spec, weights, tokens)
    distance = torch.full((len(tokens),), torch.inf, dtype=torch.float64)
    shards = shard_of(weights, tokens)
    order = shards.argsort(stable=True)
    order = order[shards[order] >= 0]  # a key that no shard owns is not recalled
    for i in range(0, len(order), ROWS_AT_ONCE):
        rows = order[i : i + ROWS_AT_ONCE]
        distance[rows] = _own_error(spec, weights, tokens[rows], right[rows], shards[rows], leak)
        progress(f"{i + len(rows):,} of {len(order):,} facts")
    bound = 2 * longest * (distance + leak.foreign) * INFLATE
    return frame.numpy(), bound.numpy()


def literal(
    spec: ShardedSpec, weights: Weights, tokens: Tensor
) -> tuple[AttentionOnlySpec, Weights, Tensor]:
    """The dense layer and its input, for arithmetics that evaluate every head."""
    if spec.parameters > LITERAL_PARAMETERS:
        raise ByheartError(
            f"the literal layer has {spec.parameters:,} parameters, every one of which this "
            f"arithmetic would evaluate for every fact (limit {LITERAL_PARAMETERS:,}). "
            "The default, float64 with error bounds, covers it shard by shard."
        )
    dense, written = to_dense(spec, weights)
    start = torch.full((len(tokens), 1), spec.N - 1)
    return dense, written, torch.cat([start, tokens], dim=1)


def frame_margins(W_U: Tensor, right: Tensor) -> tuple[Tensor, float]:
    """Per fact a lower bound on w_g·w_g - max_{j != g} w_g·w_j over all tokens, and max |w|.

    Inner products of d terms are off by at most γ_d |w_g||w_j|.
    """
    d, N = W_U.shape
    used = (W_U != 0).any(0).nonzero()[:, 0]
    rows = W_U[:, used].T.contiguous()
    longest = float(rows.norm(dim=1).max()) * INFLATE
    error = 4 * gamma(d + 4) * longest**2
    margins = torch.empty(len(used), dtype=torch.float64)
    for i in range(0, len(used), FRAME_ROWS):
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


def leaks(spec: ShardedSpec, weights: Weights, tokens: Tensor) -> Leak:
    """Step 3: s_max and the norms over the tokens that the facts use."""
    u, w = weights["u"].double(), weights["w"].double()
    E, pos = weights["W_E"].double(), weights["W_pos"].double()
    largest_x = 0.0
    reach_w = torch.zeros(len(w), dtype=torch.float64)
    reach_u = torch.zeros(len(u), dtype=torch.float64)
    # |fl(x·u) - x·u| <= γ_{d+1} |x||u|, added to what is computed.
    slop = 4 * gamma(spec.d_g + 4)
    for s in range(spec.S):
        x = E[tokens[:, s].unique()] + pos[s + 1]
        norm = float(x.norm(dim=1).max()) * INFLATE
        largest_x = max(largest_x, norm)
        reach_w = torch.maximum(reach_w, (x @ w.T).abs().amax(0) + slop * norm * w.norm(dim=1))
        if s == spec.S - 1:
            reach_u = (x @ u.T).abs().amax(0) + slop * norm * u.norm(dim=1)
    s_max = float((reach_u * reach_w).max()) * INFLATE
    # exp is within 2^-47, far inside INFLATE.
    share = spec.S * math.exp(s_max - spec.lam) * INFLATE
    W_O = weights["W_O"].double().flatten(1).norm(dim=1).sum()
    V = weights["V"].double().flatten(1).norm(dim=1).max()
    per_head = float(V) * largest_x * INFLATE
    foreign = share * per_head * float(W_O) * INFLATE
    shut = math.exp(s_max - 2 * spec.lam) * per_head * INFLATE if spec.bits else 0.0
    return Leak(foreign, shut)


def _own_error(
    spec: ShardedSpec, weights: Weights, tokens: Tensor, right: Tensor, shards: Tensor, leak: Leak
) -> Tensor:
    """|x_S + Σ_own W_O^h F^h - w_g|_2 of each key, rounded up. Keys come sorted by shard."""
    start = weights["head_start"]
    distinct, sizes = shards.unique_consecutive(return_counts=True)
    heads = int((start[distinct + 1] - start[distinct]).max())
    x_S, F = _own_features(spec, weights, tokens, heads)
    target = weights["W_U"].double()[:, right].T
    distance = torch.empty(len(tokens), dtype=torch.float64)
    begin = 0
    for g, size in zip(distinct.tolist(), sizes.tolist(), strict=True):
        rows = slice(begin, begin + size)
        a, b = int(start[g]), int(start[g + 1])
        W_O = weights["W_O"][a:b].double()[..., : spec.d_g]
        mine = Bounded(F.value[rows, : b - a].flatten(1), F.error[rows, : b - a].flatten(1))
        out = product(mine, exact(W_O.flatten(0, 1)), "bm,md->bd", (b - a) * spec.d_h)
        out = add(out, Bounded(x_S.value[rows], x_S.error[rows]))
        off = (out.value - target[rows]).abs() * (1 + 2 * U) + out.error
        norms = float(W_O.flatten(1).norm(dim=1).sum())
        # A shut position moves every attention weight by at most its own share, twice.
        distance[rows] = off.norm(dim=1) * INFLATE + 3 * leak.shut * norms
        begin += size
    return distance


def _own_features(
    spec: ShardedSpec, weights: Weights, tokens: Tensor, heads: int
) -> tuple[Bounded, Bounded]:
    """x_S (B, d_g) and F (B, heads, d_h) with error bounds; gates are exactly 0 here."""
    u, w, V = (exact(weights[name][:heads].double()) for name in ("u", "w", "V"))
    pos = weights["W_pos"].double()[1:]
    x = exact(weights["W_E"].double()[tokens])
    x = add(x, exact(pos.expand_as(x.value)))
    x_S = Bounded(x.value[:, -1], x.error[:, -1])
    q = product(x_S, u, "bd,jd->bj", spec.d_g)
    k = product(x, w, "bsd,jd->bjs", spec.d_g)
    scores = product(q, k, "bj,bjs->bjs", 1)
    if spec.bits:
        hot = weights["level"][weights["group"][tokens[:, -1]].long()] > 0
        value, error = scores.value.clone(), scores.error.clone()
        value[hot, :, -1], error[hot, :, -1] = -torch.inf, 0.0
        scores = Bounded(value, error)
    # BOS: score exactly 0, value exactly 0.
    zero = torch.zeros_like(scores.value[..., :1])
    a = softmax_with_shut(
        Bounded(torch.cat([scores.value, zero], -1), torch.cat([scores.error, zero], -1))
    )
    real = Bounded(a.value[..., :-1], a.error[..., :-1])
    A = product(real, x, "bjs,bsd->bjd", spec.S)
    return x_S, product(A, V, "bjd,jde->bje", spec.d_g)


def softmax_with_shut(scores: Bounded) -> Bounded:
    """`rounding.softmax` where some scores are -inf: those positions are left out, exactly."""
    shut = torch.isinf(scores.value)
    if not bool(shut.any()):
        return softmax(scores)
    # -1000 gives exp = 0 like -inf (scores are below 200), and keeps the others' bound finite.
    made = softmax(Bounded(scores.value.masked_fill(shut, -1000.0), scores.error))
    return Bounded(made.value.masked_fill(shut, 0.0), made.error.masked_fill(shut, 0.0))
