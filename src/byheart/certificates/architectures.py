"""The forward pass of every architecture, written once over an arithmetic and dispatched on the
class of its spec.

`residual(spec, A, tokens)` is what W_U reads, where A is an `arithmetic.Arithmetic`: float64 values
with error bounds (`arithmetic.Rounding`), for exact real arithmetic or for every evaluation in a
number format, or Arb (`ball.Balls`). Another package adds its architecture with one call,

    from byheart.certificates import residual
    residual.register(MySpec, my_residual)   # my_residual(spec, A, tokens) -> (B, d)

and has all of these proofs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

import numpy as np
import torch
from torch import Tensor

from byheart._progress import Report
from byheart.certificates import ball
from byheart.certificates.arithmetic import (
    EXACT,
    Arithmetic,
    Bounded,
    Format,
    Rounding,
    Value,
    Weights,
)
from byheart.errors import ByheartError
from byheart.specs import (
    AssociativeSpec,
    AttentionOnlySpec,
    MLPTransformerSpec,
    SharedBottleneckSpec,
    Spec,
)

Stack = AttentionOnlySpec | SharedBottleneckSpec | MLPTransformerSpec
BALL_ROWS = 64  # facts whose balls are kept at once


@singledispatch
def residual(spec: Spec, A: Arithmetic[Value], tokens: Tensor) -> Value:
    """What W_U reads (B, d) for `tokens` (B, S) as the model reads them."""
    raise ByheartError(
        f"certificates do not cover {spec} yet; the plain float64 check (`arithmetic=float`) does."
    )


@residual.register
def _(spec: Stack, A: Arithmetic[Value], tokens: Tensor) -> Value:
    """A layer is x + W_D Σ_h head_h(W_C x + pos), then x + W_out act(W_in x + b_in), where there is
    a bottleneck and an MLP; the last layer is evaluated at the last position only."""
    heads, last = spec.heads, spec.S - 1
    if heads.attention != "softmax":
        raise ByheartError(
            f"certificates cover softmax attention, not {spec}. Scores that tie decide hardmax, "
            "and a tie cannot be proved in rounded arithmetic."
        )
    x = A.exact(A.weights["W_E"][tokens])
    if heads.positions == "input":
        x = A.add(x, A.weight("W_pos"))
    for layer in range(spec.layers):
        queries = range(spec.S) if layer < spec.layers - 1 else [last]
        z = A.einsum("bsd,de->bse", x, A.weight("W_C", 0)) if "W_C" in A.weights else x
        if heads.positions == "attention":
            z = A.add(z, A.weight("W_pos"))
        out = attention(heads, A, layer, z, queries)
        if "W_D" in A.weights:
            out = A.einsum("bqd,de->bqe", out, A.weight("W_D", 0))
        # The skip may be where the sum over all heads starts.
        x = A.add(out, x[:, list(queries)], heads.H * heads.d_h + 1) if heads.skip else out
        if "W_in" in A.weights:
            hidden = A.einsum("bqd,de->bqe", x, A.weight("W_in", layer))
            hidden = A.add(hidden, A.weight("b_in", layer), spec.d + 1)
            hidden = A.activation(hidden, getattr(spec, "activation", ""))
            out = A.einsum("bqe,ed->bqd", hidden, A.weight("W_out", layer))
            x = A.add(out, x, len(A.weights["W_out"][layer]) + 1)
    return x[:, -1]


def attention(
    spec: AttentionOnlySpec, A: Arithmetic[Value], layer: int, x: Value, queries: Sequence[int]
) -> Value:
    """Σ_h W_O^h W_V^h Σ_s softmax_s(q·k_s) x_s at the positions `queries` (B, queries, d), each of
    which reads those up to itself.

    Keys of all positions first: slower than x_S^T W_QK, but the errors of q then meet the keys
    themselves, not |W_K||x|, which after a change of basis can be a thousand times larger.
    """
    W_Q, W_K, W_V, W_O = (A.weight(name, layer) for name in ("W_Q", "W_K", "W_V", "W_O"))
    q = A.einsum("bqd,hdr->bqhr", x[:, list(queries)], W_Q)
    rows = []
    for i, s in enumerate(queries):
        past = x[:, : s + 1]
        scores = A.chain("bsd,hdr->bhsr", "bhsr,bhr->bhs", past, W_K, q[:, i])
        if spec.scale:
            scores = A.over_root(scores, spec.qk_rank)
        F = A.chain("bhs,bsd->bhd", "bhd,hde->bhe", A.softmax(scores), past, W_V)
        rows.append(A.einsum("bhe,hed->bd", F, W_O))
    return A.stack(rows, 1)


@residual.register
def _(spec: AssociativeSpec, A: Arithmetic[Value], tokens: Tensor) -> Value:
    """W w_e(t), where w_e is a product of S entries, in this order, divided by sqrt(d)."""
    key = A.exact(A.weights["W_E"][0, tokens[:, 0]])
    for s in range(1, spec.S):
        key = A.einsum("bd,bd->bd", key, A.exact(A.weights["W_E"][s, tokens[:, s]]))
    return A.einsum("bd,de->be", A.over_root(key, spec.d), A.weight("W"))


def bounded_logits(spec: Spec, weights: Weights, tokens: Tensor, format: Format = EXACT) -> Bounded:
    """Logits (B, N) with error bounds; `weights` in float64 without model axis, `tokens` (B, S)."""
    A = Rounding(weights, format)
    return A.einsum("bd,dn->bn", residual(spec, A, tokens), A.weight("W_U"))


def ball_residuals(
    spec: Spec, weights: Weights, tokens: np.ndarray, progress: Report
) -> np.ndarray:
    """What W_U reads (T, d) in balls, at the precision of the context."""
    A, parts = ball.Balls(weights), []
    for i in range(0, len(tokens), BALL_ROWS):
        rows = torch.from_numpy(tokens[i : i + BALL_ROWS].copy())
        parts.append(residual(spec, A, rows))
        progress(f"{i + len(rows):,} of {len(tokens):,} facts")
    return np.concatenate(parts)


def ball_margins(
    spec: Spec,
    weights: Weights,
    tokens: np.ndarray,
    right: np.ndarray,
    *,
    precision: int,
    progress: Report,
) -> tuple[np.ndarray, np.ndarray]:
    """Margins (T,) and radii (T,): the exact margin of each fact lies within margin ± radius."""
    with ball.bits(precision):
        out = ball_residuals(spec, weights, tokens, progress)
        progress(f"comparing {len(tokens):,} answers with all others")
        return ball.margins(out, weights["W_U"], right)
