"""CSV, TSV and Parquet."""

import csv
import importlib.util
import random
import sys
import time
import types
from pathlib import Path

import pytest

from byheart.errors import ByheartError, ConflictError, FactsError
from byheart.facts import read_facts

CAPITALS = "country,capital\nFrance,Paris\nItaly,Rome\n"
WIDE = "country,capital,people,continent\nFrance,Paris,68,Europe\nItaly,Rome,59,Europe\n"


def test_last_column_is_the_answer(make_file):
    facts = read_facts(make_file("t.csv", WIDE))
    assert facts.columns == ("country", "capital", "people")
    assert facts.answer_column == "continent"
    assert facts.key(1) == ("Italy", "Rome", "59") and facts.answer(1) == "Europe"
    assert facts.rows.tolist() == [2, 3]
    assert facts.name == "t"


def test_columns_can_be_chosen(make_file):
    path = make_file("t.csv", WIDE)
    facts = read_facts(path, keys=["continent", "country"], answer="capital", name="capitals")
    assert facts.columns == ("continent", "country") and facts.name == "capitals"
    assert facts.key(0) == ("Europe", "France") and facts.answer(0) == "Paris"
    assert read_facts(path, answer="capital").columns == ("country", "people", "continent")
    assert read_facts(path, keys="country").columns == ("country",)


def test_weights_column(make_file):
    facts = read_facts(make_file("t.csv", "a,b,w\nx,y,1\nz,y,3\n"), weights="w")
    assert facts.columns == ("a",) and facts.answer_column == "b"
    assert facts.prior.tolist() == [0.25, 0.75]
    assert "3" not in facts.vocabulary


def test_cells_are_kept_exactly_if_asked(make_file):
    text = 'k,v\n" a",b \n"x, ""y""\nz",\N{GRINNING FACE}\nsay "hi",\u05e9\u05dc\u05d5\u05dd\n'
    facts = read_facts(make_file("t.csv", text), trim=False)
    assert [facts.key(i)[0] for i in range(3)] == [" a", 'x, "y"\nz', 'say "hi"']
    assert [facts.answer(i) for i in range(3)] == [
        "b ",
        "\N{GRINNING FACE}",
        "\u05e9\u05dc\u05d5\u05dd",
    ]
    # The second record takes two lines; rows are the lines on which records start.
    assert facts.rows.tolist() == [2, 3, 5]


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_line_ends_and_blank_lines(make_file, line_end: str):
    text = "\nk,v\n\na,b\n\n\nc,d".replace("\n", line_end)
    facts = read_facts(make_file("t.csv", text))
    assert facts.T == 2 and facts.rows.tolist() == [4, 7]


def test_byte_order_mark_is_dropped(make_file):
    assert read_facts(make_file("t.csv", "\ufeff" + CAPITALS)).columns == ("country",)


def test_tab_separated(make_file):
    facts = read_facts(make_file("T.TSV", "k\tv\na,b\tc\n"))
    assert facts.key(0) == ("a,b",) and facts.answer(0) == "c"


def test_melt(make_file):
    facts = read_facts(make_file("t.csv", WIDE), melt=True, weights="people")
    assert facts.columns == ("country", "relation") and facts.answer_column == "value"
    assert [(facts.key(i), facts.answer(i)) for i in range(4)] == [
        (("France", "capital"), "Paris"),
        (("France", "continent"), "Europe"),
        (("Italy", "capital"), "Rome"),
        (("Italy", "continent"), "Europe"),
    ]
    assert facts.rows.tolist() == [2, 2, 3, 3]
    assert facts.prior == pytest.approx([68 / 254, 68 / 254, 59 / 254, 59 / 254])


def test_melt_with_keys(make_file):
    facts = read_facts(make_file("t.csv", WIDE), melt=True, keys=["continent", "country"])
    assert facts.columns == ("continent", "country", "relation")
    assert facts.key(1) == ("Europe", "France", "people") and facts.answer(1) == "68"


