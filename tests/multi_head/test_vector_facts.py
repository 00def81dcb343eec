"""Vector facts: what is refused and why, the paper's generators, files."""

import numpy as np
import pytest

from byheart.errors import ConflictError, FactsError
from byheart.facts import (
    VectorFacts,
    digit_vectors,
    facts_from_recipe,
    random_vectors,
    read_arrays,
    read_vectors,
)

E, e = np.eye(4)[:3], np.arange(20.0).reshape(5, 4)


def broken(array: np.ndarray, at: tuple[int, ...], value: float) -> np.ndarray:
    copy = array.copy()
    copy[at] = value
    return copy


@pytest.mark.parametrize(
    ("context", "query", "label", "message"),
    [
        (E, broken(e, (2, 1), np.nan), [0, 1, 2, 3, 4], r"query\[2, 1\] is nan"),
        (broken(E, (0, 3), np.inf), e, [0, 1, 2, 3, 4], r"context\[0, 3\] is inf"),
        (E, e, np.array([0, 1, np.nan, 3, 4]), r"label\[2\] is nan"),
        (E[:, :3], e, range(5), "4 coordinates, the context 3"),
        (np.zeros((4, 3, 4)), e, range(5), "5 queries and 4 contexts"),
        ([np.eye(4)[:3], np.eye(4)[:2]], e[:2], range(2), "unequal length: example 0 .* example 1"),
        (E, e, range(4), r"expected 5 labels, of shape \(5,\) or \(5, m\), found \(4,\)"),
        (E, e[0], [0], "expected a query of shape"),
        (E, e, [0, 1, -1, 2, 3], r"label\[2\] = -1: expected a class from 0"),
        (E, e, np.zeros((5, 2), dtype=int), "whole-number labels are classes"),
        (E, e.astype(int) + 2**60, range(5), "beyond 2\\^53 and would be rounded"),
        (E, e.astype(str), range(5), "expected query to hold numbers"),
        (E, e > 3, range(5), "expected query to hold numbers"),
    ],
)
def test_bad_numbers_and_shapes_are_named(context, query, label, message):
    with pytest.raises(FactsError, match=message):
        VectorFacts.make(context, query, np.asarray(label))


def test_one_query_with_two_labels_is_listed():
    """Fatal for a shared context; the same query with another context is another example."""
    query = np.vstack([e, e[1], e[3], e[1]])
    with pytest.raises(ConflictError, match=r"2 times one query .the context is shared.") as found:
        VectorFacts.make(E, query, [0, 1, 2, 3, 4, 0, 1, 2])
    rows = [sorted(i for i, _ in clash) for _, clash in found.value.conflicts]
    assert rows == [[1, 5, 7], [3, 6]]
    own = np.random.default_rng(0).random((8, 3, 4))
    assert VectorFacts.make(own, query, [0, 1, 2, 3, 4, 0, 1, 2]).T == 8
    own[5] = own[1]
    with pytest.raises(ConflictError, match="query and context"):
        VectorFacts.make(own, query, [0, 1, 2, 3, 4, 0, 1, 2])


def test_repeated_examples_are_merged_and_rows_keep_their_numbers():
    facts = VectorFacts.make(E, np.vstack([e, e[2], e[:1]]), [0, 1, 2, 3, 4, 2, 0])
    assert (facts.T, facts.merged, facts.rows.tolist()) == (5, 2, [0, 1, 2, 3, 4])
    zero = VectorFacts.make(E, np.array([[0.0, 1, 2, 3], [-0.0, 1, 2, 3]]), [1, 1])
    assert zero.T == 1


def test_the_stream_is_that_of_the_authors():
    """RandomState(seed): context, queries, multinomial labels; the first numbers by hand."""
    rng = np.random.RandomState(42)
    context, query = rng.uniform(size=(1, 5, 4)), rng.uniform(size=(7, 4))
    label = rng.multinomial(1, np.ones(3) / 3, size=(7,)).argmax(-1)
    facts = random_vectors(7, 5, 4, classes=3)
    assert np.array_equal(facts.context, context[0].astype(np.float32))
    assert np.array_equal(facts.query, query.astype(np.float32))
    assert np.array_equal(facts.label, label)


