"""The audit of small models: what holds for any weights holds, and nothing leaves the machine."""

from __future__ import annotations

import json
import math
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import byheart as bh
from byheart.audits import Audit, AuditSettings, audit_figure, find_model, table_rows
from byheart.audits.inputs import Contexts
from byheart.audits.models import open_model
from byheart.audits.states import KEPT_BYTES, TrueFloat64, collect, kept_contexts
from byheart.audits.tables import HEADER
from byheart.theory.mahdavi2024 import theorem1_capacity

SMALL = AuditSettings(length=8, contexts=40, draws=30, ranked=10, batch=16)
TRAINED = replace(SMALL, random=False)


@pytest.fixture(scope="module")
def bert(models_folder: Path, text: Path) -> Audit:
    return bh.audit(models_folder / "bert", text=text, settings=SMALL)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "vit"])
def test_every_kind_of_model(models_folder: Path, text: Path, pictures: Path, kind: str):
    shown: dict[str, Any] = {"images": pictures} if kind == "vit" else {"text": text}
    found = bh.audit(models_folder / kind, **shown, settings=SMALL)
    record = found.record
    assert record["model"]["type"] == kind
    assert [x["layer"] for x in found.layers("trained")] == [0, 1, 2]
    assert [x["layer"] for x in found.layers("random")] == [0, 1, 2]
    main = "first" if kind == "vit" else "last"
    assert record["settings"]["queries"][0] == main
    last = found.layers("trained")[-1]
    assert {(s["dtype"], s["centred"]) for s in last["queries"][main]["settings"]} == {
        (dtype, centred) for dtype in ("float32", "float64") for centred in (False, True)
    }
    assert last["checks"]["assumption2"]["verdict"] == "holds"
    assert json.loads(json.dumps(record)) == record
    assert len(table_rows(record)) == 6 and len(table_rows(record)[0]) == len(HEADER)


def test_before_any_attention_all_first_tokens_are_one(bert: Audit):
    """[CLS] plus position 0 is one vector: Kruskal rank 1, as in the paper; e + mean E is not."""
    for weights in ("trained", "random"):
        first, second, _ = bert.layers(weights)
        assert first["checks"]["assumption1.first"]["verdict"] == "fails"
        assert first["queries"]["first"]["Q"] == 1
        assert first["queries"]["first"]["kruskal"]["parallel_rows"] == 40
        assert first["checks"]["groups.first"]["verdict"] == "fails"
        assert first["checks"]["assumption3"]["Q"] == 8
        assert second["queries"]["first"]["Q"] == 8
        assert second["checks"]["groups.first"]["verdict"] == "holds"
        for setting in first["queries"]["first"]["settings"]:
            assert setting["rank"] == (0 if setting["centred"] else 1)
            assert setting["independent"] == 0


def test_random_weights_are_others_and_reproducible(bert: Audit, models_folder: Path, text: Path):
    trained, random = bert.layers("trained")[1], bert.layers("random")[1]
    assert trained["separation"] != random["separation"]
    again = bh.audit(models_folder / "bert", text=text, settings=SMALL)
    assert [x["separation"] for x in again.record["layers"]] == [
        x["separation"] for x in bert.record["layers"]
    ]


def test_promises_use_the_measured_rank(bert: Audit):
    for layer in bert.record["layers"]:
        Q = layer["queries"]["first"]["Q"]
        promise = next(p for p in layer["promises"] if p["id"] == "mahdavi2024.theorem1")
        assert promise["Q"] == Q
        if Q < 2:
            assert promise["applies"] is False and "Kruskal rank" in promise["reason"]
        else:
            assert promise["capacity"] == theorem1_capacity(H=4, n=8, d_h=8, kruskal=Q)


