"""Certificates of memories that do not hold one answer a key: distributions, vectors, integers."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from byheart.certificates import distribution, exact, vectors
from byheart.certificates.statement import (
    LISTED,
    Certificate,
    DistributionProof,
    Failure,
    arithmetic_name,
)
from byheart.construct.outcome import finite
from byheart.errors import ByheartError, FactsError
from byheart.facts import Distributions, Facts, VectorFacts
from byheart.models import Memory, VectorMemory
from byheart.models.exact import ExactMemory
from byheart.models.memory_files import weights_sha256


def certify_distribution(
    memory: Memory,
    table: Distributions,
    tokens: np.ndarray,
    known: np.ndarray,
    arithmetic: str,
    precision: int,
    progress: Callable[[str], None],
    started: float,
) -> Certificate:
    """Every sequence within the log ratio that the memory claims, and d_KL within its claim."""
    ids = {token: i for i, token in enumerate(memory.vocabulary.tokens)}
    support = np.array([ids.get(table.vocabulary.token(int(j)), -1) for j in table.support])
    if not known.all() or (support < 0).any():
        raise FactsError(
            "the distributions have tokens that the memory does not know. Is it the right table?"
        )
    found = distribution.evaluate(memory, table, tokens, support, arithmetic, precision, progress)
    proof, within = distribution.summarise(memory, table, found)
    failures = tuple(
        Failure(
            row=int(table.facts.rows[i]),
            key=table.key(int(i)),
            answer=table.facts.answer(int(i)),
            margin=None,
            error_bound=None,
            reason=_log_ratio_reason(float(found.log_ratio[i]), proof),
        )
        for i in np.flatnonzero(~within)[:LISTED]
    )
    passed = bool(within.all()) and proof.kl <= distribution.allowed(proof.claimed_kl or 0.0)
    return Certificate(
        certified=passed and arithmetic != "float",
        passed=passed,
        facts=table.T,
        failed=int((~within).sum()),
        arithmetic=arithmetic_name(arithmetic, precision, memory.spec),
        margin=None,
        error_bound=None,
        seconds=time.perf_counter() - started,
        weights_sha256=weights_sha256(memory),
        facts_digest=table.digest(),
        failures=failures,
        distribution=proof,
    )


def _log_ratio_reason(found: float, proof: DistributionProof) -> str:
    if np.isnan(found):
        return "could not be evaluated: weights that are not finite or not below 2^60"
    return f"log ratio up to {found:.3g}, claimed {proof.claimed_max_log_ratio:.3g}"


def certify_vectors(
    memory: Memory | VectorMemory | ExactMemory,
    facts: Facts | Distributions | VectorFacts,
    arithmetic: str,
    precision: int,
    tolerance: float | None,
    progress: Callable[[str], None],
    started: float,
) -> Certificate:
    """Every label within the tolerance, or the right class above all others."""
    if not isinstance(memory, VectorMemory) or not isinstance(facts, VectorFacts):
        raise FactsError(
            "a vector memory holds vector facts (.safetensors, .npz) and a token memory tables: "
            "memory and facts do not belong together."
        )
    allowed = tolerance if tolerance is not None else memory.tolerance
    if not allowed > 0 or (tolerance is not None and memory.classes is not None):
        raise ByheartError("`tolerance` is a positive number, for labels that are numbers.")
    memory.check_fits(facts)
    margins, bounds = vectors.vector_margins(
        memory, facts, arithmetic, allowed, precision=precision, progress=progress
    )
    held = margins > bounds
    real = np.isfinite(margins)
    numbers = facts.classes is None
    worst = (allowed - margins + bounds)[real]  # an upper bound on the error of each example
    passed = bool(held.all())
    return Certificate(
        certified=passed and arithmetic != "float",
        passed=passed,
        facts=facts.T,
        failed=int((~held).sum()),
        arithmetic=arithmetic_name(arithmetic, precision, memory.spec),
        margin=float(margins[real].min()) if real.any() else None,
        error_bound=finite(float(bounds[real].max())) if real.any() else None,
        seconds=time.perf_counter() - started,
        weights_sha256=weights_sha256(memory),
        facts_digest=facts.digest(),
        failures=tuple(
            _vector_failure(facts, int(i), float(margins[i]), float(bounds[i]))
            for i in np.flatnonzero(~held)[:LISTED]
        ),
        tolerance=allowed if numbers else None,
        competitors="classes",
        largest_error=float(worst.max() * (1 + 2.0**-40)) if numbers and real.all() else None,
    )


def _vector_failure(facts: VectorFacts, i: int, margin: float, bound: float) -> Failure:
    if np.isnan(margin):
        reason = "could not be evaluated: numbers that are not finite or not below 2^60"
    elif margin > 0:
        reason = f"margin {margin:.1e} is not above the error bound {bound:.1e}"
    elif facts.classes is None:
        reason = "further from the label than the tolerance"
    else:
        reason = "another class has a logit at least as large"
    label = str(facts.label[i].tolist())
    row = int(facts.rows[i])
    return Failure(row, (f"example {row}",), label, finite(margin), finite(bound), reason)


def certify_exact(
    memory: ExactMemory,
    facts: Facts,
    tokens: np.ndarray,
    right: np.ndarray,
    known: np.ndarray,
    started: float,
    progress: Callable[[str], None],
) -> Certificate:
    """Outputs equal to the classes, in integers: there is no margin and no error bound."""
    outputs, literally = np.full(facts.T, -1, dtype=np.int64), 0
    if known.any():
        outputs[known], literally = exact.exact_outputs(memory, tokens[known], progress=progress)
    wrong = np.flatnonzero((outputs != memory.classes(right)) | ~known)
    failures = []
    for i in wrong[:LISTED]:
        said = memory.recall(*facts.key(i)).answer
        reason = f"the memory answers {said!r}" if known[i] else "a token is unknown to the memory"
        row = int(facts.rows[i])
        failures.append(Failure(row, facts.key(i), facts.answer(i), None, None, reason))
    return Certificate(
        certified=not len(wrong),
        passed=not len(wrong),
        facts=facts.T,
        failed=len(wrong),
        arithmetic=exact.arithmetic(facts.T, literally),
        margin=None,
        error_bound=0.0,
        seconds=time.perf_counter() - started,
        weights_sha256=weights_sha256(memory),
        facts_digest=facts.digest(),
        failures=tuple(failures),
    )
