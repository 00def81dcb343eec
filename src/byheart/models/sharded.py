"""The sharded attention memory: an attention-only layer whose heads are gated to shards of facts.

The layer is the one of `attention_only`, with a start token (BOS) in front and embeddings

    x_s = [ generic d_g | r = 1 | s1 P | s2 |P|² | bits b | p ],      x_BOS = 0

P is the lattice point of the token's group (`construct/sharded/codes.py`), p = 1 at position S
only. A head of a shard with point P_g adds gates to a generic score; D = dist(P_g, P(·)) is 0 for
its own group and a whole number >= 1 for any other:

    query         (u_j·x_S)(w_j·x_s) - λ D(x_S) [- λ mismatch(c, b(x_s)) - 2 λ p(x_s)]  last token
    key           (u_j·x_S)(w_j·x_s) - λ D(x_s) - 2 λ p(x_s)                           first of two
    subject-sink  (u_j·x_S)(w_j·x_s) + λ r(x_s) D(x_s)                                 first token

and BOS scores 0. For facts of its own shard the gates are exactly 0; otherwise every real token
loses at least λ against BOS, whose value is 0, or ("subject-sink") the head reads x_1 alone. In
brackets: sub-shards of hot last tokens (S = 2) count wrong bits among the first j of the first
token. Wherever p is read, position S is shut: attention lives on {BOS, 1}. What W_O^h V^h x_1 of
foreign heads adds with "subject-sink", ceil(d_g/d_h) further heads take away, x_1 Σ_h V^h W_O^h,
and as many again what the first lost by rounding (`cancel`, two parts); own heads then count as
V (A - x_1). Why, and what each gate costs: docs/sharded.md.

So the layer falls apart into shards, known to the last head. Heads are tied: u_j, w_j, V_j are the
same in every shard and stored once (`untied`: one set a shard). Sparse recall evaluates a key's
own heads; `to_dense` writes out the literal layer.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from byheart.models.attention_only import Weights
from byheart.specs import AttentionOnlySpec, ShardedSpec

SHARDS_AT_ONCE = 64  # shards whose W_O are read together in recall


def shard_of(weights: Weights, tokens: Tensor) -> Tensor:
    """The shard that owns each key (B,), or -1 where the deciding token decides for none."""
    deciding = int(weights["deciding"]) if "deciding" in weights else -1
    found = weights["group"][tokens[:, deciding]].long()
    group = found.clamp_min(0)
    level, sub = weights["level"][group].long(), torch.zeros_like(group)
    if "bits" in weights:
        # The first `level` bits of the first token, most significant first.
        for j, bit in enumerate(weights["bits"][tokens[:, 0]].T):
            sub = torch.where(level > j, 2 * sub + (bit > 0).long(), sub)
    return torch.where(found >= 0, weights["first"][group].long() + sub, -1)


def last_shut(spec: ShardedSpec, weights: Weights, tokens: Tensor) -> Tensor | None:
    """Where own heads do not read position S (B,), or None if they always do."""
    if spec.gate == "key":
        return torch.ones(len(tokens), dtype=torch.bool)
    if "bits" in weights:
        return weights["level"][weights["group"][tokens[:, -1]].long().clamp_min(0)] > 0
    return None


def layout_fault(spec: ShardedSpec, weights: Weights) -> str | None:
    """What is wrong with the whole numbers that say which shard owns a key, in words."""
    return next((text for wrong, text in _layout_faults(spec, weights) if wrong), None)


def _layout_faults(spec: ShardedSpec, weights: Weights) -> Iterator[tuple[object, str]]:
    """What makes sparse recall and the literal layer differ: (whether it is so, in words). Each
    relies on those before it."""
    wrong = spec.gate == "key" and spec.S != 2
    yield wrong, f"the key gate reads keys of two tokens, found S = {spec.S}"
    start, level, first = (weights[name].long() for name in ("head_start", "level", "first"))
    counts = start[1:] - start[:-1]
    all_heads = int(start[0]) == 0 and int(start[-1]) == spec.H
    text = f"head_start does not run from 0 to H = {spec.H:,} upward"
    yield not all_heads or (counts < 0).any(), text
    drawn = spec.H if spec.untied else int(counts.max())
    stored = min(len(weights[name]) for name in ("u", "w", "V"))
    yield stored < drawn, f"fewer than {drawn:,} heads u, w, V are stored"
    splits = spec.bits if spec.gate == "query" and spec.S == 2 else 0
    text = f"level must lie between 0 and {splits}, the bits that gates can read"
    yield _outside(level, 0, splits), text
    owned = first.repeat_interleave(2**level)
    ends = (2**level).cumsum(0)
    owned += torch.arange(len(owned)) - (ends - 2**level).repeat_interleave(2**level)
    twice = len(owned.unique()) < len(owned)
    text = f"groups share a shard, or own one beyond the {spec.shards:,} there are"
    yield twice or _outside(owned, 0, spec.shards - 1), text
    group = weights["group"]
    text = f"group must lie between -1 and {spec.groups - 1:,}, -1 for BOS"
    yield _outside(group, -1, spec.groups - 1) or int(group[-1]) != -1, text
    signs = weights["bits"] if spec.bits else torch.ones(1)
    yield (signs.abs() != 1).any(), "bits other than +1 and -1: sub-shards are not separated"
    elsewhere = spec.gate != "query" and int(weights["deciding"]) != 0
    yield elsewhere, f"the {spec.gate} gate reads the first token, not the one stored"
    subject = weights.get("subject", torch.zeros(1, dtype=torch.int8))
    wrong = ((subject != 0) & (subject != 1)).any() or int(subject[-1]) != 0
    yield wrong, "subject marks other than 0 and 1, or on the start token"


def _outside(numbers: Tensor, low: int, high: int) -> bool:
    return int(numbers.min()) < low or int(numbers.max()) > high


def own_features(
    spec: ShardedSpec, weights: Weights, tokens: Tensor, heads: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """x_S (B, d_g) and F (B, heads, d_h) of the own heads 0..heads-1, whose gates are exactly 0.

    Untied shards with fewer heads have zeros for the others, keys without a shard zeros only.
    """
    x = weights["W_E"].to(dtype)[tokens] + weights["W_pos"].to(dtype)[1:]
    shut, sink = last_shut(spec, weights, tokens), spec.gate == "subject-sink"
    if not spec.untied:
        u, w, V = (weights[name][:heads].to(dtype) for name in ("u", "w", "V"))
        return x[:, -1], _features(x, u, w, V, shut, sink)
    F = torch.zeros(len(tokens), heads, spec.d_h, dtype=dtype)
    shards, start = shard_of(weights, tokens), weights["head_start"]
    for g in shards.unique().tolist():
        if g >= 0:
            rows = (shards == g).nonzero()[:, 0]
            a, b = int(start[g]), min(int(start[g + 1]), int(start[g]) + heads)
            u, w, V = (weights[name][a:b].to(dtype) for name in ("u", "w", "V"))
            mine = None if shut is None else shut[rows]
            F[rows, : b - a] = _features(x[rows], u, w, V, mine, sink)
    return x[:, -1], F


def _features(
    x: Tensor, u: Tensor, w: Tensor, V: Tensor, shut: Tensor | None, sink: bool
) -> Tensor:
    """F (B, heads, d_h) of the same heads for every row of x (B, S, d_g)."""
    A = torch.einsum("bsj,bsd->jbd", _attention(x, u, w, shut), x)
    if sink:  # the cancelling heads take x_1 away from every head, own ones too
        A = A - x[:, 0]
    return torch.bmm(A, V).transpose(0, 1)


def _attention(x: Tensor, u: Tensor, w: Tensor, shut: Tensor | None) -> Tensor:
    """a (B, S, heads) over the key's tokens; BOS has the rest."""
    scores = (x[:, -1] @ u.T)[:, None] * (x @ w.T)
    if shut is not None:
        scores[shut, -1] = -torch.inf
    # BOS is one more entry with score 0 and value 0.
    top = scores.amax(1, keepdim=True).clamp_min(0)
    e = torch.exp(scores - top)
    return e / (e.sum(1, keepdim=True) + torch.exp(-top))


