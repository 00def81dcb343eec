"""What heads store: circuits are the model's, planted pairs are found, noise explains nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_models import configs, tokenizer
from torch import Tensor
from typer.testing import CliRunner, Result

import byheart as bh
from byheart.audits import HeadSettings, audit_heads, find_model
from byheart.audits.circuits import blocks_of, folded_unembedding
from byheart.audits.head_tables import CIRCUITS, HEAD_HEADER, head_rows, pair_rows, ranked_heads
from byheart.audits.information import Text
from byheart.audits.models import open_model
from byheart.audits.settings import AuditSettings
from byheart.cli.main import app

KINDS = ("gpt2", "llama")
FIRST = 4  # the id of "word0"
LAYER, HEAD = 1, 2
Plant = Callable[[Any, Tensor], None]


def language_model(place: Path, kind: str, plant: Plant | None = None, scale: float = 0.02) -> Path:
    """A small model on disk, its token vectors orthonormal, of mean 0 and used for answers too;
    `plant` then writes into it."""
    from transformers import AutoModelForCausalLM

    config = configs()[kind]
    config.update({"n_embd" if kind == "gpt2" else "hidden_size": 64, "head_dim": 16})
    config.initializer_range, config.tie_word_embeddings = scale, True
    torch.manual_seed(7)
    model: Any = AutoModelForCausalLM.from_config(config)
    centred = torch.randn(64, 54) - torch.randn(64, 54).mean(0)
    centred -= centred.mean(0)
    table = torch.linalg.qr(centred).Q.T
    with torch.no_grad():
        model.get_input_embeddings().weight.copy_(table)
        if kind == "gpt2":
            model.transformer.wpe.weight.zero_()
        if plant is not None:
            plant(model, table)
    folder = place / kind
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def opened(folder: Path) -> Any:
    found = find_model(folder)
    return open_model(found, random=False, dtype="float32", settings=AuditSettings(), language=True)


def keep(read: dict[int, Tensor], layer: int) -> Callable[..., None]:
    return lambda _, inputs: read.update({layer: inputs[0]})


def matrix(model: Any, name: str) -> Tensor:
    """A view of W_Q, W_K, W_V (d, d_h) or W_O (d_h, d) of the planted head."""
    if hasattr(model, "transformer"):
        attention = model.transformer.h[LAYER].attn
        if name == "O":
            return attention.c_proj.weight.split(16, 0)[HEAD]
        return attention.c_attn.weight.split(64, 1)["QKV".index(name)].split(16, 1)[HEAD]
    attention = model.model.layers[LAYER].self_attn
    weight = getattr(attention, f"{name.lower()}_proj").weight.T
    shared = HEAD // 2 if name in "KV" else HEAD  # four heads share two keys and values
    return weight.split(16, 0 if name == "O" else 1)[shared]


def answers(model: Any, table: Tensor, pairs: list[tuple[int, int]], strength: float = 30) -> None:
    """W_V W_O sends source i to the i-th dimension of the head and on to its answer."""
    V, O = torch.zeros(64, 16), torch.zeros(16, 64)  # noqa: E741
    for i, (source, answer) in enumerate(pairs):
        V[:, i], O[i] = table[source] / 8, strength * table[answer]  # a normed row is 8 long
    matrix(model, "V").copy_(V)
    matrix(model, "O").copy_(O)


BIGRAMS = [(FIRST + i, FIRST + (i + 1) % 16) for i in range(16)]
TRIGRAMS = [(FIRST + i, FIRST + 30 + i) for i in range(8)]
READER = FIRST + 20  # "word20"


def plant_bigrams(model: Any, table: Tensor) -> None:
    answers(model, table, BIGRAMS)


def plant_trigrams(model: Any, table: Tensor) -> None:
    """From word20 the head attends to word0 ... word7. Dimension 7 of 16 is the one that rotary
    positions turn least: 0.0003 radians a token."""
    answers(model, table, TRIGRAMS)
    Q, K = torch.zeros(64, 16), torch.zeros(64, 16)
    Q[:, 7] = 5 * table[READER]
    K[:, 7] = table[[source for source, _ in TRIGRAMS]].sum(0)
    matrix(model, "Q").copy_(Q)
    matrix(model, "K").copy_(K)


@pytest.fixture(scope="module")
def bigram_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 words in a circle; every fifth step goes anywhere."""
    rng = np.random.default_rng(0)
    words = [0]
    for _ in range(3000):
        words.append((words[-1] + 1) % 16 if rng.random() < 0.8 else int(rng.integers(16)))
    file = tmp_path_factory.mktemp("bigrams") / "text.txt"
    file.write_text(" ".join(f"word{w}" for w in words))
    return file


@pytest.fixture(scope="module")
def trigram_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """word i, three fillers, word20, word 30 + i: only the first word tells the last."""
    rng = np.random.default_rng(0)
    words: list[int] = []
    for i in rng.integers(8, size=500):
        words += [int(i), *map(int, rng.integers(40, 46, size=3)), 20, 30 + int(i)]
    file = tmp_path_factory.mktemp("trigrams") / "text.txt"
    file.write_text(" ".join(f"word{w}" for w in words))
    return file


