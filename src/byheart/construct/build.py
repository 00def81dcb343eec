"""facts -> memory, by construction and verified as stored."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from byheart.construct.associative import associative_weights
from byheart.construct.attention_only import (
    attention_only_weights,
    check_admissible,
    features,
    in_basis,
    random_attention,
    rounded,
)
from byheart.construct.choose import Choice, choose_attention_only
from byheart.construct.frames import coherence, frame
from byheart.construct.readout import convex_readout
from byheart.construct.solve import RankError, solve_bytes
from byheart.errors import ByheartError, CapacityError, CheckFailed
from byheart.facts import Facts
from byheart.models.attention_only import Weights
from byheart.models.memory import Memory
from byheart.specs import AssociativeSpec, AttentionOnlySpec
from byheart.theory import corollary1_capacity

METHODS: tuple[str, ...] = ("auto", "attention", "associative")
READOUTS: tuple[str, ...] = ("exact", "convex")
DTYPES = {"float32": torch.float32, "float64": torch.float64}

# Standard deviations of the scores that are tried, in turn: 16 conditions large systems best,
# small ones with few heads sometimes saturate there and want less.
BETAS = (16.0, 4.0, 64.0, 1.0)
GROWTH = 1.25  # of the heads when all of them fail and the number of heads is ours to choose
GROWTHS = 3
GOOD_MARGIN = 0.5  # of the ideal margin: the first attempt that keeps it is taken
SEED_STRIDE = 7919  # between attempts, so that neighbouring seeds share no draw
ASSOCIATIVE_LIMIT = 8192  # largest width tried: its matrix has half a gigabyte in float64

Progress = Callable[[str], None]


def _quiet(_: str) -> None:
    return None


def build(
    facts: Facts,
    method: str = "auto",
    *,
    d: int | None = None,
    H: int | None = None,
    d_h: int | None = None,
    qk_rank: int | None = None,
    dtype: str = "float32",
    readout: str = "exact",
    slack: float = 0.05,
    seed: int = 0,
    progress: Progress = _quiet,
) -> Memory:
    """A memory that recalls every fact, without training; verified in the format it is stored in.

    `method`: "attention" (Dana et al. 2025, Corollary 1; what "auto" takes) or "associative" (the
    linear baseline). `d`, `H`, `d_h`, `qk_rank` override the sizes that are chosen otherwise.
    `readout`: "exact" solves for T <= H d_h + d facts; "convex" often holds more and lists what
    it lost. `slack`: share of heads beyond the theorem (0.05: a condition number 10x smaller, so
    that float32 weights survive).

    Raises `CapacityError` when the theorem does not cover the facts, `CheckFailed` when the stored
    weights do not recall all of them (exact read-out only).

    >>> import byheart as bh
    >>> memory = bh.build(bh.random_associations(N=20, S=3, T=100, seed=1))
    >>> memory.construction["recalled"], memory.construction["capacity"] >= 100
    (100, True)
    """
    started = time.perf_counter()
    for name, value, known in (("method", method, METHODS), ("readout", readout, READOUTS)):
        if value not in known:
            raise ByheartError(f"{name} must be one of {', '.join(known)}, found {value!r}")
    if dtype not in DTYPES:
        raise ByheartError(f"dtype must be float32 or float64, found {dtype!r}")
    if method == "associative":
        memory = _associative(facts, d, DTYPES[dtype], seed, progress)
    else:
        choice = choose_attention_only(
            facts, d=d, H=H, d_h=d_h, qk_rank=qk_rank, slack=slack, readout=readout
        )
        way = _exact if readout == "exact" else _convex
        memory = way(facts, choice, DTYPES[dtype], seed, progress)
    record = {
        **memory.construction,
        "facts": facts.T,
        "dtype": dtype,
        "seed": seed,
        "seconds": time.perf_counter() - started,
    }
    return replace(memory, construction=record)


@dataclass(frozen=True)
class _Task:
    """The facts as a system of equations: what every attempt at them shares."""

    facts: Facts
    tokens: Tensor  # (T, S) as the model reads them
    W_U: Tensor  # (d, N), as it will be stored
    ideal: float  # the margin of a residual stream that is exactly right
    dtype: torch.dtype
    seed: int

    @property
    def dtype_name(self) -> str:
        return str(self.dtype).removeprefix("torch.")


def _task(facts: Facts, spec: AttentionOnlySpec, dtype: torch.dtype, seed: int) -> _Task:
    """Tokens that are never answers get zero columns in W_U: their logit is 0, and the frame need
    only hold the answers. One-token keys get the start token, the last id, in front."""
    W_U = torch.zeros(spec.d, spec.N, dtype=torch.float64)
    answers = torch.from_numpy(facts.answer_ids.copy())
    rows = frame(len(answers), spec.d, seed)
    W_U[:, answers] = rows.T
    ideal = 1 - coherence(rows) if len(answers) > 1 else math.inf
    if len(answers) < spec.N:
        ideal = min(ideal, 1.0)
    tokens = torch.tensor(facts.tokens)
    if spec.S > facts.S:
        tokens = torch.cat([torch.full((facts.T, 1), spec.N - 1), tokens], dim=1)
    return _Task(facts, tokens, rounded({"W_U": W_U}, dtype)["W_U"], ideal, dtype, seed)


def _exact(
    facts: Facts, choice: Choice, dtype: torch.dtype, seed: int, progress: Progress
) -> Memory:
    """Corollary 1: the first attempt with a good margin, else the best that recalls all facts."""
    spec, why = choice.spec, list(choice.why)
    check_admissible(spec, facts.T, facts.last_tokens)
    _check_memory(facts.T, spec)
    progress(f"placing {len(facts.answer_ids):,} answers in R^{spec.d}")
    task = _task(facts, spec, dtype, seed)
    failures: list[str] = []
    for growth in range(1 + (GROWTHS if choice.heads_free else 0)):
        if growth:
            spec = replace(spec, H=math.ceil(spec.H * GROWTH))
            why.append(f"H raised to {spec.H}: {failures[-1]}")
        best: Memory | None = None
        for attempt, beta in enumerate(BETAS):
            progress(f"solving for {facts.T:,} facts in {spec.H * spec.d_h:,} head outputs")
            try:
                memory, margin = _attempt(task, spec, attempt, beta, why)
            except RankError as error:
                failures.append(f"β = {beta:g}: {error}")
                continue
            made = memory.construction
            if made["recalled"] == facts.T:
                if margin >= GOOD_MARGIN * min(task.ideal, 1.0):
                    return memory
                if best is None or margin > best.construction["margin"]:
                    best = memory
            failures.append(
                f"β = {beta:g}: {made['recalled']:,} of {facts.T:,} recalled, margin "
                f"{margin:.1e}, condition number {made['condition']:.0e}"
            )
        if best is not None:
            return best
    advice = f"--heads {spec.H + max(1, spec.H // 20)}"
    if dtype == torch.float32:
        advice += " or --dtype float64"
    raise CheckFailed(
        f"not all {facts.T:,} facts survive in {task.dtype_name} weights at d={spec.d}, "
        f"H={spec.H}, d_h={spec.d_h}: {'; '.join(failures[-len(BETAS) :])}. "
        f"Nothing was written. Use {advice}."
    )


def _attempt(
    task: _Task, spec: AttentionOnlySpec, attempt: int, beta: float, why: list[str]
) -> tuple[Memory, float]:
    """One draw of the random heads, solved and verified as stored; the memory and its margin."""
    facts = task.facts
    made = attention_only_weights(
        spec,
        task.tokens,
        task.W_U[:, torch.tensor(facts.answers)].T,
        task.W_U,
        seed=task.seed + SEED_STRIDE * attempt,
        beta=beta,
        dtype=task.dtype,
    )
    memory = _memory(task, spec, made.weights)
    margins = memory.margins(facts)
    margin = float(margins.min())
    record = {
        "method": "attention",
        "readout": "exact",
        "capacity": corollary1_capacity(spec, facts.last_tokens),
        "recalled": int((margins > 0).sum()),
        "lost": [],
        "margin": _finite(margin),
        "ideal_margin": _finite(task.ideal),
        "condition": made.solution.condition,
        "residual": made.solution.residual,
        "solver": made.solution.way,
        "skip": made.skip,
        "beta": beta,
        "why": why,
    }
    return replace(memory, construction=record), margin


def _convex(
    facts: Facts, choice: Choice, dtype: torch.dtype, seed: int, progress: Progress
) -> Memory:
    """The logistic read-out; more heads, if they are ours to choose, until all facts are held."""
    spec, why = choice.spec, list(choice.why)
    check_admissible(spec, 0, facts.last_tokens)
    task = _task(facts, spec, dtype, seed)
    best: Memory | None = None
    for growth in range(1 + (GROWTHS if choice.heads_free else 0)):
        if growth:
            spec = replace(spec, H=math.ceil(spec.H * GROWTH))
            why.append(f"H raised to {spec.H}: fewer heads did not hold all facts")
        progress(f"fitting {facts.T:,} facts on {spec.H * spec.d_h + spec.d:,} features")
        memory = _fitted(task, spec, why)
        if best is None or memory.construction["recalled"] > best.construction["recalled"]:
            best = memory
        if not memory.construction["lost"]:
            break
    assert best is not None
    return _holding(best, facts)


def _fitted(task: _Task, spec: AttentionOnlySpec, why: list[str]) -> Memory:
    facts = task.facts
    weights = random_attention(spec, task.seed, BETAS[0])
    x_S, F = features(spec, weights, task.tokens)
    answers = torch.from_numpy(facts.answer_ids.copy())
    right = torch.searchsorted(answers, torch.tensor(facts.answers))
    rows = task.W_U[:, answers].T
    fit = convex_readout(F, x_S, rows, right, torch.tensor(facts.prior))
    weights = in_basis(weights, fit.M_0)
    weights["W_O"] = fit.W_O.reshape(1, spec.H, spec.d_h, spec.d)
    weights["W_U"] = task.W_U
    memory = _memory(task, spec, weights)
    record = {
        "method": "attention",
        "readout": "convex",
        "capacity": corollary1_capacity(spec, facts.last_tokens),
        **_held(memory, facts),
        "ideal_margin": _finite(task.ideal),
        "iterations": fit.iterations,
        "beta": BETAS[0],
        "why": why,
    }
    return replace(memory, construction=record)


def _memory(task: _Task, spec: AttentionOnlySpec, weights: Weights) -> Memory:
    facts = task.facts
    vocabulary, start_id = facts.vocabulary, None
    if spec.S > facts.S:
        vocabulary, start_id = vocabulary.with_special("<start>")
    return Memory(
        spec=spec,
        weights={name: w.to(task.dtype) for name, w in weights.items()},
        vocabulary=vocabulary,
        facts=facts,
        start_id=start_id,
        pad_id=facts.pad_id,
    )


def _held(memory: Memory, facts: Facts) -> dict[str, Any]:
    """What a memory without a guarantee recalls: counts, lost rows, margin of the held ones."""
    margins = memory.margins(facts)
    held = margins > 0
    return {
        "recalled": int(held.sum()),
        "lost": [
            {"row": int(facts.rows[i]), "key": list(facts.key(i)), "answer": facts.answer(i)}
            for i in (~held).nonzero()[:, 0].tolist()
        ],
        "margin": _finite(float(margins[held].min())) if bool(held.any()) else None,
    }


def _holding(memory: Memory, facts: Facts) -> Memory:
    """The memory with only the facts that it recalls; an error if there are none."""
    if not memory.construction["lost"]:
        return memory
    if not memory.construction["recalled"]:
        raise CapacityError(
            f"none of the {facts.T:,} facts could be held by {memory.spec}. "
            "Use more heads (--heads) or a larger --d-model."
        )
    return replace(memory, facts=facts.subset((memory.margins(facts) > 0).numpy()))


def _associative(
    facts: Facts, d: int | None, dtype: torch.dtype, seed: int, progress: Progress
) -> Memory:
    """The Hebbian sum; without `d`, the width is doubled until every fact is recalled."""
    width = d or 16
    while True:
        spec = AssociativeSpec(N=facts.N, S=facts.S, d=width)
        progress(f"adding up {facts.T:,} facts in a {width} x {width} matrix")
        weights = associative_weights(facts, spec, seed)
        memory = Memory(
            spec=spec,
            weights={name: w.to(dtype) for name, w in weights.items()},
            vocabulary=facts.vocabulary,
            facts=facts,
            pad_id=facts.pad_id,
        )
        held = _held(memory, facts)
        if not held["lost"] or d is not None or width >= ASSOCIATIVE_LIMIT:
            break
        width *= 2
    reason = f"d = {width}: the first power of two at which the cross-talk stays below the margin"
    if d is not None:
        reason = f"d = {width} as asked"
    elif held["lost"]:
        reason = f"d = {width}: the largest width tried"
    record = {
        "method": "associative",
        "readout": "sum",
        "capacity": width,
        **held,
        "why": [reason],
    }
    return _holding(replace(memory, construction=record), facts)


def _check_memory(T: int, spec: AttentionOnlySpec) -> None:
    """Refuse before any work what cannot fit into this machine's memory."""
    needed = solve_bytes(T, spec.H * spec.d_h + spec.d)
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > 0.9 * present:
        raise CapacityError(
            f"one dense solve for {T:,} facts needs about {needed / 1e9:.0f} GB of memory, this "
            f"machine has {present / 1e9:.0f} GB. Split the table into several memories."
        )


def _finite(value: float) -> float | None:
    """JSON has no infinity: a margin without competitors is null."""
    return value if math.isfinite(value) else None
