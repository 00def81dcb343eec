"""A memory in TransformerLens: weights under its names, and loaders for both of its generations.

It divides scores by sqrt(d_head), which is multiplied into W_Q: exactly, d_head being padded with
zeros to a power of 4.
"""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as dump_tensors
from torch import Tensor

from byheart._install import install
from byheart.errors import ByheartError
from byheart.exports import folders, readmes
from byheart.exports.folders import Export
from byheart.exports.normal import dense_layer, dense_spec, normal_form, normal_spec
from byheart.models.memory import Memory
from byheart.models.standalone import lens
from byheart.models.token_memory import TokenMemory
from byheart.specs import AttentionOnlySpec

STATE, CONFIG = "state_dict.safetensors", "config.json"


ASKED = """from load import ask, load

model = load()
answer, margin = ask(model, {words})
assert answer == {answer!r}"""
CACHED = """
logits, cache = model.run_with_cache({text!r})
assert model.to_string(logits[0, -1].argmax()) == {answer!r}
print(model.to_str_tokens({text!r}))  # as the model reads them
print(cache["pattern", 0].shape, cache["z", 0].shape)  # every head
added = cache.stack_head_results(layer=-1, pos_slice=-1)  # what each adds where it is read
print(added.shape)"""
SILENCED = """

def silence(z, hook):  # (batch, position, head, d_head)
    z[:, :, fact["heads"]] = 0
    return z


place = f"blocks.{fact['layer']}.attn.hook_z"
logits = model.run_with_hooks({text}, fwd_hooks=[(place, silence)])
assert model.to_string(logits[0, -1].argmax()) != fact["answer"]  # it is lost"""
FILES = {
    "load.py": "`load()`, `ask(model, ...)` and the tokenizer",
    "config.json, state_dict.safetensors": "sizes and weights, HookedTransformer names",
    "vocabulary.json, facts.safetensors": "words by id; keys as the model reads them, answers",
}


def transformer_lens_export(memory: Memory, *, large: bool = False) -> Export:
    """`state_dict.safetensors` (HookedTransformer names), `config.json`, the vocabulary and
    `load.py`, which opens them in whichever TransformerLens is installed, with a tokenizer."""
    given, dtype = dense_spec(memory), memory.dtype  # type: ignore[attr-defined]
    parameters = normal_spec(given, padded_width(given)).parameters
    folders.check_size(parameters, dtype, "transformer-lens", large=large)
    dense, _ = dense_layer(memory)
    config, state = lens_weights(dense)
    weights, parameters = dump_tensors(state), folders.count(state)
    files = {
        CONFIG: config,
        STATE: weights,
        "load.py": Path(lens.__file__).read_text(encoding="utf-8"),
        **folders.owner_files(memory),
        folders.README: _readme(memory, dense, parameters, weights),
    }
    own = memory.spec.parameters
    return folders.layer_export(dense, "transformer-lens", files, parameters, own)


def _readme(memory: Memory, dense: TokenMemory, parameters: int, weights: bytes) -> str:
    owners = memory.owners()
    shown = readmes.example(dense, owners)
    text = " ".join(shown.key)
    words = {"words": shown.words, "text": text, "answer": shown.answer}
    order, unknown = readmes.reading_text(dense, "the tokenizer")
    return readmes.readme(
        "A memory of byheart in TransformerLens",
        [
            (ASKED + CACHED).format(**words),
            *shown.owners_code(SILENCED.replace("{text}", repr(text))),
        ],
        (
            "Keys",
            readmes.keys_text(dense, shown, f"So does a text: {text!r}. {order}", unknown),
        ),
        ("Owners", readmes.owners_text(owners)),
        ("Size", readmes.size_text(parameters, weights, memory.spec.parameters)),
        ("Rounding", readmes.rounding_text(memory)),
        files=FILES,
    )


def padded_width(spec: AttentionOnlySpec) -> int:
    """The smallest power of 4 that both widths fit into."""
    return 4 ** -(-(max(spec.d_h, spec.qk_rank) - 1).bit_length() // 2)


def lens_weights(memory: Memory) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """TransformerLens config and state dict of an attention-only memory.

    >>> import byheart as bh
    >>> config, state = lens_weights(bh.build("elements"))
    >>> config["d_head"], tuple(state["blocks.0.attn.W_Q"].shape)
    (16, (25, 10, 16))
    """
    d_head = padded_width(dense_spec(memory))
    form, spec = normal_form(memory, d_head)
    w, dtype = form.weights, form.dtype
    config = {
        "n_layers": spec.layers,
        "d_model": spec.d,
        "n_ctx": spec.S,
        "n_heads": spec.H,
        "d_head": d_head,
        "d_vocab": spec.N,
        "attn_only": True,
        "normalization_type": None,
        "positional_embedding_type": "standard",
        "attention_dir": "causal",
        "dtype": str(dtype).removeprefix("torch."),
    }
    state = {
        "embed.W_E": w["W_E"],
        "pos_embed.W_pos": w["W_pos"],
        "unembed.W_U": w["W_U"],
        "unembed.b_U": torch.zeros(spec.N, dtype=dtype),
    }
    for layer in range(spec.layers):
        prefix = f"blocks.{layer}.attn."
        state[prefix + "W_Q"] = w["W_Q"][layer] * math.isqrt(d_head)
        for name in ("W_K", "W_V", "W_O"):
            state[prefix + name] = w[name][layer]
        for name in ("b_Q", "b_K", "b_V"):
            state[prefix + name] = torch.zeros(spec.H, d_head, dtype=dtype)
        state[prefix + "b_O"] = torch.zeros(spec.d, dtype=dtype)
    return config, {name: tensor.contiguous() for name, tensor in state.items()}


def load_lens(folder: str | Path) -> Any:
    """The export in `folder` as TransformerLens's native bridge (4.x), or as HookedTransformer
    (before 4): whichever is installed."""
    path = Path(folder)
    if not (path / STATE).is_file():
        raise ByheartError(
            f"{folder}: no {STATE}. Give a folder that was exported `to=transformer-lens`."
        )
    if find_spec("transformer_lens") is None:
        raise ByheartError(
            f"TransformerLens is not installed: {install('lens')}. The weights are read "
            f"without it: safetensors.torch.load_file({str(path / STATE)!r})."
        )
    return lens.load(path)
