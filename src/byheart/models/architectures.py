"""Every architecture that can be trained, by family: forward, literal_forward and initial."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from byheart.errors import ByheartError
from byheart.models import (
    attention_only,
    deep_multi_head,
    feed_forward,
    mlp_transformer,
    multi_head,
    sequence_encoder,
    shared_bottleneck,
)
from byheart.specs import (
    AttentionOnlySpec,
    DeepMultiHeadSpec,
    FeedForwardTransformerSpec,
    MLPTransformerSpec,
    MultiHeadSpec,
    SequenceEncoderSpec,
    SharedBottleneckSpec,
)

ARCHITECTURES: dict[str, ModuleType] = {
    AttentionOnlySpec.family: attention_only,
    SharedBottleneckSpec.family: shared_bottleneck,
    MLPTransformerSpec.family: mlp_transformer,
    MultiHeadSpec.family: multi_head,
    SequenceEncoderSpec.family: sequence_encoder,
    FeedForwardTransformerSpec.family: feed_forward,
    DeepMultiHeadSpec.family: deep_multi_head,
}


def module_of(spec: Any) -> ModuleType:
    """The module of `spec`'s architecture.

    >>> module_of(AttentionOnlySpec(N=5, S=2, d=2, d_h=2, H=1)).__name__
    'byheart.models.attention_only'
    """
    if spec.family not in ARCHITECTURES:
        raise ByheartError(
            f"{spec.family} models are not trained; those of {', '.join(ARCHITECTURES)} are"
        )
    return ARCHITECTURES[spec.family]