def test_rotary_positions_are_outside_the_theorem(models_folder: Path, text: Path):
    found = bh.audit(models_folder / "llama", text=text, settings=TRAINED)
    promise = found.layers()[1]["promises"][0]
    assert promise["applies"] is False and "rotary" in promise["reason"]
    assert promise["bare"] == theorem1_capacity(H=2, n=8, d_h=8)  # heads with W_K of their own
    assert table_rows(found.record)[1][-1] == f"({promise['bare']})"


def test_uniform_attention_has_the_entropy_of_uniform_attention(models_folder: Path, text: Path):
    found = find_model(models_folder / "bert")
    model: Any = open_model(found, random=False, dtype="float64", settings=SMALL)
    for layer in model.encoder.layer:
        layer.attention.self.query.weight.data.zero_()
        layer.attention.self.query.bias.data.zero_()
    contexts = Contexts("tokens", "", np.random.default_rng(0).integers(4, 54, (6, 8)), 8)
    settings = AuditSettings(batch=4, ranked=6)
    states = collect(model, found, contexts, ("first", "last"), "float64", settings)
    for head in states.heads:
        assert np.allclose(head.entropy, math.log(8)) and not head.saturated.any()
        assert np.allclose(head.entropy_every, math.log(8)) and not head.saturated_every.any()
    # What is kept is what the model says, whatever the batches.
    with torch.no_grad():
        out = model(torch.tensor(contexts.values), output_hidden_states=True)
    for layer, hidden in zip(states.layers, out.hidden_states, strict=True):
        assert np.allclose(layer.contexts, hidden.numpy(), atol=1e-12)
        assert np.allclose(layer.queries["last"], hidden[:, -1].numpy(), atol=1e-12)
        e_mean = hidden[:, 0] + hidden.mean(1)
        assert np.allclose(layer.queries["e+mean"], e_mean.numpy(), atol=1e-12)


def test_float64_is_not_float32_inside(models_folder: Path):
    """transformers rounds to float32 in RMSNorm and softmax; the audit does not."""
    found = find_model(models_folder / "llama")
    model: Any = open_model(found, random=False, dtype="float64", settings=SMALL)
    tokens = torch.arange(4, 20)[None]
    seen = {}
    model.norm.register_forward_hook(lambda m, x, y: seen.update(x=x[0], y=y))
    with torch.no_grad():
        with TrueFloat64():
            out = model(tokens, output_attentions=True)
        x, w = seen["x"], model.norm.weight
        wanted = w * x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + found.config["rms_norm_eps"])
        assert float((seen["y"] - wanted).abs().max()) < 1e-13
        rows = out.attentions[0].sum(-1)
        assert float((rows - 1).abs().max()) < 1e-14
        model(tokens)
        wanted = (
            w
            * seen["x"]
            / torch.sqrt(seen["x"].pow(2).mean(-1, keepdim=True) + found.config["rms_norm_eps"])
        )
        assert float((seen["y"] - wanted).abs().max()) > 1e-9


def test_nothing_reaches_for_the_network(
    models_folder: Path, text: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*args, **options):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    bh.audit(models_folder / "gpt2", text=text, settings=TRAINED)
    with pytest.raises(bh.ByheartError, match="not in the local Hugging Face cache"):
        find_model("some-user/some-model")


def test_code_that_comes_with_a_model_is_not_run(copied, text: Path, tmp_path: Path):
    folder = copied("gpt2")
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModel": "modeling_evil.Evil", "AutoConfig": "modeling_evil.Evil"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "modeling_evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    found = bh.audit(folder, text=text, settings=TRAINED)
    assert found.record["model"]["type"] == "gpt2"
    assert not (tmp_path / "ran").exists()


def test_memory_is_bounded(models_folder: Path):
    found = find_model(models_folder / "bert")
    one = 8 * 8 * 32 * 3
    many = Contexts("tokens", "", np.zeros((10**6, 8), int), 8)
    assert kept_contexts(found, many, 10**9) == KEPT_BYTES // one
    assert kept_contexts(found, many, 200) == 200


