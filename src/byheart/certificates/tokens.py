"""Certificates of memories that are asked with tokens: margins of the right answers, or bounds on
distributions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from byheart.certificates.architectures import ball_margins, bounded_logits
from byheart.certificates.arithmetic import EXACT, Bounded, Format, exactly, finite, margins
from byheart.certificates.distribution import prove_distributions
from byheart.certificates.proving import (
    Asked,
    Margins,
    both_statements,
    certificate,
    in_batches,
    in_vocabulary_of,
    prove,
)
from byheart.certificates.statement import AnswerCertificate, Certificate, Failure
from byheart.facts import Distributions
from byheart.models.memory import FactTable
from byheart.models.token_memory import TokenMemory, token_table

# Margins for token ids (B, key length) and answers (B,), for every evaluation in a format.
Evaluate = Callable[[np.ndarray, np.ndarray, Format], Margins]


@prove.register
def prove_tokens(memory: TokenMemory, facts: FactTable, asked: Asked) -> Certificate:
    """The right answer above all others; distributions within what the memory claims."""
    if isinstance(facts, Distributions):
        asked.refuse_tolerance()
        return prove_distributions(memory, facts, asked)

    def evaluate(tokens: np.ndarray, right: np.ndarray, format: Format) -> Margins:
        return token_margins(memory, tokens, right, asked, format)

    return prove_answers(memory, facts, asked, evaluate)


def prove_answers(
    memory: TokenMemory,
    facts: FactTable,
    asked: Asked,
    evaluate: Evaluate,
    covers: str = "",
    own: Mapping[str, object] | None = None,
) -> Certificate:
    """The right answer above all others, by the margins that `evaluate` gives for token ids and
    answers that the memory knows. `covers`: `EvaluationProof.covers`; `own`: fields of the
    certificate that a family has of its own, where all is proved."""
    asked.refuse_tolerance()
    table = token_table(facts)
    tokens, right, known = in_vocabulary_of(memory, table)

    def found_in(format: Format) -> Margins:
        if known.all():
            return evaluate(tokens, right, format)
        found = Margins.nowhere(table.T)
        if known.any():
            some = evaluate(tokens[known], right[known], format)
            found.margins[known], found.bounds[known] = some.margins, some.bounds
        return found

    found, evaluation = both_statements(memory.dtype, asked, table.rows, found_in, covers)

    def failure(i: int) -> Failure:
        key, answer = table.key(i), table.answer(i)

        def wrong() -> str | None:
            logits = memory.outputs(memory.with_start(tokens[i][None]), torch.float64)[0]
            if not finite(memory.weights) or not bool(torch.isfinite(logits).all()):
                return None
            said = memory.vocabulary.token(int(logits.argmax()))
            if said != answer:
                return f"the memory answers {said!r}"
            tied = int((logits == logits.max()).sum()) > 1
            return "tied with another answer" if tied else None

        row = int(table.rows[i])
        if known[i]:
            return found.failure(i, row, key, answer, wrong, "weights")
        missing = [t for t in (*key, answer) if t not in memory.vocabulary]
        reason = f"lost: unknown to the memory: {', '.join(map(repr, missing))}"
        return Failure(row, key, answer, None, None, reason)

    held = found.held
    more: dict[str, object] = {**found.extremes(), "evaluation": evaluation}
    if own and held.all():
        more |= {**own, "shard_errors": found.shard_errors()}
    return certificate(AnswerCertificate, memory, table, asked.name(memory), held, more, failure)


def token_margins(
    memory: TokenMemory,
    tokens: np.ndarray,
    right: np.ndarray,
    asked: Asked,
    format: Format = EXACT,
) -> Margins:
    """Margins by evaluating the whole model, in the arithmetic asked for."""
    ids, answers = memory.with_start(tokens), torch.from_numpy(right.copy())
    weights = {name: w.to(torch.float64) for name, w in memory.weights.items()}
    if not finite(weights):
        return Margins.nowhere(len(ids))
    if asked.arithmetic == "ball":
        options = {"precision": asked.precision, "progress": asked.progress}
        return Margins(*ball_margins(memory.spec, weights, ids.numpy(), right, **options))

    def values(batch: slice) -> Bounded:
        if asked.arithmetic == "rounding":
            return bounded_logits(memory.spec, weights, ids[batch], format)
        return exactly(memory.outputs(ids[batch], torch.float64))

    def margin(found: Bounded, batch: slice) -> tuple[Tensor, Tensor]:
        return margins(found, answers[batch])

    # Three copies: values, bounds, and a bound in the making.
    return in_batches(memory, len(ids), 3, values, margin, asked, "facts")
