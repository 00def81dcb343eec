"""Trained models come back as memories; what a memory cannot be is refused."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file as read_tensors
from safetensors.torch import save_file

import byheart as bh
from byheart.exports import export, import_memory
from byheart.exports.importing import from_lens
from byheart.exports.transformer_lens import lens_weights, load_lens
from byheart.models.construction import ImportedConstruction
from byheart.models.token_memory import TokenMemory
from byheart.specs import AttentionOnlySpec


@pytest.fixture
def exported(countries: bh.Memory, tmp_path: Path) -> Path:
    return export(countries, tmp_path / "torch", to="torch")


@pytest.fixture
def lens(countries: bh.Memory, tmp_path: Path) -> Path:
    return export(countries, tmp_path / "lens", to="transformer-lens")


@pytest.mark.parametrize("to", ["torch", "transformer-lens"])
@pytest.mark.parametrize("name", ["countries", "sharded", "one_token"])
def test_there_and_back_certified(name: str, to: str, request, tmp_path: Path):
    memory = request.getfixturevalue(name)
    back = import_memory(export(memory, tmp_path / "out", to=to))
    assert back.facts is not None and memory.facts is not None
    assert back.facts.T == memory.facts.T
    assert [back.facts.key(i) for i in range(3)] == [memory.facts.key(i) for i in range(3)]
    assert bh.accuracy(back) == 1.0
    assert bh.certify(back).certified


def test_trained_in_torch_then_certified(tmp_path: Path, load_file, random_memory, read_tokens):
    """Random weights, exported, trained by a plain loop, imported, proved."""
    facts = bh.random_associations(N=8, S=2, T=12, seed=1)
    spec = AttentionOnlySpec(N=8, S=2, d=8, d_h=8, H=4, scale=True)
    start = random_memory(spec, dtype=torch.float32)
    start = replace(start, vocabulary=facts.vocabulary, facts=facts)
    folder = export(start, tmp_path / "start", to="torch")
    model = load_file(folder, "model").load(folder)
    tokens, right = torch.tensor(facts.tokens).long(), torch.tensor(facts.answers).long()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(tokens), right).backward()
        optimizer.step()
    save_file(model.state_dict(), tmp_path / "trained.safetensors")
    before = import_memory(folder)
    after = import_memory(folder, weights=tmp_path / "trained.safetensors", facts=facts)
    assert bh.accuracy(before) < 1
    assert bh.accuracy(after) == 1
    assert bh.certify(after).certified
    (part,) = after.head_parts(read_tokens(after))
    assert part.parts.shape == (12, 4)


@given(layers=st.integers(1, 3), H=st.integers(1, 3), seed=st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_biases_are_folded_exactly(random_memory, lens_forward, layers: int, H: int, seed: int):
    spec = AttentionOnlySpec(N=4, S=3, d=3, d_h=2, H=H, layers=layers)
    config, state = lens_weights(random_memory(spec, seed))
    generator = torch.Generator().manual_seed(seed)
    for name, w in state.items():
        if ".b_" in name:
            state[name] = torch.randn(w.shape, generator=generator, dtype=w.dtype)
    wide, weights = from_lens(config, state)
    assert (wide.d, wide.d_h) == (spec.d + 1, config["d_head"] + 1)
    vocabulary = bh.Vocabulary(("a", "b", "c", "d"))
    tokens = torch.cartesian_prod(*[torch.arange(4)] * 3)
    wanted = lens_forward(config, state, tokens)
    memory = TokenMemory(
        spec=wide,
        weights=weights,
        vocabulary=vocabulary,
        construction=ImportedConstruction(),
    )
    found = memory.outputs(tokens)
    assert float((found - wanted).abs().max()) < 1e-9 * (1 + float(wanted.abs().max()))


class TestRefused:
    def test_pickled_weights(self, exported: Path, tmp_path: Path):
        (tmp_path / "model.pt").write_bytes(b"\x80\x04.")
        with pytest.raises(bh.ByheartError, match="pickled weights can run code"):
            import_memory(exported, weights=tmp_path / "model.pt")

    def test_truncated_weights(self, exported: Path):
        file = exported / "weights.safetensors"
        file.write_bytes(file.read_bytes()[:1000])
        with pytest.raises(bh.ByheartError, match="not a complete safetensors file"):
            import_memory(exported)

    def test_missing_weights(self, exported: Path):
        (exported / "weights.safetensors").unlink()
        with pytest.raises(bh.ByheartError, match="no weights"):
            import_memory(exported)

    def test_other_shapes(self, exported: Path):
        file = exported / "weights.safetensors"
        state = read_tensors(file)
        state["W_U"] = state["W_U"][:, 1:].contiguous()
        save_file(state, file)
        with pytest.raises(bh.ByheartError, match=r"W_U: expected shape \(11, 535\), found"):
            import_memory(exported)

    def test_numbers_that_are_none(self, exported: Path):
        file = exported / "weights.safetensors"
        state = read_tensors(file)
        state["W_U"][0, 0] = float("nan")
        save_file(state, file)
        with pytest.raises(bh.ByheartError, match="W_U has numbers that are not finite"):
            import_memory(exported)

    def test_a_layer_norm(self, lens: Path):
        config = json.loads((lens / "config.json").read_text())
        (lens / "config.json").write_text(json.dumps(config | {"normalization_type": "LN"}))
        with pytest.raises(bh.ByheartError, match="no LayerNorm and no feed-forward"):
            import_memory(lens)

    def test_rotary_positions(self, lens: Path):
        config = json.loads((lens / "config.json").read_text())
        (lens / "config.json").write_text(
            json.dumps(config | {"positional_embedding_type": "rotary"})
        )
        with pytest.raises(bh.ByheartError, match="expected positional_embedding_type standard"):
            import_memory(lens)

    def test_another_folder(self, countries: bh.Memory, tmp_path: Path):
        with pytest.raises(bh.ByheartError, match=r"byheart\.json cannot be read"):
            import_memory(tmp_path)
        folder = export(countries, tmp_path / "o", to="onnx")
        with pytest.raises(bh.ByheartError, match=r"cannot be read|found 'onnx'"):
            import_memory(folder)

    def test_facts_with_other_words(self, exported: Path):
        with pytest.raises(bh.ByheartError, match="unknown token"):
            import_memory(exported, facts=bh.read_facts("elements"))

    def test_export_over_something_else(self, countries: bh.Memory, exported: Path, tmp_path: Path):
        with pytest.raises(bh.ByheartError, match="exists already"):
            export(countries, exported, to="torch")
        export(countries, exported, to="onnx", force=True)
        assert (exported / "model.onnx").exists() and not (exported / "model.py").exists()
        (tmp_path / "mine").mkdir()
        with pytest.raises(bh.ByheartError, match="not replaced, not even with `force`"):
            export(countries, tmp_path / "mine", to="torch", force=True)

    @pytest.mark.parametrize("to", ["transformer-lens", "hugging-face", "onnx"])
    def test_vectors_and_hardmax_have_no_counterpart(self, to: str, tmp_path: Path, random_memory):
        vectors = bh.build(bh.random_vectors(T=29, n=8, d=16))
        with pytest.raises(bh.ByheartError, match="vectors go `to=torch`"):
            export(vectors, tmp_path / "o", to=to)
        hard = random_memory(AttentionOnlySpec(3, 2, 2, 2, 1, attention="hardmax"))
        with pytest.raises(bh.ByheartError, match="hardmax"):
            export(hard, tmp_path / "o", to=to)
        assert not (tmp_path / "o").exists()

    def test_other_families(self, tmp_path: Path):
        with pytest.raises(bh.ByheartError, match="associative family has no attention-only layer"):
            export(bh.build(bh.read_facts("elements"), "associative"), tmp_path / "o", to="torch")
        with pytest.raises(bh.ByheartError, match="`to` must be one of torch, transformer-lens"):
            export(bh.build(bh.read_facts("elements")), tmp_path / "o", to="keras")

    def test_a_stream_too_large_for_the_norm(self, tmp_path: Path, random_memory):
        memory = random_memory(AttentionOnlySpec(3, 2, 2, 2, 1), dtype=torch.float32)
        weights = {**memory.weights, "W_E": memory.weights["W_E"] * 1e15}
        with pytest.raises(bh.ByheartError, match="too large for the LayerNorm"):
            export(replace(memory, weights=weights), tmp_path / "o", to="hugging-face")

    def test_transformer_lens_not_installed(self, lens: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("byheart.exports.transformer_lens.find_spec", lambda name: None)
        with pytest.raises(bh.ByheartError, match=r"pip install .*\[lens\]"):
            load_lens(lens)
        shutil.rmtree(lens)
        with pytest.raises(bh.ByheartError, match=r"no state_dict\.safetensors"):
            load_lens(lens)


# --- what others wrote ---

HOSTILE = (None, True, -1, 0, 1, 2**63, 1.5, "x", [], ["x"], [[]], [0, 0], [0, 10**9], {}, {"a": 1})
WHOLE_FILES = (b"", b"[]", b"5", b"null", b"[" * 10**5, b'{"a":' * 10**5, b"{", b"\xff\xfe")
BREAKS = {
    "gone": lambda w: None,
    "other shape": lambda w: w[1:].contiguous(),
    "a scalar": lambda w: w.sum(),
    "another format": lambda w: w.double(),
    "half": lambda w: w.half(),
    "whole numbers": lambda w: w.to(torch.int32),
    "infinite": lambda w: w / 0,
}


def imported(folder: Path) -> str:
    """The import's refusal, or "": nothing else may leave it."""
    try:
        import_memory(folder)
    except bh.ByheartError as error:
        return str(error)
    return ""


