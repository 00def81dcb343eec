"""What `Facts.write` writes, `read_facts` reads back."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byheart.facts import Facts, Vocabulary, random_associations, read_facts

SUFFIXES = [".csv", ".tsv", ".jsonl", ".ndjson"]

# What breaks tables: separators, quotes, line ends, spaces, joined emoji, right-to-left text.
AWKWARD = [
    ",",
    ";",
    "\t",
    '"',
    '""',
    "'",
    "\n",
    "\r",
    "\r\n",
    "\\",
    " ",
    "\ufeff",
    "\u2028",
    "\x85",
]
AWKWARD += [
    "\N{FAMILY}\u200d\N{GRINNING FACE}",
    "\u05e9\u05dc\u05d5\u05dd",
    "\u202eabc",
    "NULL",
    "",
]
CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
TOKENS = st.text(CHARACTERS, max_size=8) | st.lists(st.sampled_from(AWKWARD), max_size=4).map(
    "".join
)


@st.composite
def tables(draw: st.DrawFn) -> Facts:
    S = draw(st.integers(1, 3))
    keys = draw(st.lists(st.tuples(*[TOKENS] * S), min_size=1, max_size=6, unique=True))
    answers = draw(st.lists(TOKENS, min_size=len(keys), max_size=len(keys)))
    vocabulary = Vocabulary(tuple(sorted({t for key in keys for t in key} | set(answers))))
    return Facts.make([vocabulary.ids(key) for key in keys], vocabulary.ids(answers), vocabulary)


def pairs(facts: Facts) -> list[tuple[tuple[str, ...], str]]:
    return [(facts.key(i), facts.answer(i)) for i in range(facts.T)]


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=60, deadline=None)
@given(facts=tables())
def test_any_text_survives(suffix: str, facts: Facts):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"facts{suffix}"
        facts.write(path)
        again = read_facts(path, empty="token", trim=False)
        assert list(Path(folder).iterdir()) == [path]
    assert pairs(again) == pairs(facts)
    assert again.name == "facts" and again.merged == 0


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_prior_survives(suffix: str, tmp_path: Path):
    facts = random_associations(N=20, S=2, T=100)
    weights = np.random.default_rng(0).random(100)
    facts = Facts.make(facts.tokens, facts.answers, facts.vocabulary, weights)
    facts.write(tmp_path / f"facts{suffix}")
    again = read_facts(tmp_path / f"facts{suffix}", weights="weight")
    assert pairs(again) == pairs(facts)
    # Scaling to sum 1 once more costs a few roundings.
    assert again.prior == pytest.approx(facts.prior, rel=1e-14)


def test_what_was_read_is_written_alike(tmp_path: Path):
    text = "country,capital\r\nFrance,Paris\r\nItaly,Rome\r\n"
    (tmp_path / "a.csv").write_bytes(text.encode())
    facts = read_facts(tmp_path / "a.csv")
    facts.write(tmp_path / "b.csv")
    assert (tmp_path / "b.csv").read_bytes() == text.encode()
    assert read_facts(tmp_path / "b.csv").digest() == facts.digest()


def test_padding_is_left_out_of_json_lines(tmp_path: Path):
    (tmp_path / "a.jsonl").write_text(
        '{"input": ["a"], "output": "x"}\n{"input": ["b", "c"], "output": "y"}\n'
    )
    facts = read_facts(tmp_path / "a.jsonl", pad=True)
    facts.write(tmp_path / "b.jsonl")
    assert (tmp_path / "b.jsonl").read_text() == (tmp_path / "a.jsonl").read_text()
    assert read_facts(tmp_path / "b.jsonl", pad=True).digest() == facts.digest()