def own_attention(
    spec: ShardedSpec, weights: Weights, tokens: Tensor, first: int, end: int
) -> Tensor:
    """Attention of heads `first`..`end - 1` on keys of their own shard, BOS in front, float64:
    (B, heads, 1 + S)."""
    x = weights["W_E"].double()[tokens] + weights["W_pos"].double()[1:]
    drawn = slice(first, end) if spec.untied else slice(0, end - first)
    u, w = (weights[name][drawn].double() for name in ("u", "w"))
    a = _attention(x, u, w, last_shut(spec, weights, tokens)).transpose(1, 2)
    return torch.cat([1 - a.sum(2, keepdim=True), a], dim=2)


def residual(
    spec: ShardedSpec, weights: Weights, tokens: Tensor, dtype: torch.dtype | None = None
) -> Tensor:
    """x_S + Σ over the own heads of W_O^h F^h, on the output coordinates: (B, d_g + check).

    Keys whose deciding token decides for no shard get x_S alone.
    """
    dtype, start = dtype or weights["W_O"].dtype, weights["head_start"]
    shards, counts = shard_of(weights, tokens), start[1:] - start[:-1]
    out = torch.zeros(len(tokens), spec.d_g + spec.check, dtype=dtype)
    order = shards.argsort(stable=True)
    distinct, sizes = shards[order].unique_consecutive(return_counts=True)
    ends = [0, *sizes.cumsum(0).tolist()]
    for i in range(0, len(distinct), SHARDS_AT_ONCE):
        some = distinct[i : i + SHARDS_AT_ONCE].tolist()
        rows = order[ends[i] : ends[i + len(some)]]
        heads = max((int(counts[g]) for g in some if g >= 0), default=1)
        x_S, F = own_features(spec, weights, tokens[rows], heads, dtype)
        out[rows, : spec.d_g] = x_S
        for k, g in enumerate(some, i):
            if g >= 0:
                a, b, mine = (
                    int(start[g]),
                    int(start[g + 1]),
                    slice(ends[k] - ends[i], ends[k + 1] - ends[i]),
                )
                W_O = weights["W_O"][a:b].to(dtype).flatten(0, 1)
                out[rows[mine]] += F[mine, : b - a].flatten(1) @ W_O
    return out


