"""The studies of Kajitsuka and Sato and of the slides: verdicts of made-up rows; experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_up import Law, verdict

from byheart.errors import ByheartError
from byheart.papers import find, slides
from byheart.papers.kajitsuka2025 import experiment, text
from byheart.papers.kajitsuka2025.experiment import BUILT, DEFAULTS, MINIMAL, TRAIN


def study(name: str):
    return find(name if "/" in name else f"kajitsuka2025/{name}")[0]


def sizes(p: float, built: float = 0.5) -> Law:
    def law(q: dict[str, Any]) -> dict[str, Any]:
        mine = built if "ff1" in q else p
        return {"parameters": 20.0 * q["N"] ** mine, "blocks": 4.0, "depth": 9.0}

    return law


def bits(limited: float, free: float) -> Law:
    def law(q: dict[str, Any]) -> dict[str, Any]:
        formats = dict.fromkeys(q["formats"], 1.0 if q["N"] < 100 else 0.5)
        p = free if q["max_bits"] is None else limited
        return {"parameters": 9.0 * q["N"] ** p, **formats}

    return law


def attention(gains: dict[str, float]) -> Law:
    return lambda q: {"accuracy": 0.6 + gains.get(q["attention"], 0.0)}


@pytest.mark.parametrize(
    ("name", "law", "expected"),
    [
        ("fig1", lambda q: {"accuracy": min(1.0, 0.4 + 0.02 * q["blocks"]), "loss": 0.1},
         "confirmed"),
        ("fig2", lambda q: {"accuracy": 0.6 - 0.002 * q["blocks"], "loss": 0.1}, "not confirmed"),
        ("fig2", lambda q: {"accuracy": 0.5 + 0.001 * q["blocks"], "loss": 0.1}, "undecided"),
        ("fig3", sizes(0.5), "confirmed"),
        ("fig3", sizes(1.0), "not confirmed"),
        ("length", lambda q: {"blocks": 4.0}, "confirmed"),
        ("length", lambda q: {"blocks": 2.0 * len(str(q["n"]))}, "not confirmed"),
        ("length", lambda q: {"blocks": None}, "undecided"),
        ("precision", bits(1.0, 0.5), "confirmed"),
        ("precision", bits(0.5, 0.5), "not confirmed"),
        ("hardmax-vs-softmax", attention({}), "confirmed"),
        ("hardmax-vs-softmax", attention({"softmax": 0.2}), "not confirmed"),
        ("embedding-dimension", lambda q: {"parameters": 300.0, "blocks": 3.0}, "confirmed"),
        ("embedding-dimension", lambda q: {"parameters": 9.0 * q["m"] ** 2, "blocks": 3.0},
         "not confirmed"),
        ("slides/associative", lambda q: {"T": 0.5 * q["d"]}, "confirmed"),
        ("slides/associative", lambda q: {"T": 0.5 * q["d"] ** (1 if q["answers"] else 2)},
         "not confirmed"),
    ],
)  # fmt: skip
def test_verdicts_follow_from_the_rows(name: str, law: Law, expected: str):
    assert verdict(study(name), law) == expected


def test_the_model_is_the_papers():
    spec = experiment.spec_of({**DEFAULTS}, 3)
    assert (spec.m, spec.q, spec.blocks, spec.first, spec.uniform, spec.read) == (
        2,
        8,
        6,
        3,
        True,
        0,
    )
    full = study("fig1").cells("offline-text", "full")
    assert [c.params["blocks"] for c in full] == [1, 10, 20, 30, 40, 50]
    assert {(c.params["N"], c.params["n"], c.params["epochs"]) for c in full} == {(2000, 8, 1000)}
    trained = [c for c in study("fig3").cells("offline-text", "full") if c.experiment == "trained"]
    assert [c.params["N"] for c in trained] == list(range(600, 1701, 100))
    lengths = study("length").cells("as-published", "full")
    assert [c.params["n"] for c in lengths] == [10, 100, 1000, 10_000]
    assert {(c.params["N"], c.params["d"]) for c in lengths} == {(500, 6)}


def test_published_data_come_from_a_local_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lines = ["sentence1\tsentence2\tgold_label"]
    kinds = ("entailment", "neutral", "contradiction")
    lines += [f"word{i} a b c\td e f g\t{kinds[i % 3]}" for i in range(30)]
    (tmp_path / "train.tsv").write_text("\n".join(lines))
    monkeypatch.delenv("BYHEART_MULTINLI", raising=False)
    assert study("fig1").cells("as-published", "quick") == []
    monkeypatch.setenv("BYHEART_MULTINLI", str(tmp_path))
    [first, *_] = study("fig1").cells("as-published", "quick")
    assert first.params["corpus"] == str(tmp_path)
    p = {**first.params, "N": 12, "epochs": 3, "starts": 1}
    assert 0 <= experiment.train(p, 0)["accuracy"] <= 1
    _, labels, _ = text.examples(str(tmp_path), 30, 8, 3, seed=1)
    assert sorted(labels.tolist()) == sorted(i % 3 for i in range(30))


def test_a_changed_text_is_refused(tmp_path: Path):
    (tmp_path / "a.txt").write_text("One two three four. Five six seven eight.")
    made = TRAIN.cell("x", N=2, n=4, blocks=1, corpus=str(tmp_path))
    assert experiment.data_of(made.params, 0).T == 2
    text.digest.cache_clear()
    (tmp_path / "a.txt").write_text("One two three four. Five six seven nine.")
    with pytest.raises(ByheartError, match="have changed"):
        experiment.data_of(made.params, 0)
    assert TRAIN.cell("x", N=2, n=4, blocks=1, corpus=str(tmp_path)).hash != made.hash


def test_equal_words_have_equal_vectors(tmp_path: Path):
    (tmp_path / "a.txt").write_text("the cat sat. the dog sat. a cat ran.")
    made = TRAIN.cell("x", N=3, n=3, d=5, blocks=1, corpus=str(tmp_path))
    data = experiment.data_of(made.params, 4)
    tokens, labels, words = text.examples(str(tmp_path), 3, 3, 3, seed=4)
    assert data.targets.tolist() == labels.tolist()
    assert data.inputs.tolist() == tokens.tolist() and data.context is not None
    assert data.context.shape == (len(words), 5)
    assert len(data.context.unique(dim=0)) == len(words) == tokens.max() + 1


def test_settings_that_do_not_matter_do_not_change_a_cell():
    a = TRAIN.cell("x", N=9, blocks=1)
    assert a.hash == TRAIN.cell("y", N=9, blocks=1, surrogate="annealed").hash
    hard = {"N": 9, "blocks": 1, "attention": "hardmax"}
    assert TRAIN.cell("x", **hard).hash != TRAIN.cell("x", **hard, surrogate="annealed").hash
    with pytest.raises(TypeError, match="layers"):
        TRAIN.cell("x", N=9, blocks=1, layers=2)


def test_the_smallest_size_is_found_or_said_not_to_be():
    how = {"data": "random", "d": 2, "n": 2, "rates": [0.05], "starts": 3}
    easy = experiment.minimal(MINIMAL.cell("x", N=3, sizes=[1, 2, 3], epochs=400, **how).params, 0)
    assert easy["blocks"] in (1, 2, 3) and easy["accuracy"] == 1.0
    assert easy["parameters"] == experiment.spec_of({**DEFAULTS, **how}, easy["blocks"]).parameters
    hard = experiment.minimal(MINIMAL.cell("x", N=300, sizes=[1], epochs=3, **how).params, 0)
    assert hard["blocks"] is None and hard["parameters"] is None


def test_what_is_built_is_right_and_short_weights_cost_parameters():
    free = experiment.built(BUILT.cell("x", N=200, V=50).params, 0)
    short = experiment.built(BUILT.cell("x", N=200, V=50, max_bits=32).params, 0)
    assert free["wrong"] == short["wrong"] == 0
    assert short["bits"] <= 32 < free["bits"] and short["parameters"] > free["parameters"]
    small = experiment.built(BUILT.cell("x", N=8, formats=["float16", "longdouble"]).params, 0)
    assert small["longdouble"] >= small["float16"]


def test_the_associative_memory_recalls_few_facts_and_not_many():
    assert slides.recalled(20, 256, 16, seed=1) == 1.0
    assert slides.recalled(20_000, 16, 16, seed=1) < 0.9
    found = slides.capacity({"d": 64, "answers": 16}, 0)
    assert slides.recalled(found["T"], 64, 16, 0) >= slides.RECALLED
