"""Which examples each head owns, and the independence that the saturation proof really uses.

Theorem 1 of Mahdavi et al. (2024) assumes that every n of the T queries are independent, which
nobody can check. Its proof uses less: in each of the groups, one a head, of at most r-1 examples,
the queries are independent, and every query outside lies outside their span, because head h needs
a direction c_h with c_h·e(t) = 0 on its own group and != 0 elsewhere. That is H small QRs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from byheart.errors import CapacityError
from byheart.facts import VectorFacts

# Relative residuals below this are rounding: float64 QR of vectors in R^d leaves about d · 2^-53.
DEPENDENT = 1e-11
SHUFFLES = 20
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
        own = f"the context of example {facts.rows[wrong[0]]}"
        which = "the shared context" if facts.shared else own
        more = "" if len(wrong) == 1 else f"; {len(wrong):,} contexts in all"
        raise CapacityError(
            f"Assumption 2 fails: {which} has rank {ranks[wrong[0]]} < n = {facts.n}{more}. "
            "Add position encodings to the tokens, or use `proof=random`."
        )
