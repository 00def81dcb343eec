"""What number formats do to a network of exact integers.

Every weight is rounded to the format, every product and every sum too, as a matrix library would:
H + (W2 relu(W1 H + b1) + b2). `gather` takes the difference of the two units of a STEP before the
long weight multiplies it, which needs T bits in place of T + w.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from byheart.errors import check_choice
from byheart.exact.blocks import Block, Network
from byheart.exact.data import as_vectors, distinct_tokens

quietly = np.errstate(over="ignore", invalid="ignore")  # what overflows is NaN or infinite


@dataclass(frozen=True)
class Format:
    """A number format: significant bits, the numpy type that computes, rounding after each step."""

    name: str
    bits: int
    dtype: type[np.floating]
    rounded: Callable[[np.ndarray], np.ndarray] = lambda x: x


def to_bfloat16(x: np.ndarray) -> np.ndarray:
    """float32 values rounded to 8 significant bits, to nearest, ties to even.

    >>> to_bfloat16(np.array([257.0, 259.0], dtype=np.float32)).tolist()
    [256.0, 260.0]
    """
    raw = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32).astype(np.uint64)
    up = raw + 0x7FFF + ((raw >> np.uint64(16)) & np.uint64(1))
    kept = (up & np.uint64(0xFFFF0000)).astype(np.uint32).view(np.float32)
    return np.where(np.isfinite(x), kept, x).astype(np.float32)


FORMATS = {
    f.name: f
    for f in (
        Format("float16", 11, np.float16),
        Format("bfloat16", 8, np.float32, to_bfloat16),
        Format("float32", 24, np.float32),
        Format("float64", 53, np.float64),
        Format("longdouble", 64, np.longdouble),
        Format("int8", 8, np.float64),
    )
}


def rounded_integer(w: int, bits: int) -> int:
    """w rounded to `bits` significant bits, to nearest, ties to even.

    >>> rounded_integer(2**24 + 1, 24) == 2**24, rounded_integer(-259, 8)
    (True, -260)
    """
    extra = abs(w).bit_length() - bits
    if extra <= 0:
        return w
    half, kept = 1 << (extra - 1), abs(w) >> extra
    rest = abs(w) & ((1 << extra) - 1)
    kept += rest > half or (rest == half and kept & 1)
    return (kept << extra) * (1 if w > 0 else -1)


@quietly
def number(w: int, form: Format) -> np.floating:
    """The integer in the format; infinite where it is out of range."""
    w = rounded_integer(w, form.bits)
    power = max(0, abs(w).bit_length() - 64)
    value = form.dtype(np.ldexp(np.longdouble(abs(w) >> power), min(power, 60_000)))
    return value if w >= 0 else -value


@quietly
def evaluate_in(
    network: Network, tokens: np.ndarray, name: str, *, gather: bool = False
) -> np.ndarray:
    """Outputs (B,) of a network computed in a number format; NaN where it overflows.

    "int8": weights in 8 bits with one scale a row of W1 and one a row of W2, computed in float64.
    """
    check_choice("format", name, FORMATS)
    form = FORMATS[name]
    distinct, index = distinct_tokens(as_vectors(tokens, d=network.d))
    B, n = index.shape
    state = [np.zeros(len(distinct), dtype=form.dtype) for _ in range(network.m)]
    if network.embedding is not None:
        values = [number(w, form) for w in network.embedding]
        state[network.source] = np.array(values, dtype=form.dtype)[distinct[:, 0]]
    for i, row in enumerate(network.E_in):
        for j, w in row:
            x = form.rounded(distinct[:, j].astype(form.dtype))
            state[i] = form.rounded(state[i] + form.rounded(number(w, form) * x))
    state = run_in(network.ff1, state, form, gather)
    total = np.zeros(B, dtype=form.dtype)
    for k in range(n):
        total = form.rounded(total + state[network.source][index[:, k]])
    if network.attentions:
        share = number(network.scale, form) / form.dtype(n)
        total = form.rounded(total * form.rounded(np.asarray(share)))
    state = [column[index[:, -1]] for column in state]
    if network.pooling == "register":
        start = [np.zeros(1, dtype=form.dtype) for _ in range(network.m)]
        register = run_in(network.ff1, start, form, gather)
        own = form.rounded(number(network.scale, form) * register[network.source])
        state[network.target] = form.rounded(state[network.target] + own)
        total = form.rounded(register[network.target] + total)
    state[network.target] = form.rounded(state[network.target] + total)
    return run_in(network.ff2, state, form, gather)[network.out].astype(np.float64)


@quietly
def run_in(
    blocks: Sequence[Block], state: list[np.ndarray], form: Format, gather: bool
) -> list[np.ndarray]:
    """All blocks in a number format."""
    for block in blocks:
        state = _apply(block, state, form, gather)
    return state


def _apply(block: Block, state: list[np.ndarray], form: Format, gather: bool) -> list[np.ndarray]:
    hidden = []
    for unit in block.units:
        row = _scaled([w for _, w in unit.inputs] + [unit.bias], form)
        total = np.zeros_like(state[0])
        for (i, _), w in zip(unit.inputs, row, strict=False):
            total = form.rounded(total + form.rounded(w * state[i]))
        hidden.append(np.maximum(form.rounded(total + row[-1]), 0))
    after = list(state)
    for o in {o for unit in block.units for o, _ in unit.outputs} | {o for o, _ in block.shift}:
        units = zip(block.units, hidden, strict=True)
        terms = [(w, r) for unit, r in units for at, w in unit.outputs if at == o]
        shift = sum(w for at, w in block.shift if at == o)
        column = _scaled([w for w, _ in terms] + [shift], form)
        change = np.full_like(state[0], column[-1])
        if gather and len(terms) == 2 and terms[0][0] == -terms[1][0]:
            step = form.rounded(terms[0][1] - terms[1][1])
            change = form.rounded(change + form.rounded(column[0] * step))
        else:
            for w, (_, r) in zip(column, terms, strict=False):
                change = form.rounded(change + form.rounded(w * r))
        after[o] = form.rounded(state[o] + change)
    return after


def _scaled(weights: list[int], form: Format) -> list[np.floating]:
    """A row of weights in the format; int8: multiples of the largest / 127."""
    if form.name != "int8":
        return [number(w, form) for w in weights]
    top = max(map(abs, weights))
    if top == 0:
        return [form.dtype(0)] * len(weights)
    return [round(127 * w / top) * number(top, FORMATS["float64"]) / 127 for w in weights]
