"""The four proofs from vector facts to weights, each with its sizes and its reasons."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
import torch

from byheart._progress import Report
from byheart.construct.attention_only import rounded
from byheart.construct.multi_head.generic import condition_heads, random_heads
from byheart.construct.multi_head.groups import GroupCertificate, find_groups
from byheart.construct.multi_head.literal import literal_heads
from byheart.construct.multi_head.newton import LOGITS, newton_run
from byheart.construct.multi_head.one_hot import one_hot_heads
from byheart.construct.multi_head.values import Weights, features, value_weights, value_width
from byheart.construct.outcome import DTYPES, check_fits, weight_bytes
from byheart.construct.readout import convex_readout
from byheart.construct.solve import RankError, Solution, minimum_norm, solve_bytes
from byheart.errors import CapacityError, CheckFailed
from byheart.facts import VectorFacts
from byheart.models.construction import MultiHeadConstruction, NewtonStart
from byheart.specs import MultiHeadSpec
from byheart.theory.mahdavi2024 import (
    effective_parameters,
    generic_rank,
    theorem1_capacity,
    theorem1_heads,
)

if TYPE_CHECKING:
    from byheart.construct.methods import MultiHead

Matrix = torch.Tensor | np.ndarray
SEED_STRIDE = 1_000_003
ORDERS = 20  # orders of the examples tried where the sign system is singular
RANDOM_DRAWS, GOOD_CONDITION = 3, 1e3  # random heads: draws, and when one is good enough
# Classes held per unit of rank by random heads and a convex read-out, for 2, 10 and 100 classes
# (docs/multi-head.md), of which 0.7 are asked for when byheart chooses the heads.
CLASS_LOAD = {2: 1.8, 10: 4.0, 100: 20.0}
LOAD_SHARE = 0.7
NEWTON_SHARE = 0.9  # of P, when byheart chooses the heads
SAFE = 1e-4  # convex margin, of the mean |logits|: a hundred times what float32 loses


@dataclass(frozen=True)
class Layer:
    """Weights before rounding of the read-out, and what is worth telling about them."""

    spec: MultiHeadSpec
    weights: Weights
    capacity: int
    construction: MultiHeadConstruction
    why: list[str]


def _check_sizes(facts: VectorFacts) -> None:
    """n <= d, and at least two tokens."""
    if facts.n > facts.d:
        raise CapacityError(
            f"n <= d is needed (contexts of rank n): n = {facts.n} tokens of d = {facts.d} "
            "coordinates. Use fewer tokens or wider vectors, or `proof=random`, which does not "
            "need it."
        )
    if facts.n < 2:
        raise CapacityError(
            "n >= 2 is needed: attention over one token is constant, so the query is not read."
        )


def _check_contexts(facts: VectorFacts) -> None:
    """Assumption 2: every context has rank n (float64, tolerance max(n, d) ε σ_1)."""
    E = facts.context[None] if facts.shared else facts.context
    values = np.linalg.svd(E, compute_uv=False)
    tolerance = max(E.shape[1:]) * np.finfo(np.float64).eps * values[:, :1]
    ranks = (values > tolerance).sum(1)
    wrong = np.flatnonzero(ranks < facts.n)
    if len(wrong):
        i = int(wrong[0])
        which = "the shared context" if facts.shared else f"the context of example {facts.rows[i]}"
        more = "" if len(wrong) == 1 else f"; {len(wrong):,} contexts in all"
        raise CapacityError(
            f"Assumption 2 fails: {which} has rank {ranks[i]} < n = {facts.n}{more}. "
            "Add position encodings to the tokens, or use `proof=random`."
        )


def _check_capacity(facts: VectorFacts, H: int, d_h: int) -> None:
    """T <= H (min(n, d_h) - 1) + 1 (Theorem 1)."""
    capacity = theorem1_capacity(H, facts.n, d_h)
    if facts.T > capacity:
        r = min(facts.n, d_h)
        heads = theorem1_heads(facts.T, facts.n, d_h) if r > 1 else 0
        advice = f"Use `H={heads}` or more" if r > 1 else "Use `d_h=2` or more"
        raise CapacityError(
            f"{facts.T:,} examples are more than H(r-1)+1 = {H}·{r - 1}+1 = {capacity:,}, "
            f"r = min(n, d_h) = {r} (Mahdavi et al. 2024, Theorem 1). {advice}, or "
            "`proof=random` or `proof=newton`, which go further."
        )


def _spec(facts: VectorFacts, H: int, d_h: int) -> MultiHeadSpec:
    spec = MultiHeadSpec(
        d=facts.d,
        n=facts.n,
        d_h=d_h,
        H=H,
        d_v=value_width(facts),
        d_out=facts.outputs,
        shared=facts.shared,
    )
    check_fits(weight_bytes(spec.parameters), f"a layer of {H:,} heads")
    check_fits(solve_bytes(facts.T, H * (facts.n if facts.shared else facts.d)), "the solve")
    return spec


def _width(facts: VectorFacts, d_h: int | None, why: list[str]) -> int:
    if d_h is not None:
        if d_h > facts.d:
            raise CapacityError(f"d_h <= d is needed: {d_h} > {facts.d}. Use `d_h={facts.d}`.")
        return d_h
    chosen = min(facts.n, facts.d)
    why.append(f"d_h = {chosen}: as many as tokens; more buys nothing (Theorem 1)")
    return max(chosen, 1)


def _theorem(
    facts: VectorFacts, options: MultiHead, seed: int
) -> tuple[MultiHeadSpec, GroupCertificate, list]:
    """Sizes by Theorem 1 and its hypotheses, checked; the groups that head by head are owned."""
    why: list[str] = []
    _check_sizes(facts)
    d_h = _width(facts, options.d_h, why)
    if d_h < 2:
        raise CapacityError("d_h >= 2 is needed: r - 1 = 0 examples a head. Use `d_h=2`.")
    H = options.H
    if H is None:
        H = theorem1_heads(facts.T, facts.n, d_h)
        why.append(f"H = {H}: the fewest with H(r-1)+1 >= {facts.T}, r = {min(facts.n, d_h)}")
    _check_capacity(facts, H, d_h)
    _check_contexts(facts)
    groups = find_groups(facts.query, H, min(facts.n, d_h) - 1, seed)
    if not groups.holds:
        raise CapacityError(
            f"Assumption 1 fails where the proof uses it: {groups.reason()}, for every order of "
            "the examples tried. `byheart kruskal` shows more; `proof=random` needs less."
        )
    why.append(
        f"queries independent where the proof needs it: smallest pivot {groups.pivot:.1e}, "
        f"smallest residual {groups.residual:.1e}"
    )
    return _spec(facts, H, d_h), groups, why


def one_hot(facts: VectorFacts, options: MultiHead, seed: int, progress: Report) -> Layer:
    spec, groups, why = _theorem(facts, options, seed)
    progress(f"saturating {spec.H} heads")
    heads = one_hot_heads(facts, groups, spec.d_h, seed)
    for attempt in range(1, ORDERS):  # few directions to choose from can leave equal sign patterns
        if heads.condition is None or math.isfinite(heads.condition):
            break
        size = min(facts.n, spec.d_h) - 1
        found = find_groups(facts.query, spec.H, size, seed + attempt, shuffled=True)
        if found.holds:
            groups = found
            heads = one_hot_heads(facts, groups, spec.d_h, seed)
    QK = _stored(heads.W_Q, heads.W_K, options)
    if heads.V is not None:
        if not math.isfinite(heads.condition or math.inf):
            raise CheckFailed(
                "the sign system of the saturated heads is singular for every draw: try another "
                "`seed`, more `H`, or `proof=random`."
            )
        values, condition = value_weights(spec, facts, heads.V), heads.condition
        why.append(f"{spec.H + 1} sign equations instead of {facts.T}, the rest by assignment")
    else:
        solution, values = _solved(spec, facts, QK, progress)
        condition = solution.condition
    made = _owned("one-hot", groups, condition, heads.strength)
    capacity = theorem1_capacity(spec.H, spec.n, spec.d_h)
    return Layer(spec, QK | values, capacity, made, why)


def literal(facts: VectorFacts, options: MultiHead, seed: int, progress: Report) -> Layer:
    spec, groups, why = _theorem(facts, options, seed)
    W_Q, W_K, largest = literal_heads(facts, groups, spec.d_h, seed)
    QK = _stored(W_Q, W_K, options)
    solution, values = _solved(spec, facts, QK, progress)
    made = _owned("literal", groups, solution.condition, largest)
    why.append(f"λ up to {largest:.0e}: beyond about 1e6 float32 loses the own logits")
    return Layer(spec, QK | values, theorem1_capacity(spec.H, spec.n, spec.d_h), made, why)


def random(facts: VectorFacts, options: MultiHead, seed: int, progress: Report) -> Layer:
    why: list[str] = []
    d_h = _width(facts, options.d_h, why)
    exact = options.readout == "exact"
    H = options.H or _heads_for_rank(facts, options, why)
    D = generic_rank(H, facts.n, facts.d, shared=facts.shared)
    if exact and facts.T > D:
        formula = "H(n-1)+1" if facts.shared else "H·d"
        raise CapacityError(
            f"{facts.T:,} examples are more than {formula} = {D:,}, the rank that {H} heads reach "
            f"with {'a shared context' if facts.shared else 'own contexts'}. Use more `H`, "
            "`readout=convex` (classes) or `proof=newton` (scalars)."
        )
    spec = _spec(facts, H, d_h)
    failures: list[str] = []
    best, best_condition = None, math.inf
    for attempt in range(RANDOM_DRAWS):
        W_Q, W_K = random_heads(facts, H, d_h, seed + SEED_STRIDE * attempt)
        seen = None
        if options.steps:
            progress(f"conditioning {H} heads, {options.steps} steps")
            W_Q, W_K, conditions = condition_heads(facts, W_Q, W_K, options.steps)
            seen = tuple(conditions)
        QK = _stored(W_Q, W_K, options)
        if not exact:
            return _convex(spec, facts, QK, D, why, progress)
        try:
            solution, values = _solved(spec, facts, QK, progress)
        except RankError as error:
            failures.append(str(error))
            continue
        if best is None or solution.condition < best_condition:
            best_condition = solution.condition
            made = MultiHeadConstruction(
                proof="random", condition=best_condition, conditions_seen=seen
            )
            best = Layer(spec, QK | values, D, made, why)
        if solution.condition < GOOD_CONDITION:
            break
    if best is not None:
        return best
    raise CheckFailed(
        f"random heads do not reach the rank {facts.T:,}: {failures[-1]}. Are queries or contexts "
        "repeated (`byheart kruskal`)? Use more `H` or a larger `d_h`."
    )


def _heads_for_rank(facts: VectorFacts, options: MultiHead, why: list[str]) -> int:
    """The fewest heads whose generic rank holds the examples, and slack where all are promised."""
    exact = options.readout == "exact"
    load = 1.0 if exact else LOAD_SHARE * class_load(facts.classes or 2)
    H = 1
    while facts.n > 1 and generic_rank(H, facts.n, facts.d, shared=facts.shared) * load < facts.T:
        H += 1
    H = math.ceil(H * (1 + options.slack)) if exact else H
    why.append(f"H = {H}: generic rank for {facts.T} examples" + (", 5 % slack" * exact))
    return H


def _convex(
    spec: MultiHeadSpec,
    facts: VectorFacts,
    QK: Weights,
    D: int,
    why: list[str],
    progress: Report,
) -> Layer:
    """Multinomial logistic read-out of frozen random attention: more classes than the rank."""
    progress(f"features of {facts.T:,} examples")
    X = features(spec, QK, facts)
    K = facts.outputs
    progress(f"convex read-out of {facts.T:,} examples, rank {D:,}")
    found = convex_readout(
        X,
        torch.zeros(facts.T, K, dtype=torch.float64),
        torch.eye(K, dtype=torch.float64),
        torch.tensor(facts.label),
        torch.full((facts.T,), 1 / facts.T, dtype=torch.float64),
        safe=SAFE,
    )
    values = value_weights(spec, facts, found.W_O.reshape(spec.H, -1, K))
    why.append(f"{facts.T / D:.1f} examples per unit of rank ({D:,}); no theorem behind it")
    made = MultiHeadConstruction(proof="random", iterations=found.iterations)
    return Layer(spec, QK | values, D, made, why)


def newton(facts: VectorFacts, options: MultiHead, seed: int, progress: Report) -> Layer:
    why: list[str] = []
    _check_sizes(facts)
    d_h = _width(facts, options.d_h, why)
    if facts.shared:
        _check_contexts(facts)
    H = options.H

    def P(H: int) -> int:
        return effective_parameters(H, facts.n, facts.d, d_h, shared=facts.shared)

    if H is None:
        H = next(h for h in count(1) if NEWTON_SHARE * P(h) >= facts.T)
        why.append(f"H = {H}: {NEWTON_SHARE} P >= {facts.T}, P = {P(H)} effective parameters")
    if facts.T > P(H):
        raise CapacityError(
            f"{facts.T:,} examples are more than P = {P(H):,}, the dimension of what {H} heads "
            f"with d_h = {d_h} can do: generic labels cannot be fitted. Use more `H`."
        )
    spec = _spec(facts, H, d_h)
    told = []
    for i in range(options.starts):
        progress(f"start {i + 1} of {options.starts}, {facts.T:,} examples, P = {P(H):,}")
        logits = LOGITS[i % len(LOGITS)]
        run = newton_run(facts, H, d_h, seed + SEED_STRIDE * i, logits)
        told.append(NewtonStart(run.seed, run.iterations, run.error))
        if run.error < 1e-6:
            break
    else:
        errors = ", ".join(f"{start.error:.0e}" for start in told)
        iterations = ", ".join(str(start.iterations) for start in told)
        raise CheckFailed(
            f"none of {options.starts} starts fitted all {facts.T:,} examples "
            f"({facts.T / P(H):.2f} P): errors {errors} after {iterations} iterations. "
            "Use more `starts` or `H`."
        )
    theorem = theorem1_capacity(H, facts.n, d_h)
    why.append(
        f"{facts.T / P(H):.2f} of P = {P(H):,} effective parameters, {facts.T / theorem:.1f} times "
        f"Theorem 1 ({theorem:,}); start {len(told)}, {run.iterations} iterations"
    )
    K, V = run.K, run.v[..., None]
    if facts.shared:
        K = torch.linalg.pinv(torch.tensor(facts.context)) @ K  # keys of tokens -> W_K
    q = K.shape[2]
    W_Q = torch.zeros(H, facts.d, d_h, dtype=torch.float64)
    W_K = torch.zeros_like(W_Q)
    W_Q[..., :q], W_K[..., :q] = run.W_Q, K
    QK = _stored(W_Q, W_K, options)
    made = MultiHeadConstruction(
        proof="newton", starts=tuple(told), effective_parameters=P(H), theorem1=theorem
    )
    return Layer(spec, QK | value_weights(spec, facts, V), P(H), made, why)


def class_load(classes: int) -> float:
    """Examples per unit of rank that a convex read-out was measured to hold, interpolated.

    >>> class_load(10), class_load(1000)
    (4.0, 20.0)
    """
    known = sorted(CLASS_LOAD)
    return float(np.interp(np.log(classes), np.log(known), [CLASS_LOAD[k] for k in known]))


def _solved(
    spec: MultiHeadSpec, facts: VectorFacts, QK: Weights, progress: Report
) -> tuple[Solution, Weights]:
    """Z w = y (or A v = y) by least norm, for heads as they will be stored."""
    progress(f"features of {facts.T:,} examples")
    X = features(spec, QK, facts)
    progress(f"solving {facts.T:,} equations")
    solution = minimum_norm(X, torch.tensor(facts.targets))
    V = solution.W.reshape(spec.H, -1, facts.outputs)
    return solution, value_weights(spec, facts, V)


def _stored(W_Q: Matrix, W_K: Matrix, options: MultiHead) -> Weights:
    """The heads as they will be stored, as float64: the read-out is solved for what is there."""
    weights = {"W_Q": torch.as_tensor(W_Q), "W_K": torch.as_tensor(W_K)}
    return rounded(weights, DTYPES[options.dtype])


def _owned(
    proof: str, groups: GroupCertificate, condition: float | None, strength: float
) -> MultiHeadConstruction:
    """The record of a proof that gives every head a group of examples."""
    return MultiHeadConstruction(
        proof=proof,
        condition=condition,
        strength=strength,
        groups=groups.groups,
        over=groups.over,
        pivot=groups.pivot,
        residual=groups.residual,
    )
