"""The same proof in ball arithmetic (Arb, through python-flint): every number is a midpoint with a
radius that contains the exact value, at any precision. Slower, and independent of how this
machine's matrix product and exp round.

The sums are regrouped (not approximated) so that most work is done in whole ball matrices: with
y_u^h = x_u W_QK^h for each distinct last token u and o_t^h = x_t W_V^h W_O^h for each distinct
token and position, scores are x_s·y_u^h and the residual is x_S + Σ_s Σ_h a^h_s o_{t_s}^h.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import reduce

import numpy as np
from flint import arb, arb_mat, ctx
from torch import Tensor

from byheart.certificates.rounding import check_covered
from byheart.models.attention_only import Weights
from byheart.specs import AssociativeSpec, AttentionOnlySpec

Rows = list[list[arb]]
LOGIT_ENTRIES = 2**20  # ball entries of a block of logits: about 100 MB


def ball_margins(
    spec: AttentionOnlySpec | AssociativeSpec,
    weights: Weights,
    tokens: np.ndarray,
    right: np.ndarray,
    *,
    precision: int,
    progress: Callable[[str], None],
) -> tuple[np.ndarray, np.ndarray]:
    """Margins (T,) and radii (T,): the exact margin of each fact lies within margin ± radius."""
    old = ctx.prec
    ctx.prec = precision
    try:
        out = residuals(spec, weights, tokens, progress)
        progress(f"comparing {len(tokens):,} answers with all others")
        return margins(out, weights["W_U"], right)
    finally:
        ctx.prec = old


def residuals(
    spec: AttentionOnlySpec | AssociativeSpec,
    weights: Weights,
    tokens: np.ndarray,
    progress: Callable[[str], None],
) -> Rows:
    """What W_U reads, one row of d balls a fact, at the precision of the context."""
    if isinstance(spec, AttentionOnlySpec):
        return _attention_only(spec, weights, tokens, progress)
    return _associative(spec, weights, tokens)


def matrix(values: Tensor) -> arb_mat:
    rows, columns = values.shape
    return arb_mat(rows, columns, [arb(v) for v in values.double().flatten().tolist()])


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


def _attention_only(
    spec: AttentionOnlySpec,
    weights: Weights,
    tokens: np.ndarray,
    progress: Callable[[str], None],
) -> Rows:
    check_covered(spec)
    T, S, d, H = len(tokens), spec.S, spec.d, spec.H
    distinct = [sorted(set(tokens[:, s].tolist())) for s in range(S)]
    x = [_embedded(spec, weights, distinct[s], s) for s in range(S)]
    x_rows = [dict(zip(distinct[s], x[s].tolist(), strict=True)) for s in range(S)]

    W_QK = [matrix(weights["W_Q"][0, h]) * matrix(weights["W_K"][0, h].T) for h in range(H)]
    W_VO = [matrix(weights["W_V"][0, h]) * matrix(weights["W_O"][0, h]) for h in range(H)]
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


def _side_by_side(blocks: list[arb_mat]) -> arb_mat:
    tables = [block.tolist() for block in blocks]
    return arb_mat([[v for table in tables for v in table[i]] for i in range(len(tables[0]))])


def _associative(spec: AssociativeSpec, weights: Weights, tokens: np.ndarray) -> Rows:
    W, root = matrix(weights["W"]), arb(spec.d).sqrt()
    keys = []
    for row in tokens.tolist():
        key = [arb(1) / root] * spec.d
        for s, token in enumerate(row):
            signs = weights["W_E"][s, token].double().tolist()
            key = [k * arb(sign) for k, sign in zip(key, signs, strict=True)]
        keys.append(key)
    return (arb_mat(keys) * W).tolist()


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
                margin = own - reduce(arb.max, row)
                middle[i], radius[i] = outward(margin)
    return middle, radius


def outward(ball: arb) -> tuple[float, float]:
    """A float midpoint and radius that contain the ball."""
    middle = float(ball.mid())
    if not ball.is_finite():
        return middle, float("inf")
    radius = float((ball - arb(middle)).abs_upper().mid())
    return middle, radius * (1 + 2.0**-50) + 2.0**-1060
