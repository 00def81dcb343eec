"""The architecture: its forward, its memory, its proof, its torch module and its export."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from safetensors.torch import save
from torch import Tensor, nn

from byheart.certificates import Arithmetic, residual
from byheart.exports import export_torch, folders
from byheart.models import Construction, TokenMemory, register_architecture
from byheart.models.modules import module_for
from byheart.specs import TokenSpec
from byheart_lookup import model
from byheart_lookup.spec import LookupSpec

Weights = Mapping[str, Tensor]


def forward(spec: LookupSpec, weights: Weights, tokens: Tensor) -> Tensor:
    """Logits (models, B, N) for tokens (B, S)."""
    read = weights["W_in"][:, torch.arange(spec.S), tokens].sum(2)
    return torch.relu(read - (spec.S - 1)) @ weights["W_U"]


register_architecture(LookupSpec, sys.modules[__name__])


@dataclass(frozen=True, kw_only=True)
class LookupConstruction(Construction, method="lookup"):
    """What the method tells: `spare` units hold nothing yet."""

    promise: ClassVar[str] = "one unit for each fact"
    spare: int = 0


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LookupMemory(TokenMemory):
    """Tokens in, logits out; everything else is that of token memories."""

    specs: ClassVar[Sequence[type[TokenSpec]]] = (LookupSpec,)


@residual.register
def _(spec: LookupSpec, A: Arithmetic, tokens: Tensor) -> object:
    """The units: sums of S numbers, less S - 1, of which the positive part counts."""
    read = A.exact(A.weights["W_in"][torch.arange(spec.S), tokens])
    ones, less = torch.ones(spec.S).double(), torch.tensor(1.0 - spec.S).double()
    units = A.einsum("bsk,s->bk", read, A.exact(ones))
    return A.activation(A.add(units, A.exact(less), spec.S), "relu")


@module_for.register
def _(spec: LookupSpec, weights: Weights, reading: Mapping, tokens: tuple[str, ...]) -> nn.Module:
    module = model.Model((spec.S, spec.N, spec.K), list(tokens)).to(weights["W_U"].dtype)
    module.load_state_dict(dict(weights))
    return module


@export_torch.register
def _(memory: LookupMemory, folder: str | Path, *, force: bool = False) -> Path:
    """`model.py` as it is here, the weights and the vocabulary: byheart is not needed to run it."""
    files = {
        "model.py": Path(model.__file__).read_text(encoding="utf-8"),
        "weights.safetensors": save(dict(memory.weights)),
        **folders.token_files(memory),
    }
    return folders.write_folder(folder, "torch", files, {"family": "lookup"}, force=force)