@pytest.fixture(params=["torch", "transformer-lens"])
def small(request, one_token: bh.Memory, tmp_path: Path) -> Path:
    return export(one_token, tmp_path / "small", to=request.param)


@pytest.mark.parametrize("name", ["byheart.json", "config.json", "vocabulary.json"])
def test_hostile_json_is_refused(small: Path, name: str):
    good = (small / name).read_bytes()
    for content in WHOLE_FILES:
        (small / name).write_bytes(content)
        assert name in imported(small), content[:20]
    record = json.loads(good)
    if isinstance(record, list):
        record = dict(enumerate(record))
    refused = 0
    for field in record:
        for value in HOSTILE:
            changed = {**record, field: value}
            inside = list(changed.values()) if name == "vocabulary.json" else changed
            (small / name).write_text(json.dumps(inside))
            refused += bool(imported(small))
        without = {k: v for k, v in record.items() if k != field}
        inside = list(without.values()) if name == "vocabulary.json" else without
        (small / name).write_text(json.dumps(inside))
        refused += bool(imported(small))
    assert refused >= 20
    (small / name).write_bytes(good)
    assert imported(small) == ""


@pytest.mark.parametrize("how", BREAKS)
def test_hostile_tensors_are_refused(small: Path, how: str):
    for file in small.glob("*.safetensors"):
        good = read_tensors(file)
        for name, w in good.items():
            broken = BREAKS[how](w)
            same = file.name == "facts.safetensors" and name == "answers" and how == "infinite"
            changed = {**good, name: broken}
            save_file({k: v for k, v in changed.items() if v is not None}, file)
            said = imported(small)
            optional = ".b_" in name and how == "gone"
            assert optional or same or str(file.parent) in said, name
        save_file(good, file)
    assert imported(small) == ""


def test_special_files_are_refused_at_once(small: Path):
    for name in ("byheart.json", "config.json", "vocabulary.json", "facts.safetensors"):
        good = (small / name).read_bytes()
        (small / name).unlink()
        os.mkfifo(small / name)
        if name == "facts.safetensors":
            assert imported(small) == ""  # no facts
        else:
            assert "found a named pipe" in imported(small)
        (small / name).unlink()
        (small / name).write_bytes(good)
