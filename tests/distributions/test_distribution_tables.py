"""Tables of distributions: read from files, counted, smoothed, drawn; bad ones refused."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byheart.errors import ByheartError, ConflictError, FactsError
from byheart.facts import (
    Distributions,
    Vocabulary,
    ngram_distributions,
    random_distributions,
    read_distributions,
)

ABC = Vocabulary(("a", "b", "c"))


@pytest.fixture
def jsonl(tmp_path):
    def write(*records, name="table.jsonl"):
        path = tmp_path / name
        path.write_text("\n".join(json.dumps(r) for r in records) + "\n", encoding="utf-8")
        return path

    return write


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(2, 6))
def test_a_table_survives_writing_and_reading(tmp_path_factory, seed, T, A):
    """The same keys, prior and probabilities, whatever the zeros."""
    r = np.random.default_rng(seed)
    pi = r.dirichlet(np.ones(A), size=T) * r.integers(0, 2, size=(T, A))
    pi[np.arange(T), r.integers(A, size=T)] += 0.5
    pi[0] = 1.0  # every answer appears somewhere
    vocabulary = Vocabulary(tuple(str(i) for i in range(max(T, A))))
    table = Distributions.make(
        np.arange(T)[:, None], pi, vocabulary, r.random(T) + 0.1, support=range(A), normalise=True
    )
    path = tmp_path_factory.mktemp("round") / "table.jsonl"
    table.write(path)
    again = read_distributions(path)
    assert again.T == T and again.A == table.A
    for i in range(T):
        assert again.key(i) == table.key(i)
        assert dict(again.top(i, A)) == pytest.approx(dict(table.top(i, A)), abs=1e-15)
    np.testing.assert_allclose(again.prior, table.prior, atol=1e-15)


def test_rows_with_one_key_are_counted(tmp_path):
    """5 rows with the key x: 3 y, 2 z; z weighs 4 in one of them."""
    path = tmp_path / "counts.csv"
    path.write_text("k,n,v\nx,1,y\nx,1,y\nx,1,z\nw,2,y\nx,4,z\nx,1,y\n")
    with pytest.raises(ConflictError, match="on_conflict=distribution"):
        read_distributions(path, weights="n")
    table = read_distributions(path, weights="n", on_conflict="distribution")
    assert dict(table.top(0)) == pytest.approx({"z": 5 / 8, "y": 3 / 8})
    assert dict(table.top(1)) == {"y": 1.0, "z": 0.0}
    np.testing.assert_allclose(table.prior, [0.8, 0.2])


def test_lines_with_one_input_are_mixed_by_weight(jsonl):
    path = jsonl(
        {"input": "x", "output": {"y": 1}, "weight": 3},
        {"input": "x", "output": {"y": 0.5, "z": 0.5}, "weight": 1},
    )
    with pytest.raises(FactsError, match=r"row 2: expected one distribution .*on_conflict"):
        read_distributions(path)
    table = read_distributions(path, on_conflict="distribution")
    assert dict(table.top(0)) == pytest.approx({"y": 7 / 8, "z": 1 / 8})


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([{"input": "x", "output": {"y": 0.5, "z": 0.6}}], r"row 1: .*sum 1.1.*normalise=True"),
        ([{"input": "x", "output": {"y": 1.2, "z": -0.2}}], r"row 1: .*not negative, found -0.2"),
        ([{"input": "x", "output": {"y": 0, "z": 0}}], r"row 1: .*zeros only"),
        ([{"input": "x", "output": {}}], r"line 1: .*at least one answer"),
        ([{"input": "x", "output": {"y": "much"}}], r"line 1: .*number as probability of 'y'"),
        ([{"input": "x", "output": {"y": True}}], r"line 1, .*number as probability of 'y'"),
        ([{"input": "x", "output": ["y"]}], r"line 1: .*found a list"),
        ([{"output": {"y": 1}}], r"line 1: .*field 'input'"),
        ([{"input": "x", "output": {"y": 1}}], r"two different answers, found 'y' alone"),
        (
            [{"input": "x", "output": {"y": 0.5, "z": 0.5}, "weight": 0}],
            r"at least one positive weight",
        ),
        (
            [{"input": "x", "output": {"y": 0.5, "z": 0.5}, "weight": -1}],
            r"row 1: .*not negative, found -1",
        ),
        ([{"input": [], "output": {"y": 1}}], r"line 1: .*empty list"),
    ],
)
def test_bad_lines_are_refused_with_row_and_reason(jsonl, records, message):
    with pytest.raises(FactsError, match=message):
        read_distributions(jsonl(*records))


def test_normalise_scales_and_says_so(jsonl):
    path = jsonl({"input": "x", "output": {"y": 3, "z": 1}})
    assert dict(read_distributions(path, normalise=True).top(0)) == {"y": 0.75, "z": 0.25}
    # Six decimals are near enough: scaled without being asked.
    path = jsonl({"input": "x", "output": {"y": 0.333333, "z": 0.666666}})
    assert read_distributions(path).probabilities.sum() == pytest.approx(1, abs=1e-15)


def test_sequences_of_weight_zero_are_left_out_and_counted(jsonl):
    """T_0 counts the sequences with a positive prior."""
    table = read_distributions(
        jsonl(
            {"input": "x", "output": {"y": 0.5, "z": 0.5}, "weight": 1},
            {"input": "w", "output": {"q": 1}, "weight": 0},
        )
    )
    assert (table.T, table.never_asked) == (1, 1)
    assert "q" not in dict(table.top(0, 9))


def test_zeros_are_named_and_smoothing_cures_them():
    table = Distributions.make([[0], [1]], [[0.5, 0.5, 0], [0, 0, 1]], ABC)
    with pytest.raises(FactsError, match=r"row 1: .* 0 for 'c' and 2 zeros more.*smooth=0\.001"):
        table.logarithms()
    smooth = table.smoothed(0.01)
    assert smooth.full_support
    np.testing.assert_allclose(smooth.probabilities, (table.probabilities + 0.01) / 1.03)
    assert "δ = 0.01" in smooth.smoothing
    assert table.smoothed(0.0) is table
    with pytest.raises(ByheartError, match=r"from 0 to 1e\+100"):
        table.smoothed(-1.0)


def test_entropy_and_effective_size():
    table = Distributions.make([[0], [1]], [[0.5, 0.5, 0], [0.25, 0.25, 0.5]], ABC, [9, 1])
    np.testing.assert_allclose(table.entropy, [math.log(2), 1.5 * math.log(2)])
    described = table.describe()
    assert described["entropy"] == pytest.approx(1.05 * math.log(2))
    assert described["T_eps"] == {"0.1": 1, "0.01": 2}
    assert [table.effective_size(eps) for eps in (0.0, 0.1, 1.0)] == [2, 1, 1]


@pytest.mark.parametrize(
    ("tokens", "pi", "options", "message"),
    [
        ([[0], [0]], [[0.5, 0.5, 0]] * 2, {}, "row 2: expected one distribution"),
        ([[3]], [[0.5, 0.5, 0]], {}, "expected tokens from 0 to 2, found 3"),
        ([[0]], [[0.5, 0.5]], {"support": [0, 0]}, "distinct answers"),
        ([[0]], [[0.5, 0.5]], {"support": [0, 5]}, "answers from 0 to 2"),
        ([[0]], [[0.5, 0.5]], {"support": [0]}, "expected 2 answers"),
        ([[0]], [[0.5, math.nan, 0.5]], {}, "row 1: expected finite"),
        ([0], [[0.5, 0.5, 0]], {}, r"shape \(T, S\)"),
        (np.zeros((0, 1), int), np.zeros((0, 3)), {}, "at least one fact"),
    ],
)
def test_arrays_that_are_no_distributions_are_refused(tokens, pi, options, message):
    with pytest.raises(FactsError, match=message):
        Distributions.make(tokens, pi, ABC, **options)


def test_ngrams_by_hand(tmp_path):
    """the cat and the dog and the cat: after `the` 2 cat, 1 dog; frequencies of next words
    cat 2, and 2, the 2, dog 1 of 7."""
    path = tmp_path / "text.txt"
    path.write_text("The cat and the dog and the cat")
    plain = ngram_distributions(path, 2, alpha=0)
    assert plain.key(0) == ("the",)
    assert dict(plain.top(0, 2)) == pytest.approx({"cat": 2 / 3, "dog": 1 / 3})
    smooth = ngram_distributions(path, 2, alpha=1)
    assert dict(smooth.top(0, 2)) == pytest.approx({"cat": (2 + 2 / 7) / 4, "dog": (1 + 1 / 7) / 4})
    assert smooth.full_support and "α = 1" in smooth.smoothing
    assert ngram_distributions(path, 2, contexts=2).T == 2
    assert ngram_distributions(path, 3).key(0) == ("and", "the")
    (tmp_path / "marks.txt").write_text("As-is, it's as-is")
    marks = ngram_distributions(tmp_path / "marks.txt", 2)
    assert marks.vocabulary.tokens == (",", "as-is", "it's")
    for n, contexts, message in ((9, 5, "at least 9 words"), (1, 5, "bigrams"), (2, 0, "context")):
        with pytest.raises(ByheartError, match=message):
            ngram_distributions(path, n, contexts=contexts)


def test_the_licence_of_this_repository_reads_as_trigrams():
    from pathlib import Path

    table = read_distributions(Path(__file__).parents[2] / "LICENSE", ngram=3, contexts=200)
    assert (table.T, table.S) == (200, 2)
    assert table.full_support
    np.testing.assert_allclose(table.probabilities.sum(axis=1), 1, atol=1e-14)
    assert (np.diff(table.prior) <= 1e-18).all()  # most frequent first


@pytest.mark.parametrize("kind", ["gauss", "lut", "power"])
def test_random_tasks_are_what_they_say(kind):
    table = random_distributions(kind, N=12, tau=0.5, eta=0.1, exponent=2.0, zipf=1.5, seed=3)
    again = random_distributions(kind, N=12, tau=0.5, eta=0.1, exponent=2.0, zipf=1.5, seed=3)
    assert table.digest() == again.digest()
    assert table.T == 144 and table.A == 12
    np.testing.assert_allclose(np.sort(table.prior)[::-1], _zipf(144, 1.5), rtol=1e-12)
    pi = np.sort(table.probabilities, axis=1)[:, ::-1]
    if kind == "lut":
        np.testing.assert_allclose(pi[:, 0], 0.9)
        # The noise has no favourite token: each has its share of the 144 · 11 other places.
        shares = np.where(table.probabilities < 0.5, table.probabilities, 0).sum(0) / 14.4
        assert np.abs(shares - 1 / 12).max() < 0.05
    if kind == "power":
        np.testing.assert_allclose(pi, np.tile(_zipf(12, 2.0), (144, 1)), rtol=1e-12)
    if kind == "gauss":
        logits = np.log(table.probabilities)
        assert (logits - logits.mean(1, keepdims=True)).std() == pytest.approx(0.5, rel=0.1)


def _zipf(n, exponent):
    law = np.arange(1, n + 1.0) ** -exponent
    return law / law.sum()


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("random:kind=gauss", "found no N"),
        ("random:kind=gauss,N=ten", "'N=ten'"),
        ("random:kind=fog,N=5", "gauss, lut, power"),
        ("random:kind=lut,N=5,eta=1", "strictly between 0 and 1"),
        ("random:kind=gauss,N=5,tau=-1", "`tau` to be a finite number"),
        ("random:kind=gauss,N=5,hue=2", "'hue=2'"),
        ("random:kind=gauss,N=1", "N >= 2"),
        ("nowhere.jsonl", "no file 'nowhere.jsonl'"),
    ],
)
def test_bad_recipes_and_paths(recipe, message):
    with pytest.raises(FactsError, match=message):
        read_distributions(recipe)
