"""Facts from Python's own data: one table in every form, and what is refused."""

import math
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import byheart as bh
from byheart.errors import ByheartError, ConflictError, FactsError
from byheart.facts import Distributions, Facts, VectorFacts, as_facts, read_facts

TABLE = [("France", "capital", "Paris"), ("France", "rank", "1"), ("Peru", "capital", "Lima")]
COLUMNS = ["country", "relation", "answer"]
CSV = "country,relation,answer\nFrance,capital,Paris\nFrance,rank,1\nPeru,capital,Lima\n"


class PolarsFrame:
    """A stand-in for a data frame of polars: the part of its interface that is used."""

    columns = COLUMNS

    def iter_rows(self):
        return iter(TABLE)


PolarsFrame.__name__, PolarsFrame.__module__ = "DataFrame", "polars.dataframe.frame"


def frame() -> pd.DataFrame:
    return pd.DataFrame(TABLE, columns=COLUMNS)


FORMS: dict[str, Callable[[Path], object]] = {
    "a path": lambda folder: folder / "t.csv",
    "the text of a path": lambda folder: str(folder / "t.csv"),
    "JSON lines": lambda folder: folder / "t.jsonl",
    "Parquet": lambda folder: folder / "t.parquet",
    "a list of tuples": lambda folder: TABLE,
    "a list of lists": lambda folder: [list(row) for row in TABLE],
    "a generator": lambda folder: (row for row in TABLE),
    "dicts": lambda folder: [dict(zip(COLUMNS, row, strict=True)) for row in TABLE],
    "objects": lambda folder: [{"input": row[:2], "output": row[2]} for row in TABLE],
    "numbers": lambda folder: [(a, b, int(c) if c == "1" else c) for a, b, c in TABLE],
    "an array": lambda folder: np.array(TABLE),
    "a dict": lambda folder: {row[:2]: row[2] for row in TABLE},
    "a frame": lambda folder: frame(),
    "a frame with an index": lambda folder: frame().set_index(["country", "relation"]),
    "a series": lambda folder: frame().set_index(["country", "relation"])["answer"],
    "a frame of polars": lambda folder: PolarsFrame(),
    "facts": lambda folder: Facts.from_rows(TABLE),
}


@pytest.mark.parametrize("form", FORMS)
def test_one_table_in_every_form_is_the_same_facts(form: str, tmp_path: Path):
    (tmp_path / "t.csv").write_text(CSV)
    facts = read_facts(tmp_path / "t.csv")
    facts.write(tmp_path / "t.jsonl")
    if form == "Parquet":
        pytest.importorskip("pyarrow")
        frame().to_parquet(tmp_path / "t.parquet")
    same = as_facts(FORMS[form](tmp_path))
    assert isinstance(same, Facts)
    assert same.digest() == facts.digest() and same.notes == ()
    assert bh.as_facts is as_facts


def test_a_series_with_one_level():
    series = pd.Series({"France": "Paris", "Peru": "Lima"}, name="capital")
    assert as_facts(series).digest() == as_facts({"France": "Paris", "Peru": "Lima"}).digest()  # type: ignore[union-attr]
    assert Facts.from_pandas(series).answer_column == "capital"


def test_columns_of_frames_and_rows_can_be_chosen():
    facts = Facts.from_pandas(
        frame().assign(n=[1, 2, 1]), keys=["relation", "country"], answer="answer", weights="n"
    )
    assert facts.key(0) == ("capital", "France") and facts.prior.tolist() == [0.25, 0.5, 0.25]
    by_rows = Facts.from_rows(TABLE, COLUMNS, keys=["relation", "country"], answer="answer")
    assert by_rows.tokens.tolist() == facts.tokens.tolist()
    assert Facts.from_rows(TABLE).columns == ("1", "2")


TOKENS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)


@st.composite
def tables(draw: st.DrawFn) -> dict[tuple[str, ...], str]:
    S = draw(st.integers(1, 3))
    return draw(st.dictionaries(st.tuples(*[TOKENS] * S), TOKENS, min_size=1, max_size=6))


