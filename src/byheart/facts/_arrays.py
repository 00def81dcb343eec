"""Named arrays from and to `.safetensors` and `.npz` files, which are never unpickled."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from byheart._folders import write_bytes
from byheart.errors import FactsError

__all__ = ["SUFFIXES", "read_arrays", "write_arrays"]

SUFFIXES = (".safetensors", ".npz")


def read_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The arrays of a `.safetensors`, `.npz` or `.npy` file (there under the name `query`).

    Object arrays, which would have to be unpickled, are refused.
    """
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix not in (*SUFFIXES, ".npy"):
        raise FactsError(
            f"{path}: expected a .safetensors or .npz file of vectors, found "
            f"{f'the suffix {suffix!r}' if suffix else 'no suffix'}. Convert the file."
        )
    try:
        data = file.read_bytes()
    except OSError as error:
        raise FactsError(f"{path}: cannot be read: {error.strerror}. Check the path.") from None
    return _safetensors(data, path) if suffix == ".safetensors" else _numpy(data, path)


def _numpy(data: bytes, path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
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


def _safetensors(data: bytes, path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return load(data)
    except SafetensorError as error:
        raise FactsError(f"{path}: not a complete safetensors file ({error}).") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise FactsError(
            f"{path}: a number format that numpy does not have ({error}): convert it to float32."
        ) from None


def write_arrays(arrays: Mapping[str, np.ndarray], path: str | os.PathLike[str]) -> None:
    """Write the arrays whole, by the suffix of `path`."""
    from safetensors.numpy import save

    file = Path(path)
    if file.suffix.lower() not in SUFFIXES:
        raise FactsError(f"{path}: expected a name that ends in {' or '.join(SUFFIXES)}.")
    if file.suffix.lower() == ".safetensors":
        data = save({key: np.ascontiguousarray(array) for key, array in arrays.items()})
    else:
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        data = buffer.getvalue()
    try:
        write_bytes(file, data)
    except OSError as error:
        raise FactsError(f"{path}: cannot be written: {error.strerror}.") from error
