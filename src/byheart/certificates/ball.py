"""The same proof in ball arithmetic (Arb, through python-flint): every number is a midpoint with a
radius that contains the exact value, at any precision. Slower, and independent of how this
machine's matrix product and exp round.

`Balls` evaluates a formula fact by fact. For one layer, the form that is built, the sums are
regrouped (not approximated) so that most work is done in whole ball matrices: with
y_u^h = x_u W_QK^h for each distinct last token u and o_t^h = x_t W_V^h W_O^h for each distinct
token and position, scores are x_s·y_u^h and the residual is x_S + Σ_s Σ_h a^h_s o_{t_s}^h.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial, reduce

import numpy as np
from flint import arb, arb_mat, ctx
from torch import Tensor

from byheart._progress import Report
from byheart.certificates.rounding import Weights
from byheart.specs import AttentionOnlySpec

Rows = list[list[arb]]
LOGIT_ENTRIES = 2**20  # ball entries of a block of logits: about 100 MB


@contextmanager
def bits(precision: int) -> Iterator[None]:
    """Work at `precision` bits, and leave that of others alone."""
    before, ctx.prec = ctx.prec, precision
    try:
        yield
    finally:
        ctx.prec = before


def matrix(values: Tensor) -> arb_mat:
    rows, columns = values.shape
    return arb_mat(rows, columns, [arb(v) for v in values.double().flatten().tolist()])


def head_matrices(weights: Weights, layer: int) -> list[tuple[arb_mat, arb_mat]]:
    """W_Q W_K^T and W_V W_O of every head."""
    heads = zip(*(weights[name][layer] for name in ("W_Q", "W_K", "W_V", "W_O")), strict=True)
    return [(matrix(Q) * matrix(K.T), matrix(V) * matrix(out)) for Q, K, V, out in heads]


def _split(matrix: arb_mat, width: int) -> list[Rows]:
    """Rows of a (n, H width) matrix as (H, width) tables."""
    columns = matrix.ncols()
    entries = matrix.entries()
    return [
        [entries[i + j : i + j + width] for j in range(0, columns, width)]
        for i in range(0, len(entries), columns)
    ]


def _embedded(spec: AttentionOnlySpec, weights: Weights, tokens: list[int], s: int) -> arb_mat:
    x = matrix(weights["W_E"][tokens])
    if spec.positions == "none":
        return x
    pos = [arb(v) for v in weights["W_pos"][s].double().tolist()]
    return x + arb_mat(len(tokens), spec.d, pos * len(tokens))


def one_layer(
    spec: AttentionOnlySpec, weights: Weights, tokens: np.ndarray, progress: Report
) -> Rows:
    """What W_U reads behind one layer with positions at the input: a row of d balls for each fact,
    at the precision of the context."""
    T, S, d, H = len(tokens), spec.S, spec.d, spec.H
    distinct = [sorted(set(tokens[:, s].tolist())) for s in range(S)]
    x = [_embedded(spec, weights, distinct[s], s) for s in range(S)]
    x_rows = [dict(zip(distinct[s], x[s].tolist(), strict=True)) for s in range(S)]

    W_QK, W_VO = zip(*head_matrices(weights, 0), strict=True)
    y = dict(zip(distinct[-1], _split(x[-1] * _side_by_side(W_QK), d), strict=True))

    progress(f"attention of {H:,} heads on {T:,} facts")
    attention = _attention(spec, tokens, x_rows, y)

    zero = [arb(0)] * d
    out = [x_rows[-1][int(t)] if spec.skip else zero for t in tokens[:, -1]]
    joined = _side_by_side(W_VO)
    for s in range(S):
        progress(f"adding up position {s + 1} of {S}")
        o = _split(x[s] * joined, d)
        for token, table in zip(distinct[s], o, strict=True):
            facts = np.flatnonzero(tokens[:, s] == token).tolist()
            a = arb_mat(len(facts), H, [v for i in facts for v in attention[s][i]])
            added = (a * arb_mat(table)).tolist()
            for i, row in zip(facts, added, strict=True):
                out[i] = [p + q for p, q in zip(out[i], row, strict=True)]
    return out


def _attention(
    spec: AttentionOnlySpec,
    tokens: np.ndarray,
    x_rows: list[dict[int, list[arb]]],
    y: dict[int, Rows],
) -> list[list[list[arb]]]:
    """a^h_s(t) as attention[s][fact][head]."""
    S, H = spec.S, spec.H
    factor = 1 / arb(spec.qk_rank).sqrt() if spec.scale else None
    attention: list[list[list[arb]]] = [[[] for _ in tokens] for _ in range(S)]
    by_last: dict[int, list[int]] = defaultdict(list)
    for i, u in enumerate(tokens[:, -1].tolist()):
        by_last[u].append(i)
    for u, facts in by_last.items():
        read = arb_mat(y[u]).transpose()
        flat = [v for s in range(S) for i in facts for v in x_rows[s][int(tokens[i, s])]]
        scores = (arb_mat(S * len(facts), spec.d, flat) * read).entries()
        if factor is not None:
            scores = [v * factor for v in scores]
        stride = len(facts) * H
        for n, i in enumerate(facts):
            columns = [scores[s * stride + n * H : s * stride + (n + 1) * H] for s in range(S)]
            weights = [softmax(column) for column in zip(*columns, strict=True)]
            for s in range(S):
                attention[s][i] = [w[s] for w in weights]
    return attention


def softmax(scores: tuple[arb, ...]) -> list[arb]:
    top = max(scores, key=float).mid()
    e = [(v - top).exp() for v in scores]
    total = sum(e[1:], e[0])
    return [v / total for v in e]


def _side_by_side(blocks: Sequence[arb_mat]) -> arb_mat:
    tables = [block.tolist() for block in blocks]
    return arb_mat([[v for table in tables for v in table[i]] for i in range(len(tables[0]))])


class Balls:
    """The arithmetic of `architectures.residual` in balls: one fact, x is (positions, d)."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.weight = cache(self._weight)
        self._heads = cache(partial(head_matrices, weights))

    def _weight(self, name: str, *layer: int) -> arb_mat:
        w = self.weights[name][layer]
        return matrix(w if w.dim() == 2 else w[None])

    def embed(self, tokens: list[int]) -> arb_mat:
        return matrix(self.weights["W_E"][tokens])

    def rows(self, x: arb_mat, positions: Sequence[int]) -> arb_mat:
        rows = x.tolist()
        return arb_mat([rows[s] for s in positions])

    def add(self, a: arb_mat, b: arb_mat) -> arb_mat:
        return a + (b if b.nrows() == a.nrows() else arb_mat(b.tolist() * a.nrows()))

    def product(self, x: arb_mat, W: arb_mat) -> arb_mat:
        return x * W

    def activation(self, z: arb_mat, name: str) -> arb_mat:
        act = _gelu if name == "gelu" else _relu
        return arb_mat([[act(v) for v in row] for row in z.tolist()])

    def heads(
        self, spec: AttentionOnlySpec, layer: int, x: arb_mat, queries: Sequence[int]
    ) -> arb_mat:
        root = arb(spec.qk_rank).sqrt() if spec.scale else arb(1)
        total = arb_mat(len(queries), x.ncols())
        for W_QK, W_VO in self._heads(layer):
            scores = (x * W_QK * x.transpose()).tolist()
            rows = []
            for s in queries:
                a = softmax(tuple(v / root for v in scores[s][: s + 1]))
                rows.append(a + [arb(0)] * (spec.S - s - 1))
            total = total + arb_mat(rows) * x * W_VO
        return total


