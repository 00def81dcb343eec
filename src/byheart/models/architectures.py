"""Every architecture by the class of its spec: the module with its `forward` and, where it can be
trained, its `initial`."""

from __future__ import annotations

from types import ModuleType

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
