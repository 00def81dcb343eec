"""The Transformers over token keys that `train`, `capacity` and `smallest` take. No torch here."""

from byheart.specs import AttentionOnlySpec, MLPTransformerSpec, SharedBottleneckSpec

TrainableSpec = AttentionOnlySpec | MLPTransformerSpec | SharedBottleneckSpec
TRAINABLE = (AttentionOnlySpec, MLPTransformerSpec, SharedBottleneckSpec)
