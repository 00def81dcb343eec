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

from dataclasses import dataclass

import numpy as np

from byheart.construct.multi_head.groups import GroupCertificate
from byheart.construct.multi_head.heads import (
    GAP,
    Saturation,
    assemble,
    directions,
    dual_basis,
    key_direction,
    pseudo_inverse_times,
    saturation,
    strength,
)
from byheart.facts import VectorFacts

DRAWS = 40  # choices of signs; stops early at a condition number below GOOD
GOOD = 30.0
TOP = 8  # candidates a draw chooses from: those with the largest smallest gap
LEAN = 2.0
KEYS, PAIRED = 16, 64  # own contexts: key directions drawn, and query directions paired with them


@dataclass(frozen=True)
class OneHot:
    """W_Q, W_K (H, d, d_h), the token of each example in each head (T, H), the largest λ; shared
    contexts: values V (H, n, m) and the condition number of the sign system."""

    W_Q: np.ndarray
    W_K: np.ndarray
    token: np.ndarray
    strength: float
    V: np.ndarray | None
    condition: float | None


def one_hot_heads(facts: VectorFacts, groups: GroupCertificate, d_h: int, seed: int = 0) -> OneHot:
    """Saturated heads for `groups` of at most min(n, d_h) - 1 examples each."""
    rng = np.random.default_rng(seed)
    choices = [_candidates(facts, group, rng) for group in groups.groups]
    best: tuple[float, np.ndarray, list[Saturation], tuple[np.ndarray, float] | None] | None = None
    for draw in range(DRAWS if facts.shared else 1):
        parts = [c[0 if draw == 0 else int(rng.integers(len(c)))] for c in choices]
        token = np.stack([part.token for part in parts], axis=1)
        for h, group in enumerate(groups.groups):
            token[list(group), h] = _own_tokens(facts, parts[h], len(group))
        if not facts.shared:
            best = (1.0, token, parts, None)
            break
        token, condition, solved = _signs(facts, groups, token)
        if best is None or condition < best[0]:
            best = (condition, token, parts, (solved, condition))
        if best[0] < GOOD:
            break
    assert best is not None
    _, token, parts, solved = best
    columns, largest = [], 0.0
    for h, group in enumerate(groups.groups):
        q, k, lam = _head(facts, list(group), parts[h], token[list(group), h])
        columns.append((q, k))
        largest = max(largest, lam)
    W_Q, W_K = assemble(columns, facts.d, d_h)
    if solved is None:
        return OneHot(W_Q, W_K, token, largest, None, None)
    return OneHot(W_Q, W_K, token, largest, solved[0], solved[1])


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
    s = facts.query[others] @ c.T
    scored = []
    for j, row in enumerate(k):
        keys = np.sort(facts.context[others] @ row, axis=1)
        above, below = keys[:, -1] - keys[:, -2], keys[:, 1] - keys[:, 0]
        gaps = np.where(s > 0, above[:, None], below[:, None]) * np.abs(s)
        smallest = gaps.min(0) if len(others) else np.ones(len(c))
        scored += [(float(g), j, i) for i, g in enumerate(smallest)]
    scored.sort(reverse=True)
    return [saturation(facts, c[i], k[j]) for _, j, i in scored[:1]]


def _own_tokens(facts: VectorFacts, part: Saturation, count: int) -> np.ndarray:
    """Distinct tokens for the own examples: 1, 2, ... (token 1 goes to the chosen one later)."""
    return 1 + np.arange(count)


def _signs(
    facts: VectorFacts, groups: GroupCertificate, token: np.ndarray
) -> tuple[np.ndarray, float, np.ndarray]:
    """Choose the example on token 1 of each group, solve the sign system, assign the rest."""
    token = token.copy()
    H, y = len(groups.groups), facts.targets
    chosen = [groups.over]
    for h, group in enumerate(groups.groups):
        if not group:
            continue
        exceptions = (np.delete(token[list(group)], h, axis=1) == 1).sum(1)
        first = int(exceptions.argmin())
        tokens = token[list(group), h].copy()
        tokens[[0, first]] = tokens[[first, 0]]
        token[list(group), h] = tokens
        chosen.append(group[first])
    rows = token[chosen] == 1
    B = np.concatenate([np.ones((len(chosen), 1)), rows], axis=1)
    values = np.linalg.svd(B, compute_uv=False)
    condition = float(values[0] / values[-1]) if values[-1] > 0 else np.inf
    if not condition < 1e12:
        return token, np.inf, np.zeros((H, facts.n, y.shape[1]))
    x = np.linalg.pinv(B) @ y[chosen]
    x += np.linalg.pinv(B) @ (y[chosen] - B @ x)
    V = np.zeros((H, facts.n, y.shape[1]))
    V[:, 0] = x[0] / H
    V[:, 1] = V[:, 0] + x[1:]
    done = set(chosen)
    for h, group in enumerate(groups.groups):
        for t in group:
            if t not in done:  # f(t) = v_h(token) + what all other heads say of t
                said = V[np.arange(H), token[t]].sum(0) - V[h, token[t, h]]
                V[h, token[t, h]] = y[t] - said
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
    alpha = facts.query @ dual.T  # (T, own): what the fine part makes of every query
    keys = facts.context @ p.T  # (n, own), or (T, n, own)
    fine = alpha @ keys.T if facts.shared else np.einsum("tj,tnj->tn", alpha, keys)
    lam = strength(facts, part, fine, others)
    q = np.concatenate([dual, part.c[None]])
    k = np.concatenate([p, lam * part.k[None]])
    return q, k, lam
