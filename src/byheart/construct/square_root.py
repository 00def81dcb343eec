"""facts -> a memory of exact integers, O~(sqrt T) parameters (Kajitsuka and Sato 2025)."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations_with_replacement, product

import numpy as np

from byheart._progress import Report
from byheart.construct.methods import SquareRoot
from byheart.errors import ByheartError, CheckFailed, ConflictError
from byheart.exact.build import memorize
from byheart.facts import Facts
from byheart.facts.distinct import conflict_error, conflicting_groups, group_equal_rows
from byheart.models.construction import SquareRootConstruction, Unknowns
from byheart.models.exact_memory import ExactMemory, as_vectors
from byheart.specs import ExactSpec

FOLDS = 12  # a non-member slips through the folds with probability of order 2^-12, then the table
FOLDS_ABSTAIN = 24
RATE_ABSTAIN = 2.0**-20
# Possible keys up to which every one that is not stored is made, and checked, to be unknown.
EVERY, EVERY_ABSTAIN = 4096, 1 << 18
SAMPLE = 100_000  # random keys that are not stored, asked after the build
LITERAL = 64  # facts that the oracle recalls before a memory is handed over
REGISTER = "register: {} links of attention, each with the register token, for keys of {}"
IDS = {
    "hash": "folds of the key, checked",
    "product": "random products, which work for every table",
    "paper": "a table (Lemmas B.1-B.3)",
    "embedding": "an embedding",
}


def square_root_memory(
    facts: Facts, options: SquareRoot, seed: int, progress: Report
) -> ExactMemory:
    """A square-root Transformer that recalls every fact in exact integers (docs/square-root.md).

    Keys that are not stored are answered "unknown" but for a stated share; every one of them where
    there are few possible keys. `abstain` spends parameters on that.
    """
    max_bits, ordered, abstain = options.max_bits, options.ordered, options.abstain
    if not ordered:
        _check_multisets(facts)
    answers = facts.answer_ids
    labels = np.searchsorted(answers, facts.answers) + 1
    others = _others(facts, ordered, EVERY_ABSTAIN if abstain else max(EVERY, 4 * facts.T))
    built = memorize(
        as_vectors(facts.tokens, ordered),
        labels,
        ff1=options.ff1,
        grouping=options.grouping,
        max_bits=max_bits,
        pooling="register" if options.register else "attention",
        others=None if others is None or not len(others) else as_vectors(others, ordered),
        rate=RATE_ABSTAIN if abstain and others is None else None,
        limits=((0, 0), (facts.N - 1, facts.S - 1)) if ordered else ((0,), (facts.N - 1,)),
        folds=FOLDS_ABSTAIN if abstain else FOLDS,
        seed=seed,
        progress=progress,
    )
    counts = built.network.counts()
    if max_bits is not None and counts.max_bits > max_bits:
        raise ByheartError(
            f"the longest weight needs {counts.max_bits} bits, found a limit of {max_bits}: keys "
            f"and sums alone have as many. Give `max_bits={counts.max_bits}` or more."
        )
    spec = ExactSpec(
        N=facts.N,
        S=facts.S,
        classes=len(answers),
        ordered=ordered,
        ff1=built.mode,
        m=built.network.m,
        register=options.register,
        **counts.to_json(),
    )
    table = built.parts.table
    why = (
        f"{built.mode}: ids of the tokens by {IDS[built.mode]}",
        f"{table.m:,} groups of {table.k} records, {table.t} bits of the key and {table.c} of the "
        "answer each",
        *([REGISTER.format(built.network.links(facts.S), facts.S)] if options.register else []),
        *built.notes,
    )
    construction = SquareRootConstruction(
        recalled=facts.T,
        capacity=facts.T,
        dtype="integers",
        readout="exact",
        why=why,
        answers=tuple(answers.tolist()),
        grouping=table.grouping,
        unknown=Unknowns(True, 0, 0, 0.0),  # until it is measured
    )
    memory = ExactMemory(
        spec=spec,
        integers=built.parts,
        vocabulary=facts.vocabulary,
        construction=construction,
        facts=facts,
        pad_id=facts.pad_id,
    )
    _check(memory, facts, labels, others, seed)
    unknown = _unknown(memory, facts, others, seed)
    return replace(memory, construction=replace(construction, unknown=unknown))


def _check_multisets(facts: Facts) -> None:
    """Rows that differ in order only must agree."""
    tokens = np.sort(facts.tokens, axis=1)
    order, starts = group_equal_rows(tokens, facts.N)
    groups, found = conflicting_groups(facts.answers, order, starts), (facts.tokens, facts.answers)
    if groups:
        error = conflict_error(groups, *found, facts.rows, facts.vocabulary, facts.name)
        raise ConflictError(
            f"{error}\nThese keys have the same tokens in another order: leave out `ordered=False` "
            "to tell them apart.",
            error.conflicts,
        )


def _others(facts: Facts, ordered: bool, most: int) -> np.ndarray | None:
    """Every key of known tokens that is not stored; None if there are more than `most` keys."""
    N, S = facts.N, facts.S
    possible = N**S if ordered else math.comb(N + S - 1, S)
    if possible > most:
        return None
    stored = facts.tokens if ordered else np.sort(facts.tokens, axis=1)
    known = set(map(tuple, stored.tolist()))
    every = product(range(N), repeat=S)
    if not ordered:
        every = combinations_with_replacement(range(N), S)
    rest = [key for key in every if key not in known]
    return np.array(rest, dtype=np.int64).reshape(len(rest), S)


def _check(
    memory: ExactMemory, facts: Facts, labels: np.ndarray, others: np.ndarray | None, seed: int
) -> None:
    """All facts by the structured evaluator, some of them by the oracle, too."""
    wrong = np.flatnonzero(memory.outputs(facts.tokens) != labels)
    rng = np.random.default_rng(seed)
    some = rng.choice(facts.T, size=min(LITERAL, facts.T), replace=False)
    literal = memory.literal_outputs(facts.tokens[some])
    stray = 0 if others is None or not len(others) else int((memory.outputs(others) != 0).sum())
    if len(wrong) or (literal != labels[some]).any() or stray:
        raise CheckFailed(
            f"{len(wrong):,} facts are recalled wrongly, {stray:,} other keys answered: this is an "
            "error in byheart. Nothing was written. Please report it."
        )


def _unknown(memory: ExactMemory, facts: Facts, others: np.ndarray | None, seed: int) -> Unknowns:
    """How sure "unknown" is: proved for all possible keys, or measured, beside the `rate` expected,
    the share of all residues that the table answers: a key that is not stored has one at random."""
    if others is not None:
        return Unknowns(proved=True, asked=len(others), answered=0, rate=0.0)
    rng = np.random.default_rng(seed + 1)
    keys = rng.integers(0, facts.N, size=(SAMPLE, facts.S))
    stored = facts.tokens
    if not memory.spec.ordered:
        keys, stored = np.sort(keys, axis=1), np.sort(stored, axis=1)
    joined = np.concatenate([stored, keys])
    order, starts = group_equal_rows(joined, facts.N)
    sizes = np.diff(np.append(starts, len(joined)))
    fresh = np.empty(len(joined), dtype=bool)
    fresh[order] = np.repeat(order[starts] >= facts.T, sizes)  # no stored key, which come first
    keys = keys[fresh[facts.T :]]
    table = memory.integers.table
    answered, rate = int((memory.outputs(keys) != 0).sum()), table.hits() / (table.largest + 1)
    return Unknowns(proved=False, asked=len(keys), answered=answered, rate=rate)
