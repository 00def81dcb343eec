"""Every family's count is that of the model that transformers makes of the same config.

Small sizes, all different, so that no term of a count hides behind another; the models are made on
the device "meta", which has shapes and no numbers. Nothing is downloaded.
"""

import json

import pytest

from byheart.theory.huggingface import parse_config
from byheart.theory.huggingface_families import FAMILIES

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SMALL = {"hidden_size": 48, "num_attention_heads": 6, "num_hidden_layers": 3, "vocab_size": 101,
         "intermediate_size": 80, "max_position_embeddings": 37}  # fmt: skip
GROUPED = SMALL | {"num_key_value_heads": 2}
WIDE = GROUPED | {"head_dim": 16}
GPT = {"n_embd": 48, "n_head": 6, "n_layer": 3, "n_positions": 37, "vocab_size": 101}
ROTARY = GPT | {"n_head": 4, "rotary_dim": 4}
OPT = {"hidden_size": 48, "num_attention_heads": 6, "num_hidden_layers": 3, "ffn_dim": 80,
       "vocab_size": 101, "max_position_embeddings": 37, "word_embed_proj_dim": 48}  # fmt: skip
FALCON = {"hidden_size": 48, "num_attention_heads": 6, "num_hidden_layers": 3, "vocab_size": 101}
T5 = {"d_model": 48, "d_kv": 12, "d_ff": 80, "num_layers": 2, "num_decoder_layers": 3,
      "num_heads": 6, "vocab_size": 101}  # fmt: skip
IMAGES = {"hidden_size": 48, "num_attention_heads": 6, "num_hidden_layers": 3, "image_size": 32,
          "intermediate_size": 80, "patch_size": 8}  # fmt: skip
MOE = WIDE | {"num_experts": 4, "moe_intermediate_size": 24}
BART = {"d_model": 48, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 6,
        "decoder_attention_heads": 6, "encoder_ffn_dim": 80, "decoder_ffn_dim": 64,
        "vocab_size": 101, "max_position_embeddings": 37}  # fmt: skip
DISTIL = {"dim": 48, "n_heads": 6, "n_layers": 3, "hidden_dim": 80, "vocab_size": 101,
          "max_position_embeddings": 37}  # fmt: skip
CAUSAL, WHOLE, ENCODER = "AutoModelForCausalLM", "AutoModelForSeq2SeqLM", "AutoModel"
TIED, BIASED = {"tie_word_embeddings": True}, {"attention_bias": True}

CASES = [
    ("gpt2", CAUSAL, GPT), ("gpt2", CAUSAL, GPT | {"n_inner": 70, "tie_word_embeddings": False}),
    ("gpt_neo", CAUSAL, {"hidden_size": 48, "num_heads": 6, "num_layers": 2, "vocab_size": 101,
                         "attention_types": [[["global", "local"], 1]],
                         "max_position_embeddings": 37}),
    ("gptj", CAUSAL, ROTARY), ("codegen", CAUSAL, ROTARY),
    ("gpt_neox", CAUSAL, SMALL), ("gpt_neox", CAUSAL, SMALL | {"attention_bias": False} | TIED),
    ("gpt_bigcode", CAUSAL, GPT), ("gpt_bigcode", CAUSAL, GPT | {"multi_query": False}),
    ("opt", CAUSAL, OPT), ("opt", CAUSAL, OPT | {"word_embed_proj_dim": 24}),
    ("opt", CAUSAL, OPT | {"do_layer_norm_before": False, "enable_bias": False}),
    ("bloom", CAUSAL, {"hidden_size": 48, "n_head": 6, "n_layer": 3, "vocab_size": 101}),
    ("falcon", CAUSAL, FALCON),
    ("falcon", CAUSAL, FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2}),
    ("falcon", CAUSAL, FALCON | {"alibi": True, "bias": True, "multi_query": False,
                                 "parallel_attn": False, "ffn_hidden_size": 70}),
    ("mpt", CAUSAL, {"d_model": 48, "n_heads": 6, "n_layers": 3, "vocab_size": 101,
                     "max_seq_len": 37}),
    ("llama", CAUSAL, GROUPED), ("llama", CAUSAL, WIDE | TIED | BIASED | {"mlp_bias": True}),
    ("mistral", CAUSAL, GROUPED), ("mixtral", CAUSAL, GROUPED | {"num_local_experts": 3}),
    ("qwen2", CAUSAL, GROUPED), ("qwen2", CAUSAL, GROUPED | TIED),
    ("qwen2_moe", CAUSAL, MOE | {"shared_expert_intermediate_size": 40}),
    ("qwen3", CAUSAL, WIDE), ("qwen3", CAUSAL, WIDE | TIED | BIASED),
    ("qwen3_moe", CAUSAL, MOE), ("qwen3_moe", CAUSAL, MOE | {"mlp_only_layers": [1]}),
    ("gemma", CAUSAL, WIDE), ("gemma", CAUSAL, GROUPED | BIASED), ("gemma2", CAUSAL, WIDE),
    ("gemma3_text", CAUSAL, WIDE),
    ("phi", CAUSAL, GROUPED), ("phi", CAUSAL, GROUPED | {"qk_layernorm": True}),
    ("phi3", CAUSAL, GROUPED | {"pad_token_id": 0}),
    ("stablelm", CAUSAL, GROUPED),
    ("stablelm", CAUSAL, GROUPED | {"use_qkv_bias": True, "qk_layernorm": True,
                                    "use_parallel_residual": True}),
    ("olmo", CAUSAL, GROUPED), ("olmo2", CAUSAL, GROUPED), ("starcoder2", CAUSAL, GROUPED),
    ("starcoder2", CAUSAL, GROUPED | {"use_bias": False}),
    ("granite", CAUSAL, GROUPED), ("granite", CAUSAL, GROUPED | TIED | {"mlp_bias": True}),
    ("cohere", CAUSAL, GROUPED), ("cohere", CAUSAL, GROUPED | {"use_qk_norm": True}),
    ("smollm3", CAUSAL, GROUPED | {"pad_token_id": 0}),
    ("bert", ENCODER, SMALL), ("roberta", ENCODER, SMALL | {"type_vocab_size": 1}),
    ("xlm-roberta", ENCODER, SMALL), ("camembert", ENCODER, SMALL),
    ("electra", ENCODER, SMALL | {"embedding_size": 48}),
    ("electra", ENCODER, SMALL | {"embedding_size": 24}),
    ("albert", ENCODER, SMALL | {"embedding_size": 24}),
    ("albert", ENCODER, SMALL | {"embedding_size": 48, "num_hidden_groups": 3}),
    ("distilbert", ENCODER, DISTIL), ("mpnet", ENCODER, SMALL),
    ("vit", ENCODER, IMAGES), ("vit", ENCODER, IMAGES | {"qkv_bias": False, "num_channels": 1}),
    ("deit", ENCODER, IMAGES), ("dinov2", ENCODER, IMAGES),
    ("t5", WHOLE, T5), ("t5", WHOLE, T5 | {"feed_forward_proj": "gated-gelu"}),
    ("t5", "T5EncoderModel", T5 | {"architectures": ["T5EncoderModel"]}),
    ("mt5", WHOLE, T5), ("umt5", WHOLE, T5), ("bart", WHOLE, BART),
]  # fmt: skip