@pytest.mark.parametrize("kind", KINDS)
def test_circuits_are_the_models_own(kind: str, tmp_path: Path):
    """Rotary positions, grouped keys and values, norms and scale: what the formulas give from the
    stream in front of a block is what the block's W_O reads."""
    model = opened(language_model(tmp_path, kind, scale=0.3))
    blocks = blocks_of(model, kind)
    read: dict[int, Tensor] = {}
    for i, block in enumerate(blocks):
        block.output.register_forward_pre_hook(keep(read, i))
    tokens = torch.randint(4, 54, (3, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        out = model(tokens, output_hidden_states=True)
        for i, block in enumerate(blocks):
            x = block.norm(out.hidden_states[i])
            for h, head in enumerate(block.heads):
                own = read[i][..., 16 * h : 16 * (h + 1)]
                if kind == "gpt2":
                    own = own - model.transformer.h[i].attn.c_attn.bias[128 + 16 * h :][:16]
                assert torch.allclose(own, head.mixed_values(x), atol=2e-5)
        stream = torch.randn(5, 64)
        stream[3] *= 7
        norm = model.transformer.ln_f if kind == "gpt2" else model.model.norm
        centred = stream - stream.mean(1, keepdim=True) if kind == "gpt2" else stream
        logits = model.lm_head(norm(stream)) * centred.pow(2).mean(1, keepdim=True).add(1e-5).sqrt()
        folded = stream @ folded_unembedding(model, kind, torch.arange(54))
        assert torch.allclose(logits, folded, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_planted_bigrams_are_found(kind: str, tmp_path: Path, bigram_text: Path):
    folder = language_model(tmp_path, kind, plant_bigrams)
    settings = HeadSettings(length=16, contexts=150, top=2, pairs=16)
    record = audit_heads(folder, text=bigram_text, settings=settings).record
    best = ranked_heads(record)[0]
    assert (best["layer"], best["head"]) == (LAYER, HEAD)
    named = {(f"word{s - FIRST}", f"word{t - FIRST}") for s, t in BIGRAMS}
    assert {tuple(pair["tokens"]) for pair in best["bigrams"]} == named
    assert min(pair["count"] for pair in best["bigrams"]) > 50
    # One strength for all pairs: the truth is .8 + .2/16 for one answer and .0125 for the others.
    p = 0.8 + 0.2 / 16
    truth = np.log(16) + p * np.log(p) + (1 - p) * np.log((1 - p) / 15)
    assert best["bigram"]["low"] < truth < best["bigram"]["high"]
    others = [row for row in record["heads"] if row is not best]
    assert max(row["bigram"]["nats"] for row in others) < 0.1 * truth
    assert record["control"]["bigram"]["largest"] < 0.2 * truth  # the best of 8 with 16 words
    table = record["text"]["bigram_table"]
    assert table["nats"] < truth < table["high"] + 0.1  # it has to estimate 256 numbers


@pytest.mark.parametrize("kind", KINDS)
def test_planted_skip_trigrams_are_found(kind: str, tmp_path: Path, trigram_text: Path):
    folder = language_model(tmp_path, kind, plant_trigrams)
    settings = HeadSettings(length=18, contexts=150, top=1, pairs=8)
    record = audit_heads(folder, text=trigram_text, settings=settings).record
    best = ranked_heads(record)[0]
    assert (best["layer"], best["head"]) == (LAYER, HEAD)
    named = {(f"word{s - FIRST}", "word20", f"word{t - FIRST}") for s, t in TRIGRAMS}
    assert {tuple(found["tokens"]) for found in best["skip_trigrams"]} == named
    # A context of 18 has three such words among the 17 that are read: each competes with them.
    assert {round(found["attention"], 3) for found in best["skip_trigrams"]} == {1 / (1 + 3)}
    assert best["skip_trigram"]["low"] > max(0.0, best["bigram"]["high"])
    assert best["skip_trigram"]["low"] > record["control"]["skip_trigram"]["largest"]


def random_text(T: int = 200, n: int = 20, K: int = 12) -> Text:
    tokens = np.random.default_rng(1).integers(K, size=(T, n))
    return Text.of(tokens, 20, 0)


def test_frequencies_are_distributions_and_held_out():
    text = random_text()
    assert torch.allclose(text.log_u.exp().sum(1), torch.ones(2, dtype=torch.float64))
    changed = text.indices.clone()
    changed[text.chunk.view(200, 19)[:, 0] % 2 == 0] = 0  # of half 0 alone
    other = Text(changed, text.kinds, text.chunks)
    assert torch.equal(other.log_u[0], text.log_u[0])
    assert not torch.equal(other.log_u[1], text.log_u[1])


def test_what_says_nothing_explains_nothing():
    text = random_text()
    generator = torch.Generator().manual_seed(0)
    U = torch.randn(6, text.K, generator=generator)
    z = torch.randn(len(text.targets), 6, generator=generator)
    estimate = text.estimate(text.explained(z, U))
    assert estimate.low < 0.002 and abs(estimate.nats) < 0.005
    same = torch.ones(len(text.targets), 6)  # of every context: frequency, not information
    assert abs(float(text.explained(same, U).mean())) < 1e-6
    table = text.estimate(text.bigram_table())
    assert table.nats < 0  # 144 pairs estimated from noise cost something


def test_the_true_conditional_explains_the_mutual_information():
    """z = 1_s and U = log p(t|s)/u(t): β = 1 is best, and the mean is the mutual information. (The
    same distribution for each s, turned: the mean of U over s is the same for every t.)"""
    rng = np.random.default_rng(2)
    K = 8
    f = rng.dirichlet(np.full(K, 0.4)) * 0.95 + 0.05 / K
    P = np.stack([np.roll(f, s) for s in range(K)])
    rows = np.zeros((400, 30), int)
    rows[:, 0] = rng.integers(K, size=400)
    for j in range(1, 30):
        draws = rng.random(400)[:, None]
        rows[:, j] = (P[rows[:, j - 1]].cumsum(1) < draws).sum(1).clip(max=K - 1)
    text = Text.of(rows, 20, 0)
    truth = float(f @ np.log(f * K))
    U = torch.tensor(np.log(P * K), dtype=torch.float32)
    found = text.estimate(text.explained(torch.eye(K), U, text.sources))
    assert found.low < truth < found.high and abs(found.nats - truth) < 0.05 * truth
    # Scale is no matter, sign is: a head cannot take away what it adds.
    scaled = text.explained(100 * torch.eye(K), U, text.sources)
    assert float(scaled.mean()) == pytest.approx(found.nats, rel=1e-2)
    assert not text.explained(torch.eye(K), -U, text.sources).any()
    # More is not to be had: a table that was counted comes near, and not above.
    assert text.estimate(text.bigram_table()).nats < found.nats + 0.01


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["audit", *map(str, words)])


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return language_model(tmp_path_factory.mktemp("llama"), "llama")


def test_the_command(llama: Path, text: Path, tmp_path: Path):
    files = ["-o", tmp_path / "a.json", "--plot", tmp_path / "a.png"]
    said = run(llama, "--heads", "--text", text, "--length", 8, "--top", 2, *files)
    assert said.exit_code == 0, said.output
    assert "stores most" in said.stdout and "shuffled" in said.stdout
    assert (tmp_path / "a.png").stat().st_size > 10_000
    record = json.loads((tmp_path / "a.json").read_text())
    assert record["kind"] == "byheart audit of heads" and len(record["heads"]) == 8
    assert all(set(CIRCUITS) <= row.keys() & row["control"].keys() for row in record["heads"])
    assert len(head_rows(record)) == len(pair_rows(record)) == 2
    assert len(head_rows(record)[0]) == len(HEAD_HEADER)
    for row in record["heads"][:4]:  # nothing was written before block 0: both read embeddings
        assert row["run"]["nats"] == pytest.approx(row["skip_trigram"]["nats"], abs=1e-4)
    again = run(llama, "--heads", "--text", text, "--length", 8, "--top", 2, "--json")
    assert json.loads(again.stdout)["heads"] == record["heads"]


@pytest.mark.parametrize(
    ("kind", "words", "message"),
    [
        ("bert", [], "bert is a bert model: `heads` needs a language model, gpt2 or llama"),
        ("gpt2", ["--draws", "5"], "--draws: of no use with --heads"),
        ("gpt2", ["--images", "digits"], "--images: of no use with --heads"),
        ("gpt2", ["--contexts", "3"], "--contexts must be at least 4"),
        ("gpt2", ["--length", "64", "--contexts", "4"], None),
        ("llama", [], "1 weights are missing, among them lm_head.weight"),  # a model without W_U
    ],
)
def test_what_is_refused(
    kind: str, words: list[str], message: str | None, models_folder: Path, text: Path
):
    said = run(models_folder / kind, "--heads", "--text", text, *words)
    if message is None:
        assert said.exit_code == 0, said.output
    else:
        assert said.exit_code == 2 and message.replace("`heads`", "--heads") in said.stderr


def test_too_little_text_and_no_heads(llama: Path, tmp_path: Path, text: Path):
    (tmp_path / "short.txt").write_text("word1 word2 word3 word4 word5 word6 word7 word8")
    with pytest.raises(bh.ByheartError, match=r"1 contexts of 8 tokens, at least 4 are needed"):
        audit_heads(llama, text=tmp_path / "short.txt", settings=HeadSettings(length=8))
    said = run(llama, "--text", text, "--top", "3")
    assert said.exit_code == 2 and "--top is of use with --heads only" in said.stderr
