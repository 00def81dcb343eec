"""Two writers at once lose nothing, and readers see whole memories."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("together.py")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("rounds", [3, pytest.param(200, marks=pytest.mark.slow)])
def test_writers_and_readers_of_one_memory(tmp_path: Path, rounds: int):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path), str(rounds)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    print(found)
    assert found["wrong"] == [], [path.read_text() for path in tmp_path.glob("said-*")]
    assert found["reads"] >= 2 * rounds
