"""facts -> memory, by construction and verified as stored."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

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
from byheart.construct.solve import RankError
from byheart.errors import ByheartError, CapacityError, CheckFailed
from byheart.facts import Facts
from byheart.models.associative import AssociativeSpec
from byheart.models.attention_only import AttentionOnlySpec
from byheart.models.memory import Memory
from byheart.theory import corollary1_capacity

Method = Literal["auto", "attention", "associative"]
METHODS: tuple[str, ...] = ("auto", "attention", "associative")
READOUTS: tuple[str, ...] = ("exact", "convex")
DTYPES = {"float32": torch.float32, "float64": torch.float64}

# Standard deviations of the scores that are tried, in turn: 16 conditions large systems best,
# small ones with few heads sometimes saturate there and want less.
BETAS = (16.0, 4.0, 64.0, 1.0)
GROWTH = 1.25  # of the heads when all of them fail and the number of heads is ours to choose
GROWTHS = 3
GOOD_MARGIN = 0.5  # of the ideal margin: the first attempt that keeps it is taken
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
class _Attempt:
    memory: Memory
    recalled: int
    margin: float


def _verified(memory: Memory, facts: Facts) -> tuple[_Attempt, torch.Tensor]:
    """Every fact through the stored weights, in the arithmetic of the stored format."""
    margins = memory.margins(facts)
    held = margins > 0
    return _Attempt(memory, int(held.sum()), float(margins.min())), held


def _frame_columns(facts: Facts, spec: AttentionOnlySpec, seed: int) -> tuple[torch.Tensor, float]:
    """W_U (d, N) and its ideal margin. Tokens that are never answers have logit 0: their columns
    are zero, so the frame need only hold the answers."""
    W_U = torch.zeros(spec.d, spec.N, dtype=torch.float64)
    answers = torch.from_numpy(facts.answer_ids.copy())
    rows = frame(len(answers), spec.d, seed)
    W_U[:, answers] = rows.T
    ideal = 1 - coherence(rows)
    return W_U, min(ideal, 1.0) if len(answers) < spec.N else ideal


def _memory(
    facts: Facts, spec: AttentionOnlySpec, weights: dict[str, torch.Tensor], dtype: torch.dtype
) -> Memory:
    vocabulary, start_id = facts.vocabulary, None
    if spec.S > facts.S:
        vocabulary, start_id = vocabulary.with_special("<start>")
    return Memory(
        spec=spec,
        weights={name: w.to(dtype) for name, w in weights.items()},
        vocabulary=vocabulary,
        facts=facts,
        start_id=start_id,
        pad_id=facts.pad_id,
    )


def _input_tokens(facts: Facts, spec: AttentionOnlySpec) -> torch.Tensor:
    """Token ids as the model reads them: with the start token (the last id) for one-token keys."""
    tokens = torch.tensor(facts.tokens)
    if spec.S == facts.S:
        return tokens
    return torch.cat([torch.full((facts.T, 1), spec.N - 1), tokens], dim=1)


def _exact(
    facts: Facts, choice: Choice, dtype: torch.dtype, seed: int, progress: Progress
) -> Memory:
    spec, why = choice.spec, list(choice.why)
    check_admissible(spec, facts.T, facts.last_tokens)
    progress(f"placing {len(facts.answer_ids):,} answers in R^{spec.d}")
    W_U, ideal = _frame_columns(facts, spec, seed)
    W_U = rounded({"W_U": W_U}, dtype)["W_U"]
    targets = W_U[:, torch.tensor(facts.answers)].T
    tokens = _input_tokens(facts, spec)
    best: _Attempt | None = None
    failures: list[str] = []
    for growth in range(1 + (GROWTHS if choice.heads_free else 0)):
        if growth:
            spec = replace(spec, H=math.ceil(spec.H * GROWTH))
            why.append(f"H raised to {spec.H}: {failures[-1]}")
        for attempt, beta in enumerate(BETAS):
            progress(f"solving for {facts.T:,} facts in {spec.H * spec.d_h:,} head outputs")
            try:
                made = attention_only_weights(
                    spec, tokens, targets, W_U, seed=seed + 7919 * attempt, beta=beta, dtype=dtype
                )
            except RankError as error:
                failures.append(f"β = {beta:g}: {error}")
                continue
            progress(f"recalling {facts.T:,} facts from {str(dtype).removeprefix('torch.')} weights")
            this, _ = _verified(_memory(facts, spec, made.weights, dtype), facts)
            this = replace(
                this,
                memory=replace(
                    this.memory,
                    construction={
                        "method": "attention",
                        "readout": "exact",
                        "capacity": corollary1_capacity(spec, facts.last_tokens),
                        "recalled": this.recalled,
                        "lost": [],
                        "margin": _finite(this.margin),
                        "ideal_margin": _finite(ideal),
                        "condition": made.solution.condition,
                        "residual": made.solution.residual,
                        "solver": made.solution.way,
                        "skip": made.skip,
                        "beta": beta,
                        "why": why,
                    },
                ),
            )
            if best is None or this.margin > best.margin:
                best = this
            if this.recalled == facts.T and this.margin >= GOOD_MARGIN * ideal:
                return this.memory
            failures.append(
                f"β = {beta:g}: {this.recalled:,} of {facts.T:,} recalled, margin {this.margin:.1e}, "
                f"condition number {made.solution.condition:.0e}"
            )
        if best is not None and best.recalled == facts.T:
            return best.memory
    name = str(dtype).removeprefix("torch.")
    advice = f"--heads {spec.H + max(1, spec.H // 20)}"
    if dtype == torch.float32:
        advice += " or --dtype float64"
    raise CheckFailed(
        f"not all {facts.T:,} facts survive in {name} weights at d={spec.d}, H={spec.H}, "
        f"d_h={spec.d_h}: {'; '.join(failures[-len(BETAS) :])}. Nothing was written. Use {advice}."
    )


def _convex(
    facts: Facts, choice: Choice, dtype: torch.dtype, seed: int, progress: Progress
) -> Memory:
    spec, why = choice.spec, list(choice.why)
    if spec.d_h > spec.d:
        check_admissible(spec, 0, facts.last_tokens)
    W_U, ideal = _frame_columns(facts, spec, seed)
    answers = torch.from_numpy(facts.answer_ids.copy())
    right = torch.searchsorted(answers, torch.tensor(facts.answers))
    tokens, prior = _input_tokens(facts, spec), torch.tensor(facts.prior)
    best: Memory | None = None
    for growth in range(1 + (GROWTHS if choice.heads_free else 0)):
        if growth:
            spec = replace(spec, H=math.ceil(spec.H * GROWTH))
            why.append(f"H raised to {spec.H}: fewer heads did not hold all facts")
        weights = random_attention(spec, seed, BETAS[0])
        x_S, F = features(spec, weights, tokens)
        progress(f"fitting the read-out of {facts.T:,} facts on {F.shape[1] + spec.d:,} features")
        fit = convex_readout(torch.cat([F, x_S], 1), W_U[:, answers].T, right, prior)
        W_O, M_0 = fit.W[: -spec.d], fit.W[-spec.d :]
        weights = in_basis(weights, M_0)
        weights["W_O"] = W_O.reshape(1, spec.H, spec.d_h, spec.d)
        weights["W_U"] = W_U
        memory = _memory(facts, spec, weights, dtype)
        this, held = _verified(memory, facts)
        margins = memory.margins(facts.subset(held.nonzero()[:, 0].numpy())) if held.any() else None
        lost = facts.rows[(~held).numpy()].tolist()
        record: dict[str, Any] = {
            "method": "attention",
            "readout": "convex",
            "capacity": corollary1_capacity(spec, facts.last_tokens),
            "recalled": this.recalled,
            "lost": lost,
            "margin": None if margins is None else _finite(float(margins.min())),
            "ideal_margin": _finite(ideal),
            "iterations": fit.iterations,
            "beta": BETAS[0],
            "why": why,
        }
        memory = replace(memory, construction=record)
        if best is None or this.recalled > best.construction["recalled"]:
            best = memory
        if not lost:
            break
    assert best is not None
    return _holding(best, facts)


def _holding(memory: Memory, facts: Facts) -> Memory:
    """The memory with only the facts that it recalls; an error if there are none."""
    lost = memory.construction["lost"]
    if not lost:
        return memory
    if len(lost) == facts.T:
        raise CapacityError(
            f"none of the {facts.T:,} facts could be held by {memory.spec}. "
            "Use more heads (--heads) or a larger --d-model."
        )
    import numpy as np

    held = np.flatnonzero(~np.isin(facts.rows, lost))
    return replace(memory, facts=facts.subset(held))


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
        this, held = _verified(memory, facts)
        if this.recalled == facts.T or d is not None or width >= ASSOCIATIVE_LIMIT:
            break
        width *= 2
    why = [f"d = {width}: the first power of two at which the cross-talk stays below the margin"]
    margins = memory.margins(facts)
    record = {
        "method": "associative",
        "readout": "sum",
        "capacity": width,
        "recalled": this.recalled,
        "lost": facts.rows[(~held).numpy()].tolist(),
        "margin": _finite(float(margins[held].min())) if held.any() else None,
        "why": why if d is None else [f"d = {width} as asked"],
    }
    return _holding(replace(memory, construction=record), facts)


def _finite(value: float) -> float | None:
    """JSON has no infinity: a margin without competitors is null."""
    return value if math.isfinite(value) else None
