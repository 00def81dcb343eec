"""Checks of arrays before they become facts, with the row and the number in every message."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from byheart._machine import memory_bytes
from byheart.errors import FactsError

# How far a row of probabilities may be from 1 without being scaled on request: decimals in a file.
SUM_TOLERANCE = 1e-5


def freeze(table: object, **dtypes: type | None) -> None:
    """Replace array fields of a frozen dataclass by read-only copies of the given types."""
    for field, dtype in dtypes.items():
        array = np.array(getattr(table, field), dtype=dtype, order="C")
        array.flags.writeable = False
        object.__setattr__(table, field, array)


def integers(values: ArrayLike, what: str, name: str) -> np.ndarray:
    """`values` as an int64 array; floats and booleans are refused rather than rounded."""
    array = np.asarray(values)
    # An empty list has dtype float64 and is still a list of no integers.
    if array.dtype.kind not in "iu" and array.size:
        raise FactsError(
            f"{name}: expected {what} to be integers, found values of type {array.dtype}."
        )
    return array.astype(np.int64)


def whole(**sizes: object) -> None:
    """Refuse what is no integer >= 1; a seed may be 0."""
    for letter, value in sizes.items():
        least = 0 if letter == "seed" else 1
        number = isinstance(value, (int, np.integer))
        if not number or isinstance(value, bool) or int(value) < least:
            raise FactsError(f"expected `{letter}` to be an integer >= {least}, found {value!r}.")


def row_numbers(rows: ArrayLike | None, T: int, name: str) -> np.ndarray:
    """Where facts stand in their source; 1, ..., T unless it is said."""
    return np.arange(1, T + 1) if rows is None else integers(rows, "rows", name)


def shapes(
    tokens: np.ndarray,
    answers: np.ndarray,
    rows: np.ndarray,
    columns: Sequence[str] | None,
    name: str,
) -> None:
    """Refuse sizes that do not fit together."""
    if tokens.ndim != 2 or tokens.shape[1] == 0 or answers.shape != tokens.shape[:1]:
        raise FactsError(
            f"{name}: expected tokens of shape (T, S) with S >= 1 and answers of shape (T,), "
            f"found {tokens.shape} and {answers.shape}."
        )
    T, S = tokens.shape
    if T == 0:
        raise FactsError(f"{name}: expected at least one fact, found none.")
    if rows.shape != (T,):
        raise FactsError(f"{name}: expected {T} row numbers, found shape {rows.shape}.")
    if columns is not None and len(columns) != S:
        raise FactsError(
            f"{name}: expected {S} column names, one for each key position, found "
            f"{len(columns)}: {', '.join(columns)}."
        )


def ids(ids: np.ndarray, what: str, count: int, rows: np.ndarray, name: str) -> None:
    """Refuse ids outside 0, ..., count - 1."""
    outside = np.argwhere((ids < 0) | (ids >= count))
    if len(outside):
        at = tuple(outside[0])
        raise FactsError(
            f"{name}, row {rows[at[0]]}: expected {what} from 0 to {count - 1}, found {ids[at]}."
        )


def weights(prior: ArrayLike, rows: np.ndarray, name: str) -> np.ndarray:
    """Weights divided by their largest, so that adding them up cannot overflow."""
    weights = np.asarray(prior, dtype=np.float64)
    if weights.shape != rows.shape:
        raise FactsError(
            f"{name}: expected {len(rows)} weights, one for each fact, found shape {weights.shape}."
        )
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        i = wrong[0]
        raise FactsError(
            f"{name}, row {rows[i]}: expected a finite weight that is not negative, found "
            f"{weights[i]}. Correct or delete the row."
        )
    largest = weights.max()
    if largest == 0:
        raise FactsError(
            f"{name}: expected at least one positive weight, found {len(weights):,} zeros. "
            "Leave the weights out for a uniform prior."
        )
    return weights / largest


def probabilities(pi: np.ndarray, rows: np.ndarray, normalise: bool, name: str) -> np.ndarray:
    """Rows scaled to sum to 1; refused, with row and number, where they are no distributions."""
    wrong = np.argwhere(~(np.isfinite(pi) & (pi >= 0)))
    if len(wrong):
        t, j = (int(i) for i in wrong[0])
        raise FactsError(
            f"{name}, row {rows[t]}: expected finite probabilities that are not negative, found "
            f"{pi[t, j]:g}. Correct the row."
        )
    sums = pi.sum(axis=1)
    empty = np.flatnonzero(sums == 0)
    if len(empty):
        raise FactsError(
            f"{name}, row {rows[empty[0]]}: expected a positive probability, found zeros only. "
            "A key without any answer is no fact: correct or delete the row."
        )
    off = np.flatnonzero(~(np.abs(sums - 1) <= SUM_TOLERANCE))
    if len(off) and not normalise:
        t = int(off[0])
        more = f" ({len(off) - 1:,} rows more are off)" if len(off) > 1 else ""
        raise FactsError(
            f"{name}, row {rows[t]}: expected probabilities that sum to 1, found the sum "
            f"{sums[t]:.9g}{more}. Correct the row, or scale it (`normalise=True`)."
        )
    # Divided by the largest first: a sum of very large or very small numbers stays finite.
    scaled = pi / pi.max(axis=1, keepdims=True)
    return scaled / scaled.sum(axis=1, keepdims=True)


def support(support: np.ndarray, columns: int, N: int, name: str) -> None:
    """Refuse answers that are no tokens, appear twice, or do not fit the columns."""
    if support.shape != (columns,):
        raise FactsError(
            f"{name}: expected {columns} answers, one for each column of the probabilities, found "
            f"shape {support.shape}."
        )
    if len(support) and (support.min() < 0 or support.max() >= N):
        raise FactsError(
            f"{name}: expected answers from 0 to {N - 1}, found {support.min()} to {support.max()}."
        )
    if len(np.unique(support)) < columns:
        raise FactsError(f"{name}: expected distinct answers, found one of them twice.")


def room(T: int, A: int, name: str) -> None:
    """Refuse tables whose T x A probabilities would not leave room to work with them."""
    needed, present = 4 * 8 * T * A, memory_bytes()
    if needed > 0.9 * present:
        raise FactsError(
            f"{name}: {T:,} sequences times {A:,} answers need about {needed / 1e9:,.0f} GB, this "
            f"machine has {present / 1e9:.0f} GB. Keep fewer sequences or answers."
        )
