"""Certificates of memories that are asked with tokens: margins of the right answers, or bounds on
distributions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from byheart.certificates import rounding
from byheart.certificates.architectures import ball_margins, bounded_logits
from byheart.certificates.distribution import prove_distributions
from byheart.certificates.proving import (
    Asked,
    Margins,
    certificate,
    in_batches,
    in_vocabulary_of,
    prove,
)
from byheart.certificates.rounding import Bounded
from byheart.certificates.statement import AnswerCertificate, Certificate, Failure
from byheart.facts import Distributions
from byheart.models.memory import FactTable
from byheart.models.token_memory import TokenMemory, token_table

Own = dict[str, object]  # fields of the certificate that a family has of its own
Evaluate = Callable[[TokenMemory, np.ndarray, np.ndarray, Asked], tuple[Margins, Own]]


@prove.register
def prove_tokens(memory: TokenMemory, facts: FactTable, asked: Asked) -> Certificate:
    """The right answer above all others; distributions within what the memory claims."""
    if isinstance(facts, Distributions):
        asked.refuse_tolerance()
        return prove_distributions(memory, facts, asked)
    return prove_answers(memory, facts, asked, token_margins)


def prove_answers(
    memory: TokenMemory, facts: FactTable, asked: Asked, evaluate: Evaluate
) -> Certificate:
    """The right answer above all others, by the margins that `evaluate` gives for token ids
    (B, key length) and answers (B,) that the memory knows."""
    asked.refuse_tolerance()
    table = token_table(facts)
    tokens, right, known = in_vocabulary_of(memory, table)
    found, own = Margins.nowhere(table.T), {}
    if known.any():
        some, own = evaluate(memory, tokens[known], right[known], asked)
        found.margins[known], found.bounds[known] = some.margins, some.bounds

    def failure(i: int) -> Failure:
        key, answer = table.key(i), table.answer(i)

        def wrong() -> str:
            ids = memory.with_start(tokens[i][None])
            said = memory.vocabulary.token(int(memory.outputs(ids, torch.float64)[0].argmax()))
            return f"the memory answers {said!r}" if said != answer else "tied with another answer"

        made = found.failure(i, int(table.rows[i]), key, answer, wrong, "weights")
        if known[i]:
            return made
        missing = [t for t in (*key, answer) if t not in memory.vocabulary]
        return replace(made, reason=f"unknown to the memory: {', '.join(map(repr, missing))}")

    held = found.held
    more = found.extremes() | (own if held.all() else {})
    return certificate(AnswerCertificate, memory, table, asked.name(memory), held, more, failure)


def token_margins(
    memory: TokenMemory, tokens: np.ndarray, right: np.ndarray, asked: Asked
) -> tuple[Margins, Own]:
    """Margins by evaluating the whole model, in the arithmetic asked for."""
    ids, answers = memory.with_start(tokens), torch.from_numpy(right.copy())
    weights = {name: w.to(torch.float64) for name, w in memory.weights.items()}
    if not rounding.admissible(weights):
        return Margins.nowhere(len(ids)), {}
    if asked.arithmetic == "ball":
        options = {"precision": asked.precision, "progress": asked.progress}
        return Margins(*ball_margins(memory.spec, weights, ids.numpy(), right, **options)), {}

    def values(batch: slice) -> Bounded:
        if asked.arithmetic == "rounding":
            return bounded_logits(memory.spec, weights, ids[batch])
        return rounding.exact(memory.outputs(ids[batch], torch.float64))

    def margin(found: Bounded, batch: slice) -> tuple[Tensor, Tensor]:
        return rounding.margins(found, answers[batch])

    # Three copies: values, bounds, and a bound in the making.
    return in_batches(memory, len(ids), 3, values, margin, asked, "facts"), {}
