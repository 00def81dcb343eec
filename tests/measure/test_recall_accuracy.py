"""Accuracy is prior mass; margins are those of the memory."""

import dataclasses

import numpy as np
import pytest

import byheart as bh
from byheart.errors import ByheartError
from byheart.facts import Facts, Vocabulary
from byheart.measure import margin_quantiles
from byheart.models import TokenMemory

WORDS = Vocabulary(("a", "b", "c"))


@pytest.fixture(scope="module")
def memory() -> TokenMemory:
    made = bh.build(Facts.make([[0, 1], [1, 0], [2, 2], [1, 1]], [0, 1, 2, 0], WORDS))
    assert isinstance(made, TokenMemory)
    return made


def with_answers(answers: list[int], prior: list[float]) -> Facts:
    return Facts.make([[0, 1], [1, 0], [2, 2], [1, 1]], answers, WORDS, prior)


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [([], 1.0), ([0], 0.5), ([1, 3], 0.625), ([2], 0.875), ([0, 1, 2, 3], 0.0)],
)
def test_accuracy_is_the_prior_of_what_is_recalled(memory, wrong, expected):
    """Priors 1/2, 1/4, 1/8, 1/8 are exact in binary, so the sums are."""
    answers = [0, 1, 2, 0]
    for i in wrong:
        answers[i] = (answers[i] + 1) % 3
    assert bh.accuracy(memory, with_answers(answers, [4, 2, 1, 1])) == expected


def test_a_perfect_memory_has_accuracy_exactly_one(memory):
    assert bh.accuracy(memory, with_answers([0, 1, 2, 0], [0.1, 0.2, 0.3, 0.7])) == 1.0
    assert bh.accuracy(memory) == 1.0


def test_facts_that_are_never_asked_do_not_count(memory):
    assert bh.accuracy(memory, with_answers([0, 1, 2, 1], [1, 1, 1, 0])) == 1.0


def test_ties_are_lost(memory):
    weights = {**memory.weights, "W_U": memory.weights["W_U"] * 0}
    assert bh.accuracy(dataclasses.replace(memory, weights=weights)) == 0.0


def test_quantiles_are_those_of_the_margins(memory):
    margins = memory.margins(memory.facts)
    found = margin_quantiles(memory, levels=(0.0, 0.5, 1.0))
    # Linear interpolation between two of four numbers: one rounding.
    expected = dict(zip((0.0, 0.5, 1.0), np.quantile(margins, (0.0, 0.5, 1.0)), strict=True))
    assert found == pytest.approx(expected, rel=1e-15)
    assert margin_quantiles(memory)[0.0] == memory.construction.margin


def test_a_memory_without_facts_must_be_given_some(memory):
    bare = dataclasses.replace(memory, facts=None)
    for measure in (bh.accuracy, margin_quantiles):
        with pytest.raises((ValueError, ByheartError), match="without its facts"):
            measure(bare)
        measure(bare, memory.facts)


def test_every_family_has_accuracy_and_margins():
    facts = bh.random_associations(N=12, S=2, T=30, seed=1)
    memories = [bh.build(facts, name) for name in ("attention", "sharded", "associative", "sqrt")]
    memories.append(bh.build(bh.random_vectors(T=20, n=5, d=8)))
    memories.append(bh.build(bh.random_vectors(T=20, n=5, d=8, classes=3)))
    memories.append(bh.build(bh.random_distributions("gauss", N=6, seed=1)))
    for memory in memories:
        assert bh.accuracy(memory) == 1.0
        found = margin_quantiles(memory, levels=(0.0, 1.0))
        assert 0 < found[0.0] <= found[1.0]
