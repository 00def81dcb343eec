"""Every architecture by the class of its spec: the module with its `forward` and, where it can be
trained, its `start_bounds` and `INITS`, the names of its random starts."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import torch

from byheart.errors import ByheartError
from byheart.models import (
    associative,
    attention_only,
    deep_multi_head,
    feed_forward,
    mlp_transformer,
    multi_head,
    sequence_encoder,
    shared_bottleneck,
)
from byheart.models._stack import Weights, uniform
from byheart.specs import (
    AssociativeSpec,
    AttentionOnlySpec,
    DeepMultiHeadSpec,
    FeedForwardTransformerSpec,
    MLPTransformerSpec,
    MultiHeadSpec,
    SequenceEncoderSpec,
    SharedBottleneckSpec,
    Spec,
)

ARCHITECTURES: dict[type, ModuleType] = {
    AssociativeSpec: associative,
    AttentionOnlySpec: attention_only,
    SharedBottleneckSpec: shared_bottleneck,
    MLPTransformerSpec: mlp_transformer,
    MultiHeadSpec: multi_head,
    SequenceEncoderSpec: sequence_encoder,
    FeedForwardTransformerSpec: feed_forward,
    DeepMultiHeadSpec: deep_multi_head,
}


def register_architecture(spec: type[Spec], module: ModuleType) -> None:
    """Add the architecture of another package: `module.forward(spec, weights, inputs)` with a
    leading model axis."""
    ARCHITECTURES[spec] = module


def module_of(spec: Spec) -> ModuleType:
    """The module of `spec`'s architecture.

    >>> module_of(AttentionOnlySpec(N=5, S=2, d=2, d_h=2, H=1)).__name__
    'byheart.models.attention_only'
    """
    if type(spec) not in ARCHITECTURES:
        names = ", ".join(kind.family for kind in ARCHITECTURES)
        raise ByheartError(f"no forward is known for {spec.family}; there are those of {names}")
    return ARCHITECTURES[type(spec)]


def initial(
    spec: Spec,
    generators: Sequence[torch.Generator],
    dtype: torch.dtype = torch.float32,
    init: str | None = None,
) -> Weights:
    """Random weights to train from, one model a generator: each weight U(-bound, bound) with the
    `start_bounds` of its architecture. `init`: one of its `INITS`, the first by default."""
    module = module_of(spec)
    if not hasattr(module, "start_bounds"):
        raise ByheartError(f"{spec.family} models are not trained: they have no random start")
    init = module.INITS[0] if init is None else init
    if init not in module.INITS:
        names = ", ".join(module.INITS)
        raise ValueError(f"init of {spec.family} must be one of {names}, found {init!r}")
    gaussian = getattr(module, "GAUSSIAN", {}).get(init, ())
    bounds = module.start_bounds(spec, init)
    return uniform(spec.weight_shapes(), bounds, generators, dtype, gaussian)
