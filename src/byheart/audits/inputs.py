"""What a model is shown: contexts of n tokens cut from a text, token ids from a file, or images."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from byheart.audits.models import FoundModel
from byheart.errors import ByheartError

LENGTH = 64  # tokens a context, where nothing is said
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")


@dataclass(frozen=True)
class Contexts:
    """T different contexts of n tokens each: `values` are token ids (T, n), or pixels (T, C, h, w).

    `repeated`: contexts that were left out because they came before, word for word (two equal
    contexts have equal queries, which says nothing about the model).
    """

    kind: str
    source: str
    values: np.ndarray
    n: int
    repeated: int = 0

    @property
    def T(self) -> int:
        return len(self.values)

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "source": self.source,
            "contexts": self.T,
            "n": self.n,
            "repeated": self.repeated,
        }


def text_contexts(
    files: Sequence[str | os.PathLike[str]],
    tokenizer: Any,
    found: FoundModel,
    *,
    n: int | None,
    T: int,
) -> Contexts:
    """At most T contexts of n tokens, one after another; empty lines are left out.

    BERT-like models read [CLS], n - 2 tokens of the text, [SEP]; GPT-like ones n tokens.
    """
    n = _length(n, found)
    first, last = (
        (tokenizer.cls_token_id, tokenizer.sep_token_id) if not found.causal else (None, None)
    )
    marks = (first is not None) + (last is not None)
    body = n - marks
    if body < 1:
        raise ByheartError(f"--length {n}: [CLS] and [SEP] leave no room for text. Give 3 or more.")
    stream: list[int] = []
    rows: dict[tuple[int, ...], None] = {}  # in order, each once
    repeated = 0
    for line in _lines(files):
        stream += tokenizer(line, add_special_tokens=False, verbose=False)["input_ids"]
        while len(stream) >= body and len(rows) < T:
            cut, stream = tuple(stream[:body]), stream[body:]
            repeated += cut in rows
            rows[cut] = None
        if len(rows) >= T:
            break
    names = ", ".join(Path(file).name for file in files[:3]) + (", ..." if len(files) > 3 else "")
    if not rows:
        raise ByheartError(
            f"{names}: the text has {len(stream)} tokens, a context of --length {n} needs {body}. "
            "Give more text or a shorter --length."
        )
    values = np.array(list(rows))
    columns = [np.full((len(values), 1), mark) for mark in (first, last) if mark is not None]
    if first is not None:
        values = np.hstack([columns[0], values])
    if last is not None:
        values = np.hstack([values, columns[-1]])
    _check_ids(values, found, names)
    return Contexts("text", names, values, n, repeated)


def token_contexts(
    file: str | os.PathLike[str], found: FoundModel, *, n: int | None, T: int
) -> Contexts:
    """Token ids (T, n) from .npy, .npz or .safetensors (array `tokens`), or lists in .jsonl."""
    name = os.fspath(file)
    values = _jsonl(name) if name.endswith(".jsonl") else _array(name, "tokens")
    if values.ndim != 2 or values.dtype.kind not in "iu":
        raise ByheartError(
            f"{name}: expected token ids (contexts, tokens), found {values.dtype} of shape "
            f"{values.shape}."
        )
    wanted = _length(n, found) if n is not None else min(values.shape[1], found.spec.S)
    if values.shape[1] < wanted:
        raise ByheartError(
            f"{name}: contexts have {values.shape[1]} tokens, --length asks for {wanted}."
        )
    return _distinct(Contexts("tokens", Path(name).name, values[:, :wanted], wanted), found, T)


def image_contexts(source: str | os.PathLike[str], found: FoundModel, *, T: int) -> Contexts:
    """Images for a ViT: .npy, .npz or .safetensors (array `images`: (T, h, w) or (T, C, h, w)), a
    folder of picture files, or "digits" (scikit-learn).

    Whole numbers 0..255 are scaled as preprocessor_config.json says (else to [-1, 1]); other
    numbers are taken as they are. Nothing is resized: another size is refused.
    """
    name = os.fspath(source)
    if name == "digits" and not Path(name).exists():
        values = digits()[0]
    elif Path(name).is_dir():
        values = _pictures(Path(name), found, T)
    else:
        values = _array(name, "images")
    if values.ndim == 3:
        values = values[:, None]
    side = int(found.config["image_size"])
    channels = int(found.config.get("num_channels", 3))
    if values.ndim != 4 or values.shape[1:] != (channels, side, side):
        raise ByheartError(
            f"{name}: expected images of {channels} channels and {side} x {side} pixels, found "
            f"shape {tuple(values.shape[1:])}. Resize them first."
        )
    if values.dtype.kind in "iu":
        values = _scaled(values, found)
    return _distinct(Contexts("images", Path(name).name, values, found.spec.S), found, T)


def digits() -> tuple[np.ndarray, np.ndarray]:
    """The 1,797 handwritten digits of scikit-learn, 8 x 8, in [-1, 1], and their classes."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        raise ByheartError("digits need scikit-learn: pip install 'byheart[digits]'") from None
    data: Any = load_digits()
    return data.images / 8.0 - 1.0, data.target


