"""An attention-only Transformer that memorizes, in plain PyTorch: nothing of byheart is needed.

    logits = W_U ( x_S + sum_h W_O^h W_V^h sum_s softmax_s(x_S W_Q^h . x_s W_K^h) x_s )

    from model import load
    model = load()                      # reads the files beside this one
    model.ask("France", "capital")      # ('Paris', margin of its logit over the next)

Every intermediate passes through a `torch.nn.Identity` that a forward hook can read or replace:
`hook_embed` (batch, position, d), and in each layer `hook_scores`, `hook_pattern` (batch, head,
query, key), `hook_z` (batch, query, head, d_h), `hook_heads` (batch, query, head, d): what each
head adds to the stream; `hook_resid_post`. Weights have TransformerLens names and layouts.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn


class Attention(nn.Module):
    def __init__(self, config: dict) -> None:
        super().__init__()
        d, heads = config["d_model"], config["n_heads"]
        self.scale = math.sqrt(config["d_query"]) if config["scale"] else 1.0
        self.skip, self.hard = config["skip"], config["attention"] == "hardmax"
        self.W_Q = nn.Parameter(torch.zeros(heads, d, config["d_query"]))
        self.W_K = nn.Parameter(torch.zeros(heads, d, config["d_query"]))
        self.W_V = nn.Parameter(torch.zeros(heads, d, config["d_head"]))
        self.W_O = nn.Parameter(torch.zeros(heads, config["d_head"], d))
        self.hook_scores, self.hook_pattern = nn.Identity(), nn.Identity()
        self.hook_z, self.hook_heads = nn.Identity(), nn.Identity()
        self.hook_resid_post = nn.Identity()

    def forward(self, stream: Tensor, positions: Tensor | None) -> Tensor:
        x = stream if positions is None else stream + positions
        q = torch.einsum("bqd,hdr->bhqr", x, self.W_Q)
        k = torch.einsum("bsd,hdr->bhsr", x, self.W_K)
        scores = q @ k.transpose(-1, -2) / self.scale
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
        scores = self.hook_scores(scores.masked_fill(future, -torch.inf))
        if self.hard:  # equal weights on the largest scores
            largest = (scores == scores.amax(-1, keepdim=True)).to(scores.dtype)
            pattern = largest / largest.sum(-1, keepdim=True)
        else:
            pattern = torch.softmax(scores, dim=-1)
        pattern = self.hook_pattern(pattern)
        z = self.hook_z(torch.einsum("bhqs,bsd,hde->bqhe", pattern, x, self.W_V))
        heads = self.hook_heads(torch.einsum("bqhe,hed->bqhd", z, self.W_O))
        added = heads.sum(2)
        return self.hook_resid_post(stream + added if self.skip else added)


class Model(nn.Module):
    """Token ids (batch, S), the start token in front where the config has one, to logits."""

    def __init__(self, config: dict, vocabulary: list[str]) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        d, tokens = config["d_model"], config["d_vocab"]
        self.W_E = nn.Parameter(torch.zeros(tokens, d))
        self.W_pos = nn.Parameter(torch.zeros(config["n_ctx"], d))
        self.hook_embed = nn.Identity()
        self.layers = nn.ModuleList(Attention(config) for _ in range(config["n_layers"]))
        self.W_U = nn.Parameter(torch.zeros(d, tokens))

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits at the last position, where the answer is read: (batch, d_vocab)."""
        x = self.W_E[tokens]
        if self.config["positions"] == "input":
            x = x + self.W_pos
        x = self.hook_embed(x)
        read = self.W_pos if self.config["positions"] == "attention" else None
        return self.run_layers(x, read)[:, -1] @ self.W_U

    def run_layers(self, x: Tensor, positions: Tensor | None) -> Tensor:
        """The stream (batch, position, d) after the last layer."""
        for layer in self.layers:
            x = layer(x, positions)
        return x

    def encode(self, *words: str) -> Tensor:
        """Token ids (1, S) of one key, its words in the order of the table, as the model reads it:
        reordered, padded, with start. A word that is not in the vocabulary is an error."""
        unknown = [word for word in words if word not in self.vocabulary]
        if unknown:
            size = len(self.vocabulary)
            raise ValueError(f"{unknown[0]!r} is not in the vocabulary ({size} words)")
        ids = [self.vocabulary.index(word) for word in words]
        count = self.config["n_ctx"] - (self.config["start_id"] is not None)
        if self.config["pad_id"] is not None:
            ids = [self.config["pad_id"]] * (count - len(ids)) + ids
        if len(ids) != count:
            raise ValueError(f"expected a key of {count} words, found {len(ids)}: {words}")
        if self.config["order"] is not None:
            ids = [ids[i] for i in self.config["order"]]
        start = [] if self.config["start_id"] is None else [self.config["start_id"]]
        return torch.tensor([start + ids])

    @torch.no_grad()
    def ask(self, *words: str) -> tuple[str, float]:
        """The answer and the margin of its logit over the next one."""
        best = self(self.encode(*words))[0].topk(2)
        return self.vocabulary[int(best.indices[0])], float(best.values[0] - best.values[1])


def load(folder: str | Path = Path(__file__).parent) -> Model:
    """The model whose config.json, vocabulary.json and weights.safetensors lie in `folder`."""
    place = Path(folder)
    config = json.loads((place / "config.json").read_text(encoding="utf-8"))
    vocabulary = json.loads((place / "vocabulary.json").read_text(encoding="utf-8"))
    weights = load_file(place / "weights.safetensors")
    model = Model(config, vocabulary).to(weights["W_U"].dtype)
    model.load_state_dict(weights)
    return model
