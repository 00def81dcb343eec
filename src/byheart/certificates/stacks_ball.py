"""The families of `stacks` in ball arithmetic: the formula, fact by fact, at any precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from flint import arb, arb_mat, ctx

from byheart.certificates import ball
from byheart.certificates.stacks import Stack, check_stack, is_one_plain_layer
from byheart.models.attention_only import Weights
from byheart.specs import AssociativeSpec, AttentionOnlySpec, MLPTransformerSpec, Spec

Head = tuple[arb_mat, arb_mat]  # W_Q W_K^T and W_V W_O


def ball_margins(
    spec: Spec,
    weights: Weights,
    tokens: np.ndarray,
    right: np.ndarray,
    *,
    precision: int,
    progress: Callable[[str], None],
) -> tuple[np.ndarray, np.ndarray]:
    """Margins (T,) and radii (T,): the exact margin of each fact lies within margin ± radius."""
    if isinstance(spec, AssociativeSpec) or is_one_plain_layer(spec):
        return ball.ball_margins(
            spec, weights, tokens, right, precision=precision, progress=progress
        )
    spec = check_stack(spec)
    old = ctx.prec
    ctx.prec = precision
    try:
        layers = [_Layer(spec, weights, layer) for layer in range(spec.layers)]
        out = []
        for i, row in enumerate(tokens.tolist(), 1):
            out.append(_residual(spec, weights, layers, row))
            if i % 100 == 0 or i == len(tokens):
                progress(f"{i:,} of {len(tokens):,} facts")
        return ball.margins(out, weights["W_U"], right)
    finally:
        ctx.prec = old


class _Layer:
    """The matrices of one layer as balls; exact, for a double is."""

    def __init__(self, spec: Stack, weights: Weights, layer: int) -> None:
        def of(name: str) -> arb_mat | None:
            return ball.matrix(weights[name][layer]) if name in weights else None

        self.heads: list[Head] = [
            (
                ball.matrix(weights["W_Q"][layer, h]) * ball.matrix(weights["W_K"][layer, h].T),
                ball.matrix(weights["W_V"][layer, h]) * ball.matrix(weights["W_O"][layer, h]),
            )
            for h in range(spec.H)
        ]
        self.compress, self.decompress = of("W_C"), of("W_D")
        self.W_in, self.W_out = of("W_in"), of("W_out")
        self.b_in = ball.matrix(weights["b_in"][layer][None]) if "b_in" in weights else None


def _residual(spec: Stack, weights: Weights, layers: list[_Layer], tokens: list[int]) -> list[arb]:
    """The vector that W_U reads, for one key."""
    heads = spec if isinstance(spec, AttentionOnlySpec) else spec.heads
    pos = ball.matrix(weights["W_pos"]) if heads.positions != "none" else None
    x = ball.matrix(weights["W_E"][tokens])  # (S, d)
    if pos is not None and heads.positions == "input":
        x = x + pos
    for number, layer in enumerate(layers):
        z = x if layer.compress is None else x * layer.compress
        if pos is not None and heads.positions == "attention":
            z = z + pos
        queries = range(spec.S) if number < len(layers) - 1 else [spec.S - 1]
        out = _attention(heads, layer, z, queries)
        if layer.decompress is not None:
            out = out * layer.decompress
        rows = x.tolist()
        x = arb_mat([rows[s] for s in queries]) + out if heads.skip else out
        if isinstance(spec, MLPTransformerSpec) and spec.w:
            x = _mlp(spec, layer, x)
    return x.tolist()[-1]


def _attention(
    heads: AttentionOnlySpec, layer: _Layer, z: arb_mat, queries: Sequence[int]
) -> arb_mat:
    root = arb(heads.qk_rank).sqrt() if heads.scale else arb(1)
    total = arb_mat(len(queries), z.ncols())
    for W_QK, W_VO in layer.heads:
        scores = (z * W_QK * z.transpose()).tolist()
        rows = []
        for s in queries:
            a = ball.softmax(tuple(v / root for v in scores[s][: s + 1]))
            rows.append(a + [arb(0)] * (heads.S - s - 1))
        total = total + arb_mat(rows) * z * W_VO
    return total


def _mlp(spec: MLPTransformerSpec, layer: _Layer, x: arb_mat) -> arb_mat:
    assert layer.W_in is not None
    assert layer.b_in is not None
    assert layer.W_out is not None
    bias = layer.b_in.tolist()[0]
    act = _gelu if spec.activation == "gelu" else _relu
    hidden = [
        [act(v + b) for v, b in zip(row, bias, strict=True)] for row in (x * layer.W_in).tolist()
    ]
    return x + arb_mat(hidden) * layer.W_out


def _relu(z: arb) -> arb:
    return z.max(arb(0))


def _gelu(z: arb) -> arb:
    """z Φ(z) with Φ(z) = erfc(-z / sqrt 2) / 2, which keeps its accuracy for z << 0."""
    return z * (-z / arb(2).sqrt()).erfc() / 2
