"""A memory that is prompted in the order of its table is the same function, with an end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import byheart as bh
from byheart.exports.folders import as_json
from byheart.exports.hugging_face import gpt2_parameters, gpt2_weights
from byheart.exports.normal import dense_spec
from byheart.exports.prompts import (
    SPARE,
    Layout,
    Prompted,
    prompt_layout,
    prompted,
    prompted_spec,
)
from byheart.exports.word_tokenizer import tokenizer_files
from byheart.specs import AttentionOnlySpec

CLOSE = 1e-9  # float64 and a few layers of O(1) numbers


def literal(made: Prompted, tokens: torch.Tensor, silent: tuple[int, ...] = ()) -> torch.Tensor:
    """Logits (B, positions, N) in float64; `silent` heads of the last layer add nothing."""
    w, n = {k: v.double() for k, v in made.memory.weights.items()}, tokens.shape[1]
    x = w["W_E"][tokens] + w["W_pos"][:n]
    future = torch.ones(n, n, dtype=torch.bool).triu(1)
    layers = len(w["W_Q"])
    for layer in range(layers):
        q, k, v = (torch.einsum("bsd,hdr->bhsr", x, w[f"W_{name}"][layer]) for name in "QKV")
        z = torch.softmax((q @ k.mT).masked_fill(future, -torch.inf), dim=-1) @ v
        if layer == layers - 1:
            z[:, list(silent)] = 0
        x = x + torch.einsum("bhsr,hrd->bsd", z, w["W_O"][layer])
    return x @ w["W_U"]


@given(
    S=st.integers(1, 4),
    layers=st.integers(1, 3),
    H=st.integers(1, 3),
    skip=st.booleans(),
    seed=st.integers(0, 999),
)
@settings(max_examples=12, deadline=None)
def test_any_order_of_any_depth_is_asked_as_the_table_has_it(
    random_memory, S: int, layers: int, H: int, skip: bool, seed: int
):
    spec = AttentionOnlySpec(N=5, S=S, d=3, d_h=2, H=H, layers=layers, skip=skip)
    order = tuple(np.random.default_rng(seed).permutation(S).tolist())
    memory = replace(random_memory(spec, seed), order=order, facts=None)
    made = prompted(memory)
    keys = torch.cartesian_prod(*[torch.arange(5)] * S).reshape(-1, S)
    prompts = made.prompts(keys)
    logits = literal(made, prompts)[:, -1]
    wanted = memory.outputs(memory.with_start(keys))
    assert prompts.shape[1] == made.layout.length
    assert float((logits[:, :5] - wanted).abs().max()) < CLOSE * (1 + float(wanted.abs().max()))
    assert bool((logits[:, 5:].amax(1) < logits[:, :5].amin(1)).all())  # nothing special is said
    # Whatever is read behind the key, even an unknown word: the end.
    behind = torch.randint(0, made.memory.spec.N, (len(keys), SPARE))
    after = literal(made, torch.cat([prompts, behind], dim=1))[:, prompts.shape[1] :]
    assert bool((after.argmax(-1) == made.end_id).all())


def test_what_is_moved():
    """A word that stands behind a later one in the memory's order is copied, and what follows."""
    assert Layout(0, (0, 1, 2)).moved == ()
    assert Layout(1, (1, 2, 0)).moved == (0,)
    assert Layout(1, (0, 2, 1)).moved == (1,)
    assert Layout(0, (2, 0, 1)).moved == (0, 1)
    assert [Layout(1, (1, 0)).class_of(p) for p in range(6)] == [0, 1, 0, 2, 3, 3]


@pytest.fixture(scope="module")
def made(sharded) -> Prompted:
    return prompted(sharded.to_dense())


class TestCountriesInShards:
    def test_the_size_is_known_before(self, sharded, made: Prompted):
        spec = prompted_spec(dense_spec(sharded), prompt_layout(sharded))
        assert spec == made.memory.spec
        _, state = gpt2_weights(made.memory)
        assert gpt2_parameters(spec) == sum(w.numel() for w in state.values())

    def test_owners_lose_their_facts_and_no_others(self, sharded, made: Prompted):
        """Behind the copying layer the heads are those of owners.json."""
        owners, facts = sharded.owners(), sharded.facts
        prompts, right = made.prompts(torch.tensor(facts.tokens)), torch.tensor(facts.answers)
        assert made.shift == 1
        for shard in sorted(set(owners.shard.tolist()))[:2]:
            logits = literal(made, prompts, owners.heads[shard])[:, -1]
            lost = set((logits.argmax(1) != right).nonzero()[:, 0].tolist())
            held = set(np.flatnonzero(owners.shard == shard).tolist())
            assert lost == held - set(owners.survive)

    def test_words_become_prompts(self, sharded, made: Prompted):
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_str(as_json(tokenizer_files(made)[0]))
        facts, names = sharded.facts, made.memory.vocabulary.tokens
        wanted = made.prompts(torch.tensor(facts.tokens)).tolist()
        texts = [" ".join(facts.key(i)) for i in range(facts.T)]
        assert [encoded.ids for encoded in tokenizer.encode_batch(texts)] == wanted
        assert tokenizer.encode("Atlantis capital").ids[1] == made.unknown_id
        assert names[made.unknown_id :] == ("[UNK]", "[END]", "[ASK]")


def test_short_keys_are_padded_behind_the_start_token(tmp_path):
    from tokenizers import Tokenizer

    table = tmp_path / "t.jsonl"
    rows = [(["a", "b", "c"], "x"), (["b"], "y"), (["c", "a"], "z"), (["a"], "y")]
    table.write_text("".join(f'{{"input": {key!r}, "output": "{a}"}}\n' for key, a in rows)
                     .replace("'", '"'))  # fmt: skip
    memory = bh.build(bh.read_facts(table, pad=True), "sharded")
    made = prompted(memory.to_dense())
    tokenizer = Tokenizer.from_str(as_json(tokenizer_files(made)[0]))
    for key, answer in rows:
        ids = torch.tensor([tokenizer.encode(" ".join(key)).ids])
        assert torch.equal(ids, made.prompts(torch.tensor(memory.key_ids([key]))))
        said = int(literal(made, ids)[0, -1].argmax())
        assert made.memory.vocabulary.token(said) == answer