@settings(max_examples=60, deadline=None)
@given(table=tables())
def test_every_way_in_gives_the_same_facts_and_back(table: dict[tuple[str, ...], str]):
    rows = [(*key, answer) for key, answer in table.items()]
    keep: dict[str, Any] = {"empty": "token"}
    facts = Facts.from_dict(table, **keep)
    assert {facts.key(i): facts.answer(i) for i in range(facts.T)} == table
    series = pd.Series(list(table.values()), pd.MultiIndex.from_tuples(list(table)), dtype=object)
    with tempfile.TemporaryDirectory() as folder:
        facts.write(path := Path(folder) / "facts.csv")
        file = read_facts(path, trim=False, header=True, **keep)
    others = [
        file,
        Facts.from_rows(rows, **keep),
        Facts.from_pandas(pd.DataFrame(rows, dtype=object), **keep),
        Facts.from_pandas(series, **keep),
        Facts.from_pandas(facts.to_pandas(), **keep),
    ]
    assert {other.digest() for other in others} == {facts.digest()}


def test_weights_survive_a_data_frame():
    facts = Facts.from_rows([("a", 1, "x"), ("b", 3, "y")], ["k", "n", "v"], weights="n")
    back = Facts.from_pandas(facts.to_pandas(), weights="weight")
    assert back.digest() == facts.digest()


TENSOR = type("Tensor", (), {"__iter__": lambda self: iter([])})()
NOTHING: list[object] = []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"facts.csv", "expected facts: a path.*found bytes"),
        ({("a", "b")}, "found a set, which has no order"),
        (TENSOR, "found a torch Tensor.*VectorFacts.make"),
        (np.arange(3), "an array that is not two-dimensional"),
        (3, r"expected facts: a path.*found 3 \(int\)"),
        (None, r"found None \(NoneType\)"),
        ({}, "dict: expected entries such as .*found none"),
        (NOTHING, "rows: expected rows, each .*found none"),
        ({"France": ["Paris", "Lyon"]}, "entry 1: expected one answer to 'France', found a list"),
        (
            {"France": {"capital": "Paris"}},
            r"entry 1: .*probability of 'capital'.*\(key, capital\)",
        ),
        ({"France": None}, "entry 1, part 'answer': .*found None.*empty=skip"),
        ({"France": 2.5}, r"entry 1, part 'answer': .*found 2\.5 \(float\)"),
        ({(): "x"}, r"entry 1: expected a key with tokens, found \(\)"),
        ({(1.5,): "x"}, "entry 1, part 'key'"),
        ({"a": "x", ("b", "c"): "y"}, "1 tokens as entry 1, found: entry 2 has 2.*pad=True"),
        (["France", "Paris"], r"row 1: expected a tuple or list .*found 'France' \(str\)"),
        ([("a", "b"), ("c",)], "row 2: expected 2 cells as in the header, found 1"),
        ([("a", "b"), {"x": 1}], "row 2: expected a tuple or list"),
        ([("a",)], "row 1: expected at least two columns"),
        ([("a", "b"), ("c", None)], "row 2, column '2': expected a token, found None"),
        ([("a", math.nan)], "row 1, column '2': expected a token, found nan"),
        ([("a", 3.0)], r"row 1, column '2': .*found 3\.0 \(float\).*Int64"),
        ([("a", np.float32(2.5))], r"row 1, column '2': .*\(float32\)"),
        ([("a", True)], r"row 1, column '2': .*found True \(bool\)"),
        ([("a", np.bool_(True))], "row 1, column '2': .*Write it as text"),
        ([("a", b"x")], r"row 1, column '2': .*found b'x' \(bytes\). Decode"),
        ([("a", ["x"])], "row 1, column '2': .*one token"),
        ([("a", 10**5000)], "row 1, column '2': .*too long"),
        ([{"k": "a", "v": "b"}, {"k": "c"}], "row 2: expected the columns 'k', 'v' .*no 'v'"),
        ([{"k": "a", "v": "b"}, {"k": "c", "v": "d", "w": 1}], "row 2: .*'w' too"),
        ([{"k": "a", "v": "b"}, ("c", "d")], "row 2: expected a dict as in the rows above"),
        (pd.DataFrame({"k": ["a"]}), "frame: expected at least two columns.*name the index"),
        (pd.DataFrame({"k": ["a", "b"], "v": [1, None]}), r"row 1, column 'v'.*1\.0.*Int64"),
        (pd.DataFrame({"k": ["a", "b"], "v": ["x", None]}), "row 2, column 'v': .*found"),
        (pd.DataFrame({"k": ["a"], "v": [pd.NaT]}), "row 1, column 'v': .*found NaT"),
        (pd.DataFrame({"k": ["a"], "v": [pd.Timestamp(0)]}), r"column 'v': .*\(Timestamp\)"),
        (pd.DataFrame([["a", "b"]], columns=["x", "x"]), "found 'x' as columns 1 and 2"),
        (pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("a", 1), ("b", 2)])), "levels"),
        ("capitls.csv", "found no file 'capitls.csv'"),
    ],
    ids=lambda value: "" if not isinstance(value, str) else value[:30],
)
def test_what_is_no_table_of_facts(data: object, message: str):
    with pytest.raises(FactsError, match=message):
        as_facts(data)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Facts.from_dict([("a", "b")]), "expected a dict key -> answer, found list"),  # type: ignore[arg-type]
        (lambda: Facts.from_rows("France"), r"expected rows, .*found 'France' \(str\)"),
        (lambda: Facts.from_pandas([("a", "b")]), "data frame or series of pandas, found list"),
        (lambda: Facts.from_dict({"a": {"x": 0.5, "y": 0.5}}), "entry 1: .*a distribution"),
        (lambda: as_facts({"a": "b"}, keys=["x"]), "dict: expected no `keys` for a dict"),
        (lambda: as_facts([("a", "b")], header=False), "expected no `header` for rows"),
        (lambda: as_facts(Facts.from_rows(TABLE), melt=True), "no `melt` for facts, read already"),
        (lambda: as_facts([("a", "b")], smooth=0.1), "expected no `smooth` for facts with one"),
        (lambda: as_facts([("a", "b")], anwser="b"), "no option of reading.*Did you mean 'answer'"),  # type: ignore[call-arg]
        (lambda: Facts.from_rows(TABLE, COLUMNS, answer="anwser"), "for `answer`.*'answer'"),
        (lambda: Facts.from_rows(TABLE, ["a", "b"]), "row 1: expected 2 cells"),
        (lambda: read_facts("vectors:T=5,n=3,d=4"), "one answer each, found vectors"),
        (lambda: read_facts("random:kind=gauss,N=5"), "found distributions over answers"),
    ],
)
def test_wrong_use_says_what_to_use(make: Callable[[], object], message: str):
    with pytest.raises(ByheartError, match=message):
        make()


