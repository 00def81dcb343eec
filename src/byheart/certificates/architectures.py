"""The logits of every architecture with error bounds, dispatched on the class of its spec.

`residual` is the forward pass of layers in a row (attention-only, shared bottleneck, MLP
Transformer), written once over an arithmetic: `rounding.Rounding`, float64 with error bounds for
all facts at once, or `ball.Balls`, Arb fact by fact.

Another package adds its architecture with one call:

    from byheart.certificates import Bounded, bounded_logits
    bounded_logits.register(MySpec, my_logits)   # my_logits(spec, weights, tokens) -> Bounded

which the proof in float64 and the plain check need; `ball_residuals.register(MySpec, ...)` adds
ball arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import singledispatch
from typing import Protocol, TypeVar

import numpy as np
from flint import arb, arb_mat
from torch import Tensor

from byheart._progress import Report
from byheart.certificates import ball
from byheart.certificates.ball import Balls, Rows
from byheart.certificates.rounding import (
    Bounded,
    Rounding,
    Weights,
    exact,
    gamma,
    product,
    rounded_up,
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
Value = TypeVar("Value")
Ids = TypeVar("Ids", contravariant=True)


class Arithmetic(Protocol[Value, Ids]):
    """Matrices of numbers that know how wrong they can be."""

    weights: Weights

    def weight(self, name: str, *layer: int) -> Value: ...
    def embed(self, tokens: Ids) -> Value: ...
    def rows(self, x: Value, positions: Sequence[int]) -> Value: ...
    def add(self, a: Value, b: Value) -> Value: ...
    def product(self, x: Value, W: Value) -> Value: ...
    def activation(self, z: Value, name: str) -> Value: ...
    def heads(self, spec: AttentionOnlySpec, layer: int, x: Value, queries: Sequence[int]) -> Value:
        """What the heads of a layer add at the positions `queries`, each of which reads those up
        to itself."""
        ...


def residual(A: Arithmetic[Value, Ids], spec: Stack, tokens: Ids) -> Value:
    """What W_U reads, behind all layers, at the last position.

    A layer is x + W_D Σ_h head_h(W_C x + pos), then x + W_out act(W_in x + b_in), where there is a
    bottleneck and an MLP; the last layer is evaluated at the last position only.
    """
    heads, last = spec.heads, spec.S - 1
    if heads.attention != "softmax":
        raise ByheartError(
            f"certificates cover softmax attention, not {spec}. Scores that tie decide hardmax, "
            "and a tie cannot be proved in rounded arithmetic."
        )
    x = A.embed(tokens)
    if heads.positions == "input":
        x = A.add(x, A.weight("W_pos"))
    for layer in range(spec.layers):
        queries = range(spec.S) if layer < spec.layers - 1 else [last]
        z = A.product(x, A.weight("W_C", layer)) if "W_C" in A.weights else x
        if heads.positions == "attention":
            z = A.add(z, A.weight("W_pos"))
        out = A.heads(heads, layer, z, queries)
        if "W_D" in A.weights:
            out = A.product(out, A.weight("W_D", layer))
        x = A.add(out, A.rows(x, queries)) if heads.skip else out
        if "W_in" in A.weights:
            hidden = A.add(A.product(x, A.weight("W_in", layer)), A.weight("b_in", layer))
            hidden = A.activation(hidden, getattr(spec, "activation", ""))
            x = A.add(x, A.product(hidden, A.weight("W_out", layer)))
    return A.rows(x, [-1])


@singledispatch
def bounded_logits(spec: Spec, weights: Weights, tokens: Tensor) -> Bounded:
    """Logits (B, N) with error bounds; `weights` in float64 without model axis, `tokens` (B, S)."""
    raise _not_covered(spec)


@singledispatch
def ball_residuals(spec: Spec, weights: Weights, tokens: np.ndarray, progress: Report) -> Rows:
    """What W_U reads, one row of d balls for each fact, at the precision of the context."""
    raise _not_covered(spec)


def _not_covered(spec: Spec) -> ByheartError:
    return ByheartError(
        f"certificates do not cover {spec} yet; the plain float64 check (`arithmetic=float`) does."
    )


@bounded_logits.register
def _(spec: Stack, weights: Weights, tokens: Tensor) -> Bounded:
    x = residual(Rounding(weights), spec, tokens)
    return product(x[:, -1], exact(weights["W_U"]), "bd,dn->bn", spec.d)


@bounded_logits.register
def _(spec: AssociativeSpec, weights: Weights, tokens: Tensor) -> Bounded:
    """W_U^T W w_e(t) with error bounds; w_e is a product of S entries divided by sqrt(d)."""
    key = weights["W_E"][0, tokens[:, 0]]
    for s in range(1, spec.S):
        key = key * weights["W_E"][s, tokens[:, s]]
    key = key / math.sqrt(spec.d)
    rounding = rounded_up(gamma(spec.S + 2) * key.abs(), 3)
    out = product(Bounded(key, rounding), exact(weights["W"]), "bd,de->be", spec.d)
    return product(out, exact(weights["W_U"]), "bd,dn->bn", spec.d)


@ball_residuals.register
def fact_by_fact(spec: Stack, weights: Weights, tokens: np.ndarray, progress: Report) -> Rows:
    A, out = Balls(weights), []
    for i, row in enumerate(tokens.tolist(), 1):
        out.append(residual(A, spec, row).tolist()[0])
        if i % 100 == 0 or i == len(tokens):
            progress(f"{i:,} of {len(tokens):,} facts")
    return out


@ball_residuals.register
def _(spec: AttentionOnlySpec, weights: Weights, tokens: np.ndarray, progress: Report) -> Rows:
    """One layer with positions at the input, the form that is built, all facts together."""
    plain = spec.layers == 1 and spec.positions != "attention" and spec.attention == "softmax"
    evaluate = ball.one_layer if plain else fact_by_fact
    return evaluate(spec, weights, tokens, progress)


@ball_residuals.register
def _(spec: AssociativeSpec, weights: Weights, tokens: np.ndarray, progress: Report) -> Rows:
    W, root = ball.matrix(weights["W"]), arb(spec.d).sqrt()
    keys = []
    for row in tokens.tolist():
        key = [arb(1) / root] * spec.d
        for s, token in enumerate(row):
            signs = weights["W_E"][s, token].double().tolist()
            key = [k * arb(sign) for k, sign in zip(key, signs, strict=True)]
        keys.append(key)
    return (arb_mat(keys) * W).tolist()


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
