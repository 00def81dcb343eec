"""The low-rank sequence encoder f(t) = W E(t) of Dana et al. (2025): a free vector a sequence.

The Transformer without its network: what any network of width d could at best encode a sequence
as. Sequences are numbered; weights are `E (models, T, d)` and `W_U (models, d, N)`.
"""

from __future__ import annotations

from torch import Tensor

from byheart.models.architectures import Weights, embed
from byheart.specs import SequenceEncoderSpec

GAUSSIAN = {"gaussian": ("E",)}  # start -> weights that are N(0, bound²) instead
INITS = ("uniform", "gaussian")


def start_bounds(spec: SequenceEncoderSpec, init: str) -> dict[str, float]:
    """W_U is U(±d^-1/2), as `nn.Linear` starts; E is that too (`uniform`: as the token embeddings
    of Dana et al. 2025 start) or N(0, 1/d) (`gaussian`: vectors of length about 1)."""
    return {"E": spec.d**-0.5, "W_U": spec.d**-0.5}


def forward(spec: SequenceEncoderSpec, weights: Weights, sequences: Tensor) -> Tensor:
    """Logits W E(t) of every model: (models, B, N).

    `sequences` holds their numbers: (B,) or (B, 1), the same for every model, or (models, B) or
    (models, B, 1), a batch of its own for each; two axes of which the last is 1 are (B, 1).
    """
    if sequences.dim() == 1 or (sequences.dim() == 2 and sequences.shape[1] != 1):
        sequences = sequences[..., None]
    return embed(weights["E"], sequences)[:, :, 0] @ weights["W_U"]
