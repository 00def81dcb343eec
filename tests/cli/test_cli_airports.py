"""Real facts: the airports of the world, by code and relation."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import airportsdata
import pytest

import byheart as bh
from byheart.measure import lost_with_each

RunJson = Callable[..., dict[str, Any]]

RELATIONS = {"city": "city", "country": "country", "time zone": "tz"}


def write_airports(path: Path, rows: int) -> list[tuple[str, str, str]]:
    """The first `rows` facts (code, relation) -> value by code; unknown values are left out."""
    airports = airportsdata.load("IATA")
    facts = [
        (code, relation, str(airports[code][field]))
        for code in sorted(airports)
        for relation, field in RELATIONS.items()
        if airports[code][field]
    ][:rows]
    assert len(facts) == rows
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([("code", "relation", "value"), *facts])
    return facts


@pytest.mark.parametrize("rows", [600, pytest.param(5000, marks=pytest.mark.slow)])
def test_airports(run_json: RunJson, tmp_path: Path, rows: int):
    facts = write_airports(tmp_path / "airports.csv", rows)
    folder = tmp_path / "airports.memory"
    made = run_json("build", tmp_path / "airports.csv", "-o", folder, "--certify")
    assert made["dtype"] == "float32"
    assert made["recalled"] == made["facts"] == rows
    assert made["certificate"]["certified"] is True
    assert run_json("recall", folder, "--all")["recalled"] == rows
    proof = run_json("certify", folder, "--facts", tmp_path / "airports.csv")
    assert (proof["certified"], proof["facts"], proof["failed"]) == (True, rows, 0)
    for code, relation, value in (facts[0], facts[rows // 2], facts[-1]):
        assert run_json("recall", folder, code, relation)["answer"] == value


@pytest.mark.slow
def test_3000_airports_one_fact_one_head(run_json: RunJson, tmp_path: Path):
    """Certified; in plain torch zeroing any head loses its own fact and no other, all of them."""
    write_airports(tmp_path / "airports.csv", 3000)
    made = run_json(
        "build", tmp_path / "airports.csv", "-o", tmp_path / "m", "--method", "sharded",
        "--facts-per-head", "1", "--certify",
    )  # fmt: skip
    memory = bh.load(tmp_path / "m")
    owners = memory.owners()
    assert made["certificate"]["certified"] and owners is not None and owners.survive == ()
    assert made["spec"]["H"] == 3000 == len({owners.heads_of(i) for i in range(3000)})
    lost = lost_with_each(memory)
    assert all(lost[head] == owners.facts_of(head) for head in range(3000))
    assert all(len(facts) == 1 for facts in lost)