def drawn_as(spec: ShardedSpec, weights: Weights) -> Tensor:
    """Which of the stored u, w, V each of the H heads uses: (H,)."""
    if spec.untied:
        return torch.arange(spec.H)
    start = weights["head_start"]
    return torch.arange(spec.H) - start[:-1].repeat_interleave(start[1:] - start[:-1])


def heads_sum(spec: ShardedSpec, weights: Weights, magnitude: bool = False) -> Tensor:
    """Σ_h V^h W_O^h (d_g, d_g + check) in float64, what cancelling heads take away; with
    `magnitude` the sum of the absolute values, for error bounds."""
    V, W_O = weights["V"].double(), weights["W_O"].double()
    if magnitude:
        V, W_O = V.abs(), W_O.abs()
    # Tied heads: add up the W_O of equal V first.
    total = torch.zeros(len(V), *W_O.shape[1:], dtype=torch.float64)
    total.index_add_(0, drawn_as(spec, weights), W_O)
    return torch.einsum("jde,jeo->do", V, total)


def with_bos(spec: ShardedSpec, tokens: Tensor) -> Tensor:
    """Keys as the literal layer reads them: (B, 1 + S)."""
    return torch.cat([torch.full((len(tokens), 1), spec.N - 1), tokens], dim=1)


