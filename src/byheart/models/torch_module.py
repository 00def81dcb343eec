"""A memory as a plain `torch.nn.Module`: the literal layer, every head, nothing special-cased."""

from __future__ import annotations

import torch
from torch import Tensor

from byheart.errors import ByheartError
from byheart.models import attention_only
from byheart.models.memory import Memory
from byheart.specs import AttentionOnlySpec


class AttentionOnlyModule(torch.nn.Module):
    """W_U (x_S + Σ_h W_O^h W_V^h Σ_s softmax_s(x_S^T W_QK^h x_s) x_s) with trainable weights.

    `forward(tokens)` takes token ids (B, S) as the model reads them (`memory.encode`,
    `memory.with_start`) and returns logits (B, N). Weights have TransformerLens names.
    """

    def __init__(self, spec: AttentionOnlySpec, weights: attention_only.Weights) -> None:
        super().__init__()
        self.spec = spec
        for name in spec.weight_shapes():
            self.register_parameter(name, torch.nn.Parameter(weights[name].clone()))

    def forward(self, tokens: Tensor) -> Tensor:
        return attention_only.memory_logits(self.spec, dict(self.named_parameters()), tokens)


def to_torch(memory: Memory) -> AttentionOnlyModule:
    """The module of an attention-only memory; a sharded one is written out as a dense layer first.

    >>> import byheart as bh
    >>> memory = bh.build(bh.read_facts("elements"))
    >>> module = to_torch(memory)
    >>> logits = module(memory.encode([("Fe", "name")]))
    >>> memory.vocabulary.token(int(logits.argmax()))
    'iron'
    """
    dense = memory.to_dense()
    if not isinstance(dense.spec, AttentionOnlySpec):
        raise ByheartError(f"a memory of the {dense.spec.family} family has no attention layer")
    return AttentionOnlyModule(dense.spec, dict(dense.weights))
