"""Certificates of exact memories: every block executed in integers, no tolerance at all."""

from __future__ import annotations

import numpy as np

from byheart._progress import Report
from byheart.certificates.proving import Asked, certificate, in_vocabulary_of, prove
from byheart.certificates.statement import INTEGERS, Certificate, Failure, IntegerCertificate
from byheart.errors import ByheartError
from byheart.exact.parts import premises
from byheart.facts import Distributions
from byheart.models.exact_memory import ExactMemory
from byheart.models.memory import FactTable
from byheart.models.token_memory import token_table

LITERAL = 10_000  # facts up to which all are evaluated block by block


@prove.register
def prove_exact(memory: ExactMemory, facts: FactTable, asked: Asked) -> Certificate:
    """Outputs equal to the classes, in integers: there is no margin and no error bound."""
    if asked.arithmetic != "rounding":
        raise ByheartError(
            "this memory has integer weights and is proved in integers: leave out "
            "`arithmetic=ball`, `arithmetic=float` and `precision`."
        )
    asked.refuse_tolerance()
    if isinstance(facts, Distributions):
        raise ByheartError("a memory of integers holds one answer a key, not distributions.")
    table = token_table(facts)
    tokens, right, known = in_vocabulary_of(memory, table)
    outputs, literally, told = np.full(table.T, -1, dtype=object), 0, ()
    if known.sum() > LITERAL:  # what is not evaluated block by block rests on these
        told = premises(memory.integers, memory.key_length)
    if known.any():
        outputs[known], literally = exact_outputs(memory, tokens[known], asked.progress)

    def failure(i: int) -> Failure:
        said = memory.recall(*table.key(i), literally=True).answer
        reason = f"the memory answers {said!r}" if known[i] else "a token is unknown to the memory"
        return Failure(int(table.rows[i]), table.key(i), table.answer(i), None, None, reason)

    held = (outputs == memory.classes(right)) & known
    words = arithmetic(table.T, literally)
    return certificate(IntegerCertificate, memory, table, words, held, {"premises": told}, failure)


def exact_outputs(
    memory: ExactMemory, tokens: np.ndarray, progress: Report
) -> tuple[np.ndarray, int]:
    """Classes of keys (B, S), and how many of them were evaluated literally.

    Up to `LITERAL` keys all are. Beyond, a random `LITERAL` of them, and all by the structured
    evaluator: its parts are those of the blocks weight for weight (`parts.read`), what the argument
    that both compute the same needs (docs/square-root.md) is checked of every one of them
    (`parts.premises`), and both are compared here on every key that both have seen; a difference
    counts as a wrong answer.
    """
    if len(tokens) <= LITERAL:
        return memory.literal_outputs(tokens, progress), len(tokens)
    outputs = memory.outputs(tokens)
    chosen = np.sort(np.random.default_rng(len(tokens)).choice(len(tokens), LITERAL, replace=False))
    seen = memory.literal_outputs(tokens[chosen], progress)
    outputs[chosen] = np.where(outputs[chosen] == seen, seen, -1)
    return outputs, len(chosen)


def arithmetic(facts: int, literally: int) -> str:
    """What the certificate says about how it was made.

    >>> arithmetic(10, 10)
    'exact integers, all 10 facts block by block'
    """
    if literally == facts:
        return f"{INTEGERS}, all {facts:,} facts block by block"
    return (
        f"{INTEGERS}, {literally:,} facts block by block, all {facts:,} by the structured evaluator"
    )
