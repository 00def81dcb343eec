"""Specs from a Hugging Face `config.json`, counted to the last parameter; nothing is downloaded.

The names of the fields are those of `transformers`. Parameters are those of the causal language
model where a family has one (with its output matrix, which is the token table where tied), of the
whole encoder and decoder of T5 and BART, and of the model without task head otherwise. How the
blocks of each family are made stands in `huggingface_families`.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from byheart._files import read_json
from byheart.errors import ByheartError
from byheart.specs import TransformerSpec
from byheart.theory.huggingface_families import FAMILIES, LLAMA, Config, Family, Reader, fields_of

SIZES = ("d", "H", "layers", "d_ff", "S", "N")
# What the count of a Llama would leave out; configs with such fields are not counted like one.
OTHER_PARTS = ("expert", "lora", "ssm", "mamba", "state_size", "conv", "cross_attention", "encoder")


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
    """The spec of a config that was read already; `file` is what messages name.

    A model of several parts (images and text) is read by its language model, its `text_config`. A
    `model_type` that is not known is counted like a Llama where it has the fields of one, and its
    name says so.
    """
    kind, text = config.get("model_type"), config.get("text_config")
    if isinstance(kind, str) and kind in FAMILIES:
        family = FAMILIES[kind]
    elif isinstance(text, dict):
        spec = parse_config(text, f"{file}, text_config")
        return replace(spec, name=f"language model of {kind}")
    else:
        family = _like_llama(config, kind, file)
    try:
        return _counted(family, Reader(config, file))
    except ValueError as error:
        raise ByheartError(f"{file}: {error}.") from None


def _like_llama(config: Config, kind: object, file: str) -> Family:
    """The family of a type that is not known: that of Llama, unless the fields say otherwise."""
    names = [LLAMA.names[size] for size in SIZES] + ["rms_norm_eps"]
    missing = [name for name in names if config.get(name) is None]
    others = [name for name in config if config[name] and any(p in name for p in OTHER_PARTS)]
    if not missing and not others:
        return replace(LLAMA, title=f"{kind} (a type not known here, counted like Llama)")
    why = f"{', '.join(missing)} missing" if missing else f"{', '.join(others)} found"
    raise ByheartError(
        f"{file}: model_type {kind!r} is not known, and it cannot be counted like a Llama: {why}; "
        f"its fields are {fields_of(config)}. Give the sizes by hand (`d`, `H`, `d_h`, `n`, `N`, "
        f"`layers`), or a config of type {', '.join(FAMILIES)}."
    )


def _counted(family: Family, config: Reader) -> TransformerSpec:
    """The spec whose `other` is the difference between our count of its blocks and the model's."""
    family, spec = family.variant(family, config, _sizes(family, config))
    gated, tied = config.holds(family.gated), config.holds(family.tied)
    biases = [config.holds(bias) for bias in (family.qkv_bias, family.out_bias, family.ff_bias)]
    spec = replace(spec, gated=gated, bias=all(biases), tied=tied, norm=family.norm,
                   positions=family.positions)  # fmt: skip
    return replace(spec, other=parameters(family, spec, *biases) - spec.parameters)


def parameters(family: Family, spec: TransformerSpec, qkv: bool, out: bool, ff: bool) -> int:
    """All numbers of the model: W_Q, W_K, W_V, W_O, feed-forward and norms of every block (biases
    where the family has them), tables of tokens and learned positions, norms outside the blocks,
    and what else the family has."""
    d, d_h, H, kv, matrices = spec.d, spec.d_h, spec.H, spec.kv_heads, 2 + spec.gated
    attention = 2 * d * d_h * (H + kv) + qkv * d_h * (H + 2 * kv) + out * d
    head_norms = {"": 0, "shared": 2 * d_h, "own": d_h * (H + kv)}[family.head_norms]
    forward = matrices * d * spec.d_ff + ff * ((matrices - 1) * spec.d_ff + d)
    norm = family.norm_numbers * d
    tables = (spec.N or 0) * d * (1 if spec.tied else 2)
    tables += spec.S * d if spec.positions == "learned" else 0
    block = attention + head_norms + forward + family.norms * norm
    return spec.layers * block + tables + family.outer_norms * norm + family.extra


def _sizes(family: Family, config: Reader) -> TransformerSpec:
    """The sizes under the names of the family; all that are missing are named at once."""
    names = {size: name for size, name in family.names.items() if name}
    given = {size: config.first(names.get(size, "")) for size in SIZES}
    optional = {*family.defaults, *(("d_ff",) if family.ff_times else ())}
    needed = [name for size, name in names.items() if size in SIZES and size not in optional]
    missing = [name for name in needed if config.first(name) is None]
    if missing:
        words = ", ".join(" or ".join(name.split()) for name in missing)
        raise config.refuse(f"{words} missing; found {fields_of(config.config)}")
    read = {size: config.whole(names[size], family.defaults.get(size)) for size in given
            if size in names and (given[size] is not None or size in family.defaults)}  # fmt: skip
    d, H = read["d"], read["H"]
    if d % H and config.first(names["d_h"]) is None and "d_h" not in family.defaults:
        raise config.refuse(f"{H} heads do not divide the width {d}")
    path = config.config.get("_name_or_path")
    return TransformerSpec(
        d, H, config.whole(names["d_h"], family.defaults.get("d_h", max(1, d // H))),
        read.get("S", 1), read.get("N"), read["layers"],
        d_ff=read.get("d_ff", family.ff_times * d),
        kv_heads=config.whole(names["kv_heads"], family.defaults.get("kv_heads", H)),
        activation=config.word(names["activation"], family.activation),
        name=path if isinstance(path, str) and path else family.title,
    )  # fmt: skip
