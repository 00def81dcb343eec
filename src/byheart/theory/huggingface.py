"""Specs from a Hugging Face `config.json`: GPT-2, BERT, Llama (SmolLM), ViT; nothing is downloaded.

The names of the fields are those of `transformers`. Parameters are those of the model without task
head (GPT-2 and Llama with the output matrix, which is the token table unless untied).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from byheart._files import read_json
from byheart.errors import ByheartError
from byheart.specs import TransformerSpec

Config = dict[str, Any]
V = TypeVar("V", bool, str)


def read_config(path: str | os.PathLike[str]) -> TransformerSpec:
    """The spec of the model that this config.json (or the folder that holds it) describes.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "config.json"
    >>> _ = path.write_text('{"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12,'
    ...                     ' "n_positions": 1024, "vocab_size": 50257}')
    >>> read_config(path).parameters
    124439808
    """
    file = Path(path) / "config.json" if os.path.isdir(path) else Path(path)
    config = read_json(file)
    if not isinstance(config, dict):
        raise ByheartError(f"{file}: expected a JSON object, found {type(config).__name__}.")
    return parse_config(config, str(file))


def parse_config(config: Config, file: str = "config.json") -> TransformerSpec:
    """The spec of a config that was read already; `file` is what messages name."""
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in READERS:
        raise ByheartError(
            f"{file}: expected model_type {', '.join(READERS)}, found {kind!r} with the fields "
            f"{_fields(config)}. Give the sizes by hand: `d`, `H`, `d_h`, `n`, `N`, `layers`."
        )
    try:
        return READERS[kind](_Reader(config, file))
    except ValueError as error:
        raise ByheartError(f"{file}: {error}.") from None


class _Reader:
    """Fields of one config, checked one by one; errors name the file and the field."""

    def __init__(self, config: Config, file: str) -> None:
        self.config, self.file = config, file

    def refuse(self, problem: str) -> ByheartError:
        return ByheartError(f"{self.file}: {problem}.")

    def whole(self, *names: str, default: int | None = None) -> int:
        """The first of `names` that is there, a whole number >= 1."""
        name = next((name for name in names if self.config.get(name) is not None), None)
        if name is None and default is None:
            raise self.refuse(f"{' or '.join(names)} is missing; found {_fields(self.config)}")
        value = default if name is None else self.config[name]
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.refuse(f"{name} must be a whole number >= 1, found {value!r}")
        return value

    def like(self, name: str, default: V) -> V:
        """A field of the kind of its default: a word, or true or false."""
        value = self.config.get(name, default)
        if not isinstance(value, type(default)):
            kind = "a word" if isinstance(default, str) else "true or false"
            raise self.refuse(f"{name} must be {kind}, found {value!r}")
        return value

    def blocks(self, name: str, width: str, heads: str, layers: str) -> TransformerSpec:
        """The blocks without their feed-forward part: d_h is head_dim, else d/H, which must be
        whole. Context and tokens are still to be read."""
        d, H = self.whole(width), self.whole(heads)
        if d % H and self.config.get("head_dim") is None:
            raise self.refuse(f"{H} heads do not divide the width {d}")
        d_h = self.whole("head_dim", default=max(1, d // H))
        path = self.config.get("_name_or_path")
        title = path if isinstance(path, str) and path else name
        return TransformerSpec(d, H, d_h, 1, None, self.whole(layers), bias=True, name=title)


def _gpt2(config: _Reader) -> TransformerSpec:
    blocks = config.blocks("GPT-2", "n_embd", "n_head", "n_layer")
    return replace(
        blocks, S=config.whole("n_positions", "n_ctx"), N=config.whole("vocab_size"),
        d_ff=config.whole("n_inner", default=4 * blocks.d),
        activation=config.like("activation_function", "gelu_new"),
        tied=config.like("tie_word_embeddings", True), other=2 * blocks.d,  # final layer norm
    )  # fmt: skip


def _hidden(config: _Reader, name: str, activation: str = "gelu") -> TransformerSpec:
    """The blocks of all models whose fields are named like BERT's."""
    blocks = config.blocks(name, "hidden_size", "num_attention_heads", "num_hidden_layers")
    width, activation = config.whole("intermediate_size"), config.like("hidden_act", activation)
    return replace(blocks, d_ff=width, activation=activation)


def _bert(config: _Reader) -> TransformerSpec:
    blocks, types = _hidden(config, "BERT"), config.whole("type_vocab_size", default=2)
    d = blocks.d
    if (kind := config.like("position_embedding_type", "absolute")) != "absolute":
        raise config.refuse(f"position_embedding_type must be absolute, found {kind}")
    other = types * d + 2 * d + d * d + d  # token types, norm of the embeddings, pooler
    S, N = config.whole("max_position_embeddings"), config.whole("vocab_size")
    return replace(blocks, S=S, N=N, tied=True, other=other)


def _llama(config: _Reader) -> TransformerSpec:
    for name in ("attention_bias", "mlp_bias"):
        if config.like(name, False):
            next_step = "Set it to false: the theorems do not see biases"
            raise config.refuse(f"{name} = true is not counted for Llama. {next_step}")
    blocks = _hidden(config, "Llama", "silu")
    return replace(
        blocks, kv_heads=config.whole("num_key_value_heads", default=blocks.H),
        S=config.whole("max_position_embeddings"), N=config.whole("vocab_size"), gated=True,
        bias=False, norm="rms", positions="rotary",
        tied=config.like("tie_word_embeddings", False), other=blocks.d,  # final norm
    )  # fmt: skip


def _vit(config: _Reader) -> TransformerSpec:
    blocks = _hidden(config, "ViT")
    d, image, patch = blocks.d, config.whole("image_size"), config.whole("patch_size")
    if image % patch:
        raise config.refuse(f"patch_size {patch} does not divide image_size {image}")
    if not config.like("qkv_bias", True):
        raise config.refuse("qkv_bias = false is not counted for ViT")
    channels = config.whole("num_channels", default=3)
    # CLS, patch embedding with bias, final layer norm, pooler.
    other = d + (channels * patch * patch + 1) * d + 2 * d + d * d + d
    return replace(blocks, S=(image // patch) ** 2 + 1, other=other)


READERS: dict[str, Callable[[_Reader], TransformerSpec]] = {
    "gpt2": _gpt2, "bert": _bert, "llama": _llama, "vit": _vit,
}  # fmt: skip


def _fields(config: Config) -> str:
    names = sorted(str(name) for name in config)
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "") if names else "no fields"
