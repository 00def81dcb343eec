"""Memories to export, and the exported file as somebody without byheart would load it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import byheart as bh
from byheart.exports import export
from byheart.facts import Facts, Vocabulary
from byheart.models.architectures import initial
from byheart.models.construction import ImportedConstruction
from byheart.models.token_memory import TokenMemory
from byheart.specs import AttentionOnlySpec


@pytest.fixture(scope="session")
def random_memory() -> Callable[..., bh.TokenMemory]:
    """Weights to train from, and facts that are whatever the weights say."""

    def make(spec: AttentionOnlySpec, seed: int = 0, dtype: Any = torch.float64) -> bh.TokenMemory:
        weights = initial(spec, [torch.Generator().manual_seed(seed)], dtype)
        vocabulary = Vocabulary(tuple(f"w{i}" for i in range(spec.N)))
        tensors = {k: w[0] for k, w in weights.items()}
        memory = TokenMemory(
            spec=spec,
            weights=tensors,
            vocabulary=vocabulary,
            construction=ImportedConstruction(),
        )
        keys = torch.cartesian_prod(*[torch.arange(spec.N)] * spec.S).reshape(-1, spec.S)[:40]
        facts = Facts.make(keys.numpy(), memory.answers(keys).numpy(), vocabulary)
        return replace(memory, facts=facts)

    return make


@pytest.fixture(scope="session")
def read_tokens() -> Callable[[Any], torch.Tensor]:
    """The keys of a memory as the model reads them."""
    return lambda memory: memory.with_start(memory.facts.tokens)


@pytest.fixture(scope="session")
def lens_forward() -> Callable[..., torch.Tensor]:
    """TransformerLens's forward pass, written out from its documentation."""

    def forward(config: dict, state: dict, tokens: torch.Tensor) -> torch.Tensor:
        x = state["embed.W_E"][tokens] + state["pos_embed.W_pos"]
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        for i in range(config["n_layers"]):
            head = f"blocks.{i}.attn."
            w = {k.removeprefix(head): v for k, v in state.items() if k.startswith(head)}
            q, k, v = (
                torch.einsum("bsd,hde->bhse", x, w[f"W_{n}"]) + w[f"b_{n}"][:, None] for n in "QKV"
            )
            scores = (q @ k.mT / config["d_head"] ** 0.5).masked_fill(future, -torch.inf)
            z = torch.softmax(scores, -1) @ v
            x = x + torch.einsum("bhse,hed->bsd", z, w["W_O"]) + w["b_O"]
        return x[:, -1] @ state["unembed.W_U"] + state["unembed.b_U"]

    return forward


@pytest.fixture(scope="session")
def countries() -> bh.TokenMemory:
    return bh.build(bh.read_facts("countries"), "attention")


@pytest.fixture(scope="session")
def gpt2_folder(countries: bh.TokenMemory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("gpt2") / "countries"
    return export(countries, place, to="hugging-face")


@pytest.fixture(scope="session")
def sharded() -> bh.TokenMemory:
    return bh.build(bh.read_facts("countries"), "sharded")


@pytest.fixture(scope="session")
def one_token() -> bh.TokenMemory:
    """Keys of one token have a start token in front; some tokens have spaces in them."""
    vocabulary = Vocabulary(("Peru", "New Zealand", "Lima", "Wellington", "New", "York"))
    return bh.build(Facts.make([[0], [1], [4]], [2, 3, 5], vocabulary), "attention")


@pytest.fixture(scope="session")
def load_file() -> Callable[[Path, str], Any]:
    """A Python file of an export as a module."""

    def load(folder: Path, name: str) -> Any:
        spec = importlib.util.spec_from_file_location(f"exported_{name}", folder / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load
