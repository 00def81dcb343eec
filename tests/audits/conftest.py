"""Small models of every supported kind, as transformers saves them, with random weights."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # helpers of this folder, for its tests

from small_models import WORDS, configs, tokenizer


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
