"""A memory as a plain `torch.nn.Module`: the literal layer, every head, nothing special-cased."""

from __future__ import annotations

import torch
from torch import Tensor

from byheart.errors import ByheartError
from byheart.models._stack import Weights
from byheart.models.memory import FAMILIES, Memory
from byheart.specs import AssociativeSpec, Spec


class MemoryModule(torch.nn.Module):
    """The formula of a memory's family (docs/models.md) with trainable weights.

    `forward(tokens)` takes token ids (B, S) as the model reads them (`memory.encode`,
    `memory.with_start`) and returns logits (B, N). Weights have TransformerLens names.
    """

    def __init__(self, spec: Spec, weights: Weights) -> None:
        super().__init__()
        self.spec = spec
        for name in spec.weight_shapes():
            self.register_parameter(name, torch.nn.Parameter(weights[name].clone()))

    def forward(self, tokens: Tensor) -> Tensor:
        module = FAMILIES[self.spec.family][1]
        return module.memory_logits(self.spec, dict(self.named_parameters()), tokens)


def to_torch(memory: Memory) -> MemoryModule:
    """The module of a memory; a sharded one is written out as a dense layer first.

    >>> import byheart as bh
    >>> memory = bh.build(bh.read_facts("elements"))
    >>> module = to_torch(memory)
    >>> logits = module(memory.encode([("Fe", "name")]))
    >>> memory.vocabulary.token(int(logits.argmax()))
    'iron'
    """
    dense = memory.to_dense()
    if isinstance(dense.spec, AssociativeSpec):
        raise ByheartError(f"a memory of the {dense.spec.family} family has no attention layer")
    return MemoryModule(dense.spec, dict(dense.weights))
