"""Checks at the door of `Facts.make`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from byheart.errors import FactsError

__all__ = ["check_ids", "check_shapes", "check_weights", "integers"]


def integers(values: ArrayLike, what: str, name: str) -> np.ndarray:
    """`values` as an int64 array; floats and booleans are refused rather than rounded."""
    array = np.asarray(values)
    # An empty list has dtype float64 and is still a list of no integers.
    if array.dtype.kind not in "iu" and array.size:
        raise FactsError(
            f"{name}: expected {what} to be integers, found values of type {array.dtype}."
        )
    return array.astype(np.int64)


def check_shapes(
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


def check_ids(ids: np.ndarray, what: str, count: int, rows: np.ndarray, name: str) -> None:
    """Refuse ids outside 0, ..., count - 1."""
    outside = np.argwhere((ids < 0) | (ids >= count))
    if len(outside):
        at = tuple(outside[0])
        raise FactsError(
            f"{name}, row {rows[at[0]]}: expected {what} from 0 to {count - 1}, found {ids[at]}."
        )


def check_weights(prior: ArrayLike, rows: np.ndarray, name: str) -> np.ndarray:
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