def test_duplicate_rows_are_merged(make_file):
    facts = read_facts(make_file("t.csv", "k,v\na,b\nc,d\na,b\n"))
    assert facts.T == 2 and facts.merged == 1 and facts.rows.tolist() == [2, 3]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "found an empty file"),
        ("\ufeff\n\n", {}, "found an empty file"),
        ("k,v\n", {}, "expected facts below the header, found none"),
        ("k\na\n", {}, "row 1: expected at least two columns.* found 1: 'k'"),
        ("k;v\na;b\n", {}, "separated by semicolons"),
        ("k,v\na,b\nc\n", {}, "row 3: expected 2 cells as in the header, found 1"),
        ("k,v\na,b\nc,d,e\n", {}, "row 3: expected 2 cells as in the header, found 3"),
        ("k,v,k\na,b,c\n", {}, "row 1: .*found 'k' as columns 1 and 3"),
        ("k,v\na,b\n,c\n", {}, "row 3, column 'k': .*empty cell.*`empty=skip`"),
        ("k,v\na,b\nc,\n", {}, "row 3, column 'v': .*empty cell"),
        ("k,v\na,\n", {"empty": "skip"}, "found none and 1 left out"),
        (
            "k,v\na,b\n",
            {"empty": "drop"},
            "`empty` must be one of error, skip, token, found 'drop'",
        ),
        (
            CAPITALS,
            {"answer": "captial"},
            "'country', 'capital' for `answer`.*'captial'.*mean 'capital'",
        ),
        (CAPITALS, {"keys": ["land"]}, "unknown column 'land'"),
        (CAPITALS, {"weights": "people"}, "unknown column 'people'"),
        (CAPITALS, {"keys": ["capital"]}, "answer column not to be a key, found 'capital'"),
        (CAPITALS, {"keys": ["country"], "answer": "country"}, "found 'country' as both"),
        (CAPITALS, {"keys": []}, "at least one key column"),
        (CAPITALS, {"keys": ["country", "country"]}, "distinct keys, found 'country' twice"),
        (CAPITALS, {"weights": "country"}, "found 0 and 1"),
        (WIDE, {"weights": "people", "keys": ["people"]}, "column of their own, found 'people'"),
        (CAPITALS, {"melt": True, "answer": "capital"}, "either `melt` or an `answer` column"),
        (CAPITALS, {"melt": True, "keys": ["country", "capital"]}, "found 2 and 0"),
        ("k,\na,b\n", {"melt": True}, "row 1, column 2: expected a column name"),
        ("k,v,w\na,b,x\n", {"weights": "w"}, "row 2, column 'w': expected a number .* found 'x'"),
        ("k,v,w\na,b,\n", {"weights": "w"}, "row 2, column 'w': expected a number"),
        ("k,v,w\na,b,1\nc,d,nan\n", {"weights": "w"}, "row 3: .*found nan"),
        ("k,v,w\na,b,inf\n", {"weights": "w"}, "row 2: .*found inf"),
        ("k,v,w\na,b,-1\n", {"weights": "w"}, "row 2: .*found -1"),
        ("k,v,w\na,b,0\nc,d,0\n", {"weights": "w"}, "found 2 zeros"),
        ('k,v\na,"b\nc,d\n', {}, "row 2, column 2: expected a closing quote"),
        ('k,v\n"a"b,c\n', {}, "row 2: .*text after a closing quote"),
    ],
)
def test_what_is_wrong_is_said(make_file, text: str, options: dict, message: str):
    path = make_file("t.csv", text)
    with pytest.raises(ByheartError, match=message):
        read_facts(path, **options)


def test_empty_cells_skipped(make_file):
    facts = read_facts(make_file("t.csv", "k,v\na,b\n,c\nd,\ne,f\n"), empty="skip")
    assert facts.T == 2 and facts.skipped == 2
    # Tokens of skipped rows do not enter the vocabulary.
    assert facts.vocabulary.tokens == ("a", "b", "e", "f")


def test_empty_cells_skipped_with_melt(make_file):
    path = make_file("t.csv", "k,x,y\na,1,\n,2,3\n")
    facts = read_facts(path, melt=True, empty="skip")
    assert facts.T == 1 and facts.skipped == 3
    with pytest.raises(FactsError, match="row 2, column 'y'"):
        read_facts(path, melt=True)


def test_empty_cells_as_tokens(make_file):
    facts = read_facts(make_file("t.csv", "k,v\na,b\n,\n"), empty="token")
    assert facts.key(1) == ("",) and facts.answer(1) == "" and facts.skipped == 0


def test_empty_cells_in_columns_not_read_do_not_matter(make_file):
    assert read_facts(make_file("t.csv", "k,note,v\na,,b\n"), keys=["k"]).T == 1


def test_not_utf8_names_the_byte(make_file):
    path = make_file("t.csv", "k,v\nZürich,x\n".encode("latin-1"))
    with pytest.raises(FactsError, match=r"line 2: .*byte 0xfc at byte offset 5\. .*iconv"):
        read_facts(path)


def test_not_utf8_far_into_the_file(make_file):
    """Beyond one chunk of the search, with a good two-byte character across the border."""
    good = "k,v\n" + "".join(f"{i:06},é\n" for i in range(200_000))
    start = good.encode()
    with pytest.raises(FactsError, match=f"line 200002: .*byte offset {len(start):,}"):
        read_facts(make_file("t.csv", start + b"\xff,x\n"))
    with pytest.raises(FactsError, match=f"cut off after byte 0xe2 at byte offset {len(start):,}"):
        read_facts(make_file("u.csv", start + b"\xe2\x82"))


