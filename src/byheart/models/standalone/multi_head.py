"""Multi-head attention over vectors that memorizes, in plain PyTorch: nothing of byheart is needed.

    f(E, e) = sum_h softmax(E W_K^h W_Q^h^T e)^T E W_V^h W_O^h          E (n, d), e (d)

With `embed` all tokens first pass through W_E, b_E and get sinusoidal positions (the query is 0),
with `scale` logits are divided by sqrt(d), with `decoder` W_U, b_U read what the heads write.

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
import math
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
        written = d if config["decoder"] else config["d_out"]
        self.W_O = nn.Parameter(torch.zeros(heads, config["d_head"], written))
        if config["embed"]:
            self.W_E, self.b_E = nn.Parameter(torch.zeros(d, d)), nn.Parameter(torch.zeros(d))
        if config["decoder"]:
            self.W_U = nn.Parameter(torch.zeros(d, config["d_out"]))
            self.b_U = nn.Parameter(torch.zeros(config["d_out"]))
        shared = torch.zeros(config["n_ctx"], d) if config["shared"] else None
        self.register_buffer("context", shared)
        self.hook_scores, self.hook_pattern = nn.Identity(), nn.Identity()
        self.hook_z, self.hook_heads = nn.Identity(), nn.Identity()

    def forward(self, context: Tensor | None, query: Tensor) -> Tensor:
        """Outputs (batch, d_out): labels, or logits of the classes."""
        E = self.context.expand(len(query), -1, -1) if context is None else context
        e = query
        if self.config["embed"]:
            pos = positions(1 + E.shape[1], E.shape[2]).to(E)
            E, e = E @ self.W_E + self.b_E + pos[1:], e @ self.W_E + self.b_E + pos[0]
        q = torch.einsum("bd,hdr->bhr", e, self.W_Q)
        k = torch.einsum("bnd,hdr->bhnr", E, self.W_K)
        scores = torch.einsum("bhr,bhnr->bhn", q, k)
        scale = math.sqrt(e.shape[1]) if self.config["scale"] else 1.0
        scores = self.hook_scores(scores / scale)
        pattern = self.hook_pattern(torch.softmax(scores, dim=-1))
        z = self.hook_z(torch.einsum("bhn,bnd,hdv->bhv", pattern, E, self.W_V))
        out = self.hook_heads(torch.einsum("bhv,hvo->bho", z, self.W_O)).sum(1)
        return out @ self.W_U + self.b_U if self.config["decoder"] else out


def positions(count: int, d: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """sin(p w_i), cos(p w_i), w_i = 10000^(-2i/d), in columns 2i and 2i+1: (count, d)."""
    frequency = torch.exp(torch.arange(0, d, 2, dtype=torch.float64) * (-math.log(1e4) / d))
    angle = torch.arange(count, dtype=torch.float64)[:, None] * frequency
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :d].to(dtype)


def load(folder: str | Path = Path(__file__).parent) -> Model:
    """The model whose config.json and weights.safetensors lie in `folder`."""
    place = Path(folder)
    config = json.loads((place / "config.json").read_text(encoding="utf-8"))
    weights = load_file(place / "weights.safetensors")
    config = {"embed": False, "scale": False, "decoder": False, **config}
    model = Model(config).to(weights["W_Q"].dtype)
    model.load_state_dict(weights)
    return model
