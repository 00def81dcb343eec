"""The sharded attention memory: an attention-only layer whose heads are gated to shards of facts.

The layer is the one of `attention_only`, with a start token (BOS) in front and embeddings

    x_s = [ generic d_g | r = 1 | s1 P | s2 |P|² | bits b | p ],      x_BOS = 0

P is the lattice point of the token's group (`construct/sharded/codes.py`). A head of a shard with
point P_g has three channels, W_QK = generic + query gate (+ key gate):

    score(x_S, x_s) = (u_j·x_S)(w_j·x_s) - λ dist(P_g, P(x_S)) - λ mismatch(c, b(x_s)) - 2 λ p(x_s)

and BOS scores 0. For facts of its own shard the gates are exactly 0; any other last token makes
every real token lose at least λ against BOS, whose value is 0: the head is silent up to
S e^{s_max - λ}. So the layer falls apart into shards, known to the last head.
The key gate serves hot last tokens only (S = 2): sub-shards by the first j bits of the first token.

Heads are tied: u_j, w_j, V_j are the same in every shard, so they are stored once. Sparse recall
evaluates a key's own heads; `to_dense` writes out the literal layer.
"""

from __future__ import annotations

import torch
from torch import Tensor

from byheart.models.attention_only import Weights
from byheart.specs import AttentionOnlySpec, ShardedSpec

SHARDS_AT_ONCE = 64  # shards whose W_O are read together in recall


def shard_of(weights: Weights, tokens: Tensor) -> Tensor:
    """The shard that owns each key (B,), or -1 where the last token decides for none."""
    group = weights["group"][tokens[:, -1]].long()
    known = group >= 0
    group = group.clamp_min(0)
    level = weights["level"][group].long()
    sub = torch.zeros_like(group)
    if "bits" in weights:
        # The first `level` bits of the first token, most significant first.
        for j, bit in enumerate(weights["bits"][tokens[:, 0]].T):
            read = level > j
            sub = torch.where(read, 2 * sub + (bit > 0).long(), sub)
    return torch.where(known, weights["first"][group].long() + sub, -1)


