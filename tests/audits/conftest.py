"""Small models of every supported kind, as transformers saves them, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

WORDS = [f"word{i}" for i in range(50)]


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {w: i for i, w in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]",
        unk_token="[UNK]",
    )  # fmt: skip


def configs() -> dict[str, Any]:
    from transformers import BertConfig, GPT2Config, LlamaConfig, ViTConfig

    common: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    return {
        "bert": BertConfig(
            vocab_size=54, intermediate_size=64, max_position_embeddings=64, **common
        ),
        "gpt2": GPT2Config(vocab_size=54, n_positions=64, n_embd=32, n_layer=2, n_head=4),
        "llama": LlamaConfig(
            vocab_size=54, intermediate_size=64, max_position_embeddings=64, num_key_value_heads=2,
            **common,
        ),
        "vit": ViTConfig(
            image_size=8, patch_size=4, num_channels=1, intermediate_size=64, **common
        ),
    }  # fmt: skip


@pytest.fixture(scope="session")
def models_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder a kind; large weights, so that attention is not uniform."""
    from transformers import AutoModel

    place = tmp_path_factory.mktemp("models")
    for name, config in configs().items():
        config.initializer_range = 0.3
        torch.manual_seed(7)
        AutoModel.from_config(config).save_pretrained(place / name)
        if name != "vit":
            tokenizer().save_pretrained(place / name)
    return place


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random words, with empty lines in between."""
    rng = np.random.default_rng(0)
    file = tmp_path_factory.mktemp("text") / "text.txt"
    lines = [" ".join(rng.choice(WORDS, 12)) for _ in range(80)]
    file.write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("images") / "images.npz"
    np.savez(file, images=np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8))
    return file


@pytest.fixture
def copied(models_folder: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A model folder of its own, to damage."""
    import shutil

    return lambda kind: Path(shutil.copytree(models_folder / kind, tmp_path / kind))
