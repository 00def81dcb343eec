"""One dense attention-only layer: attempts at Corollary 1, and the convex read-out beyond it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from byheart._progress import Report
from byheart.construct.attention_only import (
    attention_only_weights,
    check_admissible,
    complete,
    features,
    in_basis,
    random_attention,
    rounded,
)
from byheart.construct.choose import Choice, choose_attention_only
from byheart.construct.frames import ideal_margin, unembedding
from byheart.construct.methods import AttentionOnly
from byheart.construct.outcome import (
    DTYPES,
    Reading,
    check_fits,
    held,
    holding,
    reading,
    weight_bytes,
)
from byheart.construct.readout import convex_readout
from byheart.construct.solve import RankError, solve_bytes
from byheart.errors import CapacityError, CheckFailed
from byheart.facts import Facts
from byheart.models.attention_only import Weights
from byheart.models.construction import AttentionConstruction, finite
from byheart.models.token_memory import TokenMemory
from byheart.specs import AttentionOnlySpec
from byheart.theory import corollary1_capacity

# Standard deviations of the scores that are tried, in turn: 16 conditions large systems best,
# small ones with few heads sometimes saturate there and want less.
BETAS = (16.0, 4.0, 64.0, 1.0)
GROWTH = 1.25  # of the heads when all of them fail and the number of heads is ours to choose
GROWTHS = 3
GOOD_MARGIN = 0.5  # of the ideal margin: the first attempt that keeps it is taken
SEED_STRIDE = 7919  # between attempts, so that neighbouring seeds share no draw


@dataclass(frozen=True)
class _Task:
    """The facts as a system of equations: what every attempt at them shares."""

    facts: Facts
    keys: Reading
    W_U: Tensor  # (d, N), as it will be stored
    ideal: float  # the margin of a residual stream that is exactly right
    dtype: torch.dtype
    seed: int


def attention_memory(
    facts: Facts, options: AttentionOnly, seed: int, progress: Report
) -> TokenMemory:
    """One dense layer with the smallest sizes that are not given, by the read-out asked for."""
    choice, dtype = choose_attention_only(facts, options), DTYPES[options.dtype]
    spec, exact = choice.spec, options.readout == "exact"
    check_admissible(spec, facts.T if exact else 0, facts.last_tokens)
    m, what = spec.H * spec.d_h + spec.d, "one dense solve for" if exact else "a read-out of"
    system = solve_bytes(facts.T, m) if exact else solve_bytes(m, facts.T)
    check_fits(system + weight_bytes(spec.parameters), f"{what} {facts.T:,} facts")
    progress(f"placing {len(facts.answer_ids):,} answers in R^{spec.d}")
    rows, W_U = unembedding(facts.answer_ids, spec.d, spec.N, seed)
    stored, ideal = rounded({"W_U": W_U}, dtype)["W_U"], ideal_margin(rows, spec.N)
    task = _Task(facts, reading(facts, spec), stored, ideal, dtype, seed)
    return (_exact if exact else _convex)(task, choice, progress)


def _exact(task: _Task, choice: Choice, progress: Report) -> TokenMemory:
    """Corollary 1: the first attempt with a good margin, else the best that recalls all facts."""
    facts, spec, why = task.facts, choice.spec, list(choice.why)
    failures: list[str] = []
    ranks: list[int | None] = []
    for growth in range(1 + (GROWTHS if choice.heads_free else 0)):
        if growth:
            # Heads that each add less to the rank than d_h are needed in greater number.
            known = [rank for rank in ranks if rank]
            factor = max(GROWTH, facts.T / max(known)) if known else GROWTH
            spec = replace(spec, H=math.ceil(spec.H * factor))
            why.append(f"H raised to {spec.H}: {failures[-1]}")
        ranks.clear()
        best, best_margin = None, -math.inf
        for attempt, beta in enumerate(BETAS):
            progress(f"solving for {facts.T:,} facts in {spec.H * spec.d_h:,} head outputs")
            try:
                memory, margin, condition = _attempt(task, spec, attempt, beta, why)
            except RankError as error:
                failures.append(f"β = {beta:g}: {error}")
                ranks.append(error.rank)
                continue
            made = memory.construction
            if made.recalled == facts.T:
                if margin >= GOOD_MARGIN * min(task.ideal, 1.0):
                    return memory
                if best is None or margin > best_margin:
                    best, best_margin = memory, margin
            failures.append(
                f"β = {beta:g}: {made.recalled:,} of {facts.T:,} recalled, margin "
                f"{margin:.1e}, condition number {condition:.0e}"
            )
        if best is not None:
            return best
    raise _refusal(task, spec, failures, generic=len(ranks) < len(BETAS))


def _refusal(
    task: _Task, spec: AttentionOnlySpec, failures: list[str], generic: bool
) -> CapacityError | CheckFailed:
    """Why no attempt recalled all facts: keys that are not `generic`, or the number format."""
    facts = task.facts
    if not generic:
        return CapacityError(
            f"the keys are not generic enough for Lemma 2 at d={spec.d}, H={spec.H}, "
            f"d_h={spec.d_h}: {failures[-1]}. With {facts.N} tokens and {facts.S} positions a head "
            f"adds at most {min(spec.d_h, facts.N + facts.S - 2)} to the rank. Use more heads."
        )
    dtype = str(task.dtype).removeprefix("torch.")
    advice = f"`H={spec.H + max(1, spec.H // 20)}`"
    if dtype == "float32":
        advice += " or `dtype=float64`"
    return CheckFailed(
        f"not all {facts.T:,} facts survive in {dtype} weights at d={spec.d}, "
        f"H={spec.H}, d_h={spec.d_h}: {'; '.join(failures[-len(BETAS) :])}. "
        f"Nothing was written. Use {advice}."
    )


def _attempt(
    task: _Task, spec: AttentionOnlySpec, attempt: int, beta: float, why: list[str]
) -> tuple[TokenMemory, float, float]:
    """One draw of the random heads, solved and verified as stored; the memory, its margin and the
    condition number of the solve."""
    facts = task.facts
    made = attention_only_weights(
        spec,
        task.keys.tokens,
        task.W_U[:, torch.tensor(facts.answers)].T,
        task.W_U,
        seed=task.seed + SEED_STRIDE * attempt,
        beta=beta,
        dtype=task.dtype,
    )
    construction = AttentionConstruction(
        readout="exact",
        capacity=corollary1_capacity(spec, facts.last_tokens),
        ideal_margin=finite(task.ideal),
        condition=made.solution.condition,
        residual=made.solution.residual,
        solver=made.solution.solver,
        skip=made.skip,
        beta=beta,
        why=tuple(why),
    )
    memory = _memory(task, spec, made.weights, construction)
    margins = memory.margins(facts)
    margin = float(margins.min())
    construction = replace(construction, recalled=int((margins > 0).sum()), margin=finite(margin))
    return replace(memory, construction=construction), margin, made.solution.condition


def _convex(task: _Task, choice: Choice, progress: Report) -> TokenMemory:
    """The logistic read-out; more heads, if they are ours to choose, until all facts are held."""
    facts, spec, why = task.facts, choice.spec, list(choice.why)
    best: TokenMemory | None = None
    for growth in range(1 + (GROWTHS if choice.heads_free else 0)):
        if growth:
            spec = replace(spec, H=math.ceil(spec.H * GROWTH))
            why.append(f"H raised to {spec.H}: fewer heads did not hold all facts")
        progress(f"fitting {facts.T:,} facts on {spec.H * spec.d_h + spec.d:,} features")
        memory = _fitted(task, spec, why)
        if best is None or memory.construction.recalled > best.construction.recalled:
            best = memory
        if not memory.construction.lost:
            break
    assert best is not None
    return holding(best, facts)


def _fitted(task: _Task, spec: AttentionOnlySpec, why: list[str]) -> TokenMemory:
    facts = task.facts
    weights = random_attention(spec, task.seed, BETAS[0])
    x_S, F = features(spec, weights, task.keys.tokens)
    answers = torch.from_numpy(facts.answer_ids.copy())
    right = torch.searchsorted(answers, torch.tensor(facts.answers))
    rows = task.W_U[:, answers].T
    fit = convex_readout(F, x_S, rows, right, torch.tensor(facts.prior))
    weights = complete(spec, in_basis(weights, fit.M_0), fit.W_O, task.W_U)
    construction = AttentionConstruction(
        readout="convex",
        capacity=corollary1_capacity(spec, facts.last_tokens),
        ideal_margin=finite(task.ideal),
        iterations=fit.iterations,
        beta=BETAS[0],
        why=tuple(why),
    )
    return held(_memory(task, spec, weights, construction), facts)


def _memory(
    task: _Task, spec: AttentionOnlySpec, weights: Weights, construction: AttentionConstruction
) -> TokenMemory:
    return TokenMemory(
        spec=spec,
        weights={name: w.to(task.dtype) for name, w in weights.items()},
        vocabulary=task.keys.vocabulary,
        construction=construction,
        facts=task.facts,
        start_id=task.keys.start_id,
        pad_id=task.facts.pad_id,
    )
