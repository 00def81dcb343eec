"""facts -> memory, by construction and verified as stored: the door to all constructions."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import cast

import torch

from byheart.construct.associative import associative_weights
from byheart.construct.choose import check_slack, check_width, choose_attention_only
from byheart.construct.dense import SEED_STRIDE, build_convex, build_exact
from byheart.construct.exact import build_sqrt
from byheart.construct.multi_head import build_multi_head
from byheart.construct.outcome import (
    Progress,
    check_fits,
    finite,
    held,
    holding,
    weight_bytes,
)
from byheart.construct.sharded import Plan, build_sharded, plan, recalled_through_own_heads
from byheart.construct.sharded.fingerprint import abstention
from byheart.construct.solve import RankError
from byheart.errors import ByheartError, CheckFailed
from byheart.facts import Facts, VectorFacts
from byheart.models.memory import Memory
from byheart.specs import AssociativeSpec

METHODS: tuple[str, ...] = ("auto", "attention", "sharded", "associative", "multihead", "sqrt")
SHARDED_FROM = (
    2000  # facts: from here on "auto" takes shards, unless sizes of one dense layer are given
)
READOUTS: tuple[str, ...] = ("exact", "convex")
DTYPES = {"float32": torch.float32, "float64": torch.float64}

# Slack of the second and third draw of a sharded memory: shards with fewer distinct tokens than
# d_h have heads of smaller rank, which only more heads make up for.
MORE_SLACK = (0.0, 0.2, 1.0)
# A draw that keeps this share of the frame's margin is taken at once: what rounding took is then
# far from enough, in the literal layer too. Otherwise the best of all draws.
SAFE_SHARE = 0.5
ASSOCIATIVE_LIMIT = 8192  # largest width tried: its matrix has half a gigabyte in float64


def _quiet(_: str) -> None:
    return None


def build(
    facts: Facts | VectorFacts,
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
    gate: str | None = None,
    shard_size: int | None = None,
    untied: bool = False,
    code: str | None = None,
    abstain: bool = False,
    workers: int | str = 1,
    proof: str | None = None,
    tolerance: float | None = None,
    progress: Progress = _quiet,
) -> Memory:
    """A memory that recalls every fact, without training; verified in the format it is stored in.

    `method`: "attention" (Dana et al. 2025, Corollary 1), "sharded" (the same in shards that are
    gated by softmax saturation; what "auto" takes from 2,000 facts on, if `H` and `qk_rank` are
    not given), "associative" (the linear baseline) or "sqrt" (exact integers; more options:
    `build_sqrt`). `d`, `H`, `d_h`, `qk_rank` override the
    sizes that are chosen otherwise (`d`: the generic coordinates d_g of a sharded memory).
    `readout`: "exact" solves for T <= H d_h + d facts; "convex" often holds more and lists what
    it lost. `slack`: share of heads beyond the theorem (0.05: a condition number 10x smaller, so
    that float32 weights survive).

    Sharded memories only (docs/sharded.md): `gate` ("query", the default, "key" or
    "subject-sink"), `shard_size` (250 facts), `untied` heads, `code` ("lat2" or "lat1"),
    `abstain`: fingerprints of the keys, so that others can be answered "unknown"
    (docs/sharded-editing.md); `workers`: local processes, or the address of a Dask scheduler.

    Vector facts take "multihead" (or "auto") and give a `VectorMemory` (docs/multi-head.md):
    `proof` ("one-hot", "literal", "random" or "newton"), `tolerance` for regression labels.

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
    if isinstance(facts, VectorFacts):
        if method not in ("auto", "multihead") or d is not None or qk_rank is not None:
            raise ByheartError(
                "vector facts are held by multi-head attention: use --method multihead, without "
                "--d-model (the vectors have d coordinates) and --qk-rank (it is --d-head)."
            )
        vectors = build_multi_head(
            facts, proof or "one-hot", H=H, d_h=d_h, dtype=dtype, readout=readout, slack=slack,
            seed=seed, tolerance=tolerance, progress=progress,
        )  # fmt: skip
        return cast(Memory, vectors)
    if method == "multihead" or proof is not None or tolerance is not None:
        raise ByheartError(
            "--method multihead, --proof and --tolerance are for vector facts (.safetensors, .npz, "
            "vectors:..., digits), not for tokens: use another method, or such a file."
        )
    if method == "auto":
        fits = H is None and qk_rank is None and readout == "exact"
        asked = gate is not None or shard_size is not None or untied or code is not None or abstain
        method = "sharded" if asked or (fits and facts.T >= SHARDED_FROM) else "attention"
    if method == "sqrt":
        sized = (d, H, d_h, qk_rank, gate, shard_size, code) != (None,) * 7 or untied
        if sized or readout != "exact" or dtype != "float32":
            raise ByheartError(
                "a square-root Transformer sizes itself and has integers: leave out sizes, shards, "
                "readout and dtype."
            )
        # Asked, saved and certified like any other memory, though its weights are no tensors.
        return cast(Memory, build_sqrt(facts, abstain=abstain, seed=seed, progress=progress))
    options = {"gate": gate, "shard": shard_size, "untied": untied or None, "code": code}
    options = {name: value for name, value in options.items() if value is not None}
    if (options or abstain) and method != "sharded":
        raise ByheartError(
            "--gate, --shard-size, --untied, --abstain and code belong to sharded memories: use "
            f"them with --method sharded, or leave them out (--method {method} has no shards)."
        )
    check_width(d, len(facts.answer_ids))
    if method == "associative":
        if H is not None or d_h is not None or qk_rank is not None or readout != "exact":
            raise ByheartError(
                "--heads, --d-head, --qk-rank and --readout belong to attention: the associative "
                "memory has one matrix, of width --d-model."
            )
        memory = _associative(facts, d, DTYPES[dtype], seed, progress)
    elif method == "sharded":
        if H is not None or qk_rank is not None or readout != "exact":
            raise ByheartError(
                "--heads, --qk-rank and --readout belong to one dense layer: use them with "
                "--method attention, or leave them out (shards choose their own heads)."
            )
        check_slack(slack)
        layout = plan(facts, d_g=d, d_h=d_h, seed=seed, dtype=dtype, **options)
        memory = _sharded(facts, layout, slack, DTYPES[dtype], seed, progress, abstain, workers)
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
    layout: Plan,
    slack: float,
    dtype: torch.dtype,
    seed: int,
    progress: Progress,
    abstain: bool,
    workers: int | str,
) -> Memory:
    """Shards of some hundred facts; other draws and more slack if one of them fails."""
    failures: list[str] = []
    best, best_margin = None, -math.inf
    for attempt, least in enumerate(MORE_SLACK):
        try:
            memory = build_sharded(
                facts,
                layout,
                slack=max(slack, least),
                seed=seed + SEED_STRIDE * attempt,
                dtype=dtype,
                progress=progress,
                abstain=abstain,
                workers=workers,
            )
        except RankError as error:
            failures.append(str(error))
            continue
        progress(f"recalling {facts.T:,} facts")
        recalled, margin = recalled_through_own_heads(memory, facts)
        made = memory.construction
        if recalled == facts.T and margin > best_margin:
            record = {
                **made,
                "capacity": memory.spec.to_json()["H"] * layout.d_h,
                "recalled": recalled,
                "lost": [],
                "margin": finite(margin),
            }
            if abstain:
                try:
                    record["abstain"] = abstention(memory, facts, seed + SEED_STRIDE * attempt)
                except CheckFailed as error:
                    failures.append(str(error))
                    continue
            best, best_margin = replace(memory, construction=record), margin
        if best_margin >= SAFE_SHARE * made["ideal_margin"]:
            break
        failures.append(f"{recalled:,} of {facts.T:,} recalled, condition {made['condition']:.0e}")
    if best is not None:
        return best
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
        check_fits(weight_bytes(spec.parameters), f"an associative memory of width {width:,}")
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
