"""Specs from config.json files: parameter counts as published, bad files refused."""

import json
from pathlib import Path

import pytest

import byheart as bh
from byheart.errors import ByheartError
from byheart.theory.huggingface import parse_config, read_config

CONFIGS = Path(__file__).parent / "configs"


# Parameters as `transformers` counts them (num_parameters of GPT2LMHeadModel, BertModel, ViTModel
# with pooler, LlamaForCausalLM).
@pytest.mark.parametrize(
    ("name", "parameters", "d", "H", "kv_heads", "S"),
    [
        ("gpt2", 124_439_808, 768, 12, 12, 1024),
        ("gpt2-large", 774_030_080, 1280, 20, 20, 1024),
        ("bert-large", 335_141_888, 1024, 16, 16, 512),
        ("vit-b-16", 86_389_248, 768, 12, 12, 197),
        ("smollm2-135m", 134_515_008, 576, 9, 3, 8192),
    ],
)
def test_real_models_have_their_published_sizes(name, parameters, d, H, kv_heads, S):
    spec = read_config(CONFIGS / f"{name}.json")
    assert (spec.d, spec.H, spec.kv_heads, spec.d_h, spec.S) == (d, H, kv_heads, 64, S)
    assert spec.parameters == parameters


# Sizes of published models, and their parameters as transformers 5 counts them (on "meta").
REAL = json.loads((CONFIGS / "real_models.json").read_text())


@pytest.mark.parametrize("name", REAL)
def test_published_models_are_counted_to_the_last_parameter(name):
    assert parse_config(REAL[name]["config"]).parameters == REAL[name]["parameters"]


@pytest.mark.parametrize(
    ("name", "bound", "capacity", "reason"),
    [
        ("gpt2", "dana2025.corollary1", 12 * 64 + 768, ""),
        ("gpt2", "mahdavi2024.theorem1", None, "needs n <= d: 1024 > 768"),
        ("gpt2-large", "mahdavi2024.theorem1", 20 * 63 + 1, ""),
        ("gpt2-large", "dana2025.corollary1", 20 * 64 + 1280, ""),
        ("bert-large", "mahdavi2024.theorem1", 16 * 63 + 1, ""),
        ("vit-b-16", "mahdavi2024.theorem1", 12 * 63 + 1, ""),
        ("vit-b-16", "dana2025.corollary1", None, "needs tokens from a vocabulary"),
        ("smollm2-135m", "mahdavi2024.theorem1", None, "rotary"),
        ("smollm2-135m", "dana2025.corollary1", None, "rotary"),
        ("gpt2", "kajitsuka2025.theorem41", None, "needs ReLU feed-forward blocks, found gelu_new"),
    ],
)
def test_which_theorems_apply_to_real_models(name, bound, capacity, reason):
    answers = {a.id: a for a in bh.bounds(read_config(CONFIGS / f"{name}.json"))}
    assert answers[bound].capacity == capacity
    assert reason in answers[bound].reason


def test_bert_with_the_measured_kruskal_rank_keeps_its_bound():
    """Q = 290 of n = 512 (audited): r = min(64, 290) = 64 is still the head width."""
    answers = {a.id: a for a in bh.bounds(read_config(CONFIGS / "bert-large.json"), kruskal=290)}
    assert answers["mahdavi2024.theorem1"].capacity == 1009
    answers = {a.id: a for a in bh.bounds(read_config(CONFIGS / "bert-large.json"), kruskal=20)}
    assert answers["mahdavi2024.theorem1"].capacity == 16 * 19 + 1


def test_a_folder_that_holds_a_config(tmp_path):
    text = (CONFIGS / "gpt2.json").read_text()
    (tmp_path / "config.json").write_text(text)
    assert read_config(tmp_path) == read_config(CONFIGS / "gpt2.json")


GPT2 = json.loads((CONFIGS / "gpt2.json").read_text())
LLAMA = json.loads((CONFIGS / "smollm2-135m.json").read_text())
BERT = json.loads((CONFIGS / "bert-large.json").read_text())
VIT = json.loads((CONFIGS / "vit-b-16.json").read_text())
USUAL = {name: LLAMA[name] for name in ("hidden_size", "num_attention_heads", "num_hidden_layers",
         "intermediate_size", "max_position_embeddings", "vocab_size")}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{not json", "not JSON"),
        ("[1, 2]", "expected a JSON object, found list"),
        (
            "{}",
            "model_type None is not known, .* hidden_size, .* missing; its fields are no fields",
        ),
        (
            {"model_type": "mamba", "d_state": 16},
            "'mamba' is not known, .* like a Llama: hidden_size, .* missing; its fields are d_s",
        ),
        (
            {**LLAMA, "model_type": "new", "rms_norm_eps": 1e-5, "num_experts": 8},
            "num_experts found",
        ),
        ({"model_type": ["gpt2"]}, "model_type \\['gpt2'\\] is not known"),
        ({**GPT2, "n_embd": None}, "n_embd missing; found .*n_head"),
        ({**GPT2, "n_embd": "768"}, "n_embd must be a whole number >= 1, found '768'"),
        ({**GPT2, "n_embd": -768}, "found -768"),
        ({**GPT2, "n_layer": 0}, "n_layer must be a whole number >= 1, found 0"),
        ({**GPT2, "n_layer": 1.5}, "found 1.5"),
        ({**GPT2, "n_head": True}, "n_head must be a whole number"),
        ({**GPT2, "n_head": 5}, "5 heads do not divide the width 768"),
        ({**GPT2, "activation_function": 3}, "activation_function must be a word"),
        ({**LLAMA, "num_key_value_heads": 2}, "kv_heads must divide H"),
        ({**LLAMA, "attention_bias": 1}, "attention_bias must be true or false, found 1"),
        ({"model_type": "mistral", "hidden_size": 64}, "num_attention_heads, num_hidden_layers, "),
        ({"model_type": "mixtral", **USUAL}, "num_local_experts or num_experts missing"),
        (
            {"model_type": "llava", "text_config": {"model_type": "x"}},
            "text_config: model_type 'x'",
        ),
        ({**LLAMA, "tie_word_embeddings": "yes"}, "true or false"),
        (
            {**BERT, "position_embedding_type": "relative_key"},
            "must be absolute, found relative_key",
        ),
        ({**VIT, "image_size": None}, "image_size missing"),
        ({**VIT, "patch_size": 17}, "patch_size 17 does not divide image_size 224"),
    ],
)
def test_bad_configs_are_refused_with_file_and_field(tmp_path, config, message):
    path = tmp_path / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    with pytest.raises(ByheartError, match=message) as caught:
        read_config(path)
    assert str(path) in str(caught.value)


def test_a_missing_or_binary_file(tmp_path):
    with pytest.raises(ByheartError, match="no such file"):
        read_config(tmp_path / "nowhere.json")
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ByheartError, match="not JSON"):
        read_config(tmp_path)
