"""Sentences from local files: every format, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from byheart.errors import FactsError
from byheart.papers.kajitsuka2025 import text


def test_plain_text_is_split_into_sentences(tmp_path: Path):
    (tmp_path / "a.txt").write_text("A dog barks. Two cats; one bird!\n\nLast words")
    found = [" ".join(words) for words, label in text.read_path(tmp_path / "a.txt")]
    assert found == ["a dog barks .", "two cats ;", "one bird !", "last words"]


def test_python_files_give_their_documentation(tmp_path: Path):
    (tmp_path / "a.py").write_text('"""First. Second."""\nx = "not this"\ndef f():\n    "Third."\n')
    found = [" ".join(words) for words, _ in text.read_path(tmp_path)]
    assert found == ["first .", "second .", "third ."]
    (tmp_path / "b.py").write_text("def")
    with pytest.raises(FactsError, match="no Python source"):
        list(text.read_path(tmp_path))


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl"])
def test_tables_have_sentences_and_labels(tmp_path: Path, kind: str):
    rows = [
        {"sentence1": "A man.", "sentence2": "Sleeps", "gold_label": "neutral"},
        {"sentence1": "B", "sentence2": "C", "gold_label": "-"},
    ]
    mark = "\t" if kind == "tsv" else ","
    lines = [mark.join(rows[0]), *(mark.join(row.values()) for row in rows)]
    if kind == "jsonl":
        lines = [json.dumps(row) for row in rows]
    (tmp_path / f"a.{kind}").write_text("\n".join(lines))
    found = list(text.read_path(tmp_path / f"a.{kind}"))
    assert found == [(("a", "man", ".", "sleeps"), "neutral"), (("b", "c"), None)]


def test_reviews_in_folders_are_labelled_by_them(tmp_path: Path):
    for name in ("pos", "neg"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0_1.txt").write_text(f"A {name} film. Really.")
    found = {label: words for words, label in text.read_path(tmp_path)}
    assert found["pos"] == ("a", "pos", "film", ".", "really", ".") and "neg" in found


def test_what_is_refused(tmp_path: Path):
    with pytest.raises(FactsError, match="no file or folder"):
        list(text.read_path(tmp_path / "none"))
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    with pytest.raises(FactsError, match=r"record 1: expected sentence1.*found x, y"):
        list(text.read_path(tmp_path / "a.csv"))
    (tmp_path / "b.txt").write_text("one two. three four.")
    with pytest.raises(FactsError, match="2 different sentences of 2 words, 3 are asked for"):
        text.examples(str(tmp_path / "b.txt"), 3, 2, 2, 0)
    (tmp_path / "c.csv").write_text("text,label\na b,x\nc d,y\n")
    with pytest.raises(FactsError, match="2 labels"):
        text.examples(str(tmp_path / "c.csv"), 2, 2, 1, 0)


def test_sentences_that_cannot_be_told_apart_are_taken_once(tmp_path: Path):
    (tmp_path / "a.txt").write_text("a b c. a c b. b a c.")
    tokens, *_ = text.examples(str(tmp_path / "a.txt"), 2, 3, 2, 0)
    assert len(tokens) == 2
    with pytest.raises(FactsError, match="2 different"):
        text.examples(str(tmp_path / "a.txt"), 3, 3, 2, 0)


@pytest.mark.slow
def test_the_machine_has_enough_sentences_for_the_papers_sizes():
    tokens, labels, _ = text.examples(text.SYSTEM, 3000, 8, 2, seed=0)
    again, same, _ = text.examples(text.SYSTEM, 3000, 8, 2, seed=0)
    assert tokens.shape == (3000, 8) and np.array_equal(tokens, again)
    assert np.array_equal(labels, same) and set(labels.tolist()) == {0, 1}
    keys = {(row[0], tuple(sorted(row))) for row in tokens.tolist()}
    assert len(keys) == 3000