@pytest.mark.parametrize("context", ["fixed", "random", "perm"])
@pytest.mark.parametrize("labels", [{}, {"classes": 4}, {"outputs": 3}])
def test_files_keep_every_number(tmp_path, context, labels):
    facts = random_vectors(9, 3, 4, context, **labels)
    assert facts.shared == (context == "fixed")
    for suffix in (".npz", ".safetensors"):
        facts.write(tmp_path / f"facts{suffix}")
        again = read_vectors(tmp_path / f"facts{suffix}")
        assert again.digest() == facts.digest()
        assert again.classes == facts.classes and again.outputs == facts.outputs
    assert sorted(p.name for p in tmp_path.iterdir()) == ["facts.npz", "facts.safetensors"]


def test_perm_contexts_are_drawn_from_one_bag():
    facts = random_vectors(40, 20, 6, "perm")
    tokens = np.unique(facts.context.reshape(-1, 6), axis=0)
    assert len(tokens) <= 500 < 40 * 20
    assert all(len(np.unique(context, axis=0)) == 20 for context in facts.context)


def test_pickles_are_refused(tmp_path):
    path = tmp_path / "evil.npz"
    np.savez(path, query=np.array([{"a": 1}, None], dtype=object), context=E, label=[0, 1])
    with pytest.raises(FactsError, match="could run code"):
        read_vectors(path)
    (tmp_path / "evil.npy").write_bytes(b"\x80\x04K\x01.")
    with pytest.raises(FactsError, match=r"refused: .*magic"):
        read_arrays(tmp_path / "evil.npy")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.npz", None, "found no file"),
        ("half.safetensors", b"\x10\0\0\0\0\0\0\0{", "not a complete safetensors file"),
        ("half.npz", b"PK\x03\x04 nothing", "refused"),
        ("facts.txt", b"1 2 3", "expected a .safetensors or .npz file"),
    ],
)
def test_damaged_files_are_refused(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(FactsError, match=message):
        read_vectors(tmp_path / name)


def test_a_file_without_labels_says_what_it_has(tmp_path):
    np.savez(tmp_path / "a.npz", query=e, context=E)
    with pytest.raises(FactsError, match="found no label; there are context, query"):
        read_vectors(tmp_path / "a.npz")


@pytest.mark.parametrize(
    "recipe",
    ["vectors:T=0", "vectors:n=3", "vectors:T=4,context=odd", "vectors:T=x", "vectors:T=3,T=4",
     "vectors:T=5,q=1", "digits:labels=odd", "digits:T=9,patch=3", "digits:T=100000"],
)  # fmt: skip
def test_bad_recipes(recipe):
    if recipe.startswith("digits:T"):
        pytest.importorskip("sklearn")
    with pytest.raises(FactsError, match="expected"):
        facts_from_recipe(recipe)


def test_digits_are_whole_numbers_with_contexts_of_full_rank():
    pytest.importorskip("sklearn")
    facts = digit_vectors(60)
    assert facts.query.shape == (60, 64) and facts.context.shape == (60, 16, 64)
    assert np.array_equal(facts.query, np.round(facts.query)) and facts.query.max() == 16
    # The tokens add up to the image plus 16 at the first pixel of each patch.
    marks = facts.context.sum(1) - facts.query
    assert np.array_equal(np.unique(marks), [0, 16]) and (marks.sum(1) == 16 * 16).all()
    assert (np.linalg.matrix_rank(facts.context) == 16).all()
    assert digit_vectors(60, random=False).classes == 10
    assert digit_vectors(60, classes=None).classes is None


def test_digits_without_scikit_learn_say_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(FactsError, match=r"pip install .*\[digits\]"):
        digit_vectors(5)