def made(kind, auto, sizes):
    """The config as `save_pretrained` writes it, and the parameters of its model."""
    config = transformers.CONFIG_MAPPING[kind](**sizes)
    maker = getattr(transformers, auto)
    with torch.device("meta"):
        model = maker.from_config(config) if auto.startswith("Auto") else maker(config)
    return json.loads(config.to_json_string()), model.num_parameters()


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # GPT-BigCode's own
@pytest.mark.parametrize(("kind", "auto", "sizes"), CASES)
def test_the_count_is_that_of_transformers(kind, auto, sizes):
    config, parameters = made(kind, auto, sizes)
    assert parse_config(config).parameters == parameters


def test_every_family_is_compared():
    assert {kind for kind, _, _ in CASES} == set(FAMILIES)
    assert len(FAMILIES) >= 40


def test_grouped_experts_and_two_sides_have_the_sizes_of_the_config():
    mixtral = parse_config(made("mixtral", CAUSAL, GROUPED)[0])
    assert (mixtral.H, mixtral.kv_heads, mixtral.d_h, mixtral.d_ff) == (6, 2, 8, 80)
    t5 = parse_config(made("t5", WHOLE, T5)[0])
    assert (t5.layers, t5.d_h, t5.positions, t5.activation) == (5, 12, "relative", "relu")
    assert "2 encoder and 3 decoder layers" in str(t5)
    deit = parse_config(made("deit", ENCODER, IMAGES)[0])
    assert (deit.S, deit.N) == (18, None)


def test_t5_with_an_output_matrix_of_its_own():
    """T5 1.1 has one; transformers 5 makes it tied whatever the config says, the files do not."""
    tied = parse_config({"model_type": "t5", **T5})
    untied = parse_config({"model_type": "t5", **T5, "tie_word_embeddings": False})
    assert untied.parameters - tied.parameters == 101 * 48


def test_a_type_that_is_not_known_is_counted_like_llama_and_says_so():
    fields = {**made("llama", CAUSAL, GROUPED)[0], "model_type": "newcomer"}
    spec = parse_config(fields)
    assert spec.parameters == parse_config({**fields, "model_type": "llama"}).parameters
    assert "newcomer (a type not known here, counted like Llama)" in str(spec)


def test_the_language_model_of_a_model_of_several_parts():
    text = made("gemma3_text", CAUSAL, WIDE)[0]
    spec = parse_config({"model_type": "gemma3", "text_config": text, "vision_config": {}})
    assert spec.parameters == parse_config(text).parameters
    assert spec.name == "language model of gemma3"