def _length(n: int | None, found: FoundModel) -> int:
    n = min(LENGTH, found.spec.S, found.spec.d) if n is None else n
    if not 2 <= n <= found.spec.S:
        raise ByheartError(
            f"--length {n}: this model reads contexts of 2 to {found.spec.S:,} tokens."
        )
    return n


def _lines(files: Sequence[str | os.PathLike[str]]) -> Any:
    if not files:
        raise ByheartError("no text: give --text FILE.")
    written = 0
    for file in files:
        try:
            with open(file, encoding="utf-8", errors="replace") as text:
                for line in text:
                    if line.strip():
                        written += 1
                        yield line.strip()
        except OSError as error:
            raise ByheartError(f"{file} cannot be read: {error.strerror}.") from None
    if not written:
        raise ByheartError(f"{', '.join(map(str, files[:3]))}: only empty lines.")


def _distinct(contexts: Contexts, found: FoundModel, T: int) -> Contexts:
    """The first T different ones."""
    values = contexts.values
    if not len(values):
        raise ByheartError(f"{contexts.source}: there are no contexts in it.")
    if contexts.kind == "tokens":
        _check_ids(values, found, contexts.source)
    elif not np.isfinite(values).all():
        raise ByheartError(f"{contexts.source}: some pixels are not finite numbers.")
    flat = np.ascontiguousarray(values).reshape(len(values), -1)
    keep = np.sort(np.unique(flat, axis=0, return_index=True)[1])
    return Contexts(
        contexts.kind, contexts.source, values[keep[:T]], contexts.n, len(values) - len(keep)
    )


def _check_ids(values: np.ndarray, found: FoundModel, name: str) -> None:
    N = found.spec.N
    if N is None:
        raise ByheartError(f"{name}: a {found.kind} model reads images: give --images.")
    bad = np.argwhere((values < 0) | (values >= N))
    if len(bad):
        i, j = bad[0]
        raise ByheartError(
            f"{name}: context {i}, token {j} is {values[i, j]}, the vocabulary has 0 to {N - 1:,}."
        )


def _array(name: str, wanted: str) -> np.ndarray:
    try:
        if name.endswith(".npy"):
            return np.load(name, allow_pickle=False)
        if name.endswith(".npz"):
            arrays = dict(np.load(name, allow_pickle=False))
        elif name.endswith(".safetensors"):
            from safetensors.numpy import load_file

            arrays = load_file(name)
        else:
            raise ByheartError(
                f"{name}: expected .npy, .npz or .safetensors (token ids also .jsonl)."
            )
    except FileNotFoundError:
        raise ByheartError(f"{name}: there is no such file.") from None
    except (OSError, ValueError) as error:
        raise ByheartError(f"{name} cannot be read: {error}. Pickled arrays are refused.") from None
    if wanted in arrays:
        return arrays[wanted]
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    raise ByheartError(f"{name}: expected an array {wanted!r}, found {', '.join(sorted(arrays))}.")


def _jsonl(name: str) -> np.ndarray:
    try:
        lines = Path(name).read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines if line.strip()]
    except OSError as error:
        raise ByheartError(f"{name} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise ByheartError(f"{name}: expected a list of token ids a line: {error}.") from None
    lengths = {len(row) if isinstance(row, list) else -1 for row in rows}
    if len(lengths) != 1 or -1 in lengths:
        raise ByheartError(
            f"{name}: expected lists of one length, found lengths {sorted(lengths)}."
        )
    return np.array(rows)


def _pictures(folder: Path, found: FoundModel, T: int) -> np.ndarray:
    from PIL import Image

    files = sorted(p for p in folder.iterdir() if p.suffix.lower() in IMAGES)[:T]
    if not files:
        raise ByheartError(f"{folder}: no pictures ({', '.join(IMAGES)}) in it.")
    channels = int(found.config.get("num_channels", 3))
    side = int(found.config["image_size"])
    pictures = []
    for file in files:
        with Image.open(file) as picture:
            pixels = np.asarray(picture.convert("L" if channels == 1 else "RGB"))
        if pixels.shape[:2] != (side, side):
            raise ByheartError(
                f"{file}: {pixels.shape[1]} x {pixels.shape[0]} pixels, the model reads {side} x "
                f"{side}. Resize it first."
            )
        pictures.append(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))
    return np.stack(pictures)


def _scaled(values: np.ndarray, found: FoundModel) -> np.ndarray:
    settings: dict[str, Any] = {}
    file = found.place / "preprocessor_config.json"
    if file.is_file():
        settings = json.loads(file.read_text(encoding="utf-8"))
    factor = float(settings.get("rescale_factor", 1 / 255))
    mean = np.array(settings.get("image_mean", 0.5), dtype=float).reshape(-1, 1, 1)
    std = np.array(settings.get("image_std", 0.5), dtype=float).reshape(-1, 1, 1)
    return (values * factor - mean) / std
