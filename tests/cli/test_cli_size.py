"""`byheart size`: families, sweeps, crossings, and what it refuses."""

import csv
import math
import re

import pytest

import byheart as bh
from byheart.construct.choice import Counts, preview
from byheart.errors import CheckFailed
from byheart.specs import ShardedSpec

FAMILIES = ("associative", "attention-2", "attention-64", "multi-head", "sqrt", "sqrt-sparse",
            "information")  # fmt: skip


def rows(record):
    return {row["family"]: row for row in record["rows"]}


def test_a_hundred_thousand_facts_by_hand(run_json):
    """T = 10^5, N = 5,000, S = 2."""
    found = rows(run_json("size", "--facts", 100000, "--vocab", 5000, "--length", 2))
    assert set(FAMILIES) <= set(found)
    assert found["attention-2"]["parameters"] == 2 * (2 + 10_000 + 8 * 49_999)
    assert found["attention-64"]["parameters"] == 64 * (2 + 10_000 + 256 * 1562)
    assert found["associative"]["parameters"] == 1487 * (2 * 5000 + 1487 + 5000)
    assert found["information"]["parameters"] == 38_400  # 10^5 · 12.2877 / 32
    assert found["attention-2"]["sizes"] == {"d": 2, "d_h": 2, "H": 49_999}


def test_the_table_says_how_exact_it_is(run, plain):
    said = run("size", "--facts", "1e5", "--vocab", 5000, "--length", 2)
    assert said.exit_code == 0
    text = plain(said.stdout)
    assert "100,000 facts: keys of 2 tokens out of 5,000, 5,000 answers" in text
    assert "attention-only, d = 2 819,988" in text
    assert "are exact counts" in text
    practical, theoretical = text.split("Theoretical: ")
    for title in ("trained, 2 bits a parameter 614,386", "sharded attention", "rank-1"):
        assert title in practical
    for title in ("sqrt(T) sparse", "information limit", "attention-only, d = 2 819,988"):
        assert title in theoretical
    assert "empirical.knowledge_capacity: Allen-Zhu and Li 2025" in practical


def test_numbers_as_people_write_them(run_json):
    flags = ("--vocab", "5k", "--length", 2, "--answers", "1e3")
    records = [run_json("size", "--facts", facts, *flags) for facts in ("100k", "0.1M", "100_000")]
    assert records[0] == records[1] == records[2]
    assert (records[0]["facts"], records[0]["vocabulary"]) == (100_000, 5000)
    found = rows(records[0])["trained"]
    assert found["parameters"] == math.ceil(1e5 * math.log2(1000) / 2)
    assert found["practical"] is True and "extrapolation" in found["note"]


def test_what_build_would_take_is_what_build_takes(run_json, tmp_path):
    """The spec, the number format and the margin (near 0.4) that `size` names, beside a build."""
    planned = run_json("size", "--facts", "elements")["build"]
    memory = bh.build("elements")
    assert planned["spec"] == {"family": "attention-only", **memory.spec.to_json()}
    assert planned["parameters"] == memory.spec.parameters
    assert planned["dtype"] == memory.construction.dtype == "float32"
    assert planned["margin_exact"] is False
    assert memory.construction.margin == pytest.approx(planned["margin"], abs=0.2)


def test_where_theorem_and_build_differ_is_said(run, plain):
    """countries: 3 last tokens; Corollary 1 has 292 heads at d = 2, build 56 at d = 11."""
    text = plain(run("size", "--facts", "countries", "--family", "attention-2").stdout)
    assert "Sizes read from the table, which has 3 different last tokens." in text
    assert "d=11, d_h=11, H=56" in text and "margin near 0.4, float32" in text
    assert "Corollary 1's 292 heads want float64 weights" in text
    assert "the skip gives 3 facts, not d = 11" in text
    text = plain(run("size", "--facts", 585, "--vocab", 535, "--length", 2).stdout)
    assert "Sizes as given: generic keys and last tokens are assumed." in text


@pytest.mark.slow
def test_the_plane_wants_float64(run_json):
    """countries at d = 2: float64 holds all with 5 % slack, float32 not with ten times as many."""
    memory = bh.build("countries", bh.AttentionOnly(d=2, dtype="float64"))
    assert (memory.spec.to_json()["H"], memory.construction.recalled) == (308, 585)
    with pytest.raises(CheckFailed, match="float32"):
        bh.build("countries", bh.AttentionOnly(d=2))


def test_many_facts_would_be_sharded(run_json):
    """Numbers: shards packed full. A table: its own shards; both near what is built."""
    facts = bh.random_associations(N=100, S=2, T=2500)
    spec = bh.build(facts, "sharded").spec
    by_table = preview(facts)
    by_number = preview(Counts(2500, 100, 2, range(len(facts.answer_ids))))
    for found in (by_table, by_number):
        assert found.method == "sharded"
        assert found.spec.parameters == pytest.approx(spec.parameters, rel=0.05)
        assert isinstance(found.spec, ShardedSpec) and found.spec.d_g == spec.d_g
    numbers = run_json("size", "--facts", "1e5", "--vocab", 5000, "--length", 2)["build"]
    assert (numbers["method"], numbers["margin_exact"]) == ("sharded", True)  # 8/d, Hamming code


