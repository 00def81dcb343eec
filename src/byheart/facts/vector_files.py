"""Vector facts from and to files: `.safetensors`, `.npz` (never unpickled), recipes."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np

from byheart.errors import FactsError
from byheart.facts.vector_tasks import DIGITS, RECIPE, vectors_from_recipe
from byheart.facts.vectors import VectorFacts

__all__ = ["SUFFIXES", "is_vectors", "read_arrays", "read_vectors", "write_vectors"]

SUFFIXES = (".safetensors", ".npz")
RECIPES = ("vectors", "digits")


def is_vectors(source: str | os.PathLike[str]) -> bool:
    """Whether a source names vector facts: by its suffix, or a recipe.

    >>> is_vectors("a.npz"), is_vectors("digits"), is_vectors("capitals.csv")
    (True, True, False)
    """
    text = os.fspath(source)
    recipe = text.partition(":")[0] in RECIPES and not Path(text).exists()
    return recipe or Path(text).suffix.lower() in SUFFIXES


def read_vectors(source: str | os.PathLike[str], *, name: str | None = None) -> VectorFacts:
    """Vector facts from a file with the arrays `query (T, d)`, `context (T, n, d)` or `(n, d)` if
    shared, `label (T,)` or `(T, m)` (whole numbers are classes; `classes`, one number, optional);
    or from a recipe such as `vectors:T=621,n=32,d=64,context=fixed,classes=100,seed=42`, `digits`.
    """
    where = os.fspath(source)
    if where.partition(":")[0] in RECIPES and not Path(where).exists():
        return vectors_from_recipe(where)
    arrays = read_arrays(where)
    missing = [key for key in ("query", "context", "label") if key not in arrays]
    if missing:
        raise FactsError(
            f"{where}: expected the arrays query, context and label, found no "
            f"{' and no '.join(missing)}; there are {', '.join(sorted(arrays)) or 'none'}."
        )
    classes = arrays.get("classes")
    if classes is not None and (classes.size != 1 or classes.dtype.kind not in "iu"):
        raise FactsError(f"{where}: expected `classes` to be one whole number.")
    return VectorFacts.make(
        arrays["context"],
        arrays["query"],
        arrays["label"],
        classes=None if classes is None else int(classes.reshape(())),
        name=name or Path(where).stem.encode("utf-8", "backslashreplace").decode(),
    )


def read_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The arrays of a `.safetensors`, `.npz` or `.npy` file (there under the name `query`).

    Object arrays, which would have to be unpickled, are refused.
    """
    place = Path(path)
    accepted = "a .safetensors or .npz file"
    if place.suffix.lower() not in (*SUFFIXES, ".npy"):
        raise FactsError(
            f"{path}: expected {accepted} of vectors, or a recipe such as {RECIPE} or {DIGITS}."
        )
    try:
        data = place.read_bytes()
    except OSError as error:
        raise FactsError(f"{path}: cannot be read: {error.strerror}. Check the path.") from None
    if place.suffix.lower() == ".safetensors":
        return _safetensors(data, place)
    try:
        with np.errstate(all="ignore"):
            loaded = np.load(io.BytesIO(data), allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"query": loaded}
        with loaded:
            return {key: loaded[key] for key in loaded.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        text = str(error)
        if "pickle" in text.lower():
            text = "it holds Python objects (pickles), which could run code"
        raise FactsError(
            f"{path}: refused: {text}. Save plain numeric arrays with numpy.savez."
        ) from None


def _safetensors(data: bytes, place: Path) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return load(data)
    except SafetensorError as error:
        raise FactsError(f"{place}: not a complete safetensors file ({error}).") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise FactsError(
            f"{place}: a number format that numpy does not have ({error}): convert it to float32."
        ) from None


def write_vectors(facts: VectorFacts, path: str | os.PathLike[str]) -> None:
    """Write the examples whole, by the suffix of `path`."""
    from safetensors.numpy import save

    place = Path(path)
    if place.suffix.lower() not in SUFFIXES:
        raise FactsError(f"{path}: expected a name that ends in {' or '.join(SUFFIXES)}.")
    arrays = {"query": facts.query, "context": facts.context, "label": facts.label}
    if facts.classes is not None:
        arrays["classes"] = np.array([facts.classes])
    if place.suffix.lower() == ".safetensors":
        data = save({key: np.ascontiguousarray(a) for key, a in arrays.items()})
    else:
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        data = buffer.getvalue()
    temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    try:
        try:
            temporary.write_bytes(data)
            os.replace(temporary, place)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise FactsError(f"{path}: cannot be written: {error.strerror}.") from error
