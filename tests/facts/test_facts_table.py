import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from byheart.errors import ConflictError, FactsError
from byheart.facts import Facts, Vocabulary, random_associations, read_facts

ABC = Vocabulary(("a", "b", "c"))


def test_sizes_and_names():
    facts = Facts.make([[0, 1], [1, 1]], [2, 2], ABC, columns=("x", "y"), answer_column="z")
    assert (facts.T, facts.S, facts.N) == (2, 2, 3)
    assert facts.key(0) == ("a", "b") and facts.answer(0) == "c"
    assert facts.answer_ids.tolist() == [2]
    assert facts.last_tokens == 1
    assert facts.columns == ("x", "y") and facts.answer_column == "z"
    assert facts.rows.tolist() == [1, 2]
    assert facts.pad_id is None and facts.skipped == 0


def test_arrays_are_read_only_and_not_shared():
    tokens = np.array([[0], [1]])
    facts = Facts.make(tokens, [1, 2], ABC)
    tokens[0, 0] = 2
    assert facts.tokens[0, 0] == 0
    for array in (facts.tokens, facts.answers, facts.prior, facts.rows):
        with pytest.raises(ValueError):
            array[0] = 1
    assert facts.tokens.dtype == facts.answers.dtype == facts.rows.dtype == np.int64
    assert facts.prior.dtype == np.float64


def test_prior_is_uniform_by_default_and_scaled_otherwise():
    assert Facts.make([[0], [1]], [1, 2], ABC).prior.tolist() == [0.5, 0.5]
    assert Facts.make([[0], [1]], [1, 2], ABC, [1, 3]).prior.tolist() == [0.25, 0.75]
    assert Facts.make([[0], [1]], [1, 2], ABC, [0, 3]).prior.tolist() == [0, 1]


def test_huge_weights_do_not_overflow():
    assert Facts.make([[0], [1]], [1, 2], ABC, [1.7e308, 1.7e308]).prior.tolist() == [0.5, 0.5]


def test_duplicates_are_merged_and_weights_added():
    facts = Facts.make([[1], [0], [1], [1]], [2, 2, 2, 2], ABC, [1, 1, 1, 1], rows=[2, 3, 4, 5])
    assert facts.merged == 2
    assert facts.tokens.tolist() == [[1], [0]]
    assert facts.rows.tolist() == [2, 3]
    assert facts.prior.tolist() == [0.75, 0.25]


def test_duplicates_without_weights_leave_the_prior_uniform():
    facts = Facts.make([[1], [0], [1]], [2, 2, 2], ABC)
    assert facts.merged == 1
    assert facts.prior.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("S", [1, 2, 40])
def test_conflicts_are_all_found(S: int):
    key = [0] * S
    other = [1] * S
    with pytest.raises(ConflictError) as caught:
        Facts.make([key, other, key, other, key], [0, 1, 2, 1, 0], ABC, name="table")
    assert caught.value.conflicts == [(("a",) * S, [(1, "a"), (3, "c"), (5, "a")])]
    assert "table: expected one answer" in str(caught.value)
    assert "'a' (row 1), 'c' (row 3)" in str(caught.value)


def test_keys_that_differ_only_in_their_first_token_stay_apart():
    """4**39 is 0 modulo 2**64: if a key of 40 tokens were one int64, its first would be lost."""
    tokens = np.ones((3, 40), dtype=int)
    tokens[:, 0] = [0, 1, 2]
    assert Facts.make(tokens, [0, 1, 2], Vocabulary(("a", "b", "c", "d"))).T == 3


def test_conflict_error_can_be_pickled():
    with pytest.raises(ConflictError) as caught:
        Facts.make([[0], [0]], [0, 1], ABC)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert copy.conflicts == caught.value.conflicts and str(copy) == str(caught.value)


@pytest.mark.parametrize(
    ("tokens", "answers", "message"),
    [
        ([0, 1], [0, 1], r"found \(2,\) and \(2,\)"),
        ([[0], [1]], [0], r"found \(2, 1\) and \(1,\)"),
        ([[0], [1]], 0, r"found \(2, 1\) and \(\)"),
        (np.empty((2, 0), dtype=int), [0, 1], r"found \(2, 0\)"),
        (np.empty((0, 2), dtype=int), [], "at least one fact"),
        ([[0], [3]], [0, 1], "row 2: expected tokens from 0 to 2, found 3"),
        ([[0], [1]], [0, -1], "row 2: expected answers from 0 to 2, found -1"),
        ([[0.5], [1]], [0, 1], "tokens to be integers, found values of type float64"),
    ],
)
def test_wrong_shapes_and_ids(tokens, answers, message: str):
    with pytest.raises(FactsError, match=message):
        Facts.make(tokens, answers, ABC)


