"""Where facts come from: files, built-in tables, recipes; and what is refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from byheart.errors import FactsError
from byheart.facts import builtin_tables, read_facts


def test_missing_file_says_what_is_accepted(tmp_path: Path):
    with pytest.raises(FactsError, match=r"\.csv, .*countries, elements.*found no file .*gone"):
        read_facts(tmp_path / "gone.csv")
    with pytest.raises(FactsError, match="Did you mean 'countries'"):
        read_facts("countrys")


def test_unknown_suffix(make_file):
    with pytest.raises(FactsError, match=r"\.parquet, .*found the suffix '\.xlsx'"):
        read_facts(make_file("t.xlsx", ""))
    with pytest.raises(FactsError, match="found no suffix"):
        read_facts(make_file("table", ""))


def test_directory(tmp_path: Path):
    with pytest.raises(FactsError, match="found a directory"):
        read_facts(tmp_path)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_unreadable_file(make_file, monkeypatch: pytest.MonkeyPatch, suffix: str):
    """Permissions do not stop root, who may run the tests, so the refusal is played."""

    def refuse(*args: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = make_file(f"t{suffix}", "k,v\na,b\n")
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(FactsError, match=r"t\..*cannot be read: Permission denied"):
        read_facts(path)


def test_name_that_is_too_long():
    with pytest.raises(FactsError, match="cannot be looked up"):
        read_facts("x" * 5000)


def test_recipe():
    facts = read_facts("random:N=50,S=2,T=1000,seed=3")
    assert (facts.N, facts.S, facts.T) == (50, 2, 1000)
    assert facts.name == "random:N=50,S=2,T=1000,seed=3"
    assert read_facts("random:T=1000, S=2, N=50, seed=3").digest() == facts.digest()
    assert read_facts("random:N=5,S=1,T=2", name="few").name == "few"


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("random:", "found ''"),
        ("random:N=50,S=2", "found no T"),
        ("random:N=50", "found no S and no T"),
        ("random:N=50,S=2,T=1000,M=3", "found 'M=3'"),
        ("random:N=50,S=2,T=many", "found 'T=many'"),
        ("random:N=50,N=51,S=2,T=1", "found 'N=51'"),
        ("random:N=2,S=2,T=5", "2\\*\\*2 = 4 distinct keys, found T = 5"),
        ("random:N=2,S=0,T=1", "`S` to be an integer >= 1, found 0"),
    ],
)
def test_wrong_recipe(recipe: str, message: str):
    with pytest.raises(FactsError, match=message):
        read_facts(recipe)


def test_recipe_has_no_columns():
    with pytest.raises(FactsError, match="expected no `keys` or `weights` for a recipe"):
        read_facts("random:N=2,S=2,T=2", keys=["a"], weights="b")


def test_countries():
    facts = read_facts("countries")
    assert (facts.T, facts.S, facts.merged) == (195 * 3, 2, 0)
    assert facts.columns == ("country", "relation") and facts.name == "countries"
    table = {facts.key(i): facts.answer(i) for i in range(facts.T)}
    assert table["France", "capital"] == "Paris"
    assert facts.last_tokens == 3


def test_countries_as_a_plain_table():
    facts = read_facts("countries", keys=["country"], answer="capital")
    assert (facts.T, facts.S) == (195, 1)


def test_elements():
    facts = read_facts("elements")
    assert (facts.T, facts.S) == (118 * 2, 2)
    table = {facts.key(i): facts.answer(i).lower() for i in range(facts.T)}
    assert table["Fe", "atomic number"] == "26" and table["Fe", "name"] == "iron"


def test_every_built_in_table_is_described():
    tables = builtin_tables()
    assert set(tables) == {"countries", "elements"}
    assert all(text and "\n" not in text for text in tables.values())


def test_a_file_goes_before_a_built_in_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "countries").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FactsError, match="found a directory"):
        read_facts("countries")


def test_facts_do_not_import_torch():
    code = "import sys, byheart.facts; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})
