"""What a model is shown: contexts of n tokens cut from a text, token ids from a file, or images."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from byheart._files import open_regular, parse_json, read_json, read_regular
from byheart.audits.models import FoundModel, readable, tokenizer_of
from byheart.errors import ByheartError, OptionError
from byheart.facts import read_arrays
from byheart.facts.tasks import handwritten_digits

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PathLike = str | os.PathLike[str]
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

    def to_json(self) -> dict[str, str | int]:
        named = {"kind": self.kind, "source": self.source}
        return {**named, "contexts": self.T, "n": self.n, "repeated": self.repeated}


def text_contexts(
    files: Sequence[str | os.PathLike[str]],
    tokenizer: PreTrainedTokenizerBase,
    found: FoundModel,
    *,
    n: int | None,
    T: int,
) -> Contexts:
    """At most T contexts of n tokens, one after another; empty lines are left out.

    BERT-like models read [CLS], n - 2 tokens of the text, [SEP]; GPT-like ones n tokens.
    """
    n = _length(n, found)
    marks = (None, None) if found.causal else (tokenizer.cls_token_id, tokenizer.sep_token_id)
    first, last = ([] if mark is None else [mark] for mark in marks)
    body = n - len(first) - len(last)
    if body < 1:
        raise OptionError("length", "at least 3", n, "[CLS] and [SEP] leave no room for text.")
    stream: list[int] = []
    times: Counter[tuple[int, ...]] = Counter()  # in the order of the text
    for line in _lines(files):
        with readable(f"{found.path}: the tokenizer"):
            stream += tokenizer(line, add_special_tokens=False, verbose=False)["input_ids"]
        while len(stream) >= body and len(times) < T:
            times[tuple(stream[:body])] += 1
            del stream[:body]
        if len(times) >= T:
            break
    names = ", ".join([Path(file).name for file in files[:3]] + ["..."] * (len(files) > 3))
    if not times:
        raise ByheartError(
            f"{names}: the text has {len(stream)} tokens, a context of `length={n}` needs {body}. "
            "Give more text or a shorter `length`."
        )
    values = np.array([[*first, *row, *last] for row in times])
    _check_ids(values, found, names)
    return Contexts("text", names, values, n, repeated=times.total() - len(times))


def token_contexts(
    file: str | os.PathLike[str], found: FoundModel, *, n: int | None, T: int
) -> Contexts:
    """Token ids (T, n) from .npy, .npz or .safetensors (array `tokens`), or lists in .jsonl."""
    name = os.fspath(file)
    values = _jsonl(name) if name.endswith(".jsonl") else _array(name, "tokens")
    if values.ndim != 2 or values.dtype.kind not in "iu":
        found_it = f"{values.dtype} of shape {values.shape}"
        raise ByheartError(f"{name}: expected token ids (contexts, tokens), found {found_it}.")
    wanted = _length(min(values.shape[1], found.spec.S) if n is None else n, found)
    if values.shape[1] < wanted:
        there = values.shape[1]
        raise ByheartError(f"{name}: contexts have {there} tokens, `length` asks for {wanted}.")
    _check_ids(values[:, :wanted], found, Path(name).name)
    return _distinct("tokens", name, values[:, :wanted], wanted, T)


def image_contexts(source: str | os.PathLike[str], found: FoundModel, *, T: int) -> Contexts:
    """Images for a ViT: .npy, .npz or .safetensors (array `images`: (T, h, w) or (T, C, h, w)), a
    folder of picture files, or "digits" (scikit-learn).

    Whole numbers 0..255 are scaled as preprocessor_config.json says (else to [-1, 1]); other
    numbers are taken as they are. Nothing is resized: another size is refused.
    """
    name = os.fspath(source)
    with readable(f"{found.path}: the size of images in config.json"):
        side = int(found.config["image_size"])
        channels = int(found.config.get("num_channels", 3))
    if name == "digits" and not Path(name).exists():
        values = digits()[0]
    elif Path(name).is_dir():
        values = _pictures(Path(name), side, channels, T)
    else:
        values = _array(name, "images")
    if values.ndim == 3:
        values = values[:, None]
    if values.ndim != 4 or values.shape[1:] != (channels, side, side):
        raise ByheartError(
            f"{name}: expected images of {channels} channels and {side} x {side} pixels, found "
            f"shape {tuple(values.shape[1:])}. Resize them first."
        )
    if values.dtype.kind in "iu":
        values = _scaled(values, found)
    if values.dtype.kind not in "fb" or not np.isfinite(values).all():
        raise ByheartError(f"{Path(name).name}: some pixels are not finite numbers.")
    return _distinct("images", name, values, found.spec.S, T)


def contexts_of(
    found: FoundModel,
    sources: dict[str, PathLike | Sequence[PathLike] | None],
    *,
    n: int | None,
    T: int,
) -> Contexts:
    """At most T contexts of n tokens from the one of the sources that is given."""
    given = [name for name, source in sources.items() if source]
    if len(given) != 1:
        raise ByheartError(
            f"give one of `text`, `tokens` and `images`, found {' and '.join(given) or 'none'}."
        )
    if found.images != (given[0] == "images"):
        needs = "`images`" if found.images else "`text` or `tokens`"
        raise ByheartError(f"{found.name} is a {found.kind} model and reads {needs}.")
    source = sources[given[0]]
    files = [source] if isinstance(source, (str, os.PathLike)) else list(source or ())
    if given[0] == "images":
        return image_contexts(files[0], found, T=T)
    if given[0] == "tokens":
        return token_contexts(files[0], found, n=n, T=T)
    return text_contexts(files, tokenizer_of(found), found, n=n, T=T)


def digits() -> tuple[np.ndarray, np.ndarray]:
    """The 1,797 handwritten digits of scikit-learn, 8 x 8, in [-1, 1], and their classes."""
    images, classes = handwritten_digits()
    return images.reshape(-1, 8, 8) / 8.0 - 1.0, classes


def _length(n: int | None, found: FoundModel) -> int:
    most = found.spec.S
    n = min(LENGTH, most, found.spec.d) if n is None else n
    if not 2 <= n <= most:
        raise ByheartError(f"`length={n}`: this model reads contexts of 2 to {most:,} tokens.")
    return n


def _lines(files: Sequence[str | os.PathLike[str]]) -> Iterator[str]:
    empty = True
    for file in files:
        with open_regular(os.fspath(file)), open(file, encoding="utf-8", errors="replace") as text:
            for line in filter(None, map(str.strip, text)):
                empty = False
                yield line
    if empty:
        raise ByheartError(f"{', '.join(map(str, files[:3]))}: only empty lines.")


def _distinct(kind: str, source: str, values: np.ndarray, n: int, T: int) -> Contexts:
    """The first T different ones."""
    name = Path(source).name
    if not len(values):
        raise ByheartError(f"{name}: there are no contexts in it.")
    flat = np.ascontiguousarray(values).reshape(len(values), -1)
    keep = np.sort(np.unique(flat, axis=0, return_index=True)[1])
    return Contexts(kind, name, values[keep[:T]], n, len(values) - len(keep))


def _check_ids(values: np.ndarray, found: FoundModel, name: str) -> None:
    N = found.spec.N
    if N is None:
        raise ByheartError(f"{name}: a {found.kind} model reads images: give `images`.")
    bad = np.argwhere((values < 0) | (values >= N))
    if len(bad):
        i, j = bad[0]
        raise ByheartError(
            f"{name}: context {i}, token {j} is {values[i, j]}, the vocabulary has 0 to {N - 1:,}."
        )


def _array(name: str, wanted: str) -> np.ndarray:
    """The array of that name, or the only one."""
    if not name.endswith((".npy", ".npz", ".safetensors")):
        raise ByheartError(f"{name}: expected .npy, .npz or .safetensors (token ids also .jsonl).")
    with open_regular(name), readable(name):
        arrays = read_arrays(name)
    if wanted not in arrays and len(arrays) != 1:
        there = ", ".join(sorted(arrays)) or "none"
        raise ByheartError(f"{name}: expected an array {wanted!r}, found {there}.")
    return arrays.get(wanted, next(iter(arrays.values())))


def _jsonl(name: str) -> np.ndarray:
    with readable(name, "Give one list of token ids a line."):
        lines = read_regular(name).decode("utf-8").splitlines()
        rows = [parse_json(line, name) for line in lines if line.strip()]
        lengths = sorted({len(row) if isinstance(row, list) else -1 for row in rows})
        if len(lengths) != 1 or -1 in lengths:
            raise ByheartError(f"{name}: expected lists of one length, found lengths {lengths}.")
        return np.array(rows)


def _pictures(folder: Path, side: int, channels: int, T: int) -> np.ndarray:
    from PIL import Image

    files = sorted(p for p in folder.iterdir() if p.suffix.lower() in IMAGES)[:T]
    if not files:
        raise ByheartError(f"{folder}: no pictures ({', '.join(IMAGES)}) in it.")
    pictures = []
    for file in files:
        with open_regular(file), readable(str(file)), Image.open(file) as picture:
            pixels = np.asarray(picture.convert("L" if channels == 1 else "RGB"))
        if pixels.shape[:2] != (side, side):
            size = f"{pixels.shape[1]} x {pixels.shape[0]} pixels"
            raise ByheartError(f"{file}: {size}, the model reads {side} x {side}. Resize it first.")
        pictures.append(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))
    return np.stack(pictures)


def _scaled(values: np.ndarray, found: FoundModel) -> np.ndarray:
    file = found.path / "preprocessor_config.json"
    with readable(str(file)), np.errstate(all="ignore"):  # what is not finite is refused later
        settings = read_json(file) if file.exists() else {}
        if not isinstance(settings, dict):
            raise ByheartError(f"{file}: expected a JSON object, found {settings!r}.")
        factor = np.float64(settings.get("rescale_factor", 1 / 255))  # type: ignore[arg-type]
        mean, std = (
            np.array(settings.get(name, 0.5), dtype=float).reshape(-1, 1, 1)
            for name in ("image_mean", "image_std")
        )
        return ((values * factor - mean) / std).reshape(values.shape)