def to_dense(spec: ShardedSpec, weights: Weights) -> tuple[AttentionOnlySpec, Weights]:
    """The literal attention-only layer: every head with its gates, all coordinates, no model axis.

    Tokens are those of the memory with BOS as the last id; keys get BOS in front (`with_bos`).
    """
    dense = spec.dense()
    g, d, e = spec.d_g, dense.d, spec.d_h
    code, square = slice(g + 1, g + 1 + spec.k), g + 1 + spec.k
    p = square + 1 + spec.bits
    names = {k: torch.zeros(s, dtype=torch.float64) for k, s in dense.weight_shapes().items()}
    W_Q, W_K, W_V, W_O = (names[name] for name in ("W_Q", "W_K", "W_V", "W_O"))
    _embed(spec, weights, names["W_E"], names["W_pos"])
    names["W_U"][:g] = weights["W_U"].double()
    out = [*range(g), *range(d - spec.check, d)]
    index = drawn_as(spec, weights)
    W_Q[0, : spec.H, :g, 0] = weights["u"].double()[index]
    W_K[0, : spec.H, :g, 0] = weights["w"].double()[index]
    W_V[0, : spec.H, :g] = weights["V"].double()[index]

    point, lam = weights["point"].double(), spec.lam
    start = weights["head_start"].tolist()
    for c in range(len(point)):
        level, first = int(weights["level"][c]), int(weights["first"][c])
        # λ dist(P_g, P(x)) = x · this
        distance = torch.zeros(d, dtype=torch.float64)
        distance[g] = lam * (point[c] ** 2).sum()
        distance[code] = lam * -2 * point[c] / spec.s1
        distance[square] = lam / spec.s2
        for sub in range(2**level):
            heads = slice(start[first + sub], start[first + sub + 1])
            W_O[0, heads][..., out] = weights["W_O"][heads].double()
            if spec.gate == "query":
                W_Q[0, heads, :, 1], W_K[0, heads, g, 1] = distance, -1.0
            elif spec.gate == "key":
                W_Q[0, heads, g, 1], W_K[0, heads, :, 1] = 1.0, -distance
                W_K[0, heads, p, 1] = -2 * lam
            else:  # p = 1 at position S: the query's constant, whatever the last token is
                W_Q[0, heads, p, 1], W_K[0, heads, :, 1] = 1.0, distance
            if level:  # λ times the number of wrong bits, and 2 λ at position S
                wrong = lam * _mismatch(spec, level, sub)
                W_Q[0, heads, g, 2], W_K[0, heads, :, 2] = 1.0, -wrong
                W_K[0, heads, p, 2] = -2 * lam
    if spec.cancelling_heads:
        W_Q[0, spec.H :, p, 1], W_K[0, spec.H :, g, 1] = 1.0, lam  # always x_1
        for part, cancel in enumerate(weights["cancel"].double()):
            h = spec.H + part * spec.cancelling_heads // 2
            for i in range(g):  # coordinate i by coordinate i mod d_h of head i // d_h
                W_V[0, h + i // e, i, i % e] = 1.0
                W_O[0, h + i // e, i % e][out] = cancel[i]
    return dense, {name: w.to(weights["W_O"].dtype) for name, w in names.items()}


def _embed(spec: ShardedSpec, weights: Weights, W_E: Tensor, W_pos: Tensor) -> None:
    """W_E (N, d) and W_pos (S + 1, d) of the literal layer, into zeros."""
    g, square = spec.d_g, spec.d_g + 1 + spec.k
    group, point = weights["group"].long(), weights["point"].double()
    P = torch.where(group[:, None] >= 0, point[group.clamp_min(0)], weights["far"].double())
    W_E[:, g] = 1.0
    W_E[:, g + 1 : square] = spec.s1 * P
    W_E[:, square] = spec.s2 * (P**2).sum(1)
    if spec.gate == "subject-sink":
        W_E *= weights["subject"].double()[:, None]
    W_E[:, :g] = weights["W_E"].double()
    if spec.bits:
        W_E[:, square + 1 : square + 1 + spec.bits] = weights["bits"].double()
    W_E[-1] = 0.0  # BOS
    W_pos[:, :g] = weights["W_pos"].double()
    if spec.marks_last:
        W_pos[-1, square + 1 + spec.bits] = 1.0


def _mismatch(spec: ShardedSpec, level: int, sub: int) -> Tensor:
    """(d,) whose product with a token is the number of its first `level` bits not those of `sub`:
    level/2 - Σ c_j b_j / 2."""
    row = torch.zeros(spec.d, dtype=torch.float64)
    row[spec.d_g] = level / 2
    first = spec.d_g + 1 + spec.k + 1
    signs = [1.0 if sub >> (level - 1 - j) & 1 else -1.0 for j in range(level)]
    row[first : first + level] = -torch.tensor(signs, dtype=torch.float64) / 2
    return row


def fingerprints(tokens: Tensor | np.ndarray, count: int, seed: int) -> Tensor:
    """φ (B, count) of keys (B, S), by which a memory tells stored keys from others: multiples of
    2^-23 in [-1, 1), exact in float32 (how many: `construct/sharded/fingerprint.py`).

    A chain of splitmix64 mixers (Steele, Lea and Flood 2014) over the ids of each key.

    >>> fingerprints(np.array([[1, 2], [2, 1]]), 1, seed=0)[:, 0].unique().shape
    torch.Size([2])
    """
    ids = np.asarray(tokens).astype(np.uint64)
    state = np.full(len(ids), seed % 2**64, dtype=np.uint64)
    for column in ids.T:
        state = _mix(state ^ _mix(column))
    values = [_mix(state + np.uint64(i)) >> np.uint64(40) for i in range(count)]
    stacked = np.stack(values, axis=1) if count else np.empty((len(ids), 0))
    return torch.from_numpy(stacked.astype(np.float64) * 2.0**-23 - 1.0)


def _mix(x: np.ndarray) -> np.ndarray:
    """One step of splitmix64: a bijection of 64-bit words whose output looks random."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
