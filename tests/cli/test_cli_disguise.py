"""`byheart disguise` and the options that decide which heads hold what, from the command line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.test_cli_airports import write_airports

import byheart as bh
from byheart.measure import lost_with_each

RunJson = Callable[..., dict[str, Any]]


def test_a_memory_in_disguise_from_the_command_line(run_json: RunJson, tmp_path: Path):
    write_airports(tmp_path / "airports.csv", 24)
    plain, hidden = tmp_path / "plain", tmp_path / "hidden"
    made = run_json(
        "build", tmp_path / "airports.csv", "-o", plain, "--method", "sharded",
        "--facts-per-head", "1", "--certify",
    )  # fmt: skip
    assert made["spec"]["H"] == 24 and made["certificate"]["certified"]
    done = run_json(
        "disguise", plain, "-o", hidden, "--rotate", "--permute", "--layers", "2", "--layer", "1",
        "--distractors", "4", "--noise", "0.05", "--certify",
    )  # fmt: skip
    assert done["certificate"]["certified"] and done["layer"] == 1
    owner = run_json("owner", hidden, "AAA", "city")
    assert owner["layer"] == 1 and len(owner["heads"]) == 1 == owner["facts"]
    assert run_json("recall", hidden, "--all")["recalled"] == 24
    assert run_json("certify", hidden)["certified"]
    assert run_json("report", hidden, "-o", tmp_path / "page.html")["pages"]


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
