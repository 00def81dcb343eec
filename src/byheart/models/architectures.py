"""What every architecture shares: embeddings, random starts, and how its module is found.

A module has `forward(spec, weights, inputs)` and, where it can be trained, `start_bounds(spec,
init)`: the bound of each weight's random start U(-bound, bound); `INITS` are their names. Weights
are those of `spec.weight_shapes()`, row-vector layout, after a leading model axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor

from byheart.errors import ByheartError
from byheart.specs import Spec

Weights = dict[str, Tensor]
Inputs = Callable[[int], tuple[tuple[Tensor, ...], Tensor]]
"""What models read, and the targets, of the first examples: as many as are asked for."""
MODULES: dict[str, str | ModuleType] = {  # family -> the module, or its name in this package
    "associative": "associative",
    "attention-only": "attention_only",
    "shared-bottleneck": "shared_bottleneck",
    "mlp-transformer": "mlp_transformer",
    "multi-head": "multi_head",
    "sequence-encoder": "sequence_encoder",
    "feed-forward": "feed_forward",
    "deep multi-head": "deep_multi_head",
}


def register_architecture(spec: type[Spec], module: ModuleType) -> None:
    """Add the architecture of another package: `module.forward(spec, weights, inputs)` with a
    leading model axis."""
    MODULES[spec.family] = module


def module_of(spec: Spec) -> ModuleType:
    """The module of `spec`'s architecture.

    >>> from byheart.specs import AttentionOnlySpec
    >>> module_of(AttentionOnlySpec(N=5, S=2, d=2, d_h=2, H=1)).__name__
    'byheart.models.attention_only'
    """
    module = MODULES.get(spec.family)
    if module is None:
        names = ", ".join(MODULES)
        raise ByheartError(f"no forward is known for {spec.family}; there are those of {names}")
    return import_module(f"byheart.models.{module}") if isinstance(module, str) else module


def initial(
    spec: Spec,
    generators: Sequence[torch.Generator],
    dtype: torch.dtype = torch.float32,
    init: str | None = None,
    inputs: Inputs | None = None,
) -> Weights:
    """Random weights to train from, model m from generator m alone: each weight U(-bound, bound)
    with the `start_bounds` of its architecture (N(0, bound²) where its `GAUSSIAN` says so). `init`:
    one of its `INITS`, the first by default. Drawn in float64 and rounded, so that starts in two
    number formats are the same start. Where the module has `finish_start`, it changes them, looking
    at the `inputs` to train on if it must."""
    module = module_of(spec)
    if not hasattr(module, "start_bounds"):
        raise ByheartError(f"{spec.family} models are not trained: they have no random start")
    init = module.INITS[0] if init is None else init
    if init not in module.INITS:
        names = ", ".join(module.INITS)
        raise ValueError(f"init of {spec.family} must be one of {names}, found {init!r}")
    shapes, bounds = spec.weight_shapes(), module.start_bounds(spec, init)
    gaussian = getattr(module, "GAUSSIAN", {}).get(init, ())

    def one(name: str, g: torch.Generator) -> Tensor:
        sample = torch.randn if name in gaussian else torch.rand
        value = sample(shapes[name], generator=g, dtype=torch.float64, device=g.device)
        return bounds[name] * (value if name in gaussian else 2 * value - 1)

    models = [{name: one(name, g) for name in shapes} for g in generators]
    weights = {name: torch.stack([m[name] for m in models]) for name in shapes}
    if hasattr(module, "finish_start"):
        weights = module.finish_start(spec, init, weights, generators, inputs)
    return {name: w.to(dtype) for name, w in weights.items()}


def embed(W_E: Tensor, tokens: Tensor) -> Tensor:
    """Rows of W_E (models, N, d) for tokens (B, S), shared, or (models, B, S): (models, B, S, d).

    A plain row lookup in both cases: its gradient is one `index_add`, several times faster than
    that of advanced indexing.

    >>> W_E = torch.tensor([[[1.0], [2.0]], [[3.0], [4.0]]])
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
