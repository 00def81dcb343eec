"""Asking a memory: words in, an answer and its margin out."""

import dataclasses

import numpy as np
import pytest
import torch

import byheart as bh
from byheart.errors import FactsError
from byheart.facts import Facts, Vocabulary
from byheart.models import memory
from byheart.models.construction import ImportedConstruction
from byheart.models.token_memory import TokenMemory
from byheart.specs import AttentionOnlySpec


def test_recall_gives_answer_margin_and_runner_up(tiny_memory):
    facts = tiny_memory.facts
    margins = tiny_memory.margins(facts)
    for i in range(facts.T):
        found = tiny_memory.recall(*facts.key(i))
        assert found.key == facts.key(i)
        assert found.answer == facts.answer(i)
        assert found.runner_up not in (None, found.answer)
        # Same float32 logits; the product of one row may round differently from that of many:
        # sums of 8 products of order 1.
        assert found.margin == pytest.approx(float(margins[i]), abs=64 * 2**-24)


@pytest.mark.parametrize("key", [(), ("0",), ("0", "1", "2")])
def test_keys_of_another_length_are_refused(tiny_memory, key):
    with pytest.raises(FactsError, match=f"keys of 2 tokens, found {len(key)}") as caught:
        tiny_memory.recall(*key)
    assert ", ".join(repr(t) for t in tiny_memory.facts.key(0)) in str(caught.value)


def test_without_facts_there_is_no_example(tiny_memory):
    with pytest.raises(FactsError, match=r"keys of 2 tokens, found 1: '0'\.$"):
        dataclasses.replace(tiny_memory, facts=None).recall("0")


def test_unknown_tokens_get_the_nearest_known_one():
    vocabulary = Vocabulary(("France", "Italy", "Paris", "Rome"))
    capitals = bh.build(Facts.make([[0], [1]], [2, 3], vocabulary))
    with pytest.raises(FactsError, match=r"'Frence'.*'France'"):
        capitals.recall("Frence")


def test_short_keys_are_padded_as_the_facts_were(padded_memory):
    facts = padded_memory.facts
    assert padded_memory.encode([("a",)]).tolist() == [[facts.pad_id, 0]]
    assert padded_memory.recall("a").answer == "b"
    assert padded_memory.recall("a", "b").answer == "c"
    for key in ((), ("a", "b", "c")):
        with pytest.raises(FactsError, match="keys of 2 tokens"):
            padded_memory.recall(*key)


def test_start_token_stands_in_front(start_memory):
    assert start_memory.key_length == 1 and start_memory.spec.S == 2
    assert start_memory.encode([("2",)]).tolist() == [[start_memory.start_id, 2]]
    with pytest.raises(FactsError, match="keys of 1 token,"):
        start_memory.recall("2", "2")


def test_encode_is_what_the_facts_say(any_memory):
    facts = any_memory.facts
    keys = [facts.key(i) for i in range(facts.T)]
    ids = any_memory.encode(keys)
    assert torch.equal(ids, any_memory.with_start(facts.tokens))
    assert any_memory.answers(ids).tolist() == facts.answers.tolist()


def test_margins_in_batches_are_margins_at_once(any_memory, monkeypatch):
    facts = any_memory.facts
    at_once = any_memory.margins(facts)
    answers = any_memory.answers(any_memory.with_start(facts.tokens))
    monkeypatch.setattr(memory, "BATCH_BYTES", 2 * any_memory.spec.row_bytes(8))
    assert [b.stop - b.start for b in any_memory.batches(5)] == [2, 2, 1]
    # Matrix products of 2 rows may sum in another order than those of all: 64 terms of order 1.
    eps = torch.finfo(any_memory.dtype).eps
    assert np.allclose(any_memory.margins(facts), at_once, rtol=0, atol=64 * eps)
    assert torch.equal(any_memory.answers(any_memory.with_start(facts.tokens)), answers)


def test_a_batch_holds_at_least_one_row(tiny_memory, monkeypatch):
    monkeypatch.setattr(memory, "BATCH_BYTES", 1)
    assert [(b.start, b.stop) for b in tiny_memory.batches(3)] == [(0, 1), (1, 2), (2, 3)]


def test_margins_are_the_answer_minus_the_best_other(tiny_memory):
    facts = tiny_memory.facts
    logits = tiny_memory.outputs(tiny_memory.with_start(facts.tokens), torch.float64).numpy()
    found = tiny_memory.margins(facts, torch.float64)
    for row, answer, margin in zip(logits, facts.answers, found, strict=True):
        others = np.delete(row, answer)
        assert margin == row[answer] - others.max()


def test_one_token_has_no_competitor():
    single = bh.build(Facts.make([[0, 0]], [0], Vocabulary(("only",))))
    assert single.margins(bh.build(single.facts).facts).tolist() == [float("inf")]  # pyright: ignore
    found = single.recall("only", "only")
    assert (found.answer, found.margin, found.runner_up) == ("only", float("inf"), None)


def test_a_tie_is_not_a_positive_margin():
    logits = torch.tensor([[1.0, 1.0, 0.0]])
    assert memory.answer_margins(logits, torch.tensor([0])).tolist() == [0.0]


def test_weights_must_have_the_shapes_of_the_spec(tiny_memory):
    weights = dict(tiny_memory.weights)
    with pytest.raises(ValueError, match="W_O"):
        dataclasses.replace(tiny_memory, weights=weights | {"W_O": weights["W_O"][:, :1]})
    del weights["W_U"]
    with pytest.raises(ValueError, match=r"W_U.*nothing"):
        dataclasses.replace(tiny_memory, weights=weights)


def test_logits_are_those_of_the_stored_format(tiny_memory):
    tokens = tiny_memory.with_start(tiny_memory.facts.tokens)
    assert tiny_memory.outputs(tokens).dtype == tiny_memory.dtype == torch.float32
    assert tiny_memory.outputs(tokens, torch.float64).dtype == torch.float64


def test_a_memory_needs_no_facts():
    spec = AttentionOnlySpec(N=2, S=1, d=1, d_h=1, H=1)
    weights = {name: torch.ones(shape) for name, shape in spec.weight_shapes().items()}
    made, words = ImportedConstruction(), Vocabulary(("a", "b"))
    bare = TokenMemory(spec=spec, weights=weights, vocabulary=words, construction=made)
    # x = 2, one position: A = x, residual = 2 + 2, both logits 4: a tie, margin 0.
    assert bare.recall("a").margin == 0.0
    assert bare.outputs(torch.tensor([[0]])).tolist() == [[4.0, 4.0]]
