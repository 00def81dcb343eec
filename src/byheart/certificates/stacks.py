"""Error bounds for what is trained rather than built: layers in a row, positions in the attention,
a shared bottleneck, an MLP. The arithmetic and its assumptions are those of `rounding`, and

- ReLU is exact, and moves no two numbers further apart;
- erf is off by at most `ERF_ERROR` = 2^-47, like exp (the library used here stays below 2^-52; a
  test compares it with ball arithmetic), and |gelu'| <= 1.13 (its maximum, at sqrt(2), is 1.1290).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeGuard

import torch
from torch import Tensor

from byheart.certificates import rounding
from byheart.certificates.rounding import Bounded, U, add, exact, product
from byheart.errors import ByheartError
from byheart.models.attention_only import Weights
from byheart.specs import (
    AssociativeSpec,
    AttentionOnlySpec,
    MLPTransformerSpec,
    SharedBottleneckSpec,
    Spec,
)

ERF_ERROR = 2.0**-47
GELU_SLOPE = 1.13

Stack = AttentionOnlySpec | SharedBottleneckSpec | MLPTransformerSpec


def logits(spec: Spec, weights: Weights, tokens: Tensor) -> Bounded:
    """Logits (B, N) with error bounds, for every family that has them.

    `weights` in float64, without model axis; `tokens` (B, S).
    """
    if isinstance(spec, AssociativeSpec) or is_one_plain_layer(spec):
        return rounding.logits(spec, weights, tokens)
    spec = check_stack(spec)
    heads = spec if isinstance(spec, AttentionOnlySpec) else spec.heads
    x = exact(weights["W_E"][tokens])
    if heads.positions == "input":
        x = add(x, exact(weights["W_pos"].expand_as(x.value)))
    for layer in range(spec.layers):
        queries = range(spec.S) if layer < spec.layers - 1 else [spec.S - 1]
        out = _attention(spec, heads, weights, layer, x, queries)
        x = add(out, _at(x, queries)) if heads.skip else out
        if isinstance(spec, MLPTransformerSpec) and spec.w:
            x = _mlp(spec, weights, layer, x)
    last = Bounded(x.value[:, -1], x.error[:, -1])
    return product(last, exact(weights["W_U"]), "bd,dn->bn", spec.d)


def is_one_plain_layer(spec: Spec) -> TypeGuard[AttentionOnlySpec]:
    """Whether `rounding` and `ball` have a way of their own for it, the form that is built."""
    return isinstance(spec, AttentionOnlySpec) and (
        spec.layers == 1 and spec.positions != "attention"
    )


def check_stack(spec: Spec) -> Stack:
    """The spec, if the proofs cover it; otherwise an error that says why not."""
    if not isinstance(spec, AttentionOnlySpec | SharedBottleneckSpec | MLPTransformerSpec):
        raise ByheartError(
            f"certificates do not cover {spec} yet; the plain float64 check (`arithmetic=float`) does."
        )
    if not isinstance(spec, SharedBottleneckSpec):
        rounding.check_softmax(spec)
    return spec


def _at(x: Bounded, queries: Sequence[int]) -> Bounded:
    return Bounded(x.value[:, list(queries)], x.error[:, list(queries)])


def _attention(
    spec: Stack,
    heads: AttentionOnlySpec,
    weights: Weights,
    layer: int,
    x: Bounded,
    queries: Sequence[int],
) -> Bounded:
    """What the heads add at the positions `queries`, each of which reads those up to itself."""
    width = spec.d
    shared = isinstance(spec, SharedBottleneckSpec) and spec.compressed
    if shared:
        width = spec.d_h
        x = product(x, exact(weights["W_C"][layer]), "bsd,de->bse", spec.d)
    if heads.positions == "attention":
        x = add(x, exact(weights["W_pos"].expand_as(x.value)))
    W_Q, W_K, W_V = (exact(weights[name][layer]) for name in ("W_Q", "W_K", "W_V"))
    k = product(x, W_K, "bsd,hdr->bhsr", width)
    q = product(_at(x, queries), W_Q, "bqd,hdr->bhqr", width)
    F = []
    for i, s in enumerate(queries):
        if s == 0:  # one position: its weight is 1 in every head, whatever its score
            first = [t[:, None, 0].expand(-1, heads.H, -1) for t in (x.value, x.error)]
            F.append(product(Bounded(*first), W_V, "bhd,hde->bhe", width))
            continue
        keys = Bounded(k.value[:, :, : s + 1], k.error[:, :, : s + 1])
        query = Bounded(q.value[:, :, i], q.error[:, :, i])
        scores = product(query, keys, "bhr,bhsr->bhs", heads.qk_rank)
        if heads.scale:
            scores = rounding.divided_by_root(scores, heads.qk_rank)
        past = Bounded(x.value[:, : s + 1], x.error[:, : s + 1])
        A = product(rounding.softmax(scores), past, "bhs,bsd->bhd", s + 1)
        F.append(product(A, W_V, "bhd,hde->bhe", width))
    flat = Bounded(
        torch.stack([f.value.flatten(1) for f in F], 1),
        torch.stack([f.error.flatten(1) for f in F], 1),
    )
    W_O = exact(weights["W_O"][layer].flatten(0, 1))
    out = product(flat, W_O, "bqf,fd->bqd", heads.H * heads.d_h)
    return product(out, exact(weights["W_D"][layer]), "bqe,ed->bqd", width) if shared else out


def _mlp(spec: MLPTransformerSpec, weights: Weights, layer: int, x: Bounded) -> Bounded:
    """x + W_out act(W_in x + b_in)."""
    z = product(x, exact(weights["W_in"][layer]), "bqd,dw->bqw", spec.d)
    z = add(z, exact(weights["b_in"][layer].expand_as(z.value)))
    hidden = gelu(z) if spec.activation == "gelu" else relu(z)
    return add(x, product(hidden, exact(weights["W_out"][layer]), "bqw,wd->bqd", spec.w))


def relu(z: Bounded) -> Bounded:
    """max(z, 0): exact, and 1-Lipschitz."""
    return Bounded(torch.relu(z.value), z.error)


def gelu(z: Bounded) -> Bounded:
    """z Φ(z) = z (1 + erf(z / sqrt 2)) / 2.

    t = z / sqrt 2 is rounded by at most 4 u |t|, which moves erf by at most 4 u |t| (2/sqrt π)
    e^{-t²} <= 2 u; with erf itself, 1 + erf and the halving, Φ is off by less than ERF_ERROR + 8 u.
    One product follows. What z itself is off by counts GELU_SLOPE times.
    """
    t = z.value * (1 / math.sqrt(2))
    value = z.value * ((1 + torch.erf(t)) / 2)
    own = z.value.abs() * (ERF_ERROR + 8 * U)
    return Bounded(value, rounding.rounded_up(GELU_SLOPE * z.error + own + U * value.abs(), 6))
