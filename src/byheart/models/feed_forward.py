"""Residual ReLU blocks around one attention layer: E_out o FF_2 o SA o FF_1 o E_in.

    FF block:   z <- z + W_2 relu(W_1 z + b_1) + b_2                 (token by token)
    attention:  z_k <- z_k + W_O W_V Σ_l a_kl z_l,   a_k = softmax_l(z_k^T W_Q W_K^T z_l)
    uniform:    a_kl = 1/n, which softmax and hardmax both give for W_Q = 0 or W_K = 0

(Kajitsuka and Sato 2025; eq. 165 is the model of their experiments, `FeedForwardTransformerSpec.
experiment`.) No mask, no positions, no scale: the model cannot tell an order. Inputs are vectors.
One position is read, so attention and FF_2 are computed there only. FF_1's blocks come first.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from byheart.errors import ByheartError
from byheart.models.architectures import Inputs, Weights, embed
from byheart.models.attention_only import EXACT, Hardmax, attention_weights
from byheart.specs import FeedForwardTransformerSpec

INITS = ("linear", "scaled", "spread")
LOOKED_AT = 1 << 13  # tokens whose spread a start is fitted to, of at least 16 sequences


def start_bounds(spec: FeedForwardTransformerSpec, init: str) -> dict[str, float]:
    """`linear`: every weight and bias as `nn.Linear` starts, U(±fan_in^-1/2). The paper does not
    say how its models start; see `finish_start` for others."""
    fan_in = dict.fromkeys(("W_1", "b_1", "W_Q", "W_K", "W_V", "E_out"), spec.m)
    fan_in |= {"E_in": spec.d, "W_O": spec.s} | dict.fromkeys(("W_2", "b_2"), spec.q)
    return {name: fan**-0.5 for name, fan in fan_in.items()}


def finish_start(
    spec: FeedForwardTransformerSpec, init: str, weights: Weights,
    generators: Sequence[torch.Generator], inputs: Inputs | None,
) -> Weights:  # fmt: skip
    """`scaled`: `linear` with the outputs of every block divided by sqrt(blocks), without which
    more blocks were learned less well (N = 200, 6 + 6 blocks: best accuracy .89 and .99).

    `spread` looks at the tokens z: E_in is scaled so that every feature has variance 1; the kinks
    of a block's units lie at random tokens, W_1 = unit directions / std z, b_1 = -w.(a token); W_2
    is Gaussian, such that a block adds std z / sqrt(blocks on this side of the attention), and b_2
    centres z; attention adds std z / 2; the outputs have standard deviation .7.
    """
    if init == "scaled":  # divided in float32, as ever
        rounded = {name: weights[name].float() for name in ("W_2", "b_2")}
        return weights | {name: w / spec.blocks**0.5 for name, w in rounded.items()}
    if init != "spread":
        return weights
    if inputs is None:
        raise ByheartError("the start `spread` looks at the data: give `data`, or start otherwise")
    looked_at = inputs(max(16, LOOKED_AT // spec.n))[0]
    models = []
    for m, source in enumerate(generators):
        one = {name: w[m : m + 1] for name, w in weights.items()}
        models.append(_Spread(spec, one, source).fitted(*_of_model(m, looked_at)))
    return {name: torch.cat([model[name] for model in models]) for name in weights}


def _of_model(m: int, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Inputs of `forward` as model m reads them, vectors in float64."""
    *table, tokens = (x.double() if x.is_floating_point() else x for x in inputs)
    own = tokens.dim() == 3 + tokens.is_floating_point()
    return (*table, tokens[m : m + 1] if own else tokens)