def _relu(z: arb) -> arb:
    return z.max(arb(0))


def _gelu(z: arb) -> arb:
    """z Φ(z) with Φ(z) = erfc(-z / sqrt 2) / 2, which keeps its accuracy for z << 0."""
    return z * (-z / arb(2).sqrt()).erfc() / 2


def margins(out: Rows, W_U: Tensor, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """T_g - max_{j != g} T_j for every fact, against the distinct columns of W_U only."""
    columns, column_of, sizes = np.unique(
        W_U.double().numpy().T, axis=0, return_inverse=True, return_counts=True
    )
    column_of = column_of.reshape(-1)
    frame = arb_mat(columns.shape[1], len(columns), [arb(v) for v in columns.T.flatten().tolist()])
    middle, radius = np.full(len(out), np.inf), np.zeros(len(out))
    step = max(1, LOGIT_ENTRIES // len(columns))
    for start in range(0, len(out), step):
        block = (arb_mat(out[start : start + step]) * frame).tolist()
        for i, row in enumerate(block, start):
            g = int(column_of[right[i]])
            own = row.pop(g)
            if sizes[g] > 1:  # another token has the same column: a tie, whatever the others are
                row.append(own)
            if row:
                margin = own - largest(row)
                middle[i], radius[i] = outward(margin)
    return middle, radius


def largest(balls: list[arb]) -> arb:
    """A ball that contains the largest of all."""
    return reduce(arb.max, balls)


def outward(ball: arb) -> tuple[float, float]:
    """A float midpoint and radius that contain the ball."""
    middle = float(ball.mid())
    if not ball.is_finite():
        return middle, float("inf")
    radius = float((ball - arb(middle)).abs_upper().mid())
    return middle, radius * (1 + 2.0**-50) + 2.0**-1060
