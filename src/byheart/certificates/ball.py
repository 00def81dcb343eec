"""Ball arithmetic (Arb, through python-flint): every number is a midpoint with a radius that
contains the exact value, at any precision. Slower than `arithmetic.Rounding`, and independent of
how this machine's matrix product and exp round. Values are numpy arrays of balls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce

import numpy as np
from flint import arb, arb_mat, ctx
from torch import Tensor

from byheart.certificates.arithmetic import Weights

LOGIT_ENTRIES = 2**20  # ball entries of a block of logits: about 100 MB


@contextmanager
def bits(precision: int) -> Iterator[None]:
    """Work at `precision` bits, and leave that of others alone."""
    before, ctx.prec = ctx.prec, precision
    try:
        yield
    finally:
        ctx.prec = before


def balls(numbers: Tensor) -> np.ndarray:
    """Numbers as balls of radius 0."""
    flat = numbers.double().flatten().tolist()
    out = np.empty(len(flat), dtype=object)
    out[:] = [arb(v) for v in flat]
    return out.reshape(numbers.shape)


class Balls:
    """`arithmetic.Arithmetic` over arrays of balls."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self._balls: dict[tuple[object, ...], np.ndarray] = {}

    def exact(self, numbers: Tensor) -> np.ndarray:
        return balls(numbers)

    def given(self, numbers: Tensor) -> np.ndarray:
        return balls(numbers)

    def weight(self, name: str, *layer: int) -> np.ndarray:
        at = (name, *layer)
        if at not in self._balls:
            self._balls[at] = balls(self.weights[name][layer])
        return self._balls[at]

    def add(self, a: np.ndarray, b: np.ndarray, terms: int = 1) -> np.ndarray:
        return a + b

    def negative(self, a: np.ndarray) -> np.ndarray:
        return -a

    def stack(self, values: Sequence[np.ndarray], axis: int) -> np.ndarray:
        return np.stack(values, axis)

    def einsum(self, formula: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Matrix products of balls, one for each combination of what both factors and the result
        share."""
        inputs, result = formula.split("->")
        left, right = inputs.split(",")
        shared = [c for c in left if c in right and c in result]
        rows = [c for c in left if c not in right]
        summed = [c for c in left if c in right and c not in result]
        columns = [c for c in right if c not in left]
        A = _arranged(a, left, (shared, rows, summed))
        B = _arranged(b, right, (shared, summed, columns))
        shape = (len(A), A.shape[1], B.shape[2])
        out = np.empty(shape, dtype=object)
        for one, x, y in zip(out, A, B, strict=True):
            one.ravel()[:] = (arb_mat(x.tolist()) * arb_mat(y.tolist())).entries()
        sizes = dict(zip(left + right, a.shape + b.shape, strict=True))
        letters = [*shared, *rows, *columns]
        return out.reshape([sizes[c] for c in letters]).transpose(
            [letters.index(c) for c in result]
        )

    def chain(
        self, first: str, then: str, a: np.ndarray, b: np.ndarray, c: np.ndarray
    ) -> np.ndarray:
        return self.einsum(then, self.einsum(first, a, b), c)

    def over_root(self, x: np.ndarray, n: int) -> np.ndarray:
        return x / arb(n).sqrt()

    def softmax(self, scores: np.ndarray) -> np.ndarray:
        out = np.empty_like(scores)
        for at in np.ndindex(scores.shape[:-1]):
            row = scores[at]
            if len(row) == 1:  # whatever the score
                out[at] = [arb(1)]
                continue
            top = max(row, key=float).mid()
            e = [(v - top).exp() for v in row]
            total = sum(e[1:], e[0])
            out[at] = [v / total for v in e]
        return out

    def activation(self, z: np.ndarray, name: str) -> np.ndarray:
        act = _gelu if name == "gelu" else _relu
        out = np.empty_like(z)
        out.ravel()[:] = [act(v) for v in z.ravel()]
        return out


def _arranged(x: np.ndarray, letters: str, parts: Sequence[list[str]]) -> np.ndarray:
    """Axes in the order of `parts`, each part one axis."""
    sizes = dict(zip(letters, x.shape, strict=True))
    ordered = x.transpose([letters.index(c) for part in parts for c in part])
    return ordered.reshape([int(np.prod([sizes[c] for c in part])) for part in parts])


def _relu(z: arb) -> arb:
    return z.max(arb(0))


def _gelu(z: arb) -> arb:
    """z Φ(z) with Φ(z) = erfc(-z / sqrt 2) / 2, which keeps its accuracy for z << 0."""
    return z * (-z / arb(2).sqrt()).erfc() / 2


def margins(out: np.ndarray, W_U: Tensor, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """T_g - max_{j != g} T_j for every row of `out` (B, d), against the distinct columns of W_U
    only: midpoints and radii."""
    columns, column_of, sizes = np.unique(
        W_U.double().numpy().T, axis=0, return_inverse=True, return_counts=True
    )
    column_of = column_of.reshape(-1)
    frame = arb_mat(columns.shape[1], len(columns), [arb(v) for v in columns.T.flatten().tolist()])
    middle, radius = np.full(len(out), np.inf), np.zeros(len(out))
    step = max(1, LOGIT_ENTRIES // len(columns))
    for start in range(0, len(out), step):
        block = (arb_mat(out[start : start + step].tolist()) * frame).tolist()
        for i, row in enumerate(block, start):
            g = int(column_of[right[i]])
            own = row.pop(g)
            if sizes[g] > 1:  # another token has the same column: a tie, whatever the others are
                row.append(own)
            if row:
                middle[i], radius[i] = outward(own - largest(row))
            elif not own.is_finite():
                radius[i] = np.nan
    return middle, radius


def largest(balls: list[arb]) -> arb:
    """A ball that contains the largest of all."""
    return reduce(arb.max, balls)


def outward(ball: arb) -> tuple[float, float]:
    """A float midpoint and radius that contain the ball; NaN where it is not finite."""
    middle = float(ball.mid())
    if not ball.is_finite() or not np.isfinite(middle):
        return middle, float("nan")
    radius = float((ball - arb(middle)).abs_upper().mid())
    return middle, radius * (1 + 2.0**-50) + 2.0**-1060
