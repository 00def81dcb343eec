"""The numbers in docs/bounds.md are those that byheart gives."""

import re
from pathlib import Path

import pytest

import byheart as bh
from byheart.theory.candidates import crossings, facts_case
from byheart.theory.huggingface import read_config

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "bounds.md").read_text(encoding="utf-8")
CONFIGS = Path(__file__).parent / "configs"


def table(first: str) -> list[list[str]]:
    """The rows of the table whose header starts with `first`."""
    lines = GUIDE.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {first} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            return rows
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


FAMILIES = ("associative", "attention-2", "attention-64", "rank1-64", "sharded", "multi-head",
            "multi-head-64", "sqrt", "sqrt-sparse", "information")  # fmt: skip


@pytest.mark.parametrize("power", range(2, 10))
def test_the_size_table(power):
    sizes = {row.family: row.parameters for row in bh.size(T=10**power, N=50_000, S=2)}
    for family, row in zip(FAMILIES, table("facts"), strict=True):
        assert float(row[power - 1]) == float(f"{sizes[family]:.2g}"), (family, power)


def test_the_crossings():
    found = crossings(facts_case(None, 10**9, 50_000, 2), 100, 10**9)
    at = {(c.winner, c.loser): c.T for c in found}
    for pair, words in (
        (("attention-2", "multi-head"), "attention-only d = 2 against multi-head: {:,} facts"),
        (("sqrt", "multi-head"), "sqrt(T) as published against multi-head: {:,};"),
        (("sqrt", "attention-2"), "against attention-only d = 2: {:,};"),
        (("sqrt-sparse", "information"), "information limit at {:,} facts"),
        (("sharded", "sqrt"), "above it from {:,} to"),
    ):
        assert words.format(at[pair]) in GUIDE
    assert f"to {at['sqrt', 'sharded'] - 1:,} facts" in GUIDE
    bits = bh.size(T=at["sqrt-sparse", "information"], N=50_000, S=2, families=["sqrt-sparse"])
    assert f"weights have up to {bits[0].bits} bits" in GUIDE


@pytest.mark.parametrize(
    ("name", "line"),
    [("gpt2", 0), ("gpt2-large", 1), ("bert-large", 2), ("vit-b-16", 3), ("smollm2-135m", 4)],
)
def test_the_table_of_real_models(name, line):
    spec = read_config(CONFIGS / f"{name}.json")
    rows = {answer.id: answer for answer in bh.bounds(spec)}
    cells = table("model")[line]
    assert cells[1] == f"{spec.parameters:,}"
    columns = ("dana2025.corollary1", "mahdavi2024.theorem1", "mahdavi2024.generic_rank")
    for cell, bound in zip(cells[2:5], columns, strict=True):
        capacity = rows[bound].capacity
        assert cell == f"{capacity:,}" if capacity is not None else cell.startswith("no: ")
    known = rows["empirical.knowledge_capacity"].capacity
    assert re.match(f"{known / 1e6:.1f} million" if known else "no: ", cells[5])
