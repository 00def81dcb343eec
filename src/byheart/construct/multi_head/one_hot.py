"""Every example saturated: the proof of Theorem 1 in a form that float32 survives.

Head h attends one-hot on all examples: to a token of its own for each of its r-1 examples, to one
of two tokens, by the sign of c_h·e, for everybody else. With a shared context and values v_h(i),

    f(t) = Σ_h v_h(token_h(t)),

the examples on tokens 2.. of their head are fitted by direct assignment, and what remains is one
example a head (on token 1) and the one over: with u_h = v_h(0), δ_h = v_h(1) - v_h(0), U = Σ u_h,

    U + Σ_h b_h(t) δ_h = y(t),     b_h(t) = [head h sends t to token 1]

H+1 equations instead of T. b is 1 on the diagonal; the directions c lean towards the mean query
and the example of each group with the fewest other ones is chosen, so the system is close to the
identity. Derived here from Mahdavi et al. 2024, Theorem 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from byheart.construct.multi_head.groups import GroupCertificate
from byheart.construct.multi_head.heads import (
    GAP,
    Saturation,
    assemble,
    directions,
    dual_basis,
    fine_logits,
    key_direction,
    pseudo_inverse_times,
    saturation,
    strength,
)
from byheart.facts import VectorFacts

DRAWS = 40  # choices of signs and of the examples on token 1; the smallest values are kept
SPREAD = 3
TOP = 8  # candidates a draw chooses from: those with the largest smallest gap
LEAN = 4.0
KEYS, PAIRED = 16, 64  # own contexts: key directions drawn, and query directions paired with them


@dataclass(frozen=True)
class OneHot:
    """W_Q, W_K (H, d, d_h), the largest λ; shared contexts: values V (H, n, m) and the condition
    number of the sign system."""

    W_Q: np.ndarray
    W_K: np.ndarray
    strength: float
    V: np.ndarray | None
    condition: float | None


def one_hot_heads(facts: VectorFacts, groups: GroupCertificate, d_h: int, seed: int = 0) -> OneHot:
    """Saturated heads for `groups` of at most min(n, d_h) - 1 examples each."""
    rng = np.random.default_rng(seed)
    choices = [_candidates(facts, group, rng) for group in groups.groups]
    best: tuple[float, np.ndarray, list[Saturation], np.ndarray | None, float | None] | None = None
    for draw in range(DRAWS if facts.shared else 1):
        parts = [c[0 if draw == 0 else int(rng.integers(len(c)))] for c in choices]
        token = np.stack([part.token for part in parts], axis=1)
        for h, group in enumerate(groups.groups):
            token[list(group), h] = 1 + np.arange(len(group))  # distinct tokens, 0 left to others
        if not facts.shared:
            best = (0.0, token, parts, None, None)
            break
        token, condition, V = _signs(facts, groups, token, rng, spread=1 if draw == 0 else SPREAD)
        # Float32 adds up one value a head: small values lose least.
        size = float(np.square(V).mean()) if math.isfinite(condition) else math.inf
        if best is None or size < best[0]:
            best = (size, token, parts, V, condition)
    assert best is not None
    _, token, parts, V, condition = best
    heads = [
        _head(facts, list(group), parts[h], token[list(group), h])
        for h, group in enumerate(groups.groups)
    ]
    W_Q, W_K = assemble([(q, k) for q, k, _ in heads], facts.d, d_h)
    return OneHot(W_Q, W_K, max(lam for *_, lam in heads), V, condition)


def _candidates(
    facts: VectorFacts, group: tuple[int, ...], rng: np.random.Generator
) -> list[Saturation]:
    """The saturating parts with the largest smallest gap over the other examples, best first."""
    own = list(group)
    others = np.delete(np.arange(facts.T), own)
    c = directions(facts.query, np.array(own, dtype=int), others, rng, LEAN)
    if facts.shared:
        # E k = e_0 - e_1: the gap is |c·e| whatever the candidate.
        smallest = np.abs(facts.query[others] @ c.T).min(0) if len(others) else np.ones(len(c))
        order = np.argsort(-smallest)[:TOP]
        # Most examples on token 0.
        k = key_direction(facts.context)
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


def _head(
    facts: VectorFacts, own: list[int], part: Saturation, tokens: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Columns (query side, key side) of one head: one-hot fine part, then the saturating part."""
    wished = np.zeros((len(own), facts.n))
    wished[np.arange(len(own)), tokens] = GAP
    p = pseudo_inverse_times(facts.contexts()[own], wished)
    dual = dual_basis(facts.query[own])
    others = np.delete(np.arange(facts.T), own)
    fine = fine_logits(facts, dual, p)
    lam = strength(facts, part, fine, others)
    q = np.concatenate([dual, part.c[None]])
    k = np.concatenate([p, lam * part.k[None]])
    return q, k, lam
