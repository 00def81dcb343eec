"""A look-up layer in plain PyTorch: `load()`, then `model.ask("France", "capital")`."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn


class Model(nn.Module):
    """Token ids (B, S) -> logits (B, N); `hook_units` (B, K) shows which unit fires."""

    def __init__(self, shape: tuple[int, ...], vocabulary: list[str]) -> None:
        super().__init__()
        self.W_in = nn.Parameter(torch.zeros(shape))
        self.W_U = nn.Parameter(torch.zeros(shape[2], shape[1]))
        self.hook_units = nn.Identity()
        self.vocabulary = vocabulary

    def forward(self, tokens: Tensor) -> Tensor:
        S = len(self.W_in)
        read = self.W_in[torch.arange(S), tokens].sum(1)
        return self.hook_units(torch.relu(read - (S - 1))) @ self.W_U

    def ask(self, *key: str) -> str:
        ids = torch.tensor([[self.vocabulary.index(token) for token in key]])
        return self.vocabulary[int(self(ids).argmax())]


def load(folder: str | Path = Path(__file__).parent) -> Model:
    """The model of an export folder."""
    weights = load_file(Path(folder) / "weights.safetensors")
    vocabulary = json.loads((Path(folder) / "vocabulary.json").read_text(encoding="utf-8"))
    model = Model(tuple(weights["W_in"].shape), vocabulary).to(weights["W_U"].dtype)
    model.load_state_dict(weights)
    return model
