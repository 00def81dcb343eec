"""vector facts -> memory, by one of four proofs and verified as stored."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from byheart._progress import Report
from byheart.construct.multi_head import proofs
from byheart.construct.outcome import DTYPES
from byheart.errors import ByheartError, CapacityError, CheckFailed, OptionError
from byheart.facts import VectorFacts
from byheart.models.construction import LostFact, MultiHeadConstruction, finite
from byheart.models.threads import one_thread
from byheart.models.vector_memory import VectorMemory

if TYPE_CHECKING:
    from byheart.construct.methods import MultiHead

PROOFS: dict[str, Callable[[VectorFacts, MultiHead, int, Report], proofs.Layer]] = {
    "one-hot": proofs.one_hot,
    "literal": proofs.literal,
    "random": proofs.random,
    "newton": proofs.newton,
}


def multi_head_memory(
    facts: VectorFacts, options: MultiHead, seed: int, progress: Report
) -> VectorMemory:
    """A multi-head attention layer that recalls every example (docs/multi-head.md).

    "one-hot": every example saturated (Theorem 1, exact in float32); "literal": the proof as
    printed (float64 only); "random": random heads and one linear solve, up to the generic rank;
    with a convex read-out many more classes; `steps` of gradient conditioning first; "newton": all
    weights by Levenberg-Marquardt, scalar labels, up to about 0.95 P, `starts` tries. `tolerance`:
    what an output may differ from its label by and still count as recalled; classes need a
    positive margin.
    """
    _check_options(facts, options)
    with one_thread():
        layer = PROOFS[options.proof](facts, options, seed, progress)
    construction = replace(
        layer.construction,
        readout=options.readout,
        capacity=layer.capacity,
        tolerance=options.tolerance,
        why=tuple(layer.why),
    )
    memory = VectorMemory(
        spec=layer.spec,
        weights={name: w.to(DTYPES[options.dtype]) for name, w in layer.weights.items()},
        construction=construction,
        facts=facts,
        classes=facts.classes,
        context=facts.context if facts.shared else None,
    )
    progress(f"recalling {facts.T:,} examples")
    return _verified(memory, construction, facts)


def _check_options(facts: VectorFacts, options: MultiHead) -> None:
    proof, tolerance = options.proof, options.tolerance
    if options.readout == "convex" and (proof != "random" or facts.classes is None):
        raise ByheartError(
            "`readout=convex` is for classes and random heads: use it with `proof=random` and "
            "whole-number labels, or leave it out."
        )
    if proof == "newton" and (facts.classes is not None or facts.outputs > 1):
        raise ByheartError(
            "`proof=newton` fits scalar labels: give labels of shape (T,), or use `proof=random`."
        )
    if tolerance is not None and not (tolerance > 0 and math.isfinite(tolerance)):
        raise OptionError("tolerance", "a positive number", tolerance)
    if tolerance is not None and facts.classes is not None:
        raise ByheartError("`tolerance` is for numbers: classes are right or wrong.")
    if options.steps and proof != "random":
        raise ByheartError("gradient conditioning (`steps`) belongs to `proof=random`.")


def _verified(
    memory: VectorMemory, construction: MultiHeadConstruction, facts: VectorFacts
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
    if lost and construction.readout == "exact":
        outcome = f"{len(lost):,} of {facts.T:,} examples are lost"
        if error is not None:
            outcome = f"the largest error is {error:.1e}, above {memory.tolerance:.0e}"
        advice = "`dtype=float64`" if memory.dtype == torch.float32 else "another `seed`"
        literal = construction.proof == "literal"
        more = " (the literal proof needs it: see docs/multi-head.md)" * literal
        raise CheckFailed(
            f"from the stored weights {outcome}. Nothing was written. Use {advice}{more}, or "
            "`proof=one-hot`."
        )
    if lost and not good.any():
        raise CapacityError(f"none of the {facts.T:,} examples could be held by {memory.spec}.")
    construction = replace(
        construction,
        recalled=int(good.sum()),
        lost=tuple(LostFact(int(facts.rows[i]), int(facts.label[i])) for i in lost),
        margin=margin,
        error=error,
        error_float32=error_float32,
    )
    kept = facts.subset(good) if lost else facts
    return replace(memory, construction=construction, facts=kept)