class _Spread:
    """The start `spread` of one model: `z` (1, tokens, m) goes through it, part by part."""

    def __init__(
        self, spec: FeedForwardTransformerSpec, weights: Weights, generator: torch.Generator
    ) -> None:
        self.spec, self.w, self.generator = spec, weights, generator

    def drawn(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, dtype=torch.float64)

    def fitted(self, *inputs: Tensor) -> Weights:
        spec, w = self.spec, self.w
        z = embedded(spec, w, *inputs)
        scale = _size(z, (1, 2))
        w["E_in"] = w["E_in"] / scale[:, 0]
        B, n = z.shape[1:3]
        z = (z / scale).flatten(1, 2)
        for block in range(spec.first):
            z = self.block(z, block, spec.first)
        z = z.unflatten(1, (B, n))
        added = torch.bmm(z.mean(2) @ w["W_V"], w["W_O"])
        w["W_O"] = w["W_O"] * 0.5 * _size(z) / _size(added)
        z = attended(spec, w, z)
        for block in range(spec.first, spec.blocks):
            z = self.block(z, block, spec.blocks - spec.first)
        w["E_out"] = 0.7 * self.drawn(1, spec.m, spec.d_out) / _size(z)
        return w

    def block(self, z: Tensor, block: int, blocks: int) -> Tensor:
        """Weights of one of `blocks` blocks for tokens z, and what it makes of them."""
        w, (m, q) = self.w, (self.spec.m, self.spec.q)
        directions = self.drawn(m, q)
        w["W_1"][0, block] = W_1 = directions / directions.norm(dim=0) / _size(z)
        kinks = z[0, torch.randint(z.shape[1], (q,), generator=self.generator)]
        w["b_1"][0, block] = -(kinks.T * W_1).sum(0)
        w["W_2"][0, block], w["b_2"][0, block] = self.drawn(q, m), 0
        w["W_2"][0, block] *= _size(z) / blocks**0.5 / _size(ff_block(w, block, z) - z)
        w["b_2"][0, block] = -ff_block(w, block, z)[0].mean(0)
        return ff_block(w, block, z)


def _size(z: Tensor, over: tuple[int, ...] | None = None) -> Tensor:
    """Standard deviation over some axes, or all; 1 where there is none."""
    size = z.std(over, correction=0, keepdim=over is not None)
    return torch.where(size > 0, size, 1.0)


def forward(
    spec: FeedForwardTransformerSpec, weights: Weights, *inputs: Tensor, hardmax: Hardmax = EXACT
) -> Tensor:
    """Outputs at the position `read`: (models, B, d_out).

    `inputs`: tokens in R^d, (B, n, d), the same for every model, or (models, B, n, d), its own; or
    a table of vectors (K, d) and numbers of its rows, (B, n) or (models, B, n); or these numbers
    alone, of rows of E_in: tokens that are one-hot vectors, so that E_in is a table of its own.
    """
    z = embedded(spec, weights, *inputs)
    B, n = z.shape[1:3]
    z = z.flatten(1, 2)
    for block in range(spec.first):
        z = ff_block(weights, block, z)
    y = attended(spec, weights, z.unflatten(1, (B, n)), hardmax)
    for block in range(spec.first, spec.blocks):
        y = ff_block(weights, block, y)
    return y @ weights["E_out"]


def embedded(spec: FeedForwardTransformerSpec, weights: Weights, *inputs: Tensor) -> Tensor:
    """The tokens times E_in, (models, B, n, m)."""
    models, tokens = len(weights["E_in"]), inputs[-1]
    if len(inputs) == 2:
        tokens = inputs[0][tokens]
    vectors = tokens.is_floating_point()
    if tokens.dim() == 3 + vectors and len(tokens) != models:
        raise ValueError(f"inputs for {len(tokens)} models, weights of {models}")
    if not vectors:
        return embed(weights["E_in"], tokens)
    B, n, d = tokens.shape[-3:]
    rows = tokens.reshape(-1, B * n, d).expand(models, -1, -1)
    return torch.bmm(rows, weights["E_in"]).unflatten(1, (B, n))


def attended(
    spec: FeedForwardTransformerSpec, weights: Weights, z: Tensor, hardmax: Hardmax = EXACT
) -> Tensor:
    """z (models, B, n, m) at the position `read`, after the attention: (models, B, m)."""
    y = z[:, :, spec.read]
    if spec.uniform:
        mean = z.mean(2)
    else:
        q = torch.bmm(y, weights["W_Q"])
        key = torch.bmm(q, weights["W_K"].transpose(1, 2))  # z_k^T W_Q W_K^T
        scores = (z @ key[..., None])[..., 0]
        a = attention_weights(scores, spec.attention, hardmax=hardmax)
        mean = (a[:, :, None] @ z)[:, :, 0]
    return torch.baddbmm(y, mean @ weights["W_V"], weights["W_O"])


def ff_block(weights: Weights, block: int, z: Tensor) -> Tensor:
    """z + W_2 relu(W_1 z + b_1) + b_2 for z (models, rows, m)."""
    hidden = torch.baddbmm(weights["b_1"][:, block, None], z, weights["W_1"][:, block])
    skip = z + weights["b_2"][:, block, None]
    return torch.baddbmm(skip, torch.relu(hidden), weights["W_2"][:, block])