def test_what_build_would_refuse_is_said(run, tmp_path):
    """Keys of 14 binary digits: every token has 8,192 facts, more than one shard holds."""
    path = tmp_path / "hot.csv"
    lines = [",".join(f"{i:014b}") + f",{i % 3}" for i in range(2**14)]
    path.write_text(",".join("abcdefghijklmno") + "\n" + "\n".join(lines) + "\n")
    said = run("size", "--facts", path, "--family", "attention-2")
    assert said.exit_code == 0
    assert "`byheart build` would refuse them: " in said.stdout


def test_a_table_of_facts_and_one_family(run_json):
    record = run_json("size", "--facts", "countries", "--family", "attention-2")
    assert list(rows(record)) == ["attention-2"]
    assert record["facts"] == 585
    two = ("--family", "sqrt", "--family", "information")
    assert set(rows(run_json("size", "--facts", "countries", *two))) == {"sqrt", "information"}


def test_the_sweep_of_the_readme(run, run_json, tmp_path):
    """10^2 to 10^9 facts, 50,000 tokens: table, crossings by name, CSV and a plot."""
    flags = ("--vocab", 50000, "--length", 2, "--sweep", "1e2:1e9")
    table, plot = tmp_path / "size.csv", tmp_path / "size.png"
    said = run("size", *flags, "-o", table, "--plot", plot)
    assert said.exit_code == 0, said.output
    assert re.search(r"sqrt\(T\) as published is smaller than attention-only, d = 2", said.stdout)
    assert plot.read_bytes().startswith(b"\x89PNG")
    with open(table, newline="") as file:
        lines = [row for row in csv.DictReader(file) if row["family"] == "associative"]
    assert (int(lines[0]["T"]), int(lines[-1]["T"])) == (100, 10**9)
    assert len(lines) == 29  # 7 decades, four points each, and the last
    record = run_json("size", *flags)
    crossings = {(c["winner"], c["loser"]): c["T"] for c in record["crossings"]}
    assert crossings["sqrt", "attention-2"] == 13_406_565
    assert crossings["sqrt", "multi-head"] == 6_896_763


def test_no_crossing_is_said(run):
    flags = ("--vocab", 9000, "--length", 2, "--family", "attention-2", "--family", "associative")
    assert "No two families cross" in run("size", *flags, "--sweep", "1e3:1e4").stdout


SIZES = ("--vocab", 5000, "--length", 2)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "give --facts FILE or N, or --sweep"),
        (("--facts", 9, "--sweep", "1:9"), "not both"),
        (("--facts", 0, *SIZES), "--facts must be a whole number of at least 1, found '0'"),
        (("--facts", "-7", *SIZES), "found '-7'"),
        (("--facts", "2.5", *SIZES), "found '2.5'"),
        (("--facts", "1e400", *SIZES), "--facts must be a whole number"),
        (("--facts", 9), "--vocab, --length missing"),
        (("--facts", 9, "--vocab", 1, "--length", 2), "--vocab must be .* at least 2, found 1"),
        (("--facts", 9, "--vocab", 9, "--length", 0), "--length must be"),
        (("--facts", 9, *SIZES, "--bits", 0), "--bits must be"),
        (("--facts", 9, *SIZES, "--answers", 6000), "6,000 answers are more than the vocabulary"),
        (("--facts", "1e9", *SIZES), "more than the 5,000.2 = 25,000,000 different keys"),
        (("--facts", 9, *SIZES, "--family", "magic"), "--family must be one of .* 'magic'"),
        (("--facts", 9, *SIZES, "--family", "shraded"), "Did you mean 'sharded'"),
        (("--facts", "countries", "--vocab", 9), "--vocab is read from countries: leave it out"),
        (("--facts", "nowhere.csv"), "nowhere.csv"),
        (("--facts", 9, *SIZES, "--plot", "x.png"), "are for --sweep"),
        (("--sweep", "100", *SIZES), "expected --sweep FIRST:LAST"),
        (("--sweep", "9:1", *SIZES), "the last number is below the first"),
        (("--sweep", "0:9", *SIZES), "--sweep must be a whole number"),
        (("--sweep", "1:9", *SIZES, "--plot", "x.bmp"), "must end in .png"),
        (("--sweep", "1:9", *SIZES, "-o", "no/x.csv"), "there is no folder no"),
    ],
)
def test_wrong_use(refused, tmp_path, monkeypatch, args, message):
    monkeypatch.chdir(tmp_path)
    assert re.search(message, refused("size", *args))


def test_huge_sizes(run_json):
    flags = ("--facts", "1e12", "--vocab", 10**12, "--length", 10**12)
    assert all(row["parameters"] > 0 for row in run_json("size", *flags)["rows"])


def test_a_single_fact(run_json):
    assert rows(run_json("size", "--facts", 1, "--vocab", 2, "--length", 1))["sqrt"]["parameters"]
