"""A memory as a GPT-2 that `AutoModelForCausalLM` loads: an exact embedding, no code of ours.

What GPT-2 has and a memory has not is made to do nothing (docs/export.md): LayerNorm has ε = 4^k so
large that var + ε rounds to ε, and γ = 2^k; its mean m is 0 to rounding, since one coordinate holds
minus the sum of the others, and what is left of it is read as 0, through a coordinate that holds 0
and whose row in W_Q, W_K, W_V and W_U is minus the sum of the other rows.
"""

from __future__ import annotations

import math

import torch
from safetensors.torch import save as dump_tensors
from torch import Tensor

from byheart.errors import ByheartError
from byheart.exports import folders, readmes
from byheart.exports.folders import Export
from byheart.exports.normal import dense_layer, dense_spec, normal_form, normal_spec
from byheart.exports.prompts import (
    Prompted,
    prompt_layout,
    prompted,
    prompted_spec,
    stream_bounds,
)
from byheart.exports.word_tokenizer import pads_itself, tokenizer_files
from byheart.models.memory import Memory
from byheart.models.modules import reading
from byheart.models.token_memory import TokenMemory
from byheart.specs import AttentionOnlySpec

LARGEST_EPSILON = {torch.float32: 2.0**120, torch.float64: 2.0**1000}


ASKED = """from ask import ask

answer, margin = ask({words})
assert answer == {answer!r}"""
STOCK = """from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(".")
model = AutoModelForCausalLM.from_pretrained(".").eval()
ids = tokenizer({text!r}, return_tensors="pt")
assert tokenizer.decode(model(**ids).logits[0, -1].argmax()) == {answer!r}
said = model.generate(**ids, max_new_tokens=5)
print(tokenizer.decode(said[0], skip_special_tokens=True))  # {text} {answer}"""
SILENCED = """
width = model.config.n_embd // model.config.n_head


def silence(module, inputs):  # what the heads write, side by side
    written = inputs[0].clone()
    for head in fact["heads"]:
        written[..., head * width : (head + 1) * width] = 0
    return (written,)


attention = model.transformer.h[fact["layer"]].attn
hook = attention.c_proj.register_forward_pre_hook(silence)
assert tokenizer.decode(model(**ids).logits[0, -1].argmax()) != fact["answer"]  # it is lost
hook.remove()"""
UNKNOWN = (
    "A word that is not in the vocabulary is read as [UNK], whose embedding is 0 and belongs to "
    "nobody: the\nanswer means nothing then. Behind the answer the model says [END], so that "
    "`generate` ends."
)
EXACT = """The logits of the memory, to rounding, and those of [UNK], [END] and [ASK] far below:
LayerNorm has an epsilon of 4^k and a weight of 2^k, which makes it linear; the feed-forward layer
is zero. Do not load it in float16 or bfloat16. LayerNorm rounds besides: what the memory's
certificate says of every float32 evaluation does not cover this model: measure it."""
FILES = {
    "config.json, model.safetensors": "the GPT-2, as transformers loads it",
    "tokenizer.json, tokenizer_config.json": "words in the order of the table to token ids",
    "generation_config.json": "`generate` ends at [END]",
    "ask.py": "`ask(...)`, for words with any spaces in them",
    "vocabulary.json, facts.safetensors": "words by id; keys as the model reads them, answers",
}


def hugging_face_export(memory: Memory, *, large: bool = False) -> Export:
    """config.json, model.safetensors and tokenizer files of a GPT-2 with the same logits, which is
    asked in the order of the table (`prompts`).

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    model(**tokenizer("France capital", return_tensors="pt")).logits[0, -1].argmax()
    """
    spec = prompted_spec(dense_spec(memory), prompt_layout(memory))
    dtype = memory.dtype  # type: ignore[attr-defined]
    folders.check_size(gpt2_parameters(spec), dtype, "hugging-face", large=large)
    dense, _ = dense_layer(memory)
    made = prompted(dense)
    config, state = gpt2_weights(made.memory)
    tokenizer, settings = tokenizer_files(made)
    weights = dump_tensors(state, metadata={"format": "pt"})
    end = {"eos_token_id": made.end_id, "pad_token_id": made.end_id}
    table = folders.token_files(dense, lambda tokens: made.prompts(torch.tensor(tokens)))
    files = {
        **table,
        "config.json": config | {"eos_token_id": made.end_id},
        "model.safetensors": weights,
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": settings,
        "generation_config.json": {"max_new_tokens": 2, "do_sample": False, **end},
        "ask.py": (folders.STANDALONE / "gpt2.py").read_text(encoding="utf-8"),
        folders.VOCABULARY: list(made.memory.vocabulary.tokens),
        **folders.owner_files(memory, made.shift),
        folders.README: _readme(memory, dense, made, folders.count(state), weights),
    }
    record = {
        "family": "attention-only",
        "parameters": folders.count(state),
        **reading(made.memory),
        "ask_ids": made.ask_ids,
        "columns": len(made.layout.order),
    }
    return folders.make_export("hugging-face", files, record, memory.spec.parameters)


def _readme(
    memory: Memory, dense: TokenMemory, made: Prompted, parameters: int, weights: bytes
) -> str:
    owners = folders.shifted_owners(memory, made.shift)
    shown = readmes.example(dense, owners)
    code = [ASKED.format(words=shown.words, answer=shown.answer)]
    if stock := dense.pad_id is None or pads_itself(made):
        code.append(STOCK.format(text=" ".join(shown.key), answer=shown.answer))
    order = 'So does a text: `tokenizer("...")` wants one key.'
    if made.shift:
        last = ", ".join(str(column + 1) for column in made.layout.moved)
        order = (
            "So does a text. The memory itself reads word "
            f"{last} of a key last: the tokenizer puts [ASK] behind the\nkey, and layer 0 copies "
            "the word there. The layers behind are those of the memory, and shut where it\nwas. "
            "A memory built with the gate `key` reads keys of two words as they are."
        )
    if not stock:
        order += (
            "\nSome words have spaces in them and keys are padded: the tokenizer alone cannot pad "
            "them, `ask` can."
        )
    return readmes.readme(
        "A memory of byheart as GPT-2",
        [*code, *(shown.owners_code(SILENCED) if stock else [])],
        ("Keys", readmes.keys_text(dense, shown, order, UNKNOWN)),
        ("Owners", readmes.owners_text(owners)),
        ("Size", readmes.size_text(parameters, weights, memory.spec.parameters)),
        ("Rounding", EXACT),
        files=FILES,
    )


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
    """The smallest 4^k for which var + ε rounds to ε: ε >= var · 2 / machine epsilon."""
    stream, dtype = stream_bounds(form, spec)[-1], form.dtype
    variance = (width * max(stream, 1.0)) ** 2  # the balance: a sum of coordinates
    k = math.ceil(math.log2(4 * variance / torch.finfo(dtype).eps) / 2)
    if 4.0**k > LARGEST_EPSILON[dtype]:
        raise ByheartError(
            f"the stream of this memory may reach {stream:.1e}, too large for the LayerNorm of "
            f"GPT-2 in {dtype}. Export it `to=torch` or transformer-lens."
        )
    return 4.0**k
