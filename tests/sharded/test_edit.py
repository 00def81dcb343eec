"""Editing: one shard solve a touched shard, every other bit as it was, splits where room ends."""

import json
from typing import Any

import numpy as np
import pytest
import torch

import byheart
from byheart.construct.sharded import edit as module
from byheart.construct.sharded.changes import rows_of
from byheart.construct.sharded.grow import answer_rows, free_points
from byheart.errors import ByheartError, CapacityError, CheckFailed, ConflictError, FactsError
from byheart.facts import Facts, Vocabulary
from byheart.models.sharded import shard_of

# Sharded memories have a spec and facts that a type checker cannot know of.
bh: Any = byheart
edit: Any = module.edit
edit_shards: Any = module.edit_shards


def table(rows, name="more"):
    """Facts from rows of words, the answer last."""
    words = list(dict.fromkeys(word for row in rows for word in row))
    ids = {word: i for i, word in enumerate(words)}
    keys = [[ids[w] for w in row[:-1]] for row in rows]
    answers = [ids[row[-1]] for row in rows]
    return Facts.make(keys, answers, Vocabulary(tuple(words)), name=name)


def grid(last, first, answers=7):
    """`last` x `first` facts (f_i, l_j) -> a_k."""
    rows = [
        (f"f{i}", f"l{j}", f"a{(i * 5 + j * 3) % answers}")
        for j in range(last)
        for i in range(first)
    ]
    return table(rows, "grid")


def block(memory, shard):
    a, b = memory.weights["head_start"][shard : shard + 2].tolist()
    return memory.weights["W_O"][a:b].numpy().tobytes()


def check_untouched(before, done):
    """Bytes of everything that the edit had no reason to change."""
    after, known = done.memory, before.spec.N - 1
    for shard, old in enumerate(done.kept.tolist()):
        if old >= 0:
            assert block(after, shard) == block(before, old)
    old, new = before.weights, after.weights
    assert new["W_E"][:known].numpy().tobytes() == old["W_E"][:known].numpy().tobytes()
    for name in ("u", "w", "V", "point"):
        same = new[name][: len(old[name])]
        assert same.numpy().tobytes() == old[name].numpy().tobytes(), name
    for name in ("W_pos", "far"):
        assert new[name].numpy().tobytes() == old[name].numpy().tobytes(), name
    answers = (old["W_U"] != 0).any(0)[:known].nonzero()[:, 0]
    assert torch.equal(new["W_U"][:, answers], old["W_U"][:, answers])
    if "bits" in old:
        assert torch.equal(new["bits"][:known, : old["bits"].shape[1]], old["bits"][:known])


def check_recalls(memory, model):
    """The memory holds exactly `model`, through its own heads as stored."""
    facts = memory.facts
    assert {facts.key(i): facts.answer(i) for i in range(facts.T)} == model
    said = memory.answers(memory.with_start(facts.tokens))
    assert torch.equal(said, torch.tensor(facts.answers))


def model_of(facts):
    return {facts.key(i): facts.answer(i) for i in range(facts.T)}


@pytest.fixture(scope="module")
def small():
    """600 facts in 12 shards of 50."""
    return bh.build(bh.random_associations(N=80, S=2, T=600, seed=3), "sharded", shard_size=50)


def test_set_add_and_delete_touch_their_shards_only(small):
    facts = small.facts
    free = next(
        (a, b)
        for a in facts.vocabulary.tokens
        for b in facts.vocabulary.tokens
        if (a, b) not in model_of(facts)
    )
    answer = facts.answer(9)
    done = edit_shards(
        small,
        set={facts.key(0): answer},
        add=table([(*free, answer)]),
        delete=[facts.key(100)],
    )
    expected = model_of(facts) | {facts.key(0): answer, free: answer}
    del expected[facts.key(100)]
    check_recalls(done.memory, expected)
    check_untouched(small, done)
    keys = small.in_order(small.key_ids([facts.key(0), facts.key(100), free]))
    assert set(done.solved) == set(shard_of(dict(small.weights), keys).tolist())
    assert done.counts["set"] == done.counts["added"] == done.counts["deleted"] == 1
    assert done.memory.facts.digest() != facts.digest()
    assert bh.certify(done.memory).certified


def test_an_edit_and_its_inverse_give_the_same_bytes(small):
    key, old, new = small.facts.key(5), small.facts.answer(5), small.facts.answer(6)
    there = edit(small, set={key: new})
    back = edit(edit(there, set={key: old}), set={key: new})
    assert there.weights["W_O"].numpy().tobytes() == back.weights["W_O"].numpy().tobytes()
    assert there.facts is not None and there.facts.digest() == back.facts.digest()


