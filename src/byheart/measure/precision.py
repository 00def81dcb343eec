"""What number formats keep: facts recalled by memories whose weights are rounded.

Exact memories are evaluated in the format, step by step (`byheart.exact.precision`); memories with
float weights get rounded weights and are evaluated in float64, so that only the rounding counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from byheart.construct import build
from byheart.construct.exact import build_sqrt
from byheart.errors import ByheartError
from byheart.exact.grouping import Wish, make_table
from byheart.exact.precision import FORMATS, evaluate_in, run_in
from byheart.facts import Facts
from byheart.models import Memory
from byheart.models.exact import ExactMemory
from byheart.models.threads import one_thread

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ASKED = 500  # facts of an exact memory that are evaluated in every format
KEYS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
METHODS = ("sqrt", "attention", "sharded")
TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32,
         "float64": torch.float64}  # fmt: skip


@dataclass(frozen=True)
class Kept:
    """How many of `asked` facts a format recalls."""

    format: str
    significant_bits: int
    asked: int
    recalled: int


def precision(memory: Memory | ExactMemory, facts: Facts | None = None) -> list[Kept]:
    """Facts recalled in every number format; exact memories: at most 500 of them are asked.

    >>> import byheart as bh
    >>> kept = {k.format: k.recalled for k in precision(bh.build(bh.read_facts("elements")))}
    >>> kept["float32"], kept["float64"], kept["int8"] < 236
    (236, 236, True)
    """
    facts = facts if facts is not None else memory.facts
    if facts is None:
        raise ByheartError("the memory was saved without its facts: build it with them.")
    if isinstance(memory, ExactMemory):
        return list(_exact(memory, facts))
    with one_thread():
        return list(_floating(memory, facts))


def _exact(memory: ExactMemory, facts: Facts) -> Iterator[Kept]:
    chosen = np.random.default_rng(0).permutation(facts.T)[:ASKED]
    tokens = memory.vectors(facts.tokens[chosen])
    right = memory.classes(facts.answers[chosen])
    for form in FORMATS.values():
        said = evaluate_in(memory.network, tokens, form.name)
        yield Kept(form.name, form.bits, len(chosen), int((said == right).sum()))
    bits = memory.spec.max_bits
    said = memory.literal_outputs(facts.tokens[chosen])
    yield Kept("exact integers", bits, len(chosen), int((said == right).sum()))


def _floating(memory: Memory, facts: Facts) -> Iterator[Kept]:
    for form in FORMATS.values():
        if form.name == "longdouble":
            continue
        weights = {name: _rounded(w, form.name) for name, w in memory.weights.items()}
        margins = replace(memory, weights=weights).margins(facts, torch.float64)
        yield Kept(form.name, form.bits, facts.T, int((margins > 0).sum()))


def _rounded(w: torch.Tensor, form: str) -> torch.Tensor:
    """Float weights rounded to the format; int8 with one scale a channel (the last axis)."""
    if not w.is_floating_point():
        return w
    if form != "int8":
        return w.to(TYPES[form]).to(w.dtype)
    top = w.abs().amax(dim=tuple(range(w.ndim - 1)), keepdim=True)
    scale = torch.where(top > 0, top, torch.ones_like(top)) / 127
    return (w / scale).round() * scale


@dataclass(frozen=True)
class Limit:
    """The largest of the tried numbers of facts that a format holds, the first that it does not."""

    method: str
    format: str
    last_right: int | None
    first_wrong: int | None
    bits: int | None
    """Bits of the longest weight at `first_wrong` (exact memories)."""


def limits(
    facts: Facts, methods: Sequence[str] = METHODS, sizes: Sequence[int] | None = None
) -> list[Limit]:
    """For each construction and format, the first T facts of the table that it gets wrong."""
    tried = [T for T in sizes or sizes_to(facts.T) if T <= facts.T]
    rows: list[Limit] = []
    for method in methods:
        open_ = {name: 0 for name in FORMATS if method == "sqrt" or name != "longdouble"}
        for T in tried:
            part = facts.subset(np.arange(T))
            memory: Any = build_sqrt(part) if method == "sqrt" else build(part, method)
            for kept in precision(memory):
                if kept.format not in open_:
                    continue
                if kept.recalled == kept.asked:
                    open_[kept.format] = T
                    continue
                bits = memory.spec.max_bits if method == "sqrt" else None
                last = open_.pop(kept.format) or None
                rows.append(Limit(method, kept.format, last, T, bits))
            if not open_:
                break
        rows += [Limit(method, name, last or None, None, None) for name, last in open_.items()]
    return rows


def sizes_to(T: int) -> list[int]:
    """2, 3, 4, 6, 8, 12, ... and T."""
    steps = {a << i for i in range(12) for a in (2, 3)}
    return sorted({s for s in steps if s < T} | {T})


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


def _random_table(K: int, seed: int, bits: int | None = None) -> tuple[Any, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    w = max(4, int(np.ceil(2 * np.log2(K))) - 1)
    keys = rng.choice(1 << w, K, replace=False) if w < 24 else _sample(rng, w, K)
    values = rng.integers(0, 2, K)
    nothing = np.zeros(0, dtype=np.int64)
    return make_table(keys, values, nothing, 1, (1 << w) - 1, Wish(bits=bits)), keys, values


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


def tradeoff_figure(sizes: Sequence[int]) -> Figure:
    """Parameters against bits of the longest weight, one line for each number of keys."""
    from byheart.theory.plots import COLOURS, _axes, _label_ends

    figure, axes = _axes(width=8.5)
    ends = []
    for colour, K in zip(COLOURS, sizes, strict=False):
        points = tradeoff_points(K)
        x, y = [p.max_bits for p in points], [p.parameters for p in points]
        axes.plot(x, y, "o-", color=colour, lw=1.8, ms=4)
        axes.axhline(K, color=colour, lw=0.8, ls=":")
        ends.append((x[-1], float(y[-1]), f"{K:,} keys", colour))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("bits of the longest weight")
    axes.set_ylabel("parameters (non-zero)")
    axes.set_title("Bits buy parameters (dotted: one parameter a key)", loc="left")
    _label_ends(axes, ends)
    return figure
