"""The way back: a trained attention-only model in torch or TransformerLens layout as a memory.

Biases, which a memory has not, are folded exactly into one coordinate that is always 1 (d + 1) and
one value channel (d_h + 1): b_Q, b_K, b_V are rows of that coordinate, b_O is written by the first
head (its attention sums to 1), b_U is a row of W_U. LayerNorm and feed-forward layers are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from byheart._files import open_regular, read_json
from byheart._folders import read_whole
from byheart._json import Json
from byheart.errors import ByheartError
from byheart.exports import folders, transformer_lens
from byheart.facts import Facts, Vocabulary
from byheart.models.construction import ImportedConstruction, LostFact, finite
from byheart.models.modules import PER_LAYER
from byheart.models.token_memory import TokenMemory
from byheart.specs import DTYPES, AttentionOnlySpec

NORMS = ("ln1.", "ln2.", "ln_final.")
# The fields of a spec by their names in a standalone model's config.
FIELDS = {"N": "d_vocab", "S": "n_ctx", "d": "d_model", "d_h": "d_head", "H": "n_heads"}
FIELDS |= {"layers": "n_layers", "qk_rank": "d_query"}
FIELDS |= {name: name for name in ("positions", "scale", "skip", "attention")}
# The same in TransformerLens, and where its other weights are.
LENS_FIELDS = {"N": "d_vocab", "S": "n_ctx", "d": "d_model", "d_h": "d_head", "H": "n_heads"}
LENS_FIELDS |= {"layers": "n_layers", "scale": "use_attn_scale"}
LENS_PLACES = {"W_E": "embed", "W_pos": "pos_embed", "W_U": "unembed"}
Shapes = dict[str, tuple[int, ...]]


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
    marker, config = _object(path / folders.MARKER), _object(path / "config.json")
    to = marker.get("to")
    if to not in ("torch", "transformer-lens") or "n_heads" not in config:
        raise ByheartError(
            f"{path}: expected a folder that was exported to torch or transformer-lens, "
            f"found {to!r}."
        )
    if marker.get("family") != "attention-only":
        raise ByheartError(f"{path}: only attention-only models are imported, not vectors.")
    lens = to == "transformer-lens"
    file = Path(weights or path / (transformer_lens.STATE if lens else "weights.safetensors"))
    state = _state(file)
    with _in_file(path / "config.json", file):
        spec, tensors = from_lens(config, state) if lens else _from_torch(config, state)
    with _in_file(path):
        memory = TokenMemory(
            spec=spec,
            weights=tensors,
            construction=ImportedConstruction(
                source=str(to), readout="imported", dtype=str(tensors["W_U"].dtype)[6:]
            ),
            vocabulary=_vocabulary(path / folders.VOCABULARY, spec.N),
            **_reading(marker if lens else config, spec),
        )
    held = _facts(memory, facts, path)
    return memory if held is None else _measured(memory, held)


@contextmanager
def _in_file(*files: Path) -> Iterator[None]:
    """Errors of the block with the files they are about in front."""
    try:
        yield
    except ByheartError as error:
        raise ByheartError(f"{' and '.join(map(str, files))}: {error}") from None


def _object(file: Path) -> dict[str, Json]:
    if not file.exists():
        raise ByheartError(
            f"{file} cannot be read. Give a folder that was exported `to=torch` or "
            "`to=transformer-lens`."
        )
    record = read_json(file)
    if not isinstance(record, dict):
        raise ByheartError(f"{file}: expected a JSON object, found {type(record).__name__}.")
    return record


def _vocabulary(file: Path, N: int) -> Vocabulary:
    tokens = read_json(file)
    if not isinstance(tokens, list) or len(tokens) != N:
        found = f"a list of {len(tokens):,}" if isinstance(tokens, list) else type(tokens).__name__
        raise ByheartError(f"{file.name}: expected a list of {N:,} tokens, found {found}.")
    return Vocabulary(tuple(tokens))  # type: ignore[arg-type] it refuses what is no text


def _reading(record: Mapping[str, Json], spec: AttentionOnlySpec) -> dict[str, Any]:
    """Start token, padding and order of a key, each of them None where there is none."""
    for name in ("start_id", "pad_id"):
        token = record.get(name)
        if token is not None and not (type(token) is int and 0 <= token < spec.N):
            raise ByheartError(f"{name}: expected null or a token id, found {token!r}.")
    start_id, order = record.get("start_id"), record.get("order")
    length = spec.S - (start_id is not None)
    if order is not None:
        whole = isinstance(order, list) and all(type(i) is int for i in order)
        if not whole or sorted(order) != list(range(length)):  # type: ignore[type-var]
            raise ByheartError(f"order: expected null or 0 to {length - 1} once, found {order!r}.")
        order = tuple(order)  # type: ignore[arg-type]
    if length < 1:
        raise ByheartError("start_id: a model of one position has no room for a start token.")
    return {"start_id": start_id, "pad_id": record.get("pad_id"), "order": order}


def _spec(
    config: Mapping[str, Json], fields: Mapping[str, str], state: Mapping[str, Tensor]
) -> AttentionOnlySpec:
    """The spec with `fields` by their names in a config; no more layers than there are weights."""
    try:
        spec = AttentionOnlySpec(**{name: config[key] for name, key in fields.items()})  # type: ignore[arg-type]
    except KeyError as error:
        raise ByheartError(
            f"the field {error} is missing; this export has {', '.join(fields.values())}."
        ) from None
    except (TypeError, ValueError) as error:
        raise ByheartError(f"{error}.") from None
    if spec.layers > len(state):
        raise ByheartError(f"{spec.layers:,} layers, but only {len(state)} weights.")
    return spec


def _taken(state: Mapping[str, Tensor], wanted: Shapes) -> dict[str, Tensor]:
    """The wanted weights: each there, of its shape, finite, all in one number format."""
    for name, shape in wanted.items():
        found = tuple(state[name].shape) if name in state else "nothing"
        if found != shape:
            raise ByheartError(f"{name}: expected shape {shape}, found {found}.")
    formats = sorted({str(state[name].dtype)[6:] for name in wanted})
    if len(formats) != 1 or formats[0] not in DTYPES:
        raise ByheartError(
            f"expected all weights in one of {', '.join(DTYPES)}, found {' and '.join(formats)}. "
            "Convert them to one format."
        )
    for name in wanted:
        if not torch.isfinite(state[name]).all():
            raise ByheartError(f"{name} has numbers that are not finite.")
    return {name: state[name] for name in wanted}


def _from_torch(
    config: Mapping[str, Json], state: Mapping[str, Tensor]
) -> tuple[AttentionOnlySpec, dict[str, Tensor]]:
    """Spec and weights of a standalone model: what `torch_config` and `torch_state` wrote."""
    spec = _spec(config, FIELDS, state)
    own = spec.weight_shapes()
    wanted: Shapes = {"W_pos": (spec.S, spec.d)}
    wanted |= {name: shape for name, shape in own.items() if name not in PER_LAYER}
    for i in range(spec.layers):
        wanted |= {f"layers.{i}.{name}": own[name][1:] for name in PER_LAYER}
    unknown = sorted(state.keys() - wanted.keys())
    if unknown:
        raise ByheartError(f"weights that this model has not: {', '.join(unknown[:5])}.")
    taken = _taken(state, wanted)
    weights = {name: taken[name] for name in own if name not in PER_LAYER}
    for name in PER_LAYER:
        weights[name] = torch.stack([taken[f"layers.{i}.{name}"] for i in range(spec.layers)])
    return spec, weights


def from_lens(
    config: Mapping[str, Json], state: Mapping[str, Tensor]
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
    spec = _spec({"use_attn_scale": True, **config}, LENS_FIELDS, state)
    layers, own = range(spec.layers), spec.weight_shapes()
    heads = {name: own[name][1:] for name in PER_LAYER}
    wanted: Shapes = {f"{place}.{name}": own[name] for name, place in LENS_PLACES.items()}
    wanted |= {f"blocks.{i}.attn.{name}": heads[name] for i in layers for name in PER_LAYER}
    read, write = (spec.H, spec.qk_rank), {"b_V": (spec.H, spec.d_h), "b_O": (spec.d,)}
    in_head: Shapes = {"b_Q": read, "b_K": read, **write}
    shapes: Shapes = {"unembed.b_U": (spec.N,)}
    shapes |= {f"blocks.{i}.attn.{name}": shape for i in layers for name, shape in in_head.items()}
    taken = _taken(state, wanted | {name: s for name, s in shapes.items() if name in state})
    weights = {name: taken[f"{place}.{name}"] for name, place in LENS_PLACES.items()}
    for name in PER_LAYER:
        weights[name] = torch.stack([taken[f"blocks.{i}.attn.{name}"] for i in layers])
    if not any(bool(taken[name].any()) for name in shapes.keys() & taken.keys()):
        return spec, {name: w.contiguous() for name, w in weights.items()}
    given = {name: taken.get(name, torch.zeros(shape)) for name, shape in shapes.items()}
    biases = {"b_U": given["unembed.b_U"]}
    for name in in_head:
        biases[name] = torch.stack([given[f"blocks.{i}.attn.{name}"] for i in layers])
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
    if not file.exists():
        raise ByheartError(f"{file}: there are no weights (expected a safetensors file).")
    try:
        with open_regular(file):
            return load_file(file)
    except SafetensorError as error:
        raise ByheartError(f"{file}: not a complete safetensors file ({error}).") from None


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
    stored, start = _state(file), memory.start_id
    shapes = {name: tuple(w.shape) for name, w in stored.items()}
    T, S = (*shapes.get("tokens", ()), 0, 0)[:2]
    if shapes != {"tokens": (T, S), "answers": (T,)} or S != memory.spec.S or not T:
        needed = f"tokens (facts, {memory.spec.S}) and answers (facts)"
        raise ByheartError(f"{file}: expected {needed}, found {shapes}.")
    for name, ids in stored.items():
        if ids.dtype != torch.int64 or not ((ids >= 0) & (ids < memory.spec.N)).all():
            raise ByheartError(f"{file}: {name}: expected ids from 0 to {memory.spec.N - 1:,}.")
    tokens = stored["tokens"].numpy()
    if start is not None and (tokens[:, 0] != start).any():
        raise ByheartError(f"{file}: expected the start token {start} in front of every key.")
    tokens = tokens[:, start is not None :]
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
