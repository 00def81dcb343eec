"""Configs of every supported kind of model, small, and a tokenizer of fifty words."""

from __future__ import annotations

from typing import Any

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