def test_gaps_are_left_out_or_kept_on_request():
    data = pd.DataFrame({"k": ["a", "b", "c"], "v": ["x", None, "y"]})
    facts = Facts.from_pandas(data, empty="skip")
    assert facts.T == 2 and facts.skipped == 1 and facts.rows.tolist() == [1, 3]
    assert Facts.from_pandas(data, empty="token").answer(1) == ""


def test_conflicts_list_rows():
    with pytest.raises(ConflictError) as caught:
        Facts.from_rows([("a", "x"), ("b", "y"), ("a", "z")])
    assert caught.value.conflicts == [(("a",), [(1, "x"), (3, "z")])]
    assert "`on_conflict=distribution`" in str(caught.value)


def test_whole_numbers_of_every_type_become_decimals():
    row = (3, np.int64(-4), np.uint8(5), 10**30, np.str_("x"))
    assert Facts.from_rows([row]).key(0) == ("3", "-4", "5", str(10**30))


def test_keys_of_unequal_length_are_padded_on_request():
    facts = Facts.from_dict({"a": "x", ("b", "c"): "y"}, pad=True)
    assert facts.S == 2 and facts.pad_id is not None


def test_distributions_in_every_form():
    table = {("to", "be"): {"or": 0.75, ",": 0.25}, ("or", "not"): {"to": 1.0}}
    by_dict = as_facts(table)
    assert isinstance(by_dict, Distributions)
    assert by_dict.digest() == Distributions.from_dict(table).digest()
    counted = [("ann", "tea"), ("ann", "tea"), ("ann", "milk"), ("bob", "milk")]
    by_rows = Distributions.from_rows(counted)
    by_frame = Distributions.from_pandas(pd.DataFrame(counted))
    assert by_rows.digest() == by_frame.digest()
    assert by_rows.digest() == as_facts(counted, on_conflict="distribution").digest()
    back = Distributions.from_pandas(by_rows.to_pandas(), keys=["1"], answer="2", weights="weight")
    np.testing.assert_allclose(back.probabilities, by_rows.probabilities)
    np.testing.assert_allclose(back.prior, by_rows.prior)
    alone = as_facts({"a": "x", "b": "y"}, distribution=True)
    assert isinstance(alone, Distributions) and alone.A == 2


