"""A memory as a GPT-2 that `AutoModelForCausalLM` loads: an exact embedding, no code of ours.

What GPT-2 has and a memory has not is made to do nothing (docs/export.md): LayerNorm has ε = 4^k so
large that var + ε rounds to ε, and γ = 2^k; its mean m is 0 to rounding, since one coordinate holds
minus the sum of the others, and what is left of it is read as 0, through a coordinate that holds 0
and whose row in W_Q, W_K, W_V and W_U is minus the sum of the other rows.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from safetensors.torch import save as dump_tensors
from torch import Tensor

from byheart.errors import ByheartError
from byheart.exports import folders
from byheart.exports.normal import (
    check_export,
    dense_layer,
    dense_spec,
    normal_form,
    normal_spec,
)
from byheart.models.memory import Memory
from byheart.models.token_memory import TokenMemory
from byheart.specs import AttentionOnlySpec

LARGEST_EPSILON = {torch.float32: 2.0**120, torch.float64: 2.0**1000}


def export_hugging_face(memory: Memory, folder: str | Path, *, force: bool = False) -> Path:
    """Write config.json, model.safetensors and tokenizer files of a GPT-2 with the same logits.

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    model(**tokenizer("France capital", return_tensors="pt")).logits[0, -1].argmax()
    """
    check_export(gpt2_parameters(dense_spec(memory)), "hugging-face")
    dense, _ = dense_layer(memory)
    config, state = gpt2_weights(dense)
    tokenizer, settings = tokenizer_files(dense)
    files = {
        "config.json": config,
        "model.safetensors": dump_tensors(state, metadata={"format": "pt"}),
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": settings,
        "generation_config.json": {"max_new_tokens": 1, "do_sample": False},
        "README.md": _readme(dense),
    }
    return folders.write_layer(dense, folder, "hugging-face", files, force, folders.count(state))


def head_width(spec: AttentionOnlySpec) -> int:
    """Heads so wide that the stream and two coordinates have room."""
    form = normal_spec(spec)
    return max(form.d_h, -(-(form.d + 2) // form.H))


def gpt2_parameters(spec: AttentionOnlySpec) -> int:
    """Of the GPT-2 for a layer: embeddings of its width D = H d_head, and 4 D² + 11 D + 1 a block,
    most of them zeros."""
    D = spec.H * head_width(spec)
    return (2 * spec.N + spec.S + 2) * D + spec.layers * (4 * D * D + 11 * D + 1)


def gpt2_weights(memory: Memory) -> tuple[dict[str, object], dict[str, Tensor]]:
    """Config and state dict of the GPT-2 that computes what the memory computes."""
    form, spec = normal_form(memory, head_width(dense_spec(memory)))
    d, H, layers = spec.d, spec.H, range(spec.layers)
    w, dtype, width = form.weights, form.dtype, H * spec.d_h
    epsilon = _epsilon(form, spec, width)

    def rows(W: Tensor) -> Tensor:
        """(d, m) -> (width, m): behind a zero row minus the sum of the rows, then zeros."""
        out = torch.zeros(width, W.shape[1], dtype=torch.float64)
        out[:d] = W.double()
        out[d + 1] = -W.double().sum(0)
        return out.to(dtype)

    def columns(W: Tensor) -> Tensor:
        """(m, d) -> (m, width): what is written into the stream, minus its sum, then zeros."""
        out = torch.zeros(W.shape[0], width, dtype=torch.float64)
        out[:, :d] = W.double()
        out[:, d] = -W.double().sum(1)
        return out.to(dtype)

    norm = {"weight": torch.full((width,), math.sqrt(epsilon), dtype=dtype)}
    norm["bias"] = torch.zeros(width, dtype=dtype)
    zeros = {
        "attn.c_attn.bias": 3 * width,
        "attn.c_proj.bias": width,
        "mlp.c_fc.weight": (width, 1),
        "mlp.c_fc.bias": 1,
        "mlp.c_proj.weight": (1, width),
        "mlp.c_proj.bias": width,
    }
    state = {
        "transformer.wte.weight": columns(w["W_E"]),
        "transformer.wpe.weight": columns(w["W_pos"]),
        "lm_head.weight": rows(w["W_U"]).T,
        **{f"transformer.ln_f.{k}": v.clone() for k, v in norm.items()},
    }
    for i in layers:
        block = f"transformer.h.{i}."
        three = [w[name][i].transpose(0, 1).flatten(1) for name in ("W_Q", "W_K", "W_V")]
        state |= {
            block + "attn.c_attn.weight": rows(torch.cat(three, dim=1)),
            block + "attn.c_proj.weight": columns(w["W_O"][i].flatten(0, 1)),
            **{block + name: torch.zeros(shape, dtype=dtype) for name, shape in zeros.items()},
            **{f"{block}{ln}.{k}": v.clone() for ln in ("ln_1", "ln_2") for k, v in norm.items()},
        }
    config = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": spec.N,
        "n_positions": spec.S,
        "n_embd": width,
        "n_layer": spec.layers,
        "n_head": H,
        "n_inner": 1,
        "activation_function": "relu",
        "layer_norm_epsilon": epsilon,
        "scale_attn_weights": False,
        "tie_word_embeddings": False,
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
        **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id")),
        "dtype": str(dtype).removeprefix("torch."),
    }
    return config, {name: w.contiguous() for name, w in state.items()}


def _epsilon(form: TokenMemory, spec: AttentionOnlySpec, width: int) -> float:
    """The smallest 4^k for which var + ε rounds to ε: ε >= var · 2 / machine epsilon.

    Attention averages, so that max|x| of the stream grows in a layer by at most the factor
    1 + Σ_h ‖W_V^h W_O^h‖ (largest column sum of |·|)."""
    w, dtype = form.weights, form.dtype
    stream = float(w["W_E"].abs().max() + w["W_pos"].abs().max())
    for layer in range(spec.layers):
        growth = 0.0
        for h in range(spec.H):
            OV = w["W_V"][layer, h].double() @ w["W_O"][layer, h].double()
            growth += float(OV.abs().sum(0).max())
        stream *= 1 + growth
    variance = (width * max(stream, 1.0)) ** 2  # the balance: a sum of coordinates
    k = math.ceil(math.log2(4 * variance / torch.finfo(dtype).eps) / 2)
    if 4.0**k > LARGEST_EPSILON[dtype]:
        raise ByheartError(
            f"the stream of this memory may reach {stream:.1e}, too large for the LayerNorm of "
            f"GPT-2 in {dtype}. Export it `to=torch` or transformer-lens."
        )
    return 4.0**k


def tokenizer_files(memory: TokenMemory) -> tuple[dict[str, object], dict[str, object]]:
    """tokenizer.json and tokenizer_config.json: words split at white space (`WordLevel`), tokens
    that contain white space found as a whole, longest first; an unknown word is an error."""
    tokens = memory.vocabulary.tokens
    unknown = "[unknown]"
    while unknown in memory.vocabulary:
        unknown += "'"
    off = dict.fromkeys(("lstrip", "rstrip", "normalized", "special"), False)
    pieces = [
        {"id": i, "content": token, "single_word": True, **off}
        for i, token in enumerate(tokens)
        if token and (len(token.split()) != 1 or token != token.strip())
    ]
    post = None
    if memory.start_id is not None:
        name = tokens[memory.start_id]
        first = {"Sequence": {"id": "A", "type_id": 0}}
        sequence = [{"SpecialToken": {"id": name, "type_id": 0}}, first]
        post = {
            "type": "TemplateProcessing",
            "single": sequence,
            "pair": [*sequence, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {name: {"id": name, "ids": [memory.start_id], "tokens": [name]}},
        }
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": pieces,
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": post,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {token: i for i, token in enumerate(tokens)},
            "unk_token": unknown,
        },
    }
    settings: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": memory.spec.S,
        "model_input_names": ["input_ids"],  # no mask: padding is a token like any other
        "clean_up_tokenization_spaces": False,
    }
    if memory.pad_id is not None:
        settings |= {"pad_token": tokens[memory.pad_id], "padding_side": "left"}
    return tokenizer, settings


def _readme(memory: TokenMemory) -> str:
    key, answer, order = ("TOKEN",) * memory.key_length, "ANSWER", ""
    if memory.facts is not None:
        key, answer = memory.facts.key(0), memory.facts.answer(0)
    words = " ".join(key[i] for i in memory.order or range(len(key)))
    options = ', padding="max_length"' if memory.pad_id is not None else ""
    if memory.order is not None:
        order = f"\nThe tokens of a key are read in the order {list(memory.order)}: {words!r}.\n"
    return f"""# A memory of byheart as GPT-2

    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    model = AutoModelForCausalLM.from_pretrained(FOLDER)
    ids = tokenizer({words!r}, return_tensors="pt"{options})
    tokenizer.decode(model(**ids).logits[0, -1].argmax())  # {answer!r}
{order}
The same logits as the memory, to rounding: LayerNorm has an epsilon of 4^k and a weight of 2^k,
which makes it linear; the feed-forward layer is zero. Do not load it in float16 or bfloat16.
LayerNorm rounds besides: what the memory's certificate says of every float32 evaluation does
not cover this model: measure it.
"""
