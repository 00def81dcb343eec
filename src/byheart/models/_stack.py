"""What every stack of models needs: embeddings and starts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

Weights = dict[str, Tensor]


def embed(W_E: Tensor, tokens: Tensor) -> Tensor:
    """Rows of W_E (models, N, d) for tokens (B, S), shared, or (models, B, S): (models, B, S, d).

    A plain row lookup in both cases: its gradient is one `index_add`, several times faster than
    that of advanced indexing.

    >>> W_E = torch.tensor([[[1.0], [2.0]], [[3.0], [4.0]]])
    >>> embed(W_E, torch.tensor([[0, 1]])).flatten(1).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    >>> embed(W_E, torch.tensor([[[0, 1]], [[1, 1]]])).flatten(1).tolist()
    [[1.0, 2.0], [4.0, 4.0]]
    """
    models, N, _ = W_E.shape
    if tokens.dim() == 2:
        return W_E.index_select(1, tokens.flatten()).unflatten(1, tokens.shape)
    if len(tokens) != models:
        raise ValueError(f"tokens for {len(tokens)} models, weights of {models}")
    first = N * torch.arange(models, device=tokens.device)
    flat = (tokens + first.view(-1, *[1] * (tokens.dim() - 1))).flatten()
    return W_E.flatten(0, 1).index_select(0, flat).unflatten(0, tokens.shape)


def uniform(
    shapes: Mapping[str, tuple[int, ...]],
    bounds: Mapping[str, float],
    generators: Sequence[torch.Generator],
    dtype: torch.dtype,
    gaussian: Collection[str] = (),
) -> Weights:
    """Weights U(-bound, bound) with a model axis, model m from generator m alone, in the order of
    `shapes`; N(0, bound^2) for the names in `gaussian`.

    Drawn in float64 and rounded, so that starts in two number formats are the same start.

    >>> alone = uniform({"W": (2,)}, {"W": 1.0}, [torch.Generator().manual_seed(1)], torch.float32)
    >>> pair = [torch.Generator().manual_seed(seed) for seed in (0, 1)]
    >>> both = uniform({"W": (2,)}, {"W": 1.0}, pair, torch.float32)
    >>> bool((both["W"][1] == alone["W"][0]).all())
    True
    """

    def one(name: str, g: torch.Generator) -> Tensor:
        sample = torch.randn if name in gaussian else torch.rand
        value = sample(shapes[name], generator=g, dtype=torch.float64, device=g.device)
        return bounds[name] * (value if name in gaussian else 2 * value - 1)

    models = [{name: one(name, g) for name in shapes} for g in generators]
    return {name: torch.stack([m[name] for m in models]).to(dtype) for name in shapes}
