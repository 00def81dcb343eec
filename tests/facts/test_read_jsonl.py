import json

import pytest

from byheart.errors import ConflictError, FactsError
from byheart.facts import read_facts

GOOD = '{"input": ["a", "b"], "output": "c"}\n'


def test_lists_strings_and_numbers(make_file):
    path = make_file("t.jsonl", '{"input": "a b", "output": 3}\n\n{"input": [2.5], "output": "x"}')
    facts = read_facts(path)
    assert facts.key(0) == ("a b",) and facts.answer(0) == "3"
    assert facts.key(1) == ("2.5",) and facts.rows.tolist() == [1, 3]
    assert facts.columns is None and facts.answer_column == "output"


def test_byte_order_mark_is_dropped(make_file):
    assert read_facts(make_file("t.ndjson", "\ufeff" + GOOD)).T == 1


def test_weights(make_file):
    lines = '{"input": "a", "output": "x", "weight": 3}\n{"input": "b", "output": "x"}\n'
    assert read_facts(make_file("t.jsonl", lines)).prior.tolist() == [0.75, 0.25]
    with pytest.raises(FactsError, match="line 2: expected the field 'weight'"):
        read_facts(make_file("t.jsonl", lines), weights="weight")


def test_padding_on_the_left(make_file):
    lines = [
        {"input": ["a"], "output": "x"},
        {"input": ["<pad>", "a"], "output": "y"},
        {"input": ["a", "b", "c"], "output": "z"},
    ]
    facts = read_facts(make_file("t.jsonl", "\n".join(map(json.dumps, lines))), pad=True)
    assert facts.pad_id is not None
    # A token of the table is called <pad> already, so the reserved one gets a prime.
    assert facts.vocabulary.token(facts.pad_id) == "<pad>'"
    assert [facts.key(i) for i in range(3)] == [
        ("<pad>'", "<pad>'", "a"),
        ("<pad>'", "<pad>", "a"),
        ("a", "b", "c"),
    ]


def test_equal_lengths_need_no_padding(make_file):
    facts = read_facts(make_file("t.jsonl", GOOD), pad=True)
    assert facts.pad_id is None and facts.N == 3


def test_unequal_lengths_are_listed(make_file):
    lines = [{"input": ["a"] * (1 + i // 2), "output": "x"} for i in range(20)]
    with pytest.raises(FactsError, match=r"1 tokens as line 1.*line 3 has 2.* and 13 more.*pad"):
        read_facts(make_file("t.jsonl", "\n".join(map(json.dumps, lines))))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"input": ["a"], "output": ["x"]}', "line 2: .*sequence-to-sequence"),
        ('{"input": ["a", "x"], "output": {"x": 1}}', "line 2: .*distribution"),
        ('{"input": ["a"], "output": "x"', "line 2: not JSON .*column 31"),
        ('{"input": ["a"] "output": "x"}', "line 2: not JSON .*column 17"),
        ("[1, 2]", "line 2: expected an object"),
        ("[" * 100_000, "line 2: "),
        ('{"input": ["a"]}', "line 2: expected the field 'output', found 'input'"),
        ('{"output": "a"}', "line 2: expected the field 'input', found 'output'"),
        ("{}", "line 2: .*found no fields"),
        ('{"input": [], "output": "x"}', "line 2: .*empty list"),
        ('{"input": [true], "output": "x"}', "line 2, field 'input': .*found True .bool"),
        ('{"input": "a", "output": null}', "line 2, field 'output': .*found None"),
        ('{"input": [["a"]], "output": "x"}', "line 2, field 'input': .*list"),
        ('{"input": [NaN], "output": "x"}', "line 2: .*NaN"),
        ('{"input": [1e999], "output": "x"}', "line 2: .*not finite: '1e999'"),
        ('{"input": "\\ud83d", "output": "x"}', "line 2: .*surrogates not allowed"),
        ('{"input": ["a", ""], "output": "x"}', "line 2, field 'input': .*empty cell"),
        ('{"input": ["a", "x"], "output": ""}', "line 2, field 'output': .*empty cell"),
        ('{"input": ["x", "y"], "output": "x", "weight": "1"}', "line 2, field 'weight'"),
        ('{"input": ["x", "y"], "output": "x", "weight": true}', "line 2, field 'weight'"),
        ('{"input": ["x", "y"], "output": "x", "weight": NaN}', "line 2: .*NaN"),
        ('{"input": ["x", "y"], "output": "x", "weight": -1}', "row 2: .*found -1"),
        ('{"input": ["x", "y"], "output": "x", "weight": 1e999}', "line 2: .*not finite: '1e999'"),
        (f'{{"input": "a", "output": "x", "weight": 1{"0" * 400}}}', "line 2: .*beyond 64 bits"),
        (f'{{"input": "a", "output": 1{"0" * 5000}}}', "line 2: "),
        (f'{{"input": "a", "output": "{"x" * 65_537}"}}', "line 2, field 'output': .*65,537"),
    ],
)
def test_what_is_wrong_is_said(make_file, line: str, message: str):
    with pytest.raises(FactsError, match=message):
        read_facts(make_file("t.jsonl", GOOD + line))


def test_all_weights_zero(make_file):
    with pytest.raises(FactsError, match="found 1 zeros"):
        read_facts(make_file("t.jsonl", '{"input": "a", "output": "x", "weight": 0}'))


def test_empty_file(make_file):
    with pytest.raises(FactsError, match=r"expected lines such as .*found none"):
        read_facts(make_file("t.jsonl", "\n\n"))


def test_empty_tokens(make_file):
    path = make_file("t.jsonl", GOOD + '{"input": ["x", ""], "output": "y"}')
    assert read_facts(path, empty="token").key(1) == ("x", "")
    facts = read_facts(path, empty="skip")
    assert facts.T == 1 and facts.skipped == 1 and facts.N == 3


def test_not_utf8(make_file):
    with pytest.raises(FactsError, match=f"line 2: .*byte offset {len(GOOD) + 11}"):
        read_facts(make_file("t.jsonl", GOOD.encode() + b'{"input": "\xfc", "output": "x"}'))


def test_conflicts_name_lines(make_file):
    with pytest.raises(ConflictError) as caught:
        read_facts(make_file("t.jsonl", GOOD + GOOD.replace('"c"', '"d"')))
    assert caught.value.conflicts == [(("a", "b"), [(1, "c"), (2, "d")])]


@pytest.mark.parametrize("option", [{"keys": ["input"]}, {"answer": "output"}, {"melt": True}])
def test_column_options_are_refused(make_file, option: dict):
    with pytest.raises(FactsError, match=f"expected no `{next(iter(option))}` for JSON lines"):
        read_facts(make_file("t.jsonl", GOOD), **option)
