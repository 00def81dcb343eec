"""vector facts -> memory, by one of four proofs, each with its sizes and its reasons; verified as
stored."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np
import torch

from byheart._progress import Report
from byheart.construct.attention_only import rounded
from byheart.construct.methods import MultiHead
from byheart.construct.multi_head import generic
from byheart.construct.multi_head.saturated import (
    GroupCertificate,
    Heads,
    check_contexts,
    find_groups,
    literal_heads,
    one_hot_heads,
)
from byheart.construct.readout import convex_readout
from byheart.construct.solve import DTYPES, RankError, check_fits, minimum_norm, solve_bytes
from byheart.errors import ByheartError, CapacityError, CheckFailed, OptionError
from byheart.facts import VectorFacts
from byheart.models.construction import LostFact, MultiHeadConstruction, NewtonStart, finite
from byheart.models.threads import one_thread
from byheart.models.vector_memory import VectorMemory
from byheart.specs import MultiHeadSpec
from byheart.theory import mahdavi2024 as theory

Matrix = torch.Tensor | np.ndarray
Made = tuple[MultiHeadSpec, generic.Weights, dict]  # and fields of the construction
SEED_STRIDE = 1_000_003
ORDERS = 20  # orders of the examples tried where the sign system is singular
RANDOM_DRAWS, GOOD_CONDITION = 3, 1e3  # random heads: draws, and when one is good enough
# Classes held per unit of rank by random heads and a convex read-out, for 2, 10 and 100 classes
# (docs/multi-head.md), of which 0.7 are asked for when byheart chooses the heads.
CLASS_LOAD = {2: 1.8, 10: 4.0, 100: 20.0}  # interpolated on the logarithm between them
LOAD_SHARE = 0.7
NEWTON_SHARE = 0.9  # of P, when byheart chooses the heads
SAFE = 1e-4  # convex margin, of the mean |logits|: a hundred times what float32 loses


def multi_head_memory(
    facts: VectorFacts, options: MultiHead, seed: int, progress: Report
) -> VectorMemory:
    """A multi-head attention layer that recalls every example (docs/multi-head.md), with a convex
    read-out those that it can: numbers within `tolerance`, classes with a positive margin."""
    _check_options(facts, options)
    task = _Task(facts, options, seed, progress)
    proofs = {"one-hot": _one_hot, "literal": _literal, "random": _random, "newton": _newton}
    with one_thread():
        spec, weights, record = proofs[options.proof](task)
    asked = {name: getattr(options, name) for name in ("proof", "readout", "tolerance")}
    made = MultiHeadConstruction(**asked, why=tuple(task.why), **record)
    memory = VectorMemory(
        spec=spec,
        weights={name: w.to(DTYPES[options.dtype]) for name, w in weights.items()},
        construction=made,
        facts=facts,
        classes=facts.classes,
        context=facts.context if facts.shared else None,
    )
    progress(f"recalling {facts.T:,} examples")
    return _verified(memory, made, facts)


def _check_options(facts: VectorFacts, options: MultiHead) -> None:
    proof, tolerance = options.proof, options.tolerance
    if options.readout == "convex" and (proof != "random" or facts.classes is None):
        needs = "whole-number labels and `proof=random`"
        raise ByheartError(f"`readout=convex` is for classes and random heads: use {needs}.")
    if proof == "newton" and (facts.classes is not None or facts.outputs > 1):
        raise ByheartError("`proof=newton` fits scalar labels: use `proof=random` for others.")
    if tolerance is not None and not (tolerance > 0 and math.isfinite(tolerance)):
        raise OptionError("tolerance", "a positive number", tolerance)
    if tolerance is not None and facts.classes is not None:
        raise ByheartError("`tolerance` is for numbers: classes are right or wrong.")
    if options.steps and proof != "random":
        raise ByheartError("gradient conditioning (`steps`) belongs to `proof=random`.")


def _verified(
    memory: VectorMemory, made: MultiHeadConstruction, facts: VectorFacts
) -> VectorMemory:
    """Every example asked from the weights as they are stored."""
    margins = memory.margins(facts)
    good = margins > 0
    lost = (~good).nonzero()[0].tolist()
    error = error_float32 = margin = None
    if facts.classes is None:
        error = float(memory.errors(facts).max())
        error_float32 = float(memory.errors(facts, torch.float32).max())
    elif good.any():
        margin = finite(float(margins[good].min()))
    if lost and made.readout == "exact":
        outcome = f"{len(lost):,} of {facts.T:,} examples are lost"
        if error is not None:
            outcome = f"the largest error is {error:.1e}, above {memory.tolerance:.0e}"
        advice = "`dtype=float64`" if memory.dtype == torch.float32 else "another `seed`"
        more = " (the literal proof needs it: see docs/multi-head.md)" * (made.proof == "literal")
        raise CheckFailed(
            f"from the stored weights {outcome}. Nothing was written. Use {advice}{more}, or "
            "`proof=one-hot`."
        )
    if lost and not good.any():
        raise CapacityError(f"none of the {facts.T:,} examples could be held by {memory.spec}.")
    made = replace(
        made,
        recalled=int(good.sum()),
        lost=tuple(LostFact(int(facts.rows[i]), int(facts.label[i])) for i in lost),
        margin=margin,
        error=error,
        error_float32=error_float32,
    )
    return replace(memory, construction=made, facts=facts.subset(good) if lost else facts)


@dataclass(frozen=True)
class _Task:
    """What every proof starts from, and the reasons for its choices."""

    facts: VectorFacts
    options: MultiHead
    seed: int
    progress: Report
    why: list[str] = field(default_factory=list)

    def width(self, full_rank: bool = True) -> int:
        """d_h; `full_rank`: the proof needs at least two tokens, and contexts of rank n."""
        facts, d_h = self.facts, self.options.d_h
        if full_rank and facts.n > facts.d:
            raise CapacityError(
                f"n <= d is needed (contexts of rank n): n = {facts.n} tokens of d = {facts.d} "
                "coordinates. Use fewer tokens or wider vectors, or `proof=random`."
            )
        if full_rank and facts.n < 2:
            raise CapacityError("n >= 2 is needed: attention over one token is constant.")
        if d_h is not None:
            if d_h > facts.d:
                raise CapacityError(f"d_h <= d is needed: {d_h} > {facts.d}. Use `d_h={facts.d}`.")
            return d_h
        chosen = min(facts.n, facts.d)
        self.why.append(f"d_h = {chosen}: a wider head holds no more, r = min(n, d_h) (Theorem 1)")
        return max(chosen, 1)

    def rank(self, H: int) -> int:
        facts = self.facts
        return theory.generic_rank(H, facts.n, facts.d, shared=facts.shared)

    def spec(self, H: int, d_h: int) -> MultiHeadSpec:
        """d_v = min(n, m) for a shared context, min(d, m) otherwise: every read-out is possible."""
        facts = self.facts
        rows = facts.n if facts.shared else facts.d
        spec = MultiHeadSpec(
            d=facts.d,
            n=facts.n,
            d_h=d_h,
            H=H,
            d_v=min(rows, facts.outputs),
            d_out=facts.outputs,
            shared=facts.shared,
        )
        check_fits(0, spec.parameters, f"a layer of {H:,} heads")
        check_fits(solve_bytes(facts.T, H * rows), 0, "the solve")
        return spec

    def stored(self, W_Q: Matrix, W_K: Matrix) -> generic.Weights:
        """The heads as they will be stored, as float64: the read-out is solved for them."""
        weights = {"W_Q": torch.as_tensor(W_Q), "W_K": torch.as_tensor(W_K)}
        return rounded(weights, DTYPES[self.options.dtype])

    def solved(self, spec: MultiHeadSpec, QK: generic.Weights) -> tuple[float, generic.Weights]:
        """Z w = y (or A v = y) by least norm, for heads as they will be stored: the condition
        number and the values."""
        facts = self.facts
        self.progress(f"solving {facts.T:,} equations")
        X = generic.features(spec, QK, facts)
        solution = minimum_norm(X, torch.tensor(facts.targets))
        V = solution.W.reshape(spec.H, -1, facts.outputs)
        return solution.condition, generic.value_weights(facts, V)

    def theorem(self) -> tuple[MultiHeadSpec, GroupCertificate]:
        """Sizes by Theorem 1, its hypotheses checked, and the groups that the heads own."""
        facts, H = self.facts, self.options.H
        d_h = self.width()
        if d_h < 2:
            raise CapacityError("a head with d_h = 1 owns r - 1 = 0 examples. Use `d_h=2` or more.")
        heads, r = theory.theorem1_heads(facts.T, facts.n, d_h), min(facts.n, d_h)
        if H is None:
            H = heads
            self.why.append(f"H = {H}: the fewest heads with H(r-1)+1 >= {facts.T} at r = {r}")
        capacity = theory.theorem1_capacity(H, facts.n, d_h)
        if facts.T > capacity:
            raise CapacityError(
                f"{facts.T:,} examples are more than H(r-1)+1 = {H}·{r - 1}+1 = {capacity:,}, "
                f"r = min(n, d_h) = {r} (Mahdavi et al. 2024, Theorem 1). Use `H={heads}` or more, "
                "or `proof=random` or `proof=newton`, which go further."
            )
        check_contexts(facts)
        groups = find_groups(facts.query, H, r - 1, self.seed)
        if not groups.holds:
            raise CapacityError(
                f"Assumption 1 fails where the proof uses it: {groups.reason()}, for every order "
                "of the examples tried. `byheart kruskal` shows more; `proof=random` needs less."
            )
        self.why.append(
            "the queries are independent where the proof needs it: the smallest pivot is "
            f"{groups.pivot:.1e}, the smallest residual {groups.residual:.1e}"
        )
        return self.spec(H, d_h), groups

    def owned(self, spec: MultiHeadSpec, groups: GroupCertificate, heads: Heads) -> Made:
        """Heads that own a group of examples each, with their values or the solve for them."""
        QK, condition = self.stored(heads.W_Q, heads.W_K), heads.condition
        if heads.V is None:
            condition, values = self.solved(spec, QK)
        else:
            values = generic.value_weights(self.facts, heads.V)
        record = {name: getattr(groups, name) for name in ("groups", "over", "pivot", "residual")}
        record |= {"condition": condition, "strength": heads.strength}
        record["capacity"] = theory.theorem1_capacity(spec.H, spec.n, spec.d_h)
        return spec, QK | values, record


def _one_hot(task: _Task) -> Made:
    facts, seed = task.facts, task.seed
    spec, groups = task.theorem()
    task.progress(f"saturating {spec.H} heads")
    made = one_hot_heads(facts, groups, spec.d_h, seed)
    for attempt in range(1, ORDERS):  # few directions to choose from can leave equal sign patterns
        if made.V is None or math.isfinite(made.condition):
            break
        size = min(facts.n, spec.d_h) - 1
        found = find_groups(facts.query, spec.H, size, seed + attempt, shuffled=True)
        if found.holds:
            groups, made = found, one_hot_heads(facts, found, spec.d_h, seed)
    if made.V is None:
        return task.owned(spec, groups, made)
    if not math.isfinite(made.condition):
        singular = "the sign system of the saturated heads is singular for every draw"
        raise CheckFailed(f"{singular}: try another `seed`, more `H`, or `proof=random`.")
    task.why.append(
        f"only {spec.H + 1} equations are solved, not {facts.T}: all other values are set directly"
    )
    return task.owned(spec, groups, made)


def _literal(task: _Task) -> Made:
    spec, groups = task.theorem()
    made = literal_heads(task.facts, groups, spec.d_h, task.seed)
    task.why.append(
        f"λ is at most {made.strength:.0e}: beyond about 1e6, float32 rounds away the logits by "
        "which a head tells its own examples apart"
    )
    return task.owned(spec, groups, made)


def _random(task: _Task) -> Made:
    facts, options = task.facts, task.options
    d_h = task.width(full_rank=False)
    exact = options.readout == "exact"
    H = options.H or _heads_for_rank(task)
    D = task.rank(H)
    if exact and facts.T > D:
        formula = "H(n-1)+1" if facts.shared else "H·d"
        raise CapacityError(
            f"{facts.T:,} examples are more than {formula} = {D:,}, the rank that {H} heads reach "
            f"with {'a shared context' if facts.shared else 'own contexts'}. Use more `H`, "
            "`readout=convex` (classes) or `proof=newton` (scalars)."
        )
    spec = task.spec(H, d_h)
    tried: list[Made] = []
    failure = ""
    for attempt in range(RANDOM_DRAWS):
        W_Q, W_K = generic.random_heads(facts, H, d_h, task.seed + SEED_STRIDE * attempt)
        seen = None
        if options.steps:
            task.progress(f"conditioning {H} heads, {options.steps} steps")
            W_Q, W_K, conditions = generic.condition_heads(facts, W_Q, W_K, options.steps)
            seen = tuple(conditions)
        QK = task.stored(W_Q, W_K)
        if not exact:
            return _convex(task, spec, QK, D)
        try:
            condition, values = task.solved(spec, QK)
        except RankError as error:
            failure = str(error)
            continue
        record = {"capacity": D, "condition": condition, "conditions_seen": seen}
        tried.append((spec, QK | values, record))
        if condition < GOOD_CONDITION:
            break
    if tried:
        return min(tried, key=lambda made: made[2]["condition"])
    raise CheckFailed(
        f"random heads do not reach the rank {facts.T:,}: {failure}. Are queries or contexts "
        "repeated (`byheart kruskal`)? Use more `H` or a larger `d_h`."
    )


def _heads_for_rank(task: _Task) -> int:
    """The fewest heads whose generic rank holds the examples, and slack where all are promised."""
    facts, exact = task.facts, task.options.readout == "exact"
    known = sorted(CLASS_LOAD)
    held = np.interp(np.log(facts.classes or 2), np.log(known), [CLASS_LOAD[k] for k in known])
    load = 1.0 if exact else LOAD_SHARE * float(held)
    H = 1
    while facts.n > 1 and task.rank(H) * load < facts.T:
        H += 1
    H = math.ceil(H * (1 + task.options.slack)) if exact else H
    slack = f", and {task.options.slack:.0%} more" * exact
    task.why.append(f"H = {H}: the fewest heads with enough rank for {facts.T} examples{slack}")
    return H


def _convex(task: _Task, spec: MultiHeadSpec, QK: generic.Weights, D: int) -> Made:
    """Multinomial logistic read-out of frozen random attention: more classes than the rank."""
    facts, K = task.facts, task.facts.outputs
    task.progress(f"convex read-out of {facts.T:,} examples, rank {D:,}")
    found = convex_readout(
        generic.features(spec, QK, facts),
        torch.zeros(facts.T, K, dtype=torch.float64),
        torch.eye(K, dtype=torch.float64),
        torch.tensor(facts.label),
        torch.full((facts.T,), 1 / facts.T, dtype=torch.float64),
        safe=SAFE,
    )
    values = generic.value_weights(facts, found.W_O.reshape(spec.H, -1, K))
    task.why.append(
        f"{facts.T / D:.1f} examples for each of the {D:,} units of rank, which no theorem promises"
    )
    return spec, QK | values, {"capacity": D, "iterations": found.iterations}


def _newton(task: _Task) -> Made:
    facts, H, starts = task.facts, task.options.H, task.options.starts
    d_h = task.width()
    if facts.shared:
        check_contexts(facts)

    def effective(H: int) -> int:
        return theory.effective_parameters(H, facts.n, facts.d, d_h, shared=facts.shared)

    if H is None:
        H = next(h for h in count(1) if NEWTON_SHARE * effective(h) >= facts.T)
        task.why.append(
            f"H = {H}: the fewest heads with {NEWTON_SHARE} P >= {facts.T}, where "
            f"P = {effective(H)} counts the effective parameters"
        )
    P = effective(H)
    if facts.T > P:
        most = f"P = {P:,}, the dimension of what {H} heads with d_h = {d_h} can do"
        raise CapacityError(f"{facts.T:,} examples are more than {most}. Use more `H`.")
    spec = task.spec(H, d_h)
    told = []
    for i in range(starts):
        task.progress(f"start {i + 1} of {starts}, {facts.T:,} examples, P = {P:,}")
        own = task.seed + SEED_STRIDE * i
        run = generic.newton_run(facts, H, d_h, own, generic.LOGITS[i % len(generic.LOGITS)])
        told.append(NewtonStart(own, run.iterations, run.error))
        if run.error < 1e-6:
            break
    else:
        errors = ", ".join(f"{start.error:.0e} after {start.iterations}" for start in told)
        raise CheckFailed(
            f"none of {starts} starts fitted all {facts.T:,} examples ({facts.T / P:.2f} P): "
            f"errors {errors} iterations. Use more `starts` or `H`."
        )
    theorem = theory.theorem1_capacity(H, facts.n, d_h)
    task.why.append(
        f"{facts.T / P:.2f} of P = {P:,} effective parameters, {facts.T / theorem:.1f} times "
        f"Theorem 1 ({theorem:,}); start {len(told)}, {run.iterations} iterations"
    )
    # Keys of tokens -> W_K.
    K = torch.linalg.pinv(torch.tensor(facts.context)) @ run.K if facts.shared else run.K
    # Unused columns of the heads stay 0.
    W_Q, W_K = (torch.nn.functional.pad(W, (0, d_h - W.shape[2])) for W in (run.W_Q, K))
    values = generic.value_weights(facts, run.v[..., None])
    record = {"starts": tuple(told), "effective_parameters": P, "theorem1": theorem}
    return spec, task.stored(W_Q, W_K) | values, record | {"capacity": P}