def test_nothing_changes_when_all_is_true_already(small):
    facts = small.facts
    done = edit_shards(
        small, set={facts.key(0): facts.answer(0)}, add=table([(*facts.key(1), facts.answer(1))])
    )
    assert done.memory is small and done.counts["unchanged"] == 2 and not done.solved


def test_new_tokens_and_answers_get_rows_of_their_own(small):
    done = edit_shards(small, add=table([("new", "newer", "newest"), ("new", "newer2", "newest")]))
    memory = done.memory
    assert memory.recall("new", "newer").answer == "newest"
    assert memory.spec.N == small.spec.N + 4 and done.counts["new_answers"] == 1
    assert memory.vocabulary.token(memory.spec.N - 1) == "<start>"
    assert memory.construction.start_id == memory.spec.N - 1
    check_untouched(small, done)
    check_recalls(
        memory,
        model_of(small.facts) | {("new", "newer"): "newest", ("new", "newer2"): "newest"},
    )
    # The rows depend on seed and token number only: one by one gives the same embeddings.
    steps = edit(
        edit(small, add=table([("new", "newer", "newest")])),
        add=table([("new", "newer2", "newest")]),
    )
    same = [memory.vocabulary.id(word) for word in ("new", "newer")]
    other = [steps.vocabulary.id(word) for word in ("new", "newer")]
    assert torch.equal(memory.weights["W_E"][same], steps.weights["W_E"][other])


def test_a_new_token_may_have_the_name_of_the_start_token(small):
    memory = edit(small, set={small.facts.key(0): "<start>"})
    assert memory.recall(*small.facts.key(0)).answer == "<start>"
    assert memory.vocabulary.token(memory.spec.N - 1) == "<start>'"


def test_a_full_shard_of_several_tokens_is_split():
    memory = bh.build(grid(last=6, first=8), "sharded", shard_size=16, d=8)
    model = model_of(memory.facts)
    shards = memory.spec.shards
    seen = []
    for i in range(8, 20):
        rows = [(f"f{i}", f"l{j}", f"a{(i + j) % 7}") for j in range(6)]
        done = edit_shards(memory, add=table(rows))
        check_untouched(memory, done)
        memory = done.memory
        model |= {row[:-1]: row[-1] for row in rows}
        seen += done.why
        check_recalls(memory, model)
    assert memory.spec.shards > shards and any("moved out" in reason for reason in seen)
    assert bh.certify(memory).certified
    assert bh.certify(memory, arithmetic="float").passed  # the literal layer, every head
    sizes = np.bincount(shard_of(dict(memory.weights), memory.in_order(memory.facts.tokens)))
    heads = np.diff(memory.weights["head_start"].numpy())
    assert (sizes <= heads[: len(sizes)] * memory.spec.d_h).all()


@pytest.mark.parametrize("gate", ["query", "key"])
def test_a_full_shard_of_one_token_gets_a_bit_more(gate):
    """One deciding token grows hot, then hotter: more bits, or more heads with the key gate."""
    memory = bh.build(grid(last=2, first=12), "sharded", shard_size=12, d=8, gate=gate)
    decides = 0 if gate == "key" else memory.order[-1]
    model, bits = model_of(memory.facts), memory.spec.bits
    hot = memory.facts.key(0)[decides]
    for step in range(6):
        rows = []
        for i in range(10):
            key = ["", ""]
            key[decides], key[1 - decides] = hot, f"n{step}-{i}"
            rows.append((*key, f"a{i % 7}"))
        done = edit_shards(memory, add=table(rows))
        check_untouched(memory, done)
        memory = done.memory
        model |= {row[:-1]: row[-1] for row in rows}
        check_recalls(memory, model)
    if gate == "query":
        assert memory.spec.bits > bits and int(memory.weights["level"].max()) >= 2
    else:
        counts = memory.weights["head_start"].diff()
        assert int(counts.max()) >= 62  # as many heads as facts of the hot token
        with pytest.raises(CapacityError, match="`gate=query`"):
            edit(memory, add=table([(hot, f"m{i}", "a1") for i in range(200)]))
    assert bh.certify(memory).certified
    assert bh.certify(memory, arithmetic="float").passed


def test_longer_keys_grow_by_heads():
    """One deciding token of keys of three cannot be split: its shard gets more heads."""
    rows = [(f"x{i}", f"y{i % 5}", "z", f"a{i % 4}") for i in range(20)]
    memory = bh.build(table(rows), "sharded", shard_size=20, d=8)
    decides = memory.order[-1]
    key = list(memory.facts.key(0))
    more = []
    for i in range(30):
        new = list(key)
        new[(decides + 1) % 3] = f"new{i}"
        more.append((*new, f"a{i % 4}"))
    done = edit_shards(memory, add=table(more))
    check_untouched(memory, done)
    check_recalls(done.memory, model_of(memory.facts) | {row[:-1]: row[-1] for row in more})
    assert bh.certify(done.memory).certified


