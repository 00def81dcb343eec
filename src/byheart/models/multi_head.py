"""Multi-head attention of a query over a context of vectors (Mahdavi et al. 2024).

    f(E, e) = Σ_h softmax(E W_K^h W_Q^h^T e)^T E W_V^h W_O^h          E (n, d), e (d)

and the reference model of the authors' code, by options of the spec: an embedding of all n+1
tokens plus sinusoidal positions (the query is position 0), logits divided by sqrt(d), a decoder
after W_O. The authors compute all n+1 positions and read the query's, to which nobody attends;
`forward` computes that one only.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from byheart.models.architectures import Weights
from byheart.models.standalone.multi_head import positions
from byheart.specs import MultiHeadSpec

INITS = ("as-coded",)


def forward(spec: MultiHeadSpec, weights: Weights, context: Tensor, query: Tensor) -> Tensor:
    """f(E, e) of every model: (models, B, d_out).

    `context`: (n, d), one for all examples; (B, n, d), one for each; or with a model axis in
    front: (models, n, d) if `spec.shared` is True, (models, B, n, d).
    `query`: (B, d), or (models, B, d).
    """
    E, e = _inputs(spec, weights, context, query)
    a = _attention(spec, weights, E, e)
    if E.shape[1] == 1:  # one context: its values once, for all examples
        V = torch.einsum("mnd,mhdv->mhnv", E[:, 0], weights["W_V"])
        F = torch.einsum("mbhn,mhnv->mbhv", a, V)
    else:
        F = torch.einsum("mbhd,mhdv->mbhv", a @ E, weights["W_V"])
    out = F.flatten(2) @ weights["W_O"].flatten(1, 2)
    return out @ weights["W_U"] + weights["b_U"][:, None] if spec.decoder else out


def attention(spec: MultiHeadSpec, weights: Weights, context: Tensor, query: Tensor) -> Tensor:
    """a^h(t) = softmax(E(t) W_K^h W_Q^h^T e(t)) of the query, every head: (models, B, H, n)."""
    return _attention(spec, weights, *_inputs(spec, weights, context, query))


def head_outputs(spec: MultiHeadSpec, weights: Weights, context: Tensor, query: Tensor) -> Tensor:
    """What each head adds to the outputs: (models, B, H, d_out); their sum is `forward` (less b_U).

    >>> from byheart.models.architectures import initial
    >>> spec = MultiHeadSpec(d=3, n=2, d_h=2, H=4)
    >>> w = initial(spec, [torch.Generator().manual_seed(0)])
    >>> E, e = torch.eye(3)[:2], torch.ones(5, 3)
    >>> torch.allclose(head_outputs(spec, w, E, e).sum(2), forward(spec, w, E, e))
    True
    """
    E, e = _inputs(spec, weights, context, query)
    F = torch.einsum("mbhd,mhdv->mbhv", _attention(spec, weights, E, e) @ E, weights["W_V"])
    out = torch.einsum("mbhv,mhvo->mbho", F, weights["W_O"])
    return out @ weights["W_U"][:, None] if spec.decoder else out


def start_bounds(spec: MultiHeadSpec, init: str) -> dict[str, float]:
    """`as-coded`: Xavier, sqrt(6 / (rows + columns)), for each head's W_Q, W_K, W_V and for W_O as
    one (H d_v) x d matrix; embedding and decoder below 1/sqrt(d), biases too (the default of
    torch.nn.Linear)."""
    bounds: dict[str, float] = dict.fromkeys(("W_E", "b_E", "W_U", "b_U"), 1 / math.sqrt(spec.d))
    shapes = spec.weight_shapes()
    for name in ("W_Q", "W_K", "W_V"):
        bounds[name] = math.sqrt(6 / sum(shapes[name][1:]))
    H, rows, columns = shapes["W_O"]
    return bounds | {"W_O": math.sqrt(6 / (H * rows + columns))}


def _inputs(
    spec: MultiHeadSpec, weights: Weights, context: Tensor, query: Tensor
) -> tuple[Tensor, Tensor]:
    """Context (models or 1, B or 1, n, d) and query (models, B, d), embedded if `spec.embed`."""
    E, e = with_axes(spec, weights, context, query)
    if not spec.embed:
        return E, e
    W_E, b_E = weights["W_E"], weights["b_E"]
    pos = positions(spec.n + 1, spec.d, b_E.dtype).to(b_E.device)
    # A shared context is embedded once for all examples.
    E = torch.einsum("mbnd,mde->mbne", E.expand(len(W_E), -1, -1, -1), W_E)
    return E + b_E[:, None, None] + pos[1:], e @ W_E + (b_E + pos[0])[:, None]


def with_axes(
    spec: MultiHeadSpec, weights: Weights, context: Tensor, query: Tensor
) -> tuple[Tensor, Tensor]:
    """Every form of context and query as (models or 1, B or 1, n, d) and (models, B, d)."""
    models = len(weights["W_Q"])
    e = query.expand(models, *query.shape) if query.dim() == 2 else query
    if context.dim() == 2:
        E = context[None, None]
    elif context.dim() == 3:
        E = context[:, None] if spec.shared is True else context[None]
    else:
        E = context
    good = e.dim() == 3 and E.dim() == 4 and E.shape[2:] == (spec.n, spec.d)
    good = good and len(e) == models and e.shape[2] == spec.d
    if not good or E.shape[0] not in (1, models) or E.shape[1] not in (1, e.shape[1]):
        raise ValueError(
            f"{spec}: expected a query (B, {spec.d}) and a context ({spec.n}, {spec.d}) or "
            f"(B, {spec.n}, {spec.d}), perhaps with {models} models in front; found query "
            f"{tuple(query.shape)}, context {tuple(context.shape)}"
        )
    return E, e


def _attention(spec: MultiHeadSpec, weights: Weights, E: Tensor, e: Tensor) -> Tensor:
    q = torch.einsum("mbd,mhde->mbhe", e, weights["W_Q"])
    if E.shape[1] == 1:  # one context: its keys once, for all examples
        K = torch.einsum("mnd,mhde->mhne", E[:, 0].expand(len(q), -1, -1), weights["W_K"])
        logits = torch.einsum("mbhe,mhne->mbhn", q, K)
    else:  # W_K^h q first, instead of the keys of all tokens of all examples
        y = torch.einsum("mbhe,mhde->mbhd", q, weights["W_K"])
        logits = y @ E.transpose(-1, -2)
    return torch.softmax(logits / math.sqrt(spec.d) if spec.scale else logits, dim=-1)
