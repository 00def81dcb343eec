import time

import pytest

from byheart._words import nearest
from byheart.errors import FactsError
from byheart.facts import Vocabulary


def test_ids_and_tokens_are_inverse():
    vocabulary = Vocabulary(("b", "", "a"))
    assert vocabulary.ids(["a", "b", ""]) == [2, 0, 1]
    assert [vocabulary.token(i) for i in range(3)] == ["b", "", "a"]
    assert len(vocabulary) == 3
    assert "a" in vocabulary and "c" not in vocabulary and 0 not in vocabulary


def test_a_list_of_tokens_becomes_a_tuple():
    assert Vocabulary(["a", "b"]) == Vocabulary(("a", "b"))  # type: ignore[arg-type]
    assert hash(Vocabulary(("a",))) == hash(Vocabulary(("a",)))


def test_unknown_token_names_it_and_the_nearest():
    with pytest.raises(FactsError, match=r"unknown token 'Pariss'\. Did you mean 'Paris'\?"):
        Vocabulary(("Rome", "Paris")).id("Pariss")


def test_unknown_token_with_nothing_near():
    with pytest.raises(FactsError, match="unknown token 'zzz'") as caught:
        Vocabulary(("Rome", "Paris")).id("zzz")
    assert "Did you mean" not in str(caught.value)


@pytest.mark.parametrize("token_id", [-1, 2])
def test_id_out_of_range(token_id: int):
    with pytest.raises(FactsError, match=f"from 0 to 1, found {token_id}"):
        Vocabulary(("a", "b")).token(token_id)


def test_duplicates_are_refused():
    with pytest.raises(FactsError, match="'a' at positions 0 and 2"):
        Vocabulary(("a", "b", "a"))


def test_tokens_that_are_no_strings_are_refused():
    with pytest.raises(FactsError, match="found 1 of type int"):
        Vocabulary((1,))  # type: ignore[arg-type]


def test_lone_surrogates_are_refused():
    with pytest.raises(FactsError, match="lone surrogate"):
        Vocabulary(("a", "\ud83d"))


def test_nearest_prefers_equal_up_to_case():
    tokens = ("Romeo", "ROME", "Paris", "Rom")
    assert nearest("rome", tokens)[0] == "ROME"
    assert nearest("rome", tokens, n=1) == ["ROME"]
    assert nearest("", tokens) == []


def test_nearest_is_fast_for_50_000_tokens():
    tokens = [f"token number {i}" for i in range(50_000)]
    start = time.perf_counter()
    assert nearest("Token numbr 31415", tokens)[0] == "token number 31415"
    assert time.perf_counter() - start < 3


def test_with_special_adds_primes_until_unique():
    vocabulary = Vocabulary(("<start>", "<start>'", "a"))
    larger, start = vocabulary.with_special("<start>")
    assert larger.token(start) == "<start>''"
    assert larger.tokens[:3] == vocabulary.tokens
    assert len(vocabulary) == 3


def test_digest_depends_on_tokens_and_order():
    digests = {
        Vocabulary(tokens).digest() for tokens in [("a", "b"), ("b", "a"), ("ab",), ("a,b",), ()]
    }
    assert len(digests) == 5
    assert Vocabulary(("a", "b")).digest() == Vocabulary(("a", "b")).digest()
    assert all(len(digest) == 64 for digest in digests)