def test_repeated_contexts_are_left_out(models_folder: Path, text: Path, tmp_path: Path):
    twice = tmp_path / "twice.txt"
    twice.write_text(text.read_text() * 2)
    longer = replace(TRAINED, contexts=2000, length=12)
    once = bh.audit(models_folder / "gpt2", text=text, settings=longer)
    both = bh.audit(models_folder / "gpt2", text=twice, settings=longer)
    assert both.record["data"]["contexts"] == once.record["data"]["contexts"] == 80
    assert both.record["data"]["repeated"] == 80


def test_tokens_from_files(models_folder: Path, tmp_path: Path):
    ids = np.random.default_rng(0).integers(4, 54, (12, 8))
    np.save(tmp_path / "t.npy", ids)
    (tmp_path / "t.jsonl").write_text("\n".join(json.dumps(row.tolist()) for row in ids))
    options = replace(TRAINED, length=None)
    a = bh.audit(models_folder / "gpt2", tokens=tmp_path / "t.npy", settings=options)
    b = bh.audit(models_folder / "gpt2", tokens=tmp_path / "t.jsonl", settings=options)
    assert a.record["data"]["n"] == 8
    assert a.layers()[1]["separation"] == b.layers()[1]["separation"]


def test_pictures_from_a_folder(models_folder: Path, pictures: Path, tmp_path: Path):
    from PIL import Image

    images = np.load(pictures)["images"]
    for i, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / f"{i:02}.png")
    a = bh.audit(models_folder / "vit", images=pictures, settings=TRAINED)
    b = bh.audit(models_folder / "vit", images=tmp_path, settings=TRAINED)
    assert a.layers()[1]["separation"] == b.layers()[1]["separation"]


def test_the_figure_and_the_file(bert: Audit, tmp_path: Path):
    figure = audit_figure(bert.record)
    assert len(figure.axes) == 4
    bert.save(tmp_path / "audit.json")
    assert json.loads((tmp_path / "audit.json").read_text()) == bert.record
    with pytest.raises(bh.ByheartError, match="cannot be written"):
        bert.save(tmp_path / "gone" / "audit.json")


def test_what_a_notebook_shows(bert: Audit):
    lines = repr(bert).splitlines()
    assert len(lines) < 10 and lines[0].startswith("bert: bert, ")
    assert "Fail in no layer: Assumption 2, Assumption 3, Groups (e+mean)." in repr(bert)
    many = Audit(bert.record | {"layers": [*bert.record["layers"]]})
    for i, name in enumerate(bert.record["layers"][0]["checks"]):  # a sentence for every check
        for layer in many.layers():
            layer["checks"] = layer["checks"] | {
                name: {"verdict": "fails" if layer["layer"] == i % 3 else "open"}
            }
    assert len(repr(many).splitlines()) < 10
    page = bert._repr_html_()
    assert page.count("<tr>") == 7 and "<script" not in page
    hostile = Audit(bert.record | {"data": bert.record["data"] | {"source": "<script>x</script>"}})
    assert "<script" not in hostile._repr_html_()


@pytest.mark.parametrize("name", ["minilm", pytest.param("smollm2", marks=pytest.mark.slow)])
def test_pretrained_packages(name: str, text: Path):
    try:
        find_model(name)
    except bh.ByheartError as error:
        pytest.skip(f"{error} (`make models`)")
    if name == "smollm2":
        from importlib.util import find_spec

        if find_spec("gguf") is None:
            pytest.skip("gguf is not installed: pip install gguf")
    found = bh.audit(
        name,
        text=text,
        settings=AuditSettings(
            length=8, contexts=8, draws=5, ranked=4, random=False, formats=("float64",)
        ),
    )
    layers = found.layers()
    assert layers[0]["queries"][found.record["settings"]["queries"][0]]["Q"] <= 8
    assert layers[1]["checks"]["assumption2"]["verdict"] == "holds"
    assert ("de-quantised" in found.record["model"]["weights"]) == (name == "smollm2")