def test_many_new_tokens_found_groups_with_lattice_points_of_their_own():
    memory = bh.build(grid(last=4, first=10), "sharded", shard_size=10, d=8)
    before = memory.spec
    rows = [(f"p{i}", f"q{i}", f"a{i % 7}") for i in range(300)]
    done = edit_shards(memory, add=table(rows))
    memory, spec = done.memory, done.memory.spec
    assert spec.groups > 3 * before.groups and spec.s1 <= before.s1
    assert len(memory.weights["point"].unique(dim=0)) == spec.groups
    assert spec.s1 * memory.weights["point"].abs().max() <= 1
    assert bh.certify(memory).certified and bh.certify(memory, arithmetic="float").passed
    check_untouched(bh.build(grid(last=4, first=10), "sharded", shard_size=10, d=8), done)


def test_lambda_grows_where_new_tokens_need_it(small, monkeypatch):
    """Louder tokens score higher: λ follows, and no stored tensor notices."""
    from byheart.construct.sharded import grow

    quiet = grow.token_rows
    monkeypatch.setattr(grow, "token_rows", lambda *args: 6 * quiet(*args))
    done = edit_shards(small, add=table([("loud", "louder", small.facts.answer(0))]))
    assert done.memory.spec.lam > small.spec.lam
    check_untouched(small, done)
    assert bh.certify(done.memory).certified


def test_deleting_a_whole_shard_leaves_it_silent(small):
    shards = shard_of(dict(small.weights), small.in_order(small.facts.tokens)).numpy()
    gone = [small.facts.key(int(i)) for i in np.flatnonzero(shards == 3)]
    done = edit_shards(small, delete=gone)
    assert done.solved == [3] and not any(block(done.memory, 3))
    assert bh.certify(done.memory).certified
    again = edit(done.memory, add=small.facts.subset(shards == 3))
    assert model_of(again.facts) == model_of(small.facts)


@pytest.mark.parametrize("gate", ["query", "key"])
def test_both_gates_that_serve_two_tokens(gate):
    memory = bh.build(grid(last=5, first=9), "sharded", shard_size=15, d=8, gate=gate)
    rows = [("new", f"l{j}", "a1") for j in range(5)] + [("new", "newer", "a2")]
    done = edit_shards(memory, add=table(rows), delete=[("f1", "l1")])
    model = model_of(memory.facts) | {row[:-1]: row[-1] for row in rows}
    del model["f1", "l1"]
    check_recalls(done.memory, model)
    check_untouched(memory, done)
    assert bh.certify(done.memory).certified


def test_keys_of_one_token():
    memory = bh.build(table([(f"k{i}", f"a{i % 9}") for i in range(60)]), "sharded", d=8)
    done = edit(memory, set={("k3",): "a0"}, add=table([("k99", "b")]), delete=[("k4",)])
    assert done.recall("k3").answer == "a0" and done.recall("k99").answer == "b"
    assert bh.certify(done).certified


