"""Saturated heads: the proof of Theorem 1 (Mahdavi et al. 2024) as an algorithm, in two forms, and
the groups of examples that the heads own (docs/multi-head.md).

W_h = Σ_j p_j dual_j^T + λ k c^T: the fine part gives own example j the logits E(t_j) p_j
(dual_j·e(t_i) = δ_ij), the saturating part, c·e = 0 on the own examples, drives all others to one
token. literal: as written, exact in float64. one-hot: own examples attend to tokens of their own,
survives float32; with a shared context H+1 sign equations U + Σ_h b_h(t) δ_h = y(t) remain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from byheart.errors import CapacityError
from byheart.facts import VectorFacts

# Relative residuals below this are rounding: float64 QR of vectors in R^d leaves about d · 2^-53.
DEPENDENT = 1e-11
SHUFFLES = 20
GAP = 40.0  # logits between the attended token and the next: e^-40 = 4e-18, below float64 rounding
CANDIDATES = 256  # directions c (and k) drawn; the one whose smallest |c·e| is largest is taken
TRIES = 16  # literal: Gaussian pairs (c, k); the proof takes any, the best needs the smallest λ
DRAWS = 40  # choices of signs and of the examples on token 1; the smallest values are kept
SPREAD = 3
TOP = 8  # candidates a draw chooses from: those with the largest smallest gap
LEAN = 4.0
KEYS, PAIRED = 16, 64  # own contexts: key directions drawn, and query directions paired with them
Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class GroupCertificate:
    """Smallest pivot and residual over all groups, both relative to the length of the query.

    `pivot`: distance of a query from the span of the earlier ones of its own group; `residual`:
    from the span of another head's group. Both > `DEPENDENT` proves (to float64 rounding) what the
    construction needs; (example, head) say where they are smallest.
    """

    groups: Groups
    over: int
    pivot: float
    pivot_at: tuple[int, int] | None
    residual: float
    residual_at: tuple[int, int] | None

    @property
    def holds(self) -> bool:
        return min(self.pivot, self.residual) > DEPENDENT

    def reason(self) -> str:
        """Where the proof breaks, for an error message."""
        where, left, found = "lies in the span of", self.residual, self.residual_at
        if self.pivot <= DEPENDENT and self.pivot_at is not None:
            where, left, found = "depends on the others of", self.pivot, self.pivot_at
        example, head = found or (0, 0)
        return (
            f"the query of example {example} {where} the {len(self.groups[head])} queries of "
            f"head {head} (relative residual {left:.0e})"
        )


def split(order: np.ndarray, H: int, size: int) -> tuple[int, Groups]:
    """One example over and H groups of at most `size`, as even as possible, in the given order."""
    if len(order) > H * size + 1:
        raise CapacityError(f"{len(order)} examples, but {H} heads own {H * size} + 1")
    return int(order[0]), tuple(tuple(g.tolist()) for g in np.array_split(order[1:], H))


def group_certificate(query: np.ndarray, groups: Groups, over: int = 0) -> GroupCertificate:
    """Pivots and residuals of all groups: O(H T d r)."""
    length = np.linalg.norm(query, axis=1)
    length = np.where(length == 0, 1.0, length)
    unit = query / length[:, None]  # a query 0 stays 0: residual 0, dependent
    pivot, pivot_at, residual, residual_at = np.inf, None, np.inf, None
    for h, group in enumerate(groups):
        if not group:
            continue
        own = list(group)
        Q, R = np.linalg.qr(unit[own].T)
        diagonal = np.zeros(len(own))  # more queries than coordinates: the rest depend on them
        diagonal[: len(R)] = np.abs(np.diagonal(R))
        if diagonal.min() < pivot:
            pivot, pivot_at = float(diagonal.min()), (own[int(diagonal.argmin())], h)
        left = np.linalg.norm(unit - (unit @ Q) @ Q.T, axis=1)
        left[own] = np.inf
        if left.min() < residual:
            residual, residual_at = float(left.min()), (int(left.argmin()), h)
    return GroupCertificate(groups, over, pivot, pivot_at, residual, residual_at)


def find_groups(
    query: np.ndarray, H: int, size: int, seed: int = 0, *, shuffled: bool = False
) -> GroupCertificate:
    """Groups for which the proof goes through: in the order given (unless `shuffled`), else the
    best of some shuffles (rows that depend on each other must not meet in one group)."""
    tried = []
    rng = np.random.default_rng(seed)
    for attempt in range(1 + SHUFFLES):
        given = attempt == 0 and not shuffled
        order = np.arange(len(query)) if given else rng.permutation(len(query))
        over, groups = split(order, H, size)
        tried.append(group_certificate(query, groups, over))
        if tried[-1].holds:
            return tried[-1]
    return max(tried, key=lambda found: min(found.pivot, found.residual))


def check_contexts(facts: VectorFacts) -> None:
    """Assumption 2: every context has rank n (float64, tolerance max(n, d) ε σ_1)."""
    E = facts.context[None] if facts.shared else facts.context
    values = np.linalg.svd(E, compute_uv=False)
    tolerance = max(E.shape[1:]) * np.finfo(np.float64).eps * values[:, :1]
    ranks = (values > tolerance).sum(1)
    wrong = np.flatnonzero(ranks < facts.n)
    if len(wrong):
        which = f"the context of example {facts.rows[wrong[0]]}"
        which = "the shared context" if facts.shared else which
        more = "" if len(wrong) == 1 else f"; {len(wrong):,} contexts in all"
        raise CapacityError(
            f"Assumption 2 fails: {which} has rank {ranks[wrong[0]]} < n = {facts.n}{more}. "
            "Add position encodings to the tokens, or use `proof=random`."
        )


class Heads(NamedTuple):
    """W_Q, W_K (H, d, d_h) and the largest λ; one-hot heads of a shared context: the values V
    (H, n, m), and the condition of the sign system."""

    W_Q: np.ndarray
    W_K: np.ndarray
    strength: float
    V: np.ndarray | None = None
    condition: float = math.inf


class Saturation(NamedTuple):
    """c (d,) and k (d,), and what they leave: s(t) = c·e(t), token(t) where E(t)k sends t, and
    gap(t) = |s(t)| times the distance to the next token; own examples are not looked at."""

    c: np.ndarray
    k: np.ndarray
    token: np.ndarray
    gap: np.ndarray


def pseudo_inverse_times(E: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """p_j of least norm with E_j p_j = logits_j: E (s, n, d), logits (s, n) -> (s, d)."""
    Q, R = np.linalg.qr(np.swapaxes(E, -1, -2))  # E^T = Q R, so E p = R^T (Q^T p)
    inner = np.linalg.solve(np.swapaxes(R, -1, -2), logits[..., None])
    return (Q @ inner)[..., 0]


def dual_basis(own: np.ndarray) -> np.ndarray:
    """dual (s, d) in the span of the own queries (s, d): dual_j·e_i = δ_ij."""
    if not len(own):
        return own
    Q, R = np.linalg.qr(own.T)
    return np.linalg.solve(R, Q.T)  # own = R^T Q^T, so own dual^T = R^T Q^T Q R^-T = I


def complement(own: np.ndarray, d: int) -> np.ndarray:
    """An orthonormal basis (d, d - s) of the directions that no own query has."""
    if not len(own):
        return np.eye(d)
    Q, _ = np.linalg.qr(own.T, mode="complete")
    return Q[:, len(own) :]


def saturation(facts: VectorFacts, c: np.ndarray, k: np.ndarray) -> Saturation:
    """Where λ k c^T sends every example as λ grows, and how clearly."""
    s = facts.query @ c
    keys = np.sign(s)[:, None] * (facts.context @ k)  # (T, n), shared or own
    top = np.sort(keys, axis=1)[:, -2:]
    return Saturation(c, k, keys.argmax(1), np.abs(s) * (top[:, 1] - top[:, 0]))


def assemble(
    parts: list[tuple[np.ndarray, np.ndarray]], d: int, d_h: int
) -> tuple[np.ndarray, np.ndarray]:
    """W_Q, W_K (H, d, d_h) from the columns (query side, key side) of each head, zeros after them;
    each pair of columns is balanced to equal norms, so that neither loses digits."""
    W_Q, W_K = np.zeros((2, len(parts), d, d_h))
    for h, (q, k) in enumerate(parts):
        a, b = np.linalg.norm(q, axis=1), np.linalg.norm(k, axis=1)
        both = (a > 0) & (b > 0)
        balance = np.sqrt(np.where(both, b, 1.0) / np.where(both, a, 1.0))
        W_Q[h, :, : len(q)] = (q * balance[:, None]).T
        W_K[h, :, : len(k)] = (k / balance[:, None]).T
    return W_Q, W_K


def literal_heads(facts: VectorFacts, groups: GroupCertificate, d_h: int, seed: int) -> Heads:
    """The inductive proof; the first head has no λ (1), `groups.over` is its r-th example."""
    rng = np.random.default_rng(seed)
    columns, largest, old = [], 1.0, []
    for h, group in enumerate(groups.groups):
        own = ([groups.over] if h == 0 else []) + list(group)
        # Step 1 and 2c: any logits on the own examples, E(t)^+ l(t) dual(t)^T.
        p = pseudo_inverse_times(facts.contexts()[own], rng.standard_normal((len(own), facts.n)))
        if h == 0:
            columns.append((dual_basis(facts.query[own]), p))
            old = own
            continue
        # Step 2a, b: c orthogonal to the own queries, k with distinct E(t) k; random does.
        basis = complement(facts.query[own], facts.d)
        pairs = []
        for _ in range(TRIES):
            c = basis @ rng.standard_normal(basis.shape[1])
            pairs.append(saturation(facts, c, rng.standard_normal(facts.d)))
        part = max(pairs, key=lambda pair: float(pair.gap[old].min()))
        # Step 2d: λ large enough to freeze every earlier example (finite suffices).
        q, k, lam = _with_saturation(facts, own, p, part, np.array(old))
        columns.append((q, k))
        largest = max(largest, lam)
        old = old + own
    return Heads(*assemble(columns, facts.d, d_h), largest)


def one_hot_heads(facts: VectorFacts, groups: GroupCertificate, d_h: int, seed: int) -> Heads:
    """Saturated heads for `groups` of at most min(n, d_h) - 1 examples each."""
    rng = np.random.default_rng(seed)
    choices = [_candidates(facts, group, rng) for group in groups.groups]
    best: tuple[float, np.ndarray, list[Saturation], np.ndarray | None, float] | None = None
    for draw in range(DRAWS if facts.shared else 1):
        parts = [c[0 if draw == 0 else int(rng.integers(len(c)))] for c in choices]
        token = np.stack([part.token for part in parts], axis=1)
        for h, group in enumerate(groups.groups):
            token[list(group), h] = 1 + np.arange(len(group))  # distinct tokens, 0 left to others
        if not facts.shared:
            best = (0.0, token, parts, None, math.inf)
            break
        token, condition, V = _signs(facts, groups, token, rng, spread=1 if draw == 0 else SPREAD)
        # Float32 adds up one value a head: small values lose least.
        size = float(np.square(V).mean()) if math.isfinite(condition) else math.inf
        if best is None or size < best[0]:
            best = (size, token, parts, V, condition)
    assert best is not None
    _, token, parts, V, condition = best
    columns, strengths = [], []
    for h, group in enumerate(groups.groups):
        own, wished = list(group), GAP * np.eye(facts.n)[token[list(group), h]]
        p = pseudo_inverse_times(facts.contexts()[own], wished)
        others = np.delete(np.arange(facts.T), own)
        q, k, lam = _with_saturation(facts, own, p, parts[h], others)
        columns.append((q, k))
        strengths.append(lam)
    return Heads(*assemble(columns, facts.d, d_h), max(strengths), V, condition)


def _candidates(
    facts: VectorFacts, group: tuple[int, ...], rng: np.random.Generator
) -> list[Saturation]:
    """The saturating parts with the largest smallest gap over the other examples, best first."""
    own = list(group)
    others = np.delete(np.arange(facts.T), own)
    # Random unit vectors c orthogonal to the own queries. They lean to the mean of the other
    # queries: the fewer fall on the other side, the closer the sign system is to the identity.
    basis = complement(facts.query[own], facts.d)
    draws = rng.standard_normal((CANDIDATES, basis.shape[1]))
    draws /= np.linalg.norm(draws, axis=1, keepdims=True)
    mean = facts.query[others].mean(0) @ basis if len(others) else np.zeros(basis.shape[1])
    size = np.linalg.norm(mean)
    if size > 0:
        draws = draws + LEAN * rng.random((CANDIDATES, 1)) * mean / size
    c = draws @ basis.T
    c = c / np.linalg.norm(c, axis=1, keepdims=True)
    if facts.shared:
        # E k = e_0 - e_1: the gap is |c·e| whatever the candidate.
        smallest = np.abs(facts.query[others] @ c.T).min(0) if len(others) else np.ones(len(c))
        order = np.argsort(-smallest)[:TOP]
        # Most examples on token 0. Tokens 0 and 1 attract, one a sign.
        k = pseudo_inverse_times(facts.context[None], np.eye(1, facts.n) - np.eye(1, facts.n, 1))[0]
        side = np.sign(np.sign(facts.query[others] @ c[order].T).sum(0) + 0.5)
        return [saturation(facts, s * c[i], k) for s, i in zip(side, order, strict=True)]
    # Own contexts: some key directions, without the mean token (softmax does not see it); the
    # pair (c, k) with the largest smallest gap.
    k = rng.standard_normal((KEYS, facts.d))
    mean = facts.context.mean((0, 1))
    k -= np.outer(k @ mean, mean) / max(float(mean @ mean), 1e-300)
    k /= np.linalg.norm(k, axis=1, keepdims=True)
    c = c[np.argsort(-np.abs(facts.query[others] @ c.T).min(0))[:PAIRED]] if len(others) else c[:1]
    s = facts.query @ c.T
    size = np.abs(s)
    scored = []
    keys = np.partition(facts.context @ k.T, (0, 1, -2, -1), axis=1)  # (T, n, KEYS)
    above, below = keys[:, -1] - keys[:, -2], keys[:, 1] - keys[:, 0]
    for j in range(KEYS):
        gaps = np.where(s > 0, above[:, j, None], below[:, j, None]) * size
        gaps[own] = np.inf
        scored += [(float(g), j, i) for i, g in enumerate(gaps.min(0))]
    scored.sort(reverse=True)
    return [saturation(facts, c[i], k[j]) for _, j, i in scored[:1]]


def _signs(
    facts: VectorFacts,
    groups: GroupCertificate,
    token: np.ndarray,
    rng: np.random.Generator,
    spread: int,
) -> tuple[np.ndarray, float, np.ndarray]:
    """Choose the example on token 1 of each group (one of the `spread` with the fewest
    exceptions), solve the sign system, assign the rest."""
    token = token.copy()
    H, y = len(groups.groups), facts.targets
    head = np.full(facts.T, -1)
    chosen = [groups.over]
    for h, group in enumerate(groups.groups):
        if not group:
            continue
        own = np.array(group)
        head[own] = h
        exceptions = (token[own] == 1).sum(1) - (token[own, h] == 1)
        first = int(np.argsort(exceptions, kind="stable")[rng.integers(min(spread, len(own)))])
        token[own[[0, first]], h] = token[own[[first, 0]], h]
        chosen.append(int(own[first]))
    B = np.concatenate([np.ones((len(chosen), 1)), token[chosen] == 1], axis=1)
    values = np.linalg.svd(B, compute_uv=False)
    condition = float(values[0] / values[-1]) if values[-1] > 1e-12 * values[0] else math.inf
    V = np.zeros((H, facts.n, y.shape[1]))
    if not math.isfinite(condition):
        return token, condition, V
    inverse = np.linalg.pinv(B)
    x = inverse @ y[chosen]
    x += inverse @ (y[chosen] - B @ x)
    V[:, 0] = x[0] / H
    V[:, 1] = V[:, 0] + x[1:]
    # f(t) = v_h(token) + what all other heads say of t: the own value takes up the rest.
    rest = np.setdiff1d(np.flatnonzero(head >= 0), chosen)
    own = head[rest]
    said = token[rest] == 1
    said[np.arange(len(rest)), own] = False
    V[own, token[rest, own]] = y[rest] - (said @ x[1:] + x[0] * (H - 1) / H)
    return token, condition, V


def _with_saturation(
    facts: VectorFacts, own: list[int], p: np.ndarray, part: Saturation, others: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Columns (query side, key side) of the fine part Σ_j p_j dual_j^T and the saturating part, and
    λ: the smallest that leaves each of the `others` `GAP` ahead, against its fine logits; bounded
    by (GAP + spread of the fine logits) / gap."""
    dual = dual_basis(facts.query[own])
    y = (facts.query @ dual.T) @ p
    fine = y @ facts.context.T if facts.shared else (facts.context @ y[:, :, None])[..., 0]
    lam = 1.0
    if len(others):
        target = np.take_along_axis(fine, part.token[:, None], 1)[:, 0]
        spread = np.maximum(fine.max(1) - target, 0.0)
        lam = float(((GAP + spread[others]) / part.gap[others]).max())
    return np.vstack([dual, part.c]), np.vstack([p, lam * part.k]), lam
