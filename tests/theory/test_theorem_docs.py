"""docs/theorems.md is what the registry says, and every bound has a test that asks for it."""

import importlib.util
import subprocess
import sys
from pathlib import Path

from byheart.theory import BOUNDS

TOOL = Path(__file__).parents[2] / "tools" / "write_theorem_docs.py"


def tool():
    spec = importlib.util.spec_from_file_location("write_theorem_docs", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date():
    done = subprocess.run([sys.executable, TOOL, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_bound_is_asked_by_a_test_of_its_own():
    tested = tool().tested_by()
    assert [bound.id for bound in BOUNDS if not tested[bound.id]] == []
