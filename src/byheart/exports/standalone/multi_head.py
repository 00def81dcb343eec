"""Multi-head attention over vectors that memorizes, in plain PyTorch: nothing of byheart is needed.

    f(E, e) = sum_h softmax(E W_K^h W_Q^h^T e)^T E W_V^h W_O^h          E (n, d), e (d)

    from model import load
    model = load()                      # reads the files beside this one
    model(context, query)               # (batch, n, d) and (batch, d) -> (batch, outputs)
    model(None, query)                  # where all examples share the context of the file

Every intermediate passes through a `torch.nn.Identity` that a forward hook can read or replace:
`hook_scores` and `hook_pattern` (batch, head, token), `hook_z` (batch, head, d_v), and `hook_heads`
(batch, head, outputs): what each head adds to the outputs.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn


class Model(nn.Module):
    context: Tensor

    def __init__(self, config: dict) -> None:
        super().__init__()
        self.config = config
        heads, d = config["n_heads"], config["d_model"]
        self.W_Q = nn.Parameter(torch.zeros(heads, d, config["d_query"]))
        self.W_K = nn.Parameter(torch.zeros(heads, d, config["d_query"]))
        self.W_V = nn.Parameter(torch.zeros(heads, d, config["d_head"]))
        self.W_O = nn.Parameter(torch.zeros(heads, config["d_head"], config["d_out"]))
        shared = torch.zeros(config["n_ctx"], d) if config["shared"] else None
        self.register_buffer("context", shared)
        self.hook_scores, self.hook_pattern = nn.Identity(), nn.Identity()
        self.hook_z, self.hook_heads = nn.Identity(), nn.Identity()

    def forward(self, context: Tensor | None, query: Tensor) -> Tensor:
        """Outputs (batch, d_out): labels, or logits of the classes."""
        E = self.context.expand(len(query), -1, -1) if context is None else context
        q = torch.einsum("bd,hdr->bhr", query, self.W_Q)
        k = torch.einsum("bnd,hdr->bhnr", E, self.W_K)
        scores = self.hook_scores(torch.einsum("bhr,bhnr->bhn", q, k))
        pattern = self.hook_pattern(torch.softmax(scores, dim=-1))
        z = self.hook_z(torch.einsum("bhn,bnd,hdv->bhv", pattern, E, self.W_V))
        return self.hook_heads(torch.einsum("bhv,hvo->bho", z, self.W_O)).sum(1)


def load(folder: str | Path = Path(__file__).parent) -> Model:
    """The model whose config.json and weights.safetensors lie in `folder`."""
    place = Path(folder)
    config = json.loads((place / "config.json").read_text(encoding="utf-8"))
    weights = load_file(place / "weights.safetensors")
    model = Model(config).to(weights["W_Q"].dtype)
    model.load_state_dict(weights)
    return model
