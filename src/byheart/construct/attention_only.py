"""Attention-only memories by construction (Dana et al. 2025, Theorem 1 with ε = 0, Corollary 1).

The heads attend at random; the facts live in W_O. With F(t) = W_V A(t) in R^{H d_h} the features
of all heads and x_S the skip, the memory recalls t exactly when

    F(t) W_O + x_S = w_{g(t)}            (row vectors, w_g the row of the right answer in W_U)

For generic e, pos, W_QK, W_V the rows [F(t), x_S] of T <= H d_h + d facts are independent
(Lemma 2). Up to H d_h facts the skip is subtracted from the targets; for the last d of them the
model is rewritten in a basis where the skip is x_S M_0 (docs/attention-only.md). M_0 = I + D with
[W_O; D] of least norm stays invertible when the last tokens span fewer than d directions; targets
get random parts in the directions that no logit reads, so that it does when the answers do.

The x_s span at most k = tokens + S - 1 dimensions and attention sums to 1, so a head adds at most
min(d_h, k - 1) to the rank: tables over very few tokens need more heads than the theorem says.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from byheart._progress import Report
from byheart.construct.solve import RankError, Solution, minimum_norm
from byheart.errors import CapacityError
from byheart.facts import Facts
from byheart.models.attention_only import Weights, head_outputs
from byheart.models.memory import BATCH_BYTES
from byheart.specs import AttentionOnlySpec
from byheart.theory import corollary1_capacity, corollary1_heads

# Share of |x|² = 1 that tokens and positions get.
TOKEN_SHARE, POSITION_SHARE = 0.7, 0.3
CHANGED_BASIS = "change of basis"  # how the skip is taken care of: this, or "fixed"
# Standard deviations of the scores that are tried, in turn: 16 conditions large systems best,
# small ones with few heads sometimes saturate there and want less.
BETAS = (16.0, 4.0, 64.0, 1.0)
SEED_STRIDE = 7919  # between attempts, so that neighbouring seeds share no draw


@dataclass(frozen=True)
class Constructed:
    """Weights (float64 values that the stored format holds exactly; no model axis) and how well
    the system that made them was conditioned."""

    weights: Weights
    solution: Solution
    skip: str


def attention_spec(facts: Facts, why: list[str], **sizes: int) -> AttentionOnlySpec:
    """The layer that reads these keys; `why` learns about the start token of keys of one token."""
    S, N = facts.S, facts.N
    if S == 1:
        S, N = 2, N + 1
        why.append(
            "a start token stands in front of every key: attention over one position is constant "
            "and would leave only the skip's d directions"
        )
    return AttentionOnlySpec(N=N, S=S, **sizes)


def keys_read(facts: Facts, spec: AttentionOnlySpec) -> Tensor:
    """The keys (T, S) as a layer of `spec` reads them, after its start token if it has one."""
    tokens = torch.tensor(facts.tokens)
    return torch.nn.functional.pad(tokens, (spec.S - facts.S, 0), value=spec.N - 1)


def draws(
    spec: AttentionOnlySpec,
    facts: Facts,
    targets: Tensor,
    W_U: Tensor,
    seed: int,
    dtype: torch.dtype,
    progress: Report,
) -> Iterator[tuple[float, Constructed | RankError]]:
    """`attention_only_weights` at every β of `BETAS`, or why there are none."""
    tokens = keys_read(facts, spec)
    for attempt, beta in enumerate(BETAS):
        progress(f"solving for {facts.T:,} facts in {spec.H * spec.d_h:,} head outputs")
        own = seed + SEED_STRIDE * attempt
        try:
            yield (
                beta,
                attention_only_weights(
                    spec, tokens, targets, W_U, seed=own, beta=beta, dtype=dtype
                ),
            )
        except RankError as error:
            yield beta, error


def check_admissible(spec: AttentionOnlySpec, T: int, last_tokens: int) -> None:
    """Refuse, with the theorem's reason, what Corollary 1 does not cover."""
    if spec.layers != 1 or not spec.skip or spec.positions != "input":
        raise CapacityError(
            "Corollary 1 is about one layer with the skip and positions at the input, found "
            f"layers={spec.layers}, skip={spec.skip}, positions={spec.positions!r}."
        )
    if spec.d_h > spec.d:
        raise CapacityError(
            f"d_h <= d is needed (a head reads d coordinates): {spec.d_h} > {spec.d}. "
            f"Use `d_h={spec.d}` or less."
        )
    capacity = corollary1_capacity(spec, last_tokens)
    if capacity >= T:
        return
    heads = corollary1_heads(T, spec.d, spec.d_h, last_tokens)
    skip = f"{spec.d}"
    if last_tokens < spec.d:
        skip = f"min({spec.d}, {last_tokens} distinct last tokens)"
    raise CapacityError(
        f"{T:,} facts are more than H·d_h + d = {spec.H}·{spec.d_h} + {skip} = {capacity:,}, what "
        f"d={spec.d}, H={spec.H}, d_h={spec.d_h} holds for certain (Dana et al. 2025, "
        f"Corollary 1). Use `H={heads}` or more, or `readout=convex`, which often holds more."
    )


