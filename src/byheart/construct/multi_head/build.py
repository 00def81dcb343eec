"""vector facts -> memory, by construction and verified as stored: the door to the four ways."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from byheart.construct.choose import check_slack
from byheart.construct.multi_head import ways
from byheart.construct.outcome import Progress
from byheart.errors import ByheartError, CapacityError, CheckFailed
from byheart.facts import VectorFacts
from byheart.models.threads import one_thread
from byheart.models.vector_memory import VectorMemory

WAYS: dict[str, Callable[[VectorFacts, ways.Options, Progress], ways.Made]] = {
    "one-hot": ways.one_hot,
    "literal": ways.literal,
    "random": ways.random,
    "newton": ways.newton,
}
PROOFS = tuple(WAYS)
DTYPES = {"float32": torch.float32, "float64": torch.float64}


def build_multi_head(
    facts: VectorFacts,
    proof: str = "one-hot",
    *,
    H: int | None = None,
    d_h: int | None = None,
    dtype: str = "float32",
    readout: str = "exact",
    slack: float = 0.05,
    seed: int = 0,
    tolerance: float | None = None,
    steps: int = 0,
    starts: int = 5,
    progress: Progress = lambda _: None,
) -> VectorMemory:
    """A multi-head attention layer that recalls every example (docs/multi-head.md).

    `proof`: "one-hot" (every example saturated; Theorem 1, exact in float32), "literal" (the
    proof as printed; float64 only), "random" (random heads and one linear solve, up to the
    generic rank; with `readout="convex"` many more classes; `steps` of gradient conditioning
    first) or "newton" (all weights by Levenberg-Marquardt, scalar labels, up to about 0.95 P,
    `starts` tries). `tolerance`: what an output may differ from its label by and still count as
    recalled (default 1e-5 for float32, 1e-9 for float64); classes need a positive margin.

    Raises `CapacityError` where a theorem says no, `CheckFailed` where the stored weights do not
    recall all examples (the convex read-out lists what it lost instead).

    >>> from byheart.facts import random_vectors
    >>> memory = build_multi_head(random_vectors(T=29, n=8, d=16), H=4, d_h=8)
    >>> memory.construction["recalled"], memory.construction["capacity"]
    (29, 29)
    """
    started = time.perf_counter()
    _check_options(facts, proof, dtype, readout, tolerance, steps, starts)
    check_slack(slack)
    options = ways.Options(H, d_h, DTYPES[dtype], readout, slack, seed, steps, starts)
    with one_thread():
        made = WAYS[proof](facts, options, progress)
    record = {
        "method": "multihead",
        "proof": proof,
        "readout": readout,
        "capacity": made.capacity,
        "tolerance": tolerance,
        "why": made.why,
        **made.record,
    }
    memory = VectorMemory(
        spec=made.spec,
        weights={name: w.to(options.dtype) for name, w in made.weights.items()},
        facts=facts,
        classes=facts.classes,
        context=facts.context if facts.shared else None,
        construction=record,
    )
    progress(f"recalling {facts.T:,} examples")
    memory = _verified(memory, facts, proof, readout)
    told = {"facts": facts.T, "dtype": dtype, "seed": seed}
    seconds = time.perf_counter() - started
    return replace(memory, construction={**memory.construction, **told, "seconds": seconds})


def _check_options(
    facts: VectorFacts,
    proof: str,
    dtype: str,
    readout: str,
    tolerance: float | None,
    steps: int,
    starts: int,
) -> None:
    if proof not in PROOFS:
        raise ByheartError(f"--proof must be one of {', '.join(PROOFS)}, found {proof!r}")
    if dtype not in DTYPES:
        raise ByheartError(f"dtype must be float32 or float64, found {dtype!r}")
    if readout not in ("exact", "convex"):
        raise ByheartError(f"readout must be one of exact, convex, found {readout!r}")
    if readout == "convex" and (proof != "random" or facts.classes is None):
        raise ByheartError(
            "--readout convex is for classes and random heads: use it with --proof random and "
            "whole-number labels, or leave it out."
        )
    if proof == "newton" and (facts.classes is not None or facts.outputs > 1):
        raise ByheartError(
            "--proof newton fits scalar labels: give labels of shape (T,), or use --proof random."
        )
    if tolerance is not None and not (tolerance > 0 and math.isfinite(tolerance)):
        raise ByheartError(f"--tolerance must be a positive number, found {tolerance}")
    if tolerance is not None and facts.classes is not None:
        raise ByheartError("--tolerance is for numbers: classes are right or wrong.")
    if steps < 0 or starts < 1:
        raise ByheartError(f"expected steps >= 0 and starts >= 1, found {steps} and {starts}")
    if steps and proof != "random":
        raise ByheartError("gradient conditioning (steps) belongs to --proof random.")


def _verified(memory: VectorMemory, facts: VectorFacts, proof: str, readout: str) -> VectorMemory:
    """Every example asked from the weights as they are stored."""
    margins = memory.margins(facts)
    good = margins > 0
    lost = (~good).nonzero()[:, 0].tolist()
    record: dict[str, Any] = {"recalled": int(good.sum()), "lost": [], "margin": None}
    if facts.classes is None:
        record["error"] = float(memory.errors(facts).max())
        record["error_float32"] = float(memory.errors(facts, torch.float32).max())
    elif bool(good.any()):
        smallest = float(margins[good].min())
        record["margin"] = smallest if math.isfinite(smallest) else None
    if lost and readout == "exact":
        found = f"{len(lost):,} of {facts.T:,} examples are lost"
        if facts.classes is None:
            found = f"the largest error is {record['error']:.1e}, above {memory.tolerance:.0e}"
        advice = "--dtype float64" if memory.dtype == torch.float32 else "another --seed"
        more = " (the literal proof needs it: see docs/multi-head.md)" * (proof == "literal")
        raise CheckFailed(
            f"from the stored weights {found}. Nothing was written. Use {advice}{more}, or "
            "--proof one-hot."
        )
    record["lost"] = [{"row": int(facts.rows[i]), "answer": int(facts.label[i])} for i in lost]
    memory = replace(memory, construction={**memory.construction, **record})
    if lost and not record["recalled"]:
        raise CapacityError(f"none of the {facts.T:,} examples could be held by {memory.spec}.")
    return replace(memory, facts=facts.subset(good.numpy())) if lost else memory
