"""Random edits against a Python dict, and ablation: known heads hold known facts."""

import time
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import byheart
from byheart.certificates.update import update_certificate
from byheart.construct.sharded import edit as module
from byheart.facts import Facts, Vocabulary
from byheart.models.sharded import residual, shard_of

# Sharded memories have a spec and facts that a type checker cannot know of.
bh: Any = byheart
edit_shards: Any = module.edit_shards

# A short proof and a full one evaluate the same facts in other batches: values may differ by a few
# units of 2^-53 of numbers near 1, bounds are differences near 1e-6.
SAME_BOUND = 1e-8

TOKENS = [f"t{i}" for i in range(14)]
ANSWERS = [f"a{i}" for i in range(9)]
keys = st.tuples(st.sampled_from(TOKENS), st.sampled_from(TOKENS))
answers = st.sampled_from(ANSWERS)


def facts_of(model):
    words = list(dict.fromkeys(w for key, answer in model.items() for w in (*key, answer)))
    ids = {word: i for i, word in enumerate(words)}
    tokens = [[ids[w] for w in key] for key in model]
    return Facts.make(tokens, [ids[a] for a in model.values()], Vocabulary(tuple(words)))


def check_step(before, done, model):
    """All facts recalled, kept shards byte-identical, known tokens as they were."""
    memory, facts = done.memory, done.memory.facts
    assert {facts.key(i): facts.answer(i) for i in range(facts.T)} == model
    said = memory.answers(memory.with_start(facts.tokens))
    assert torch.equal(said, torch.tensor(facts.answers))
    old, new = before.weights, memory.weights
    for shard, was in enumerate(done.kept.tolist()):
        if was >= 0:
            a, b = new["head_start"][shard : shard + 2].tolist()
            c, d = old["head_start"][was : was + 2].tolist()
            assert new["W_O"][a:b].numpy().tobytes() == old["W_O"][c:d].numpy().tobytes()
    known = before.spec.N - 1
    assert torch.equal(new["W_E"][:known], old["W_E"][:known])
    for name in ("u", "w", "V", "point"):
        assert torch.equal(new[name][: len(old[name])], old[name])


class Editing(RuleBasedStateMachine):
    """Shards of 8 facts, so that every few steps one overflows and some token is hot."""

    @initialize(
        model=st.dictionaries(keys, answers, min_size=12, max_size=40),
        abstain=st.booleans(),
        gate=st.sampled_from(["query", "query", "key"]),
    )
    def build(self, model, abstain, gate):
        self.model = dict(model)
        size = 8 if gate == "query" else len(TOKENS)  # keys of one token cannot be split by "key"
        options = {"shard_size": size, "d": 8, "abstain": abstain, "gate": gate}
        self.memory = bh.build(facts_of(model), "sharded", **options)
        self.certificate = bh.certify(self.memory)
        assert self.certificate.certified

    def apply(self, **edits):
        before = self.memory
        done = edit_shards(before, **edits)
        check_step(before, done, self.model)
        self.certificate = update_certificate(self.certificate, done.memory, done.kept)
        self.memory = done.memory

    @rule(data=st.data(), answer=answers | st.sampled_from(["b1", "b2"]))
    def set_answer(self, data, answer):
        key = data.draw(st.sampled_from(sorted(self.model)))
        self.model[key] = answer
        self.apply(set={key: answer})

    @rule(more=st.dictionaries(keys, answers, min_size=1, max_size=12))
    def add(self, more):
        more = {key: answer for key, answer in more.items() if key not in self.model}
        if more:
            self.model |= more
            self.apply(add=facts_of(more))

    @rule(last=st.sampled_from(TOKENS), answer=answers)
    def fill_column(self, last, answer):
        """Many facts with one last token."""
        more = {(first, last): answer for first in TOKENS if (first, last) not in self.model}
        if more:
            self.model |= more
            self.apply(add=facts_of(more))

    @precondition(lambda self: len(self.model) > 4)
    @rule(data=st.data())
    def delete(self, data):
        gone = data.draw(st.lists(st.sampled_from(sorted(self.model)), max_size=3, unique=True))
        for key in gone:
            del self.model[key]
        self.apply(delete=gone)

    @invariant()
    def the_updated_certificate_is_the_full_one(self):
        if not hasattr(self, "memory"):
            return
        short, full = self.certificate, bh.certify(self.memory)
        assert short.certified and full.certified
        assert short.facts == full.facts == len(self.model)
        assert short.margin == full.margin
        assert short.error_bound == pytest.approx(full.error_bound, rel=SAME_BOUND)
        assert short.weights_sha256 == full.weights_sha256
        assert short.facts_digest == full.facts_digest
        # The second statement: one error for all proved facts of a shard can cover fewer of them.
        run, whole = short.evaluation, full.evaluation
        assert run is not None and whole is not None
        assert run.proved <= whole.proved and run.proved + run.failed == len(self.model)
        assert set(run.rows) >= set(whole.rows)
        if self.memory.spec.check:
            assert bool(
                self.memory.knows_by_fingerprint(
                    self.memory.in_order(self.memory.facts.tokens)
                ).all()
            )

    def teardown(self):
        if hasattr(self, "memory"):  # the literal layer, every head of it
            assert bh.certify(self.memory, arithmetic="float").passed