def attention_only_weights(
    spec: AttentionOnlySpec,
    tokens: Tensor,
    targets: Tensor,
    W_U: Tensor,
    *,
    seed: int,
    beta: float,
    dtype: torch.dtype,
) -> Constructed:
    """Weights with residual(t) = target(t) for all facts.

    `tokens` (T, S) ids, distinct rows; `targets` (T, d) rows of W_U^T; `W_U` (d, N); `beta` the
    standard deviation of the attention scores; `dtype` the format the weights will be stored in.
    """
    check_admissible(spec, len(tokens), len(tokens[:, -1].unique()))
    nominal = random_attention(spec, seed, beta)

    def constructed(weights: Weights, W_O: Tensor, solution: Solution, skip: str) -> Constructed:
        return Constructed(rounded(complete(spec, weights, W_O, W_U), dtype), solution, skip)

    if len(tokens) <= spec.H * spec.d_h:
        # Fixed skip: F W_O = target - x_S, with everything but W_O already as it will be stored.
        weights = rounded(nominal, dtype)
        x_S, F = features(spec, weights, tokens)
        with contextlib.suppress(RankError):  # few tokens: the heads alone may not be enough
            solution = minimum_norm(F, targets - x_S)
            return constructed(weights, solution.W, solution, "fixed")
    # F W_O + x_S (I + D) = target, then the basis in which the skip is x_S (I + D).
    targets = targets + unread_parts(W_U, len(tokens), seed)
    x_S, F = features(spec, nominal, tokens)
    solution = minimum_norm(torch.cat([F, x_S], 1), targets - x_S)
    W_O, D = solution.W[: -spec.d], solution.W[-spec.d :]
    weights = rounded(in_basis(nominal, torch.eye(spec.d, dtype=D.dtype) + D), dtype)
    if dtype != torch.float64:
        # The rounded basis moved the features: fit W_O once more to what is really stored.
        x_S, F = features(spec, weights, tokens)
        W_O = W_O + torch.linalg.lstsq(F, targets - x_S - F @ W_O).solution
    return constructed(weights, W_O, solution, CHANGED_BASIS)


def complete(spec: AttentionOnlySpec, weights: Weights, W_O: Tensor, W_U: Tensor) -> Weights:
    """Embeddings and heads with the read-out W_O (H d_h, d) and W_U."""
    return {**weights, "W_O": W_O.reshape(1, spec.H, spec.d_h, spec.d), "W_U": W_U}


def unread_parts(W_U: Tensor, T: int, seed: int) -> Tensor:
    """Random vectors (T, d) of about unit length in the directions that no column of W_U reads."""
    d = len(W_U)
    directions, sizes, _ = torch.linalg.svd(W_U)
    free = directions[:, int((sizes > 1e-9 * sizes[0]).sum()) :]
    generator = torch.Generator().manual_seed(seed + 1)
    parts = torch.randn(T, free.shape[1], generator=generator, dtype=torch.float64)
    return parts @ free.T / math.sqrt(d)


def random_attention(spec: AttentionOnlySpec, seed: int, beta: float) -> Weights:
    """Generic e, pos, W_Q, W_K, W_V: |x|² ≈ 1, scores of standard deviation β, orthonormal W_V."""
    generator = torch.Generator().manual_seed(seed)

    def gaussian(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    heads, d, r = (1, spec.H), spec.d, spec.qk_rank
    # A product of two rank-r Gaussian factors has scores of variance r: r^(1/4) in each undoes it.
    half_score = math.sqrt(beta) / r**0.25
    if spec.scale:
        half_score *= r**0.25
    return {
        "W_E": gaussian(spec.N, d) * math.sqrt(TOKEN_SHARE / d),
        "W_pos": gaussian(spec.S, d) * math.sqrt(POSITION_SHARE / d),
        "W_Q": gaussian(*heads, d, r) * half_score,
        "W_K": gaussian(*heads, d, r) * half_score,
        "W_V": torch.linalg.qr(gaussian(*heads, d, spec.d_h)).Q.contiguous(),
    }


def in_basis(weights: Weights, M_0: Tensor) -> Weights:
    """The same scores and features, with the skip x_S M_0 instead of x_S."""
    back, info = torch.linalg.inv_ex(M_0)
    if int(info) != 0:
        raise RankError("the matrix M_0 of the change of basis is singular")
    moved = {name: weights[name] @ M_0 for name in ("W_E", "W_pos")}
    return moved | {name: back @ weights[name] for name in ("W_Q", "W_K", "W_V")}


def features(spec: AttentionOnlySpec, weights: Weights, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """x_S (T, d) and F (T, H d_h) of all facts, in batches of bounded memory."""
    stacked = {name: w[None] for name, w in weights.items()}
    T = len(tokens)
    x_S = torch.empty(T, spec.d, dtype=torch.float64)
    F = torch.empty(T, spec.H * spec.d_h, dtype=torch.float64)
    step = max(1, BATCH_BYTES // spec.row_bytes(8))
    for i in range(0, T, step):
        skip, heads = head_outputs(spec, stacked, tokens[i : i + step])
        x_S[i : i + step] = skip[0]
        F[i : i + step] = heads[0].flatten(1)
    return x_S, F


def rounded(weights: Weights, dtype: torch.dtype) -> Weights:
    """The weights as `dtype` stores them, as float64."""
    return {name: w.to(dtype).to(torch.float64) for name, w in weights.items()}
