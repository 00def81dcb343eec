"""One dense attention-only layer: its sizes, Corollary 1, and the convex read-out beyond it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from byheart._progress import Report
from byheart.construct.attention_only import (
    BETAS,
    Constructed,
    attention_spec,
    check_admissible,
    complete,
    draws,
    features,
    in_basis,
    keys_read,
    random_attention,
    rounded,
)
from byheart.construct.frames import check_width, ideal_margin, smallest_width, unembedding
from byheart.construct.methods import AttentionOnly
from byheart.construct.outcome import DTYPES, as_stored, check_fits, held, holding, weight_bytes
from byheart.construct.readout import convex_readout
from byheart.construct.solve import RankError, solve_bytes
from byheart.errors import CapacityError, CheckFailed
from byheart.facts import Facts
from byheart.models.construction import AttentionConstruction, finite
from byheart.models.token_memory import TokenMemory
from byheart.specs import AttentionOnlySpec
from byheart.theory import corollary1_capacity

# How much of H d_h + d a convex read-out is asked for at first; see docs/benchmarks.md.
CONVEX_LOAD = 1.25
GROWTH = 1.25  # of the heads when all of them fail and the number of heads is ours to choose
GROWTHS = 3
GOOD_MARGIN = 0.5  # of the ideal margin: the first attempt that keeps it is taken


@dataclass(frozen=True)
class Choice:
    """A spec, the reasons in words, and whether the number of heads was ours to choose."""

    spec: AttentionOnlySpec
    why: tuple[str, ...]
    heads_free: bool


def choose_attention_only(facts: Facts, options: AttentionOnly | None = None) -> Choice:
    """Fill in what is not given: width by the answers, d_h = d, heads by Corollary 1 plus slack.

    Parameters are d (S + 2N + 2 (r + d_h) H), about 2 d T (1 + r/d_h) for T facts: least for small
    d, large d_h and r = 1. Without `H` and `d_h` the rank of W_QK is 1 (Remark 2: enough); with
    them it is d_h, the layer of the paper, unless `qk_rank` says otherwise.
    """
    options = options or AttentionOnly()
    d, H, d_h, qk_rank = options.d, options.H, options.d_h, options.qk_rank
    A, why = len(facts.answer_ids), []
    check_width(d, A)
    if d is None:
        d = max(smallest_width(A), d_h or 1)
        why.append(f"d = {d}: the least width at which {A:,} answers keep a margin near 0.4")
    if qk_rank is None:
        qk_rank = 1 if H is None and d_h is None else (d_h or d)
        if qk_rank == 1 and H is None:
            why.append("rank(W_QK) = 1: enough (Remark 2) and fewest parameters")
    if d_h is None:
        d_h = d
        why.append("d_h = d: fewest query and key parameters per fact")
    if H is None:
        wanted = facts.T * (1 + options.slack)
        reason = f"{facts.T:,} facts and {options.slack:.0%} slack"
        if options.readout == "convex":
            wanted = facts.T / CONVEX_LOAD
            reason = f"{CONVEX_LOAD} facts for each of H·d_h (convex read-out)"
        H = max(1, math.ceil(wanted / d_h))
        why.append(f"H = {H}: H·d_h >= {wanted:,.0f}, {reason}")
    spec = attention_spec(facts, why, d=d, d_h=d_h, H=H, qk_rank=qk_rank)
    promised = corollary1_capacity(spec, facts.last_tokens)
    skip, last = f"{d}", facts.last_tokens
    if last < d:
        skip = f"{last} (the skip spans the {last} last tokens, not d = {d})"
    why.append(f"Corollary 1 promises H·d_h + d = {H * d_h:,} + {skip} = {promised:,} facts")
    return Choice(spec, tuple(why), options.H is None)


@dataclass(frozen=True)
class _Task:
    """The facts as a system of equations: what every attempt at them shares."""

    facts: Facts
    W_U: Tensor  # (d, N), as it will be stored
    ideal: float  # the margin of a residual stream that is exactly right
    dtype: torch.dtype
    seed: int
    progress: Report

    def record(self, spec: AttentionOnlySpec, why: list[str]) -> AttentionConstruction:
        capacity = corollary1_capacity(spec, self.facts.last_tokens)
        return AttentionConstruction(
            readout="exact", capacity=capacity, ideal_margin=finite(self.ideal), why=tuple(why)
        )


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
    return (_exact if exact else _convex)(
        _Task(facts, stored, ideal, dtype, seed, progress), choice
    )


def _exact(task: _Task, choice: Choice) -> TokenMemory:
    """Corollary 1: the first attempt with a good margin, else the best that recalls all facts."""
    facts, spec, why = task.facts, choice.spec, list(choice.why)
    targets = task.W_U[:, torch.tensor(facts.answers)].T
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
        for beta, made in draws(
            spec, facts, targets, task.W_U, task.seed, task.dtype, task.progress
        ):
            if isinstance(made, RankError):
                failures.append(f"β = {beta:g}: {made}")
                ranks.append(made.rank)
                continue
            memory, margin = _verified(task, spec, made, beta, why)
            recalled = memory.construction.recalled
            if recalled == facts.T:
                if margin >= GOOD_MARGIN * min(task.ideal, 1.0):
                    return memory
                if best is None or margin > best_margin:
                    best, best_margin = memory, margin
            failures.append(
                f"β = {beta:g}: {recalled:,} of {facts.T:,} recalled, margin {margin:.1e}, "
                f"condition number {made.solution.condition:.0e}"
            )
        if best is not None:
            return best
    sizes = f"d={spec.d}, H={spec.H}, d_h={spec.d_h}"
    if len(ranks) == len(BETAS):
        raise CapacityError(
            f"the keys are not generic enough for Lemma 2 at {sizes}: {failures[-1]}. With "
            f"{facts.N} tokens and {facts.S} positions a head adds at most "
            f"{min(spec.d_h, facts.N + facts.S - 2)} to the rank. Use more heads."
        )
    dtype = str(task.dtype).removeprefix("torch.")
    other = " or `dtype=float64`" if dtype == "float32" else ""
    raise CheckFailed(
        f"not all {facts.T:,} facts survive in {dtype} weights at {sizes}: "
        f"{'; '.join(failures[-len(BETAS) :])}. Nothing was written. "
        f"Use `H={spec.H + max(1, spec.H // 20)}`{other}."
    )


def _verified(
    task: _Task, spec: AttentionOnlySpec, made: Constructed, beta: float, why: list[str]
) -> tuple[TokenMemory, float]:
    """The memory as stored, and the least margin of any fact."""
    construction = replace(
        task.record(spec, why),
        condition=made.solution.condition,
        residual=made.solution.residual,
        solver=made.solution.solver,
        skip=made.skip,
        beta=beta,
    )
    memory = as_stored(TokenMemory, spec, made.weights, task.dtype, task.facts, construction)
    margins = memory.margins(task.facts)
    margin = float(margins.min())
    construction = replace(construction, recalled=int((margins > 0).sum()), margin=finite(margin))
    return replace(memory, construction=construction), margin


def _convex(task: _Task, choice: Choice) -> TokenMemory:
    """The logistic read-out; more heads, if they are ours to choose, until all facts are held."""
    facts, spec, why = task.facts, choice.spec, list(choice.why)
    answers = torch.from_numpy(facts.answer_ids.copy())
    right = torch.searchsorted(answers, torch.tensor(facts.answers))
    rows = task.W_U[:, answers].T
    best: TokenMemory | None = None
    for growth in range(1 + (GROWTHS if choice.heads_free else 0)):
        if growth:
            spec = replace(spec, H=math.ceil(spec.H * GROWTH))
            why.append(f"H raised to {spec.H}: fewer heads did not hold all facts")
        task.progress(f"fitting {facts.T:,} facts on {spec.H * spec.d_h + spec.d:,} features")
        weights = random_attention(spec, task.seed, BETAS[0])
        x_S, F = features(spec, weights, keys_read(facts, spec))
        fit = convex_readout(F, x_S, rows, right, torch.tensor(facts.prior))
        weights = complete(spec, in_basis(weights, fit.M_0), fit.W_O, task.W_U)
        record = replace(
            task.record(spec, why), readout="convex", iterations=fit.iterations, beta=BETAS[0]
        )
        memory = held(as_stored(TokenMemory, spec, weights, task.dtype, facts, record), facts)
        if best is None or memory.construction.recalled > best.construction.recalled:
            best = memory
        if not memory.construction.lost:
            break
    assert best is not None
    return holding(best, facts)
