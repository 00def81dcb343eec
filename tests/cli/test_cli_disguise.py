"""`byheart disguise` and the options that decide which heads hold what, from the command line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

RunJson = Callable[..., dict[str, Any]]
TABLE = "key,relation,value\n" + "".join(
    f"k{i},r{j},v{(3 * i + 5 * j) % 11}\n" for i in range(8) for j in range(3)
)


def test_a_memory_in_disguise_from_the_command_line(run_json: RunJson, tmp_path: Path):
    (tmp_path / "facts.csv").write_text(TABLE)
    plain, hidden = tmp_path / "plain", tmp_path / "hidden"
    made = run_json(
        "build", tmp_path / "facts.csv", "-o", plain, "--method", "sharded",
        "--facts-per-head", "1", "--certify",
    )  # fmt: skip
    assert made["spec"]["H"] == 24 and made["certificate"]["certified"]
    done = run_json(
        "disguise", plain, "-o", hidden, "--rotate", "--permute", "--layers", "2", "--layer", "1",
        "--distractors", "4", "--noise", "0.05", "--certify",
    )  # fmt: skip
    assert done["certificate"]["certified"] and done["layer"] == 1
    owner = run_json("owner", hidden, "k3", "r1")
    assert owner["layer"] == 1 and len(owner["heads"]) == 1 == owner["facts"]
    assert run_json("recall", hidden, "--all")["recalled"] == 24
    assert run_json("certify", hidden)["certified"]
    assert run_json("report", hidden, "-o", tmp_path / "page.html")["pages"]