TestEditing = Editing.TestCase
TestEditing.settings = settings(
    max_examples=8,
    stateful_step_count=12,
    deadline=None,
    derandomize=True,
)


def test_ablating_a_shard_loses_its_facts_and_changes_no_other_bit():
    """Zeroing W_O of each of 50 shards: its facts get x_S, which points at the answer by chance
    only (1,000 answers); every other output keeps every bit."""
    facts = bh.random_associations(N=1000, S=2, T=10_000, seed=4)
    memory = bh.build(facts, "sharded", shard_size=100)
    tokens, right = memory.in_order(facts.tokens), torch.tensor(facts.answers)
    weights = dict(memory.weights)
    whole = residual(memory.spec, weights, tokens)
    shards = shard_of(weights, tokens)
    chosen = np.random.default_rng(0).permutation(memory.spec.shards)[:50]
    still_right = lost = 0
    for g in chosen.tolist():
        a, b = weights["head_start"][g : g + 2].tolist()
        W_O = memory.weights["W_O"].clone()
        W_O[a:b] = 0
        out = residual(memory.spec, weights | {"W_O": W_O}, tokens)
        mine = shards == g
        assert torch.equal(out[~mine], whole[~mine])
        said = (out[mine] @ weights["W_U"]).argmax(1)
        still_right += int((said == right[mine]).sum())
        lost += int(mine.sum())
    assert lost > 4000 and still_right <= 0.004 * lost  # chance: 0.001


@pytest.mark.slow
@pytest.mark.parametrize(("T", "N", "edits"), [(10_000, 1000, 1000), (100_000, 10_000, 100)])
def test_a_thousand_random_edits(T, N, edits, capsys):
    """Sets, adds and deletes: after each, every other answer has the same bits."""
    facts = bh.random_associations(N=N, S=2, T=T, seed=5)
    memory = bh.build(facts, "sharded", abstain=True)
    certificate = bh.certify(memory)
    draw = np.random.default_rng(6)
    model = {facts.key(i): facts.answer(i) for i in range(T)}
    words = list(facts.vocabulary.tokens)
    seconds, proofs = [], []
    for i in range(edits):
        key = list(model)[int(draw.integers(len(model)))]
        answer = words[int(draw.integers(N))]
        kind = ("set", "add", "delete")[int(draw.integers(3))]
        if kind == "set":
            model[key], edit = answer, {"set": {key: answer}}
        elif kind == "delete":
            del model[key]
            edit = {"delete": [key]}
        else:
            new = (words[int(draw.integers(N))], words[int(draw.integers(N))])
            if new in model or i % 50 == 0:
                new = (f"new{i}", new[1] if i % 100 else f"newer{i}")
            model[new], edit = answer, {"add": facts_of({new: answer})}
        started = time.perf_counter()
        done = edit_shards(memory, **edit)
        seconds.append(time.perf_counter() - started)
        started = time.perf_counter()
        certificate = update_certificate(certificate, done.memory, done.kept)
        proofs.append(time.perf_counter() - started)
        assert certificate.certified
        if i % 100 == 0 or i == edits - 1:
            check_step(memory, done, model)
        else:  # kept shards have the same bytes, hence the same answers
            kept = np.flatnonzero(done.kept >= 0)
            new, old = done.memory.weights, memory.weights
            heads = np.diff(new["head_start"].numpy())[kept]
            assert (heads == np.diff(old["head_start"].numpy())[done.kept[kept]]).all()
            starts = new["head_start"].numpy()[kept], old["head_start"].numpy()[done.kept[kept]]
            index = [torch.from_numpy(_heads(s, heads)) for s in starts]
            assert torch.equal(new["W_O"][index[0]], old["W_O"][index[1]])
        memory = done.memory
    full = bh.certify(memory)
    assert full.certified and certificate.margin == full.margin
    assert certificate.error_bound == pytest.approx(full.error_bound, rel=SAME_BOUND)
    assert certificate.evaluation is not None and full.evaluation is not None
    assert certificate.evaluation.proved == full.evaluation.proved == memory.facts.T
    assert bool(memory.knows_by_fingerprint(memory.in_order(memory.facts.tokens)).all())
    with capsys.disabled():
        print(
            f"\n{edits} edits at {T:,} facts: median {np.median(seconds):.4f} s an edit (largest "
            f"{max(seconds):.3f}), {np.median(proofs):.4f} s a proof; {memory.spec.shards} shards"
        )


def _heads(starts, counts):
    """Indices of runs of heads."""
    ends = np.cumsum(counts)
    return np.repeat(starts - (ends - counts), counts) + np.arange(ends[-1])
