"""Checks of arrays before they become facts, with the row and the number in every message."""

from __future__ import annotations

import hashlib
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike

from byheart._machine import check_room
from byheart._words import written
from byheart.errors import FactsError

# How far a row of probabilities may be from 1 without being scaled on request: decimals in a file.
SUM_TOLERANCE = 1e-5


def freeze(table: object, **dtypes: type | None) -> None:
    """Replace array fields of a frozen dataclass by read-only copies of the given types, and text,
    which may be the name of a file, by what can be written."""
    for field, text in vars(table).items():
        if isinstance(text, str):
            object.__setattr__(table, field, written(text))
    for field, dtype in dtypes.items():
        array = np.array(getattr(table, field), dtype=dtype, order="C")
        array.flags.writeable = False
        object.__setattr__(table, field, array)


def digest(header: str, *arrays: np.ndarray) -> str:
    """sha256 (hexadecimal) of a line and of the bytes of arrays, int64 or float64."""
    digest = hashlib.sha256(f"{header}\n".encode())
    for array in arrays:
        # Little-endian on every machine, so that digests can be compared between them.
        digest.update(array.astype("<f8" if array.dtype.kind == "f" else "<i8").tobytes())
    return digest.hexdigest()


def refuse(name: str, expected: str, row: object = None) -> NoReturn:
    place = name if row is None else f"{name}, row {row}"
    raise FactsError(f"{place}: expected {expected}.")


def integers(values: ArrayLike, what: str, name: str) -> np.ndarray:
    """`values` as an int64 array; floats and booleans are refused rather than rounded."""
    array = np.asarray(values)
    # An empty list has dtype float64 and is still a list of no integers.
    if array.dtype.kind not in "iu" and array.size:
        refuse(name, f"{what} to be integers, found values of type {array.dtype}")
    return array.astype(np.int64)


def whole(**sizes: object) -> None:
    """Refuse what is no integer >= 1 of 64 bits; a seed may be 0."""
    for letter, value in sizes.items():
        least = 0 if letter == "seed" else 1
        whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        number = int(value) if whole else -1  # type: ignore[call-overload]
        if not least <= number < 2**63:
            found = repr(value) if number < least else "one of more than 63 bits"
            raise FactsError(f"expected `{letter}` to be an integer >= {least}, found {found}.")


def row_numbers(rows: ArrayLike | None, T: int, name: str) -> np.ndarray:
    """Where facts stand in their source; 1, ..., T unless it is said."""
    numbers = np.arange(1, T + 1) if rows is None else integers(rows, "rows", name)
    if numbers.shape != (T,):
        refuse(name, f"{T} row numbers, found shape {numbers.shape}")
    return numbers


def keys(tokens: ArrayLike, outputs: np.ndarray, what: str, ndim: int, name: str) -> np.ndarray:
    """The keys as a (T, S) array, one for each of the T >= 1 outputs."""
    array = integers(tokens, "tokens", name)
    fit = array.ndim == 2 and outputs.ndim == ndim and len(array) == len(outputs)
    if not fit or not array.shape[1]:
        sizes = f"{array.shape} and {outputs.shape}"
        refuse(name, f"tokens of shape (T, S) with S >= 1 and {what}, found {sizes}")
    if len(array) == 0:
        refuse(name, "at least one fact, found none")
    return array


def ids(ids: np.ndarray, what: str, count: int, rows: np.ndarray, name: str) -> None:
    """Refuse ids outside 0, ..., count - 1."""
    outside = np.argwhere((ids < 0) | (ids >= count))
    if len(outside):
        at = tuple(outside[0])
        refuse(name, f"{what} from 0 to {count - 1}, found {ids[at]}", rows[at[0]])


def weights(prior: ArrayLike | None, rows: np.ndarray, name: str) -> np.ndarray:
    """Weights divided by their largest, so that adding them up cannot overflow; 1 by default."""
    if prior is None:
        return np.ones(len(rows))
    weights = np.asarray(prior, dtype=np.float64)
    if weights.shape != rows.shape:
        refuse(name, f"{len(rows)} weights, one for each fact, found shape {weights.shape}")
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        i = wrong[0]
        advice = f"found {weights[i]}. Correct or delete the row"
        refuse(name, f"a finite weight that is not negative, {advice}", rows[i])
    largest = weights.max()
    if largest == 0:
        zeros = f"found {len(weights):,} zeros. Leave the weights out for a uniform prior"
        refuse(name, f"at least one positive weight, {zeros}")
    return weights / largest


def probabilities(pi: np.ndarray, rows: np.ndarray, normalise: bool, name: str) -> np.ndarray:
    """Rows scaled to sum to 1; refused, with row and number, where they are no distributions."""
    wrong = np.argwhere(~(np.isfinite(pi) & (pi >= 0)))
    if len(wrong):
        found = f"found {pi[tuple(wrong[0])]:g}. Correct the row"
        refuse(name, f"finite probabilities that are not negative, {found}", rows[wrong[0][0]])
    sums = pi.sum(axis=1)
    empty = np.flatnonzero(sums == 0)
    if len(empty):
        advice = "Correct or delete the row"
        refuse(name, f"a positive probability, found zeros only. {advice}", rows[empty[0]])
    off = np.flatnonzero(~(np.abs(sums - 1) <= SUM_TOLERANCE))
    if len(off) and not normalise:
        more = f" ({len(off) - 1:,} rows more are off)" if len(off) > 1 else ""
        advice = "Correct the row, or scale it (`normalise=True`)"
        found = f"found the sum {sums[off[0]]:.9g}{more}. {advice}"
        refuse(name, f"probabilities that sum to 1, {found}", rows[off[0]])
    # Divided by the largest first: a sum of very large or very small numbers stays finite.
    scaled = pi / pi.max(axis=1, keepdims=True)
    return scaled / scaled.sum(axis=1, keepdims=True)


def room(T: int, A: int, name: str) -> None:
    """Refuse tables whose T x A probabilities would not leave room to work with them."""
    what = f"{name}: a table of {T:,} sequences times {A:,} answers"
    check_room(4 * 8 * T * A, what, "Keep fewer sequences or answers.", FactsError)