def test_wrong_names_and_rows():
    with pytest.raises(FactsError, match="expected 1 column names"):
        Facts.make([[0]], [1], ABC, columns=("x", "y"))
    with pytest.raises(FactsError, match="expected 1 row numbers"):
        Facts.make([[0]], [1], ABC, rows=[1, 2])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, float("nan")], "row 2: .* found nan"),
        ([1, float("inf")], "row 2: .* found inf"),
        ([1, -1], "row 2: .* found -1"),
        ([0, 0], "found 2 zeros"),
        ([1], r"expected 2 weights"),
    ],
)
def test_wrong_weights(weights, message: str):
    with pytest.raises(FactsError, match=message):
        Facts.make([[0], [1]], [1, 2], ABC, weights)


def test_digest_changes_with_one_cell():
    facts = Facts.make([[0], [1]], [1, 2], ABC)
    others = [
        Facts.make([[0], [2]], [1, 2], ABC),
        Facts.make([[0], [1]], [1, 1], ABC),
        Facts.make([[0], [1]], [1, 2], ABC, [1, 2]),
        Facts.make([[1], [0]], [2, 1], ABC),
        Facts.make([[0], [1]], [1, 2], Vocabulary(("a", "b", "C"))),
    ]
    assert len({facts.digest(), *(other.digest() for other in others)}) == 6
    assert facts.digest() == Facts.make([[0], [1]], [1, 2], ABC, name="other").digest()


def test_subset():
    facts = Facts.make([[0], [1], [2]], [2, 1, 0], ABC, [1, 1, 2], rows=[2, 3, 4])
    part = facts.subset([2, 0])
    assert part.key(0) == ("c",) and part.vocabulary is facts.vocabulary
    assert part.rows.tolist() == [4, 2]
    assert part.prior == pytest.approx([2 / 3, 1 / 3])
    assert facts.subset([True, False, True]).tokens.tolist() == [[0], [2]]
    for wrong in ([3], [-1], [True], [0.5], []):
        with pytest.raises(FactsError):
            facts.subset(wrong)


def test_effective_size_of_a_uniform_prior():
    facts = random_associations(N=100, S=2, T=1000)
    assert [facts.effective_size(eps) for eps in (0, 0.01, 0.1, 0.5, 1)] == [1000, 990, 900, 500, 1]


def test_describe_is_plain_json():
    facts = Facts.make([[0, 1], [1, 1], [2, 0]], [2, 2, 0], ABC, [98, 1, 1], name="table")
    described = json.loads(json.dumps(facts.describe()))
    assert described == {
        "name": "table",
        "facts": 3,
        "length": 2,
        "vocabulary": 3,
        "answers": 2,
        "last_tokens": 2,
        "commonest_last_token": {"token": "b", "count": 2},
        "commonest_answer": {"token": "c", "count": 2},
        "merged": 0,
        "skipped": 0,
        "trimmed": 0,
        "notes": [],
        "uniform_prior": False,
        "T_eps": {"0.1": 1, "0.01": 2},
    }


def test_write_refuses_other_suffixes(tmp_path: Path):
    facts = Facts.make([[0]], [1], ABC)
    with pytest.raises(FactsError, match=r"\.csv, \.tsv, \.jsonl or \.ndjson, found '\.xlsx'"):
        facts.write(tmp_path / "facts.xlsx")
    with pytest.raises(FactsError, match="found 'no suffix'"):
        facts.write(tmp_path / "facts")


def test_write_says_why_it_failed(tmp_path: Path):
    with pytest.raises(FactsError, match="cannot be written: No such file or directory"):
        Facts.make([[0]], [1], ABC).write(tmp_path / "missing" / "facts.csv")


def test_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "facts.csv"
    path.write_text("old")

    def fail(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("byheart._folders.os.fsync", fail)
    with pytest.raises(FactsError, match="No space left"):
        Facts.make([[0]], [1], ABC).write(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_write_tells_equal_column_names_apart(tmp_path: Path):
    facts = Facts.make([[0, 1]], [2], ABC, [1], columns=("x", "x"), answer_column="x")
    facts.write(tmp_path / "facts.csv")
    assert read_facts(tmp_path / "facts.csv").columns == ("x", "x'")