def test_utf16_is_recognised(make_file):
    with pytest.raises(FactsError, match=r"byte offset 0.*iconv -f UTF-16"):
        read_facts(make_file("t.csv", CAPITALS.encode("utf-16")))


@pytest.mark.parametrize("length", [65_537, 131_073, 400_000])
@pytest.mark.parametrize("quoted", [True, False])
def test_long_cell(make_file, length: int, quoted: bool):
    limit = csv.field_size_limit()
    cell = '"' + "x\n" * (length // 2) + 'x"' if quoted else "x" * length
    path = make_file("t.csv", f"k,v\na,b\n\nc,{cell}\n")
    with pytest.raises(FactsError, match=r"row 4, column (2|'v').*65,536 .*unclosed quote") as e:
        read_facts(path)
    assert any(found in str(e.value) for found in ("65,537", "more than 131,072"))
    assert csv.field_size_limit() == limit


def test_longest_cell_is_read(make_file):
    assert len(read_facts(make_file("t.csv", f"k,v\na,{'x' * 65_536}\n")).answer(0)) == 65_536


def test_conflicts_are_listed(make_file):
    path = make_file("t.csv", "k,v\na,b\nc,d\na,e\nc,d\n")
    with pytest.raises(ConflictError, match=r"1 key .*\n  'a': 'b' \(row 2\), 'e' \(row 4\)") as e:
        read_facts(path)
    assert e.value.conflicts == [(("a",), [(2, "b"), (4, "e")])]


def test_many_conflicts_are_cut_in_the_message_only(make_file):
    lines = [f"key{i},{answer}" for answer in "xy" for i in range(25)]
    with pytest.raises(ConflictError, match=r"'key19': .*\n  and 5 more\n") as e:
        read_facts(make_file("t.csv", "k,v\n" + "\n".join(lines)))
    assert "key20" not in str(e.value)
    assert len(e.value.conflicts) == 25
    assert e.value.conflicts[24] == (("key24",), [(26, "x"), (51, "y")])


@pytest.mark.slow
def test_200_000_rows_and_one_conflict_in_seconds(make_file):
    rng = random.Random(0)
    lines = [f"{i},{i % 7},{rng.randrange(1000)}" for i in range(200_000)]
    start = time.perf_counter()
    facts = read_facts(make_file("t.csv", "a,b,c\n" + "\n".join(lines)))
    assert facts.T == 200_000
    with pytest.raises(ConflictError, match=r"'5', '5': .*\(row 7\), 'other' \(row 200002\)"):
        read_facts(make_file("u.csv", "a,b,c\n" + "\n".join([*lines, "5,5,other"])))
    assert time.perf_counter() - start < 10


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is not None, reason="pyarrow is here")
def test_parquet_without_pyarrow(make_file):
    with pytest.raises(FactsError, match=r"pip install .*\[parquet\]"):
        read_facts(make_file("t.parquet", b"PAR1"))


def test_parquet_with_pyarrow(tmp_path: Path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table({"k": ["a", "b"], "n": [1, 2], "v": ["x", None]}), path)
    facts = read_facts(path, empty="token")
    assert facts.key(0) == ("a", "1") and facts.answer(1) == "" and facts.rows.tolist() == [2, 3]
    with pytest.raises(FactsError, match="row 3, column 'v'"):
        read_facts(path)
    path.write_bytes(b"no parquet")
    with pytest.raises(FactsError, match="expected a Parquet file"):
        read_facts(path)


def test_parquet_values_become_text(make_file, monkeypatch: pytest.MonkeyPatch):
    """A stand-in for pyarrow: the part of its interface that is used."""

    class Column(list):
        def to_pylist(self) -> list:
            return list(self)

    class Batch:
        def column(self, i: int) -> Column:
            return [Column(["a", "b"]), Column([1, 2]), Column(["x", ["nested"]])][i]

    class ParquetFile:
        schema_arrow = types.SimpleNamespace(names=["k", "n", "v"])

        def __init__(self, path: Path) -> None: ...
        def __enter__(self) -> "ParquetFile":
            return self

        def __exit__(self, *error: object) -> None: ...
        def iter_batches(self) -> list[Batch]:
            return [Batch()]

    module = types.SimpleNamespace(ParquetFile=ParquetFile)
    monkeypatch.setitem(sys.modules, "pyarrow", types.SimpleNamespace(parquet=module))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", module)
    path = make_file("t.parquet", b"")
    with pytest.raises(FactsError, match=r"row 3, column 'v': .*found \['nested'\] .list"):
        read_facts(path)
    monkeypatch.setattr(Batch, "column", lambda self, i: Column([["a"], [1], ["x"]][i]))
    facts = read_facts(path)
    assert facts.key(0) == ("a", "1") and facts.answer(0) == "x" and facts.rows.tolist() == [2]
