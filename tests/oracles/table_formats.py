"""FF2's table alone, in number formats and with limited bits: for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from byheart.exact.precision import FORMATS, run_in
from byheart.exact.table import Table, TableOptions, make_table

KEYS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


def table_limits(seeds: int = 3, keys: Sequence[int] = KEYS) -> list[dict[str, Any]]:
    """The table alone (2 labels, exact keys of 2 log2 K - 1 bits, best group size), per format.

    `plain`: products and sums as they come; `gathered`: the two units of a STEP are subtracted
    before the long weight multiplies them.
    """
    rows = []
    for form in FORMATS.values():
        row: dict[str, Any] = {"format": form.name, "significant bits": form.bits}
        for gather, name in ((False, "plain"), (True, "gathered")):
            last, first = None, None
            for K in keys:
                wrong = [T for s in range(seeds) if (T := _wrong_table(K, s, form.name, gather))]
                if wrong:
                    first = f"{K} (T = {wrong[0]})"
                    break
                last = K
            row |= {f"{name}: last right": last, f"{name}: first wrong": first}
        rows.append(row)
    return rows


def _random_table(
    K: int, seed: int, bits: int | None = None
) -> tuple[Table, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    w = max(4, int(np.ceil(2 * np.log2(K))) - 1)
    keys = rng.choice(1 << w, K, replace=False) if w < 24 else _sample(rng, w, K)
    values = rng.integers(0, 2, K)
    nothing = np.zeros(0, dtype=np.int64)
    return (
        make_table(keys, values, nothing, 1, (1 << w) - 1, TableOptions(max_bits=bits)),
        keys,
        values,
    )


def _sample(rng: np.random.Generator, w: int, K: int) -> np.ndarray:
    """K different numbers of w bits, without a list of all."""
    return rng.permutation(np.unique(rng.integers(0, 1 << w, size=2 * K)))[:K]


def _wrong_table(K: int, seed: int, form: str, gather: bool) -> int:
    """T, the bits of a code, if the format gets a value wrong; else 0."""
    table, keys, values = _random_table(K, seed)
    chosen = FORMATS[form]
    state = [keys.astype(chosen.dtype), *(np.zeros(K, dtype=chosen.dtype) for _ in range(2))]
    said = run_in(table.blocks(0, 1, 2), state, chosen, gather)[1]
    return 0 if (said == values).all() else table.T


@dataclass(frozen=True)
class Point:
    """A table of K keys whose longest weight has at most so many bits."""

    K: int
    k: int
    max_bits: int
    parameters: int
    total_bits: int


def tradeoff_points(K: int, seed: int = 0) -> list[Point]:
    """Bits against parameters (Theorem F.1): from one record a group to the cheapest size."""
    free = _random_table(K, seed)[0]
    low = free.largest.bit_length() + 1
    points: dict[int, Point] = {}
    for bits in np.unique(np.geomspace(low, free.T + 1, 14).astype(int)).tolist():
        table = _random_table(K, seed, bits)[0]
        weights = [w for block in table.blocks(0, 1, 2) for w in block.weights()]
        long = [abs(w).bit_length() for w in weights]
        points[table.k] = Point(K, table.k, max(long), len(weights), sum(long))
    return [points[k] for k in sorted(points)]
