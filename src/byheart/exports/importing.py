"""The way back: a trained attention-only model in torch or TransformerLens layout as a memory.

Biases, which a memory has not, are folded exactly into one coordinate that is always 1 (d + 1) and
one value channel (d_h + 1): b_Q, b_K, b_V are rows of that coordinate, b_O is written by the first
head (its attention sums to 1), b_U is a row of W_U. LayerNorm and feed-forward layers are refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from byheart._folders import read_whole
from byheart.errors import ByheartError
from byheart.exports import folders, transformer_lens
from byheart.facts import Facts, Vocabulary
from byheart.models.construction import ImportedConstruction, LostFact, finite
from byheart.models.modules import PER_LAYER, torch_state
from byheart.models.token_memory import TokenMemory
from byheart.specs import AttentionOnlySpec

NORMS = ("ln1.", "ln2.", "ln_final.")
# The fields of a spec by their names in a standalone model's config.
FIELDS = {"N": "d_vocab", "S": "n_ctx", "d": "d_model", "d_h": "d_head", "H": "n_heads"}
FIELDS |= {"layers": "n_layers", "qk_rank": "d_query"}
FIELDS |= {name: name for name in ("positions", "scale", "skip", "attention")}


def import_memory(
    folder: str | Path,
    *,
    weights: str | Path | None = None,
    facts: Facts | None = None,
) -> TokenMemory:
    """The model in a folder that was exported to torch or TransformerLens, perhaps trained since,
    as a memory that can be asked, measured and certified.

    `weights`: another safetensors file with the same names (default: the folder's own). `facts`:
    what it should hold (default: the keys and answers that the export wrote, if they are there).

    >>> import byheart as bh, tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp()) / "e"
    >>> _ = bh.export(bh.build("elements"), folder, to="torch")
    >>> import_memory(folder).recall("Fe", "name").answer
    'iron'
    """
    return read_whole(folder, lambda: _import(Path(folder), weights, facts))


def _import(path: Path, weights: str | Path | None, facts: Facts | None) -> TokenMemory:
    marker, config = _json(path, folders.MARKER), _json(path, "config.json")
    if marker.get("to") not in ("torch", "transformer-lens") or "n_heads" not in config:
        raise ByheartError(
            f"{path}: expected a folder that was exported to torch or transformer-lens, "
            f"found {marker.get('to')!r}."
        )
    if marker.get("family") != "attention-only":
        raise ByheartError(f"{path}: only attention-only models are imported, not vectors.")
    lens = marker["to"] == "transformer-lens"
    file = Path(weights or path / (transformer_lens.STATE if lens else "weights.safetensors"))
    state = _state(file)
    spec, tensors = from_lens(config, state) if lens else _from_torch(config, state, file)
    how = marker if lens else config
    order, dtype = how.get("order"), str(tensors["W_U"].dtype)[6:]
    memory = TokenMemory(
        spec=spec,
        weights=tensors,
        vocabulary=Vocabulary(tuple(_json(path, folders.VOCABULARY))),
        construction=ImportedConstruction(source=marker["to"], readout="imported", dtype=dtype),
        start_id=how.get("start_id"),
        pad_id=how.get("pad_id"),
        order=None if order is None else tuple(order),
    )
    held = _facts(memory, facts, path)
    return memory if held is None else _measured(memory, held)


def _from_torch(
    config: Mapping[str, Any], state: Mapping[str, Tensor], file: Path
) -> tuple[AttentionOnlySpec, dict[str, Tensor]]:
    """Spec and weights of a standalone model: what `torch_config` and `torch_state` wrote."""
    try:
        spec = AttentionOnlySpec(**{field: config[name] for field, name in FIELDS.items()})
    except KeyError as error:
        raise ByheartError(
            f"config.json: the field {error} is missing; an export `to=torch` has "
            f"{', '.join(FIELDS.values())}."
        ) from None
    except (TypeError, ValueError) as error:
        raise ByheartError(f"config.json: {error}.") from None
    empty = {name: torch.empty(shape) for name, shape in spec.weight_shapes().items()}
    wanted = torch_state(spec, empty)
    for name, w in wanted.items():
        found = tuple(state[name].shape) if name in state else "nothing"
        if found != tuple(w.shape):
            raise ByheartError(f"{file}: {name}: expected shape {tuple(w.shape)}, found {found}.")
    unknown = sorted(state.keys() - wanted.keys())
    if unknown:
        raise ByheartError(f"{file}: weights that this model has not: {', '.join(unknown[:5])}.")
    weights = {name: state[name] for name in empty if name not in PER_LAYER}
    for name in PER_LAYER:
        weights[name] = torch.stack([state[f"layers.{i}.{name}"] for i in range(spec.layers)])
    return spec, weights


def from_lens(
    config: Mapping[str, Any], state: Mapping[str, Tensor]
) -> tuple[AttentionOnlySpec, dict[str, Tensor]]:
    """Spec and weights of a TransformerLens attention-only model (HookedTransformer names).

    Scores are divided by sqrt(d_head) there: `scale` says so here.
    """
    norm, bare = config.get("normalization_type"), config.get("attn_only")
    if norm is not None or not bare:
        raise ByheartError(
            "a memory has no LayerNorm and no feed-forward layer: expected normalization_type null "
            f"and attn_only true, found {norm!r} and {bare!r}."
        )
    positions = config.get("positional_embedding_type", "standard")
    if positions != "standard":
        raise ByheartError(f"expected positional_embedding_type standard, found {positions!r}.")
    foreign = [k for k in state if k.startswith(NORMS) or ".mlp." in k or ".ln" in k]
    if foreign:
        raise ByheartError(f"weights of layers that a memory has not: {', '.join(foreign[:5])}.")
    try:
        layers = range(int(config["n_layers"]))
        parts = {
            name: torch.stack([state[f"blocks.{i}.attn.{name}"] for i in layers])
            for name in PER_LAYER
        }
        E, pos, U = state["embed.W_E"], state["pos_embed.W_pos"], state["unembed.W_U"]
        (N, d), (_, H, _, r), d_h = E.shape, parts["W_Q"].shape, parts["W_V"].shape[-1]
        scale = bool(config.get("use_attn_scale", True))
        spec = AttentionOnlySpec(N, len(pos), d, d_h, H, len(layers), r, scale=scale)
    except KeyError as error:
        raise ByheartError(f"the weights have no {error} (HookedTransformer names).") from None
    except ValueError as error:
        raise ByheartError(f"the weights are not those of a HookedTransformer: {error}.") from None
    weights = {"W_E": E, "W_pos": pos, "W_U": U, **parts}
    biases = {"b_U": state.get("unembed.b_U", torch.zeros(spec.N))}
    read, none = (spec.H, spec.qk_rank), torch.zeros(1)
    shapes = {"b_Q": read, "b_K": read, "b_V": (spec.H, spec.d_h), "b_O": (spec.d,)}
    for name, shape in shapes.items():
        given = [state.get(f"blocks.{i}.attn.{name}", none).expand(shape) for i in layers]
        biases[name] = torch.stack(given)
    if not any(bool(b.any()) for b in biases.values()):
        return spec, {name: w.contiguous() for name, w in weights.items()}
    return fold_biases(spec, weights, biases)


def fold_biases(
    spec: AttentionOnlySpec, weights: Mapping[str, Tensor], biases: Mapping[str, Tensor]
) -> tuple[AttentionOnlySpec, dict[str, Tensor]]:
    """The same function without biases, on d + 1 coordinates and d_h + 1 value channels.

    b_Q, b_K (layers, H, r), b_V (layers, H, d_h), b_O (layers, d), b_U (N).
    """
    d, e, dtype = spec.d, spec.d_h, weights["W_U"].dtype
    wide = AttentionOnlySpec(**{**spec.to_json(), "d": d + 1, "d_h": e + 1})
    new = {name: torch.zeros(shape, dtype=dtype) for name, shape in wide.weight_shapes().items()}
    new["W_E"][:, :d] = weights["W_E"]
    new["W_pos"][:, :d] = weights["W_pos"]
    new["W_pos"][:, d] = 1.0  # the coordinate that is always 1
    for name in ("W_Q", "W_K"):
        new[name][:, :, :d] = weights[name]
        new[name][:, :, d] = biases[f"b_{name[-1]}"].to(dtype)
    new["W_V"][:, :, :d, :e] = weights["W_V"]
    new["W_V"][:, :, d, :e] = biases["b_V"].to(dtype)
    new["W_V"][:, 0, d, e] = 1.0  # attention sums to 1: this channel is 1
    new["W_O"][:, :, :e, :d] = weights["W_O"]
    new["W_O"][:, 0, e, :d] = biases["b_O"].to(dtype)
    new["W_U"][:d] = weights["W_U"]
    new["W_U"][d] = biases["b_U"].to(dtype)
    return wide, new


def _state(file: Path) -> dict[str, Tensor]:
    if file.suffix in (".pt", ".pth", ".bin", ".pkl", ".ckpt"):
        raise ByheartError(
            f"{file}: pickled weights can run code and are not read. Where you trust them: "
            "safetensors.torch.save_file(torch.load(FILE, weights_only=True), 'x.safetensors')."
        )
    try:
        state = load_file(file)
    except FileNotFoundError:
        raise ByheartError(f"{file}: there are no weights (expected a safetensors file).") from None
    except (SafetensorError, OSError) as error:
        raise ByheartError(f"{file}: not a complete safetensors file ({error}).") from None
    for name, w in state.items():
        if not torch.isfinite(w).all():
            raise ByheartError(f"{file}: {name} has numbers that are not finite.")
    return state


def _json(folder: Path, name: str) -> Any:
    try:
        return json.loads((folder / name).read_text(encoding="utf-8"))
    except OSError:
        raise ByheartError(
            f"{folder / name} cannot be read. Give a folder that was exported `to=torch` or "
            "`to=transformer-lens`."
        ) from None
    except ValueError as error:
        raise ByheartError(f"{folder / name} is not JSON: {error}.") from None


def _facts(memory: TokenMemory, facts: Facts | None, folder: Path) -> Facts | None:
    """What the memory should hold: `facts`, or those beside the export; in its vocabulary."""
    vocabulary, pad_id = memory.key_vocabulary, memory.pad_id
    if facts is not None:
        ids = np.array([vocabulary.ids(facts.key(i)) for i in range(facts.T)])
        answers = np.array(vocabulary.ids(facts.answer(i) for i in range(facts.T)))
        if ids.shape[1] != memory.key_length:
            raise ByheartError(
                f"the facts have keys of {ids.shape[1]} tokens, the model of {memory.key_length}."
            )
        made = Facts.make(ids, answers, vocabulary, facts.prior, name=facts.name, pad_id=pad_id)
        return replace(made, columns=facts.columns, answer_column=facts.answer_column)
    file = folder / folders.KEYS
    if not file.is_file():
        return None
    stored = _state(file)
    tokens = stored["tokens"].numpy()[:, memory.start_id is not None :]
    if memory.order is not None:
        tokens = tokens[:, np.argsort(memory.order)]
    return Facts.make(tokens, stored["answers"].numpy(), vocabulary, pad_id=pad_id)


def _measured(memory: TokenMemory, facts: Facts) -> TokenMemory:
    """The memory with its facts; what it does not recall of them is listed, and not refused: it
    may have been trained since."""
    margins = memory.margins(facts)
    lost = np.flatnonzero(~(margins > 0)).tolist()
    construction = replace(
        memory.construction,
        facts=facts.T,
        recalled=facts.T - len(lost),
        lost=tuple(LostFact(int(facts.rows[i]), facts.answer(i), facts.key(i)) for i in lost),
        margin=finite(float(margins.min())),
    )
    return replace(memory, facts=facts, construction=construction)
