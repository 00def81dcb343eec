"""facts -> memory, by construction and verified as stored: the door to all constructions."""

from __future__ import annotations

import time
from dataclasses import replace

import torch

from byheart.construct.associative import associative_weights
from byheart.construct.choose import choose_attention_only
from byheart.construct.dense import SEED_STRIDE, build_convex, build_exact
from byheart.construct.outcome import Progress, finite, held, holding
from byheart.construct.sharded import build_sharded, plan, recalled_through_own_heads
from byheart.construct.solve import RankError
from byheart.errors import ByheartError, CheckFailed
from byheart.facts import Facts
from byheart.models.memory import Memory
from byheart.specs import AssociativeSpec

METHODS: tuple[str, ...] = ("auto", "attention", "sharded", "associative")
SHARDED_FROM = (
    2000  # facts: from here on "auto" takes shards, unless sizes of one dense layer are given
)
READOUTS: tuple[str, ...] = ("exact", "convex")
DTYPES = {"float32": torch.float32, "float64": torch.float64}

ATTEMPTS = 3  # draws of a sharded memory
ASSOCIATIVE_LIMIT = 8192  # largest width tried: its matrix has half a gigabyte in float64


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

    `method`: "attention" (Dana et al. 2025, Corollary 1), "sharded" (the same in shards that are
    gated by softmax saturation; what "auto" takes from 2,000 facts on, if `H` and `qk_rank` are
    not given) or "associative" (the linear baseline). `d`, `H`, `d_h`, `qk_rank` override the
    sizes that are chosen otherwise (`d`: the generic coordinates d_g of a sharded memory).
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
    if method == "auto":
        fits = H is None and qk_rank is None and readout == "exact"
        method = "sharded" if fits and facts.T >= SHARDED_FROM else "attention"
    if method == "associative":
        memory = _associative(facts, d, DTYPES[dtype], seed, progress)
    elif method == "sharded":
        if H is not None or qk_rank is not None or readout != "exact":
            raise ByheartError(
                "--heads, --qk-rank and --readout belong to one dense layer: use them with "
                "--method attention, or leave them out (shards choose their own heads)."
            )
        memory = _sharded(facts, d, d_h, slack, DTYPES[dtype], seed, progress)
    else:
        choice = choose_attention_only(
            facts, d=d, H=H, d_h=d_h, qk_rank=qk_rank, slack=slack, readout=readout
        )
        way = build_exact if readout == "exact" else build_convex
        memory = way(facts, choice, DTYPES[dtype], seed, progress)
    record = {
        **memory.construction,
        "facts": facts.T,
        "dtype": dtype,
        "seed": seed,
        "seconds": time.perf_counter() - started,
    }
    return replace(memory, construction=record)


def _sharded(
    facts: Facts,
    d_g: int | None,
    d_h: int | None,
    slack: float,
    dtype: torch.dtype,
    seed: int,
    progress: Progress,
) -> Memory:
    """Shards of some hundred facts; other draws and more slack if one of them fails."""
    layout = plan(facts, d_g=d_g, d_h=d_h, seed=seed)
    failures = []
    for attempt in range(ATTEMPTS):
        more = slack * 2**attempt
        try:
            memory = build_sharded(
                facts,
                layout,
                slack=more,
                seed=seed + SEED_STRIDE * attempt,
                dtype=dtype,
                progress=progress,
            )
        except RankError as error:
            failures.append(str(error))
            continue
        progress(f"recalling {facts.T:,} facts")
        recalled, margin = recalled_through_own_heads(memory, facts)
        made = memory.construction
        if recalled == facts.T:
            record = {
                **made,
                "capacity": memory.spec.to_json()["H"] * layout.d_h,
                "recalled": recalled,
                "lost": [],
                "margin": finite(margin),
            }
            return replace(memory, construction=record)
        failures.append(f"{recalled:,} of {facts.T:,} recalled, condition {made['condition']:.0e}")
    raise CheckFailed(
        f"not all {facts.T:,} facts survive at d_g={layout.d_g}, d_h={layout.d_h}: "
        f"{'; '.join(failures)}. Nothing was written. Use a larger --d-model or --dtype float64."
    )


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
        outcome = held(memory, facts)
        if not outcome["lost"] or d is not None or width >= ASSOCIATIVE_LIMIT:
            break
        width *= 2
    reason = f"d = {width}: the first power of two at which the cross-talk stays below the margin"
    if d is not None:
        reason = f"d = {width} as asked"
    elif outcome["lost"]:
        reason = f"d = {width}: the largest width tried"
    record = {
        "method": "associative",
        "readout": "sum",
        "capacity": width,
        **outcome,
        "why": [reason],
    }
    return holding(replace(memory, construction=record), facts)
