"""A memory is the same function in every tool: equal logits for all facts."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import byheart as bh
from byheart.exports import export, import_memory, normal_form
from byheart.exports.hugging_face import gpt2_weights
from byheart.exports.onnx_graph import graph
from byheart.exports.transformer_lens import lens_weights
from byheart.specs import AttentionOnlySpec

specs = st.builds(
    AttentionOnlySpec,
    N=st.integers(2, 6),
    S=st.integers(1, 3),
    d=st.integers(1, 4),
    d_h=st.integers(1, 5),
    H=st.integers(1, 3),
    layers=st.integers(1, 3),
    qk_rank=st.integers(1, 5),
    positions=st.sampled_from(["input", "attention", "none"]),
    scale=st.booleans(),
    skip=st.booleans(),
)
# float64 and a few layers of O(1) numbers: 1e-9 is a million units in the last place.
CLOSE = 1e-9


def gpt2_logits(memory: bh.TokenMemory, tokens: torch.Tensor) -> torch.Tensor:
    from transformers import GPT2Config, GPT2LMHeadModel

    config, state = gpt2_weights(memory)
    model: Any = GPT2LMHeadModel(GPT2Config.from_dict(config))
    model.to(memory.dtype).eval()
    model.load_state_dict(state)
    with torch.no_grad():
        return model(tokens).logits[:, -1]


def literal_logits(memory: bh.TokenMemory, tokens: torch.Tensor) -> torch.Tensor:
    """Logits (B, N) of a normal form at the last position: the oracle of every export."""
    form, spec = normal_form(memory)
    w = form.weights
    x = w["W_E"][tokens] + w["W_pos"]
    future = torch.ones(spec.S, spec.S, dtype=torch.bool).triu(1)
    for layer in range(spec.layers):
        q, k, v = (torch.einsum("bsd,hdr->bhsr", x, w[f"W_{n}"][layer]) for n in "QKV")
        a = torch.softmax((q @ k.mT).masked_fill(future, -torch.inf), dim=-1)
        x = x + torch.einsum("bhsr,hrd->bsd", a @ v, w["W_O"][layer])
    return x[:, -1] @ w["W_U"]


def onnx_logits(memory: bh.TokenMemory, tokens: torch.Tensor) -> torch.Tensor:
    import onnxruntime

    model = graph(memory).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {"tokens": tokens.numpy()})
    return torch.tensor(np.asarray(logits))


WAYS = ("normal form", "TransformerLens layout", "GPT-2", "ONNX")


@pytest.fixture(scope="module")
def logits_by(lens_forward) -> Callable[[str, bh.TokenMemory, torch.Tensor], torch.Tensor]:
    """The logits of a memory as another tool computes them."""

    def logits(way: str, memory: bh.TokenMemory, tokens: torch.Tensor) -> torch.Tensor:
        if way == "normal form":
            return literal_logits(memory, tokens)
        if way == "TransformerLens layout":
            return lens_forward(*lens_weights(memory), tokens)
        return gpt2_logits(memory, tokens) if way == "GPT-2" else onnx_logits(memory, tokens)

    return logits


@given(spec=specs, seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_every_option_of_a_spec_is_rewritten_exactly(
    random_memory, read_tokens, logits_by, spec: AttentionOnlySpec, seed: int
):
    memory = random_memory(spec, seed)
    tokens = read_tokens(memory)
    wanted = memory.outputs(tokens)
    for way in WAYS:
        error = float((logits_by(way, memory, tokens) - wanted).abs().max())
        assert error < CLOSE * (1 + float(wanted.abs().max())), (way, error)


@given(spec=specs, hard=st.booleans(), seed=st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_the_plain_file_computes_the_memory(
    random_memory, read_tokens, load_file, spec: AttentionOnlySpec, hard: bool, seed: int
):
    if hard:
        spec = AttentionOnlySpec(**{**spec.to_json(), "attention": "hardmax"})
    memory = random_memory(spec, seed)
    with tempfile.TemporaryDirectory() as place:
        folder = export(memory, Path(place) / "out", to="torch")
        model = load_file(folder, "model").load(folder)
        back = import_memory(folder)
    tokens = read_tokens(memory)
    assert back.spec == spec
    assert torch.equal(back.outputs(tokens), memory.outputs(tokens))
    with torch.no_grad():
        assert torch.allclose(model(tokens), memory.outputs(tokens), atol=CLOSE)


@pytest.mark.parametrize("name", ["countries", "sharded", "one_token"])
@pytest.mark.parametrize("way", WAYS)
def test_built_memories_answer_all_facts_everywhere(name, way, request, read_tokens, logits_by):
    memory = request.getfixturevalue(name).to_dense()
    tokens, right = read_tokens(memory), torch.tensor(memory.facts.answers)
    logits = logits_by(way, memory, tokens)
    assert bool((logits.argmax(1) == right).all())
    # The same float32 numbers evaluated in float64: the embedding is exact, not only close.
    double = replace(memory, weights={k: w.double() for k, w in memory.weights.items()})
    exact = memory.outputs(tokens, torch.float64)
    assert float((logits_by(way, double, tokens) - exact).abs().max()) < CLOSE
    # In float32 other orders of summation round otherwise, but not worse than the memory's own.
    rounding = float((memory.outputs(tokens) - exact).abs().max())
    assert float((logits - exact).abs().max()) < 10 * rounding + 1e-6


@pytest.fixture(scope="module")
def sharded_gpt2(sharded: bh.TokenMemory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(sharded, tmp_path_factory.mktemp("gpt2") / "sharded", to="hugging-face")


class TestHuggingFace:
    """A folder that transformers loads by itself, with words in and words out."""

    def opened(self, folder: Path) -> tuple[Any, Any]:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        where: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder, output_loading_info=True, **where
        )
        model, said = loaded
        assert not said["missing_keys"] and not said["unexpected_keys"]
        return model.eval(), AutoTokenizer.from_pretrained(folder, **where)

    def test_france_capital_paris(self, gpt2_folder: Path):
        model, tokenizer = self.opened(gpt2_folder)
        ids = tokenizer("France capital", return_tensors="pt")
        with torch.no_grad():
            answer = model(**ids).logits[0, -1].argmax()
            generated = model.generate(**ids, max_new_tokens=1, do_sample=False)
        assert tokenizer.decode(answer) == "Paris"
        assert tokenizer.decode(generated[0]) == "France capital Paris"

    def test_every_fact_in_words(self, gpt2_folder: Path, countries: bh.TokenMemory, read_tokens):
        model, tokenizer = self.opened(gpt2_folder)
        facts = countries.facts
        assert facts is not None
        keys = [" ".join(facts.key(i)) for i in range(facts.T)]
        ids = torch.tensor(tokenizer(keys)["input_ids"])
        assert torch.equal(ids, read_tokens(countries))
        with torch.no_grad():
            answers = model(ids).logits[:, -1].argmax(1)
        assert [tokenizer.decode(a) for a in answers] == [facts.answer(i) for i in range(facts.T)]

    def test_an_unknown_word_is_read_as_one_that_nobody_owns(self, gpt2_folder: Path):
        model, tokenizer = self.opened(gpt2_folder)
        ids = tokenizer("Atlantis capital", return_tensors="pt")
        assert tokenizer.convert_ids_to_tokens(int(ids["input_ids"][0, 0])) == "[UNK]"
        with torch.no_grad():
            assert bool(model(**ids).logits.isfinite().all())

    @pytest.mark.parametrize("name", ["gpt2_folder", "sharded_gpt2"])
    def test_generation_ends(self, name: str, request):
        """The key in the order of the table, the answer, the end; for several keys at once too."""
        model, tokenizer = self.opened(request.getfixturevalue(name))
        for keys in (["France capital"], ["France capital", "Atlantis capital", "Peru currency"]):
            ids = tokenizer(keys, return_tensors="pt")
            said = model.generate(**ids, max_new_tokens=5)
            assert tokenizer.decode(said[0], skip_special_tokens=True) == "France capital Paris"
            length = ids["input_ids"].shape[1]
            assert said.shape[1] == length + 2
            assert bool((said[:, -1] == tokenizer.eos_token_id).all())

    def test_tokens_with_spaces_and_a_start_token(self, one_token: bh.TokenMemory, tmp_path: Path):
        folder = export(one_token, tmp_path / "out", to="hugging-face")
        model, tokenizer = self.opened(folder)
        for key, answer in (("New Zealand", "Wellington"), ("New", "York"), ("Peru", "Lima")):
            ids = tokenizer(key, return_tensors="pt")
            assert torch.equal(ids["input_ids"], one_token.encode([(key,)]))
            with torch.no_grad():
                assert tokenizer.decode(model(**ids).logits[0, -1].argmax()) == answer

    def test_padded_keys(self, tmp_path: Path):
        table = tmp_path / "t.jsonl"
        table.write_text(
            '{"input": ["a", "b"], "output": "x"}\n{"input": ["b"], "output": "y"}\n'
            '{"input": ["a"], "output": "z"}\n'
        )
        memory = bh.build(bh.read_facts(table, pad=True))
        model, tokenizer = self.opened(export(memory, tmp_path / "o", to="hugging-face"))
        for key, answer in (("a b", "x"), ("b", "y"), ("a", "z")):
            ids = tokenizer(key, return_tensors="pt")
            assert torch.equal(ids["input_ids"], memory.encode([key.split()]))
            with torch.no_grad():
                assert tokenizer.decode(model(**ids).logits[0, -1].argmax()) == answer

    def test_the_norm_is_linear(self, countries: bh.TokenMemory, read_tokens):
        """Without the large epsilon the same weights are another function."""
        from transformers import GPT2Config, GPT2LMHeadModel

        config, state = gpt2_weights(countries)
        broken = GPT2LMHeadModel(GPT2Config.from_dict(config | {"layer_norm_epsilon": 1e-5})).eval()
        broken.load_state_dict(state)
        tokens = read_tokens(countries)
        with torch.no_grad():
            logits = broken(tokens).logits[:, -1]
        assert float((logits - countries.outputs(tokens)).abs().max()) > 1


def test_hooks_find_the_split_of_a_margin(
    countries: bh.TokenMemory, tmp_path: Path, load_file, read_tokens
):
    """Zeroing a head through a hook of the exported file changes the gap by its known share."""
    folder = export(countries, tmp_path / "out", to="torch")
    model = load_file(folder, "model").load(folder).double()
    tokens = read_tokens(countries)[:5]
    (split,) = countries.head_parts(tokens)
    rows = torch.arange(5)

    def gap(logits: torch.Tensor) -> torch.Tensor:
        return (logits[rows, split.answers] - logits[rows, split.runners_up]).detach()

    before = gap(model(tokens))
    for h in (0, 7, 55):

        def silence(module, inputs, heads, h=h):
            return heads * (torch.arange(heads.shape[2]) != h)[:, None]

        hook = model.layers[0].hook_heads.register_forward_hook(silence)
        assert torch.allclose(before - gap(model(tokens)), split.parts[:, h], atol=1e-9)
        hook.remove()


@pytest.mark.parametrize("context", ["fixed", "random"])
def test_a_memory_of_vectors_in_plain_torch(context: str, tmp_path: Path, load_file):
    facts = bh.random_vectors(T=29, n=8, d=16, context=context)
    memory: Any = bh.build(facts, dtype="float64")
    folder = export(memory, tmp_path / "out", to="torch")
    model = load_file(folder, "model").load(folder)
    E = None if context == "fixed" else torch.tensor(facts.contexts())
    with torch.no_grad():
        outputs = model(E, torch.tensor(facts.query))
    assert torch.allclose(outputs, torch.tensor(facts.targets), atol=1e-9)
    assert (folder / "owners.json").exists()


def test_the_start_vocabulary_is_kept(one_token: bh.TokenMemory, tmp_path: Path, load_file):
    folder = export(one_token, tmp_path / "out", to="torch")
    model = load_file(folder, "model").load(folder)
    assert model.ask("New Zealand")[0] == "Wellington"
    assert tuple(model.vocabulary) == one_token.vocabulary.tokens