def test_blanks_are_trimmed_in_text_tables_counted_and_said(make_file):
    facts = read_facts(make_file("t.csv", "country , capital\nFrance, Paris\n Peru,\tLima \n"))
    assert facts.columns == ("country",)
    assert [facts.answer(i) for i in range(2)] == ["Paris", "Lima"] and facts.trimmed == 5
    assert facts.notes[0].startswith("5 cells were read without the blanks")
    assert facts.digest() == as_facts({"France": "Paris", "Peru": "Lima"}).digest()  # type: ignore[union-attr]
    kept = read_facts(make_file("t.tsv", "k\tv\na\t b\n"), trim=False)
    assert kept.answer(0) == " b" and kept.trimmed == 0 and kept.notes == ()
    with pytest.raises(FactsError, match=r"row 2, column 'v': .*empty cell"):
        read_facts(make_file("t.csv", "k,v\na,  \n"))


def test_blanks_in_python_data_are_kept_and_said():
    facts = Facts.from_rows([("the", " cat"), ("a", "\n")])
    assert facts.answer(0) == " cat" and facts.trimmed == 0
    assert facts.notes == ("2 tokens begin or end with a blank, which is kept "
                           "(`trim=True` removes it).",)  # fmt: skip
    assert Facts.from_rows([("the", " cat")], trim=True).answer(0) == "cat"


@pytest.mark.parametrize(
    ("text", "evidence"),
    [
        ("France,capital,Paris\nFrance,rank,one\n", "'France' stands in the same column of row 2"),
        ("Paris,France\nLyon,France\n", "'France' stands in the same column of row 2"),
        ("Fe,26\nH,1\n", "'26' is a number"),
        ("country,capital\nFrance,Paris\n", None),
        ("k,v\nv,k\n", None),
    ],
)
def test_a_first_row_that_looks_like_a_fact_is_said(make_file, text: str, evidence: str | None):
    path = make_file("t.csv", text)
    notes = read_facts(path).notes
    assert (len(notes) == 1 and evidence in notes[0]) if evidence else notes == ()
    assert read_facts(path, header=True).notes == ()
    facts = read_facts(path, header=False)
    assert facts.notes == () and facts.T == len(text.splitlines())
    assert facts.columns == tuple("12"[: facts.S]) and facts.rows.tolist()[0] == 1


def test_named_columns_and_melted_years_are_a_header(make_file):
    path = make_file("t.csv", "country,1990,2000\nFrance,58,60\n")
    assert read_facts(path, melt=True).notes == ()
    assert read_facts(path, keys=["country"], answer="2000").notes == ()


def test_a_wrong_path_names_files_beside_it_without_torch(make_file):
    path = make_file("capitals.csv", "k,v\na,b\n")
    code = (
        "import sys, byheart as bh\n"
        f"try: bh.as_facts({str(path.with_name('capitls.csv'))!r})\n"
        "except bh.ByheartError as error: print(error)\n"
        "assert 'torch' not in sys.modules and 'pandas' not in sys.modules"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Did you mean 'capitals.csv'?" in said.stdout
    with pytest.raises(FactsError, match="Did you mean 'countries'"):
        as_facts("contries")


def test_pandas_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ByheartError, match=r"pip install .*\[pandas\]"):
        Facts.from_rows(TABLE).to_pandas()


LONG = "x" * 10_000
SHOWN: list[Any] = [
    Facts.from_rows([("<b>", f"v{i}", LONG if i else "&") for i in range(50)], name=LONG),
    Distributions.from_dict({"<b>": {LONG: 0.5, "y": 0.5}, "c": {"y": 1.0}}, name=LONG),
    VectorFacts.make(np.eye(20)[:2], np.eye(20), np.arange(20.0), name=LONG),
    Facts.from_rows([(f"{i}" * 999, "v") for i in range(50)]).vocabulary,
]


@pytest.mark.parametrize("table", SHOWN, ids=lambda table: type(table).__name__)
def test_reprs_are_short_and_html_is_escaped(table: Any):
    assert len(repr(table).splitlines()) < 10 and len(repr(table)) < 1000
    if hasattr(table, "_repr_html_"):
        html = table._repr_html_()
        assert "<b>" not in html and len(html) < 5000 and html.count("<tr>") <= 6
