"""Whatever writes is killed before each of its changes of the disk, one after the other: the old
or the new, nothing else, and the next command that writes there removes what was left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
SCRIPT = Path(__file__).with_name("forks.py")
SHARDED = ["build", "t.csv", "-o", "m.memory", "--method", "sharded", "--certify"]
PLAIN = ["build", "elements", "-o", "m.memory"]
EXPORT = ["export", "m.memory", "--to", "torch", "-o", "e"]
TRAIN = ["train", "t.csv", "-o", "m.memory", "--steps", "60", "--checkpoint", "run", "--force"]
SIZE = ["size", "--vocab", "200", "--length", "2", "--sweep", "1e2:1e4"]
# Name -> (commands before, the command, what it writes).
CASES = {
    "edit": ([SHARDED], ["edit", "m.memory", "--set", "c1,capital=Lyon"], ["m.memory"]),
    "certify": ([PLAIN], ["certify", "m.memory"], ["m.memory"]),
    "facts": ([], ["facts", "elements", "-o", "f.csv", "--force"], ["f.csv"]),
    "build": ([], SHARDED, ["m.memory"]),
    "build --force": ([PLAIN], [*SHARDED, "--force"], ["m.memory"]),
    "train": ([PLAIN], TRAIN, ["m.memory"]),
    "import": ([PLAIN, EXPORT, [*SHARDED, "--force"]],
               ["import", "e", "-o", "m.memory", "--force"], ["m.memory"]),
    "export": ([PLAIN, EXPORT, [*SHARDED, "--force"]], [*EXPORT, "--force"], ["e"]),
    "report": ([PLAIN], ["report", "m.memory", "-o", "r.html"], ["r.html"]),
    "report --figure": ([SHARDED], ["report", "m.memory", "--figure", "head-map", "-o", "h.svg"],
                        ["h.svg"]),
    "explore": ([], ["explore", "-o", "x.html"], ["x.html"]),
    "size": ([], [*SIZE, "-o", "s.csv", "--plot", "s.svg"], ["s.csv", "s.svg"]),
    "reproduce": ([], ["reproduce", "mine.py", "-o", "out"],
                  ["out/mine-line-quick.png", "out/mine-line-quick.json"]),
}  # fmt: skip


def kill_all(place: Path, names: list[str], **more: object) -> None:
    """Every case in one process; the old or the new, and nothing left."""
    fields = ("before", "command", "targets")
    tasks = [dict(zip(fields, CASES[name], strict=True)) | more for name in names]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(place), json.dumps(tasks)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    for name, found in zip(names, json.loads(done.stdout.splitlines()[-1]), strict=True):
        print(name, found)
        assert found["wrong"] == [] and found["left"] == [] and found["last"] == 0, name
        assert found["old"] >= 1 and found["new"] >= 1, name  # it was killed before and after


@pytest.mark.slow
def test_killed_before_some_changes_of_the_disk(tmp_path: Path):
    kill_all(tmp_path, ["edit", "certify", "facts"], stride=4)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_killed_before_every_change_of_the_disk(tmp_path: Path, name: str):
    kill_all(tmp_path, [name], codes=[0, 2] if name == "build" else [0])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["edit", "build --force", "export"])
def test_killed_between_two_renames(tmp_path: Path, name: str):
    """Where the system cannot swap folders, the old one is out of the way for a moment."""
    kill_all(tmp_path, [name], two_renames=True)