def test_padded_keys(tmp_path):
    rows = [{"input": [f"x{i}", "y", "z"][: 1 + i % 3], "output": f"a{i % 3}"} for i in range(12)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    memory = bh.build(bh.read_facts(tmp_path / "rows.jsonl", pad=True), "sharded")
    done = edit(
        memory, set={("x0",): "a2"}, add=table([("w", "a1"), ("w2", "a1")]), delete=[("x1", "y")]
    )
    assert done.recall("x0").answer == "a2" and done.recall("w").answer == "a1"


def test_uniform_prior_stays_uniform_and_weights_are_kept():
    facts = grid(last=3, first=6)
    memory = bh.build(facts, "sharded")
    done = edit(memory, add=table([("new", "l1", "a1")]))
    assert (done.facts.prior == 1 / 19).all()
    heavy = Facts.make(facts.tokens, facts.answers, facts.vocabulary, np.arange(1.0, 19.0))
    done = edit(bh.build(heavy, "sharded"), delete=[heavy.key(0)])
    assert done.facts.prior[0] == pytest.approx(2 / 170)


BAD = [
    ({"set": {("0", "nowhere"): "1"}}, FactsError, "unknown token 'nowhere'"),
    ({"delete": [("MISSING",)]}, FactsError, "keys of 2 tokens"),
    ({"delete": ["ab"]}, FactsError, "found the string 'ab'"),
    ({"set": [(("K0"), "t1")]}, FactsError, "found the string"),
    ({"add": table([("a", "b")])}, FactsError, "expected keys of 2 tokens, as in the memory"),
]


@pytest.mark.parametrize(("edits", "error", "words"), BAD)
def test_bad_input(small, edits, error, words):
    with pytest.raises(error, match=words):
        edit(small, **edits)


def test_keys_that_are_not_stored_and_keys_edited_twice(small):
    facts = small.facts
    stored = model_of(facts)
    a, b = next(
        (a, b)
        for a in facts.vocabulary.tokens
        for b in facts.vocabulary.tokens
        if (a, b) not in stored
    )
    with pytest.raises(FactsError, match=r"expected a stored fact to set.*add it"):
        edit(small, set={(a, b): "x"})
    with pytest.raises(FactsError, match="expected a stored fact to delete"):
        edit(small, delete=[(a, b)])
    key = facts.key(0)
    with pytest.raises(FactsError, match="found 2 changes"):
        edit(small, set={key: "x"}, delete=[key])
    with pytest.raises(FactsError, match="found 2 changes"):
        edit(small, set=[(key, "x"), (key, "x")])
    with pytest.raises(FactsError, match="both in more and among"):
        edit(small, delete=[key], add=table([(*key, "x")]))
    with pytest.raises(ConflictError, match="change its answer with `set`") as caught:
        edit(small, add=table([(*key, "x"), (*facts.key(1), "y")]))
    assert sorted(k for k, _ in caught.value.conflicts) == sorted([key, facts.key(1)])
    with pytest.raises(FactsError, match="would delete all 600 facts"):
        edit(small, delete=list(stored))


def test_memories_that_cannot_be_edited(small):
    from dataclasses import replace

    with pytest.raises(FactsError, match="without its facts"):
        edit(replace(small, facts=None), delete=[small.facts.key(0)])
    dense = bh.build(grid(last=3, first=4))
    with pytest.raises(ByheartError, match=r"only sharded memories.*`method=sharded`"):
        edit(dense, delete=[("f0", "l0")])
    untied = bh.build(grid(last=3, first=4), "sharded", untied=True)
    with pytest.raises(ByheartError, match="untied heads"):
        edit(untied, delete=[("f0", "l0")])


def test_new_answers_continue_the_hamming_code_or_find_a_gap():
    from byheart.construct.frames import frame, hamming

    words = hamming(2100, 18)
    rows, margin = answer_rows(words[torch.randperm(2090)], 10, 0, 1e-4)
    assert torch.equal(rows, words[2090:2100]) and margin == 8 / 18
    crowded = frame(40, 6)
    rows, margin = answer_rows(crowded, 3, 0, 1e-4)
    cosines = rows @ torch.cat([crowded, rows]).T
    cosines[torch.arange(3), 40 + torch.arange(3)] = -1.0
    assert margin == pytest.approx(1 - float(cosines.max()))
    assert margin > 0.15
    with pytest.raises(CapacityError, match=r"best margin found is 0\.\d+.*`d=8`"):
        answer_rows(crowded, 3, 0, 0.9)
    with pytest.raises(CapacityError, match="`d=4`"):
        answer_rows(torch.tensor([[1.0], [-1.0]], dtype=torch.float64), 1, 0, 1e-4)


def test_free_points_avoid_what_is_taken_and_stay_exact():
    taken = np.array([[i, j] for i in range(-3, 4) for j in range(-3, 4)])
    found = free_points(taken, np.array([4, 4]), 100, 2**24)
    everything = np.concatenate([taken, found, [[4, 4]]])
    assert len(np.unique(everything, axis=0)) == len(everything)
    with pytest.raises(CapacityError, match="Build the memory again"):
        free_points(taken, np.array([4, 4]), 100, 64)


def test_rows_of_finds_few_and_many(small):
    facts = small.facts
    keys = np.concatenate([facts.tokens[::-1][:50], [[79, 79]]])
    stored = {tuple(k): i for i, k in enumerate(facts.tokens.tolist())}
    expected = [stored.get(tuple(k), -1) for k in keys.tolist()]
    assert rows_of(facts, keys).tolist() == expected
    assert rows_of(facts, keys[-3:]).tolist() == expected[-3:]


def test_an_edit_that_would_lose_facts_is_refused(small, monkeypatch):
    monkeypatch.setattr(
        "byheart.construct.sharded.build.recalled_through_own_heads", lambda *_: (0, 0.0)
    )
    with pytest.raises(CheckFailed, match="Nothing was changed"):
        edit(small, delete=[small.facts.key(0)])