def own_features(
    spec: ShardedSpec, weights: Weights, tokens: Tensor, heads: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """x_S (B, d_g) and F (B, heads, d_h) of the own heads 0..heads-1, whose gates are exactly 0.

    Where the key gate reads (hot groups), position S is shut: attention lives on {BOS, 1}.
    """
    u, w, V = (weights[name][:heads].to(dtype) for name in ("u", "w", "V"))
    x = weights["W_E"].to(dtype)[tokens] + weights["W_pos"].to(dtype)[1:]
    x_S = x[:, -1]
    scores = (x_S @ u.T)[:, None] * (x @ w.T)
    if "bits" in weights:
        hot = weights["level"][weights["group"][tokens[:, -1]].long().clamp_min(0)] > 0
        scores[hot, -1] = -torch.inf
    # BOS is one more entry with score 0 and value 0.
    top = scores.amax(1, keepdim=True).clamp_min(0)
    e = torch.exp(scores - top)
    a = e / (e.sum(1, keepdim=True) + torch.exp(-top))
    A = torch.einsum("bsj,bsd->jbd", a, x)
    return x_S, torch.bmm(A, V).transpose(0, 1)


def residual(
    spec: ShardedSpec, weights: Weights, tokens: Tensor, dtype: torch.dtype | None = None
) -> Tensor:
    """x_S + Σ over the own heads of W_O^h F^h, on the output coordinates: (B, d_g + check).

    Keys whose last token decides for no shard get x_S alone.
    """
    dtype = dtype or weights["W_O"].dtype
    shards = shard_of(weights, tokens)
    start = weights["head_start"]
    counts = start[1:] - start[:-1]
    out = torch.zeros(len(tokens), spec.d_g + spec.check, dtype=dtype)
    order = shards.argsort(stable=True)
    distinct, sizes = shards[order].unique_consecutive(return_counts=True)
    ends = sizes.cumsum(0).tolist()
    begin = 0
    for i in range(0, len(distinct), SHARDS_AT_ONCE):
        some = distinct[i : i + SHARDS_AT_ONCE].tolist()
        rows = order[begin : ends[min(i + SHARDS_AT_ONCE, len(ends)) - 1]]
        heads = max((int(counts[g]) for g in some if g >= 0), default=1)
        x_S, F = own_features(spec, weights, tokens[rows], heads, dtype)
        out[rows, : spec.d_g] = x_S
        for g, stop in zip(some, ends[i : i + SHARDS_AT_ONCE], strict=True):
            if g >= 0:
                a, b = int(start[g]), int(start[g + 1])
                mine = slice(begin - (ends[i - 1] if i else 0), stop - (ends[i - 1] if i else 0))
                W_O = weights["W_O"][a:b].to(dtype).flatten(0, 1)
                out[order[begin:stop]] += F[mine, : b - a].flatten(1) @ W_O
            begin = stop
    return out


def memory_logits(
    spec: ShardedSpec, weights: Weights, tokens: Tensor, dtype: torch.dtype | None = None
) -> Tensor:
    """Logits (B, N) through the own heads."""
    out = residual(spec, weights, tokens, dtype)
    return out[:, : spec.d_g] @ weights["W_U"].to(out.dtype)


def to_dense(spec: ShardedSpec, weights: Weights) -> tuple[AttentionOnlySpec, Weights]:
    """The literal attention-only layer: every head with its gates, all coordinates, no model axis.

    Tokens are those of the memory with BOS as the last id; keys get BOS in front.
    """
    dense = spec.dense()
    dtype = weights["W_O"].dtype
    g, k, d = spec.d_g, spec.k, dense.d
    code = slice(g + 1, g + 1 + k)
    square = g + 1 + k
    bits = slice(square + 1, square + 1 + spec.bits)
    p = square + 1 + spec.bits
    group, point = weights["group"].long(), weights["point"].to(torch.float64)
    P = torch.where(group[:, None] >= 0, point[group.clamp_min(0)], weights["far"].double())

    W_E = torch.zeros(spec.N, d, dtype=torch.float64)
    W_E[:, :g] = weights["W_E"].double()
    W_E[:, g] = 1.0
    W_E[:, code] = spec.s1 * P
    W_E[:, square] = spec.s2 * (P**2).sum(1)
    if spec.bits:
        W_E[:, bits] = weights["bits"].double()
    W_E[-1] = 0.0  # BOS
    W_pos = torch.zeros(spec.S + 1, d, dtype=torch.float64)
    W_pos[:, :g] = weights["W_pos"].double()
    if spec.bits:
        W_pos[-1, p] = 1.0

    H, r = spec.H, dense.qk_rank
    W_Q = torch.zeros(1, H, d, r, dtype=torch.float64)
    W_K = torch.zeros(1, H, d, r, dtype=torch.float64)
    W_V = torch.zeros(1, H, d, spec.d_h, dtype=torch.float64)
    W_O = torch.zeros(1, H, spec.d_h, d, dtype=torch.float64)
    start = weights["head_start"].tolist()
    for c in range(len(point)):
        level, first = int(weights["level"][c]), int(weights["first"][c])
        for sub in range(2**level):
            a, b = start[first + sub], start[first + sub + 1]
            W_Q[0, a:b, :g, 0] = weights["u"][: b - a].double()
            W_K[0, a:b, :g, 0] = weights["w"][: b - a].double()
            # Query gate: λ dist(P_g, P(x_S)) from the query, -r from the key.
            W_Q[0, a:b, g, 1] = spec.lam * (point[c] ** 2).sum()
            W_Q[0, a:b, code, 1] = spec.lam * -2 * point[c] / spec.s1
            W_Q[0, a:b, square, 1] = spec.lam / spec.s2
            W_K[0, a:b, g, 1] = -1.0
            if level:
                # Key gate: λ times the number of wrong bits, and 2 λ at position S.
                signs = [1.0 if sub >> (level - 1 - j) & 1 else -1.0 for j in range(level)]
                W_Q[0, a:b, g, 2] = 1.0
                W_K[0, a:b, g, 2] = -spec.lam * level / 2
                W_K[0, a:b, bits.start : bits.start + level, 2] = (
                    spec.lam / 2 * torch.tensor(signs, dtype=torch.float64)
                )
                W_K[0, a:b, p, 2] = -2 * spec.lam
            W_V[0, a:b, :g] = weights["V"][: b - a].double()
            W_O[0, a:b, :, :g] = weights["W_O"][a:b, :, :g].double()
            if spec.check:
                W_O[0, a:b, :, d - spec.check :] = weights["W_O"][a:b, :, g:].double()
    W_U = torch.zeros(d, spec.N, dtype=torch.float64)
    W_U[:g] = weights["W_U"].double()
    names = {"W_E": W_E, "W_pos": W_pos, "W_Q": W_Q, "W_K": W_K, "W_V": W_V, "W_O": W_O, "W_U": W_U}
    return dense, {name: w.to(dtype) for name, w in names.items()}
